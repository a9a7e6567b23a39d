"""From what Spark reports to the error that the user sees."""

from __future__ import annotations

from weir.errors import JobExecutionError, UsageError, UserFunctionError
from weir.jobmanager.failures import of_workers, to_error

WORKER = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1986, in main
    func, profiler, deserializer, serializer = read_udfs(pickleSer, infile, eval_type)
  File "serializers.py", line 449, in loads
    return cloudpickle.loads(obj, encoding=encoding)
{raised}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:572)
"""


def missing(module):
    return RuntimeError(WORKER.format(raised=f"ModuleNotFoundError: No module named '{module}'"))


def test_what_a_worker_raised_survives():
    error = to_error(RuntimeError(WORKER.format(raised="KeyError: 'no such column'")))
    assert type(error) is JobExecutionError
    assert "stage failure" in str(error)
    assert str(error).endswith("KeyError: 'no such column'")
    assert "scala" not in str(error)


def test_workers_without_weir_are_a_matter_of_settings():
    error = to_error(missing("weir"))
    assert isinstance(error, UsageError)
    assert "PYSPARK_PYTHON" in str(error)
    assert "spark.pyspark.python" in str(error)
    other = to_error(missing("weird"))
    assert isinstance(other, JobExecutionError)
    assert str(other).endswith("No module named 'weird'")


def test_workers_that_lack_what_weir_needs_are_of_another_python():
    error = of_workers(missing("msgspec"))
    assert isinstance(error, UsageError)
    assert "PYSPARK_PYTHON" in str(error)
    assert str(error).endswith("a worker says: No module named 'msgspec'")
    assert isinstance(of_workers(RuntimeError("the cluster is gone")), JobExecutionError)


def test_a_failed_function_is_a_failed_job():
    assert issubclass(UserFunctionError, JobExecutionError)
