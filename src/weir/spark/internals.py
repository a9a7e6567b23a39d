"""Every private entry point of Spark and PySpark that Weir uses, and nothing else.

Spark promises nothing about what is here: a new version may change any of it. Who moves Weir to
one reads this module and runs `tests/spark`. All of it was tried on pyspark 4.3.0. It is for
classic sessions only, since Spark Connect has no JVM within reach.

Two things are private to Spark and are not here. The offset log, the commit log and the logs of
file sources have formats of their own: `weir.spark.positions` and `weir.spark.source_logs` know
them. That a batch is in the offset log before `foreachBatch` sees it is what `weir.spark.attempt`
relies on.
"""

from __future__ import annotations

import builtins
import logging
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, NewType

import pyarrow as pa
import pyspark.daemon
import pyspark.util
from pyspark import SparkConf, SparkContext
from pyspark.daemon import manager
from pyspark.java_gateway import launch_gateway
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

# Settings that Spark does not document: how a query writes its logs, and what Spark forks Python
# workers from. A setting that Spark does not know has no effect: files as before Weir chose, and
# workers that start cold. A class that is not there keeps queries from starting.
CHECKPOINT_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
RENAMING_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
DAEMON_MODULE = "spark.python.daemon.module"
log = logging.getLogger("weir.job")
_EXECUTION_ID = "spark.sql.execution.id"
_INITIALIZING = "Initializing"
# A JVM that does not answer any more may need a moment to end.
_ENDING_S = 2.0
# What a worker meets when the JVM has hung up.
_HANG_UPS = (BrokenPipeError, ConnectionResetError)
# What plans splits, and what it asks and complains through: no place of anybody's own code.
_PLANS = b"pyspark/sql/streaming/python_streaming_source_runner.py"
_FORKS = b"pyspark/daemon.py"
_AROUND_PLANS = (
    _PLANS,
    _FORKS,
    b"pyspark/serializers.py",
    b"pyspark/worker_util.py",
    b"<frozen runpy>",
    b"/socket.py",
    b"/contextlib.py",
)

JavaSchema = NewType("JavaSchema", object)
JavaColumns = NewType("JavaColumns", object)


def has_context() -> bool:
    """Tell whether this process has a SparkContext; starts nothing."""
    return SparkContext._active_spark_context is not None


def launch_quiet_jvm(conf: SparkConf) -> None:
    """Start the JVM of this process, unless it has one; its stderr goes through `quiet_lines`.

    PySpark takes the gateway that it finds. If it started its own one instead, Java's warning about
    incubator modules would be seen, which is about modules that Spark itself asks for.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    read, write = os.pipe()
    relay = threading.Thread(target=_relay, args=(read,), name="weir-jvm-stderr", daemon=True)
    relay.start()
    try:
        gateway = launch_gateway(conf, {"stderr": write})  # type: ignore[no-untyped-call]
    finally:
        os.close(write)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _relay(read: int) -> None:
    with os.fdopen(read, "rb") as lines:
        for line in quiet_lines(lines):
            with suppress(OSError):
                os.write(2, line)


def quiet_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Return what Java and its workers write to stderr, without what nobody can do anything about.

    That is Java's warning about incubator modules, and what the processes that plan splits print
    when the JVM has hung up: Spark starts them by itself or by a daemon of its own; see
    `fork_workers`.
    """
    trace: list[bytes] = []
    hushed = False
    for line in lines:
        if line.startswith(b"Traceback (most") or (trace and line.startswith(b" ")):
            trace.append(line)
            continue
        told, trace = [*trace, line], []
        if hushed and (not line.strip() or line.startswith(b"During handling of the above")):
            continue
        hushed = _is_hang_up(told)
        if not line.startswith(b"WARNING: Using incubator modules:") and not hushed:
            yield from told
    yield from trace


def _is_hang_up(trace: list[bytes]) -> bool:
    """Tell whether lines are the trace of a process of Spark to which nobody listens any more.

    What plans splits for a query is told what to do by the JVM: when the query stops, it may find
    nobody to ask, and then nobody to complain to.
    """
    names = tuple(kind.__name__.encode() for kind in _HANG_UPS)
    places = [line for line in trace[1:-1] if line.startswith(b"  File ")]
    # Traces of two processes that end together may lie within each other.
    plans, forks = (any(part in line for line in places) for part in (_PLANS, _FORKS))
    in_spark = all(any(part in line for part in _AROUND_PLANS) for line in places)
    ends = (*names, b"EOFError") if plans else names
    return (plans or forks) and in_spark and trace[-1].startswith(ends)


