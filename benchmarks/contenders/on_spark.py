"""Runs Weir, the floors and Spark's own Python state: one process, one session, two cores."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.contenders import floors, jvm_windows, one_row
from benchmarks.contenders.protocol import WORKLOAD_EPOCH, Outcome, Task, serve

MEMORY = "4g"


def session() -> Any:
    """Return the session: Weir's where Weir is, plain Spark in a peer's environment."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_MASTER", "local[2]")
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {MEMORY} pyspark-shell"
    if find_spec("weir") is not None:
        from weir.spark.session import get_spark

        return get_spark("benchmark")
    from pyspark.sql import SparkSession

    logs = Path(__file__).with_name("log4j2.properties")
    builder = SparkSession.builder.master(os.environ["SPARK_MASTER"]).appName("benchmark")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    options = f"-Dlog4j2.configurationFile=file:{logs}"
    return builder.config("spark.driver.extraJavaOptions", options).getOrCreate()


def run(task: Task) -> Outcome:
    """Run one task by its contender's family."""
    spark = session()
    family = task.contender.split("-")[0]
    if task.workload == WORKLOAD_EPOCH:
        return one_row.run(spark, task)
    if family == "weir":
        from benchmarks.contenders import weir_runs

        return weir_runs.run(spark, task)
    if family == "identity":
        bounded = task.contender == "identity-bounded"
        with floors.same_settings(spark, None if bounded else floors.UNBOUNDED):
            return floors.run_identity(spark, task)
    if family == "jvm":
        with floors.same_settings(spark), floors.settings(spark, floors.SHUFFLE):
            if task.input.workload.is_windowed:
                return jvm_windows.run(spark, task)
            return floors.run_jvm(spark, task)
    from benchmarks.contenders import spark_state

    with floors.settings(spark, spark_state.SETTINGS):
        return spark_state.run(spark, task)


def versions() -> dict[str, str]:
    """Return what is installed here."""
    found = {"python": platform.python_version()}
    wanted = {"pyspark", "weir-spark", "pyarrow", "pandas", "numpy", "rocksdict"}
    installed = {found.metadata["Name"]: found.version for found in distributions()}
    found |= {name: installed[name] for name in sorted(wanted & set(installed))}
    return found


if __name__ == "__main__":
    serve(run, versions)