def stop_progress_bar(context: SparkContext) -> None:
    """Stop the bars of stages on the console: epochs would draw one after the other for ever.

    Relies on `SparkContext.progressBar`, an option; a session without bars has none.
    """
    bar = context._jsc.sc().progressBar()
    if bar.isDefined():
        bar.get().stop()


class InternalRows:
    """The planned rows of a DataFrame in Spark's own form, which never become Python objects.

    The plan keeps the settings of the moment when this was made: `queryExecution().toRdd()` plans
    at once. If it planned later, batches would have the limits of another stage.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._rdd: Any = frame._jdf.queryExecution().toRdd()

    def partitions(self) -> int:
        """Return how many partitions the rows have, without running anything."""
        return int(self._rdd.getNumPartitions())

    def collect_binary(self, column: int) -> list[bytes]:
        """Run the plan and return the binary column with this number, of all rows in order.

        Reads Spark's `InternalRow.getBinary`. Spark reuses the row objects of a partition: of two
        rows in one partition both would show the second one.
        """
        collected = self._rdd.toJavaRDD().collect()
        return [bytes(collected.get(n).getBinary(column)) for n in range(len(collected))]

    def to_frame(self, session: SparkSession, schema: JavaSchema) -> DataFrame:
        """Return the rows as a DataFrame that is not planned again.

        `internalCreateDataFrame` takes rows without a conversion; the public way,
        `createDataFrame`, would take every row through Python.
        """
        frame = session._jsparkSession.internalCreateDataFrame(self._rdd, schema, False)
        return DataFrame(frame, session)


def java_schema(spark: SparkSession, schema: StructType) -> JavaSchema:
    """Return the JVM's object for a schema, to be made once and used in every epoch.

    Relies on `parseDataType` of the JVM's session, which reads what `StructType.json` writes.
    """
    return JavaSchema(spark._jsparkSession.parseDataType(schema.json()))


def java_columns(spark: SparkSession, *names: str) -> JavaColumns:
    """Return columns as the Scala sequence that the JVM's methods take; made once.

    Relies on `_to_seq` of the classic columns.
    """
    return JavaColumns(_to_seq(spark.sparkContext, [F.col(name)._jc for name in names]))


def repartition(
    frame: DataFrame, width: int, columns: JavaColumns, session: SparkSession
) -> DataFrame:
    """Return `frame.repartition(width, …)`, without making the columns again in every epoch."""
    return DataFrame(frame._jdf.repartition(width, columns), session)


def python_stage(task: Callable[..., Any], schema: StructType, names: Sequence[str]) -> Column:
    """Return a stage of Python over whole partitions, to be used in any number of epochs.

    It is what `DataFrame.mapInArrow` makes anew in every call: a function of the kind
    `SQL_MAP_ARROW_ITER_UDF`, called with all columns. Another kind would call the task with other
    arguments.
    """
    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    stage = UserDefinedFunction(task, schema, name=type(task).__name__, evalType=kind)
    return stage(*(F.col("`" + name.replace("`", "``") + "`") for name in names))


def map_in_arrow(frame: DataFrame, stage: Column) -> DataFrame:
    """Return `frame.mapInArrow(…)`, without making the stage and asking for the columns again.

    The JVM's method takes the stage, whether it is a barrier, and a resource profile.
    """
    return DataFrame(frame._jdf.mapInArrow(stage._jc, False, None), frame.sparkSession)


@contextmanager
def outside_of_query(context: SparkContext) -> Iterator[None]:
    """Take the jobs of this thread out of the query that Spark is running.

    The stages of one query share their settings, those of separate ones have those of the time
    when they were made. Spark knows the query of a thread by the local property
    `spark.sql.execution.id`; if it had another name, stages would share their batch limits.
    """
    query = context.getLocalProperty(_EXECUTION_ID)
    with local_property(context, _EXECUTION_ID, None, after=query):
        yield


@contextmanager
def local_property(
    context: SparkContext, key: str, value: str | None, after: str | None = None
) -> Iterator[None]:
    """Set a property of this thread's jobs, which their tasks see, and `after` at the end.

    None removes a property: PySpark's types do not say so, the JVM does it.
    """
    context.setLocalProperty(key, value)  # type: ignore[arg-type]
    try:
        yield
    finally:
        context.setLocalProperty(key, after)  # type: ignore[arg-type]


def is_initializing(query: StreamingQuery) -> bool:
    """Tell whether a query has not yet opened its sources, which read the session's settings.

    Spark tells it only in the text of the status. If the text changes, sources may see settings
    that were restored too early.
    """
    return str(query.status["message"]).startswith(_INITIALIZING)


def found_nothing(query: StreamingQuery) -> bool:
    """Tell whether a query has looked for data, found none, and is about to look again.

    Spark's status is that of its last trigger, or of one that has not begun, as if it initialized.
    """
    status = query.status
    waits = not status["isTriggerActive"] and not status["isDataAvailable"]
    return waits and not str(status["message"]).startswith(_INITIALIZING)


def plan_nodes(frame: DataFrame) -> set[str]:
    """Return the kinds of nodes that Spark's analysed plan of a DataFrame has."""
    found: set[str] = set()
    waiting = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        found.add(str(node.getClass().getSimpleName()))
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]
    return found


def spark_stopped(spark: SparkSession) -> bool:
    """Tell whether somebody stopped Spark under our feet.

    PySpark drops its `_jsc` when the program stops it; the JVM's context knows the other ways.

    Raises:
        JvmDeath: Spark was not stopped, it is dead.
    """
    context = spark.sparkContext._jsc
    if context is None:
        return True
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        raise JvmDeath(process.pid, process.returncode)
    try:
        return bool(context.sc().isStopped())
    except Exception as error:
        if is_alive(process, error):
            log.warning("Spark cannot be asked whether it was stopped: %s", error)
            return False
        raise _death_of(process) from error


def is_alive(process: subprocess.Popen[bytes] | None, error: BaseException) -> bool:
    """Tell whether the JVM lives although it could not be asked: files or threads may be used up.

    Of a process that is not our child only a connection that is refused says that it is gone. py4j
    raises errors of its own from what it came across.
    """
    if process is not None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING_S)
        return process.poll() is None
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, ConnectionRefusedError):
        seen = seen.__cause__ or seen.__context__
    return seen is None


class JvmDeath(Exception):
    """The process of the JVM is gone; `status` is that of `subprocess`, None if it is not known."""

    def __init__(self, pid: int | None, status: int | None) -> None:
        super().__init__(pid, status)
        self.pid = pid
        self.status = status


def _death_of(process: subprocess.Popen[bytes] | None) -> JvmDeath:
    """Return how the JVM ended. It is not our child where `spark-submit` started this program."""
    return JvmDeath(None, None) if process is None else JvmDeath(process.pid, process.returncode)


def arrow_schema(
    schema: StructType, *, timezone: str, prefers_large_types: bool = False
) -> pa.Schema:
    """Return the types in which Spark hands rows of a schema to Python.

    PySpark's own function: if it moved or differed, rows that workers read from files would have
    other types than those that Spark reads. Before 4.2 it knows no time zone but UTC.
    """
    zone: dict[str, Any] = {"timezone": timezone} if pyspark.__version__ >= "4.2" else {}
    return to_arrow_schema(schema, prefers_large_types=prefers_large_types, **zone)


def delta_version(spark: SparkSession) -> str | None:
    """Return the version of Delta Lake that the session has; None if it has none.

    Delta Lake's own constant: if it moved, the session would seem to have none.
    """
    try:
        return str(spark._jvm.io.delta.package.VERSION())  # type: ignore[union-attr]
    except TypeError:  # py4j takes the name of a class that is not there for that of a package
        return None


def fork_workers() -> None:
    """Be the process that Spark asks for Python workers, until Spark ends it.

    It is what `python -m pyspark.daemon` runs. If Spark starts workers in another way, they start
    cold or not at all. What workers print about a JVM that has hung up is left out: that is how a
    failover looks from there, and the reason for it is told elsewhere. They print with the `print`
    and the `traceback` of their modules.
    """
    for module in (pyspark.daemon, pyspark.util):
        vars(module)["print"] = print_but_hang_ups
    quiet = {**vars(traceback), "print_exc": print_exc_but_hang_ups}
    vars(pyspark.daemon)["traceback"] = SimpleNamespace(**quiet)
    manager()


def print_exc_but_hang_ups() -> None:
    """Print the trace of the current exception, unless it says that nobody listens any more."""
    if not isinstance(sys.exc_info()[1], _HANG_UPS):
        traceback.print_exc()


def print_but_hang_ups(*values: object, **options: Any) -> None:
    """Print, but for a trace that says that nobody listens any more."""
    text = " ".join(map(str, values)).rstrip()
    if not text.rpartition("\n")[2].startswith(tuple(kind.__name__ for kind in _HANG_UPS)):
        builtins.print(*values, **options)
