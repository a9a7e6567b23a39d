"""Finding or making the Spark session, and the settings that an epoch needs."""

from __future__ import annotations

import logging
import os
import site
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf
from pyspark.sql import SparkSession

from weir.errors import JobExecutionError
from weir.notices import under_way
from weir.spark.batches import SAFE
from weir.spark.expected import refuse_shared_threads
from weir.spark.internals import (
    CHECKPOINT_FILE_MANAGER,
    DAEMON_MODULE,
    RENAMING_FILE_MANAGER,
    launch_quiet_jvm,
)
from weir.storage.private_files import temporary_directory

# What a session needs while the query starts; the query keeps its own copy afterwards.
_QUERY_SETTINGS = {
    # An empty input would otherwise be optimised into a plan without partitions.
    "spark.sql.adaptive.enabled": "false",
    CHECKPOINT_FILE_MANAGER: RENAMING_FILE_MANAGER,
    "spark.sql.streaming.minBatchesToRetain": "1000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(SAFE.rows),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(SAFE.bytes),
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
_SOCKET_DIR_MAX = 104 - 1 - 42
_NEW_SESSION_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stopTimeout": "30s",
    # Cached control rows decide where a subtask runs; shuffle sizes must not outvote them.
    "spark.shuffle.reduceLocality.enabled": "false",
}


def use_running_python() -> None:
    """Let Spark's workers run the interpreter that runs this program, unless somebody chose."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def get_spark(app_name: str = "weir") -> SparkSession:
    """Return the active session, or start one: the submitted master, else all local cores.

    Raises:
        JobExecutionError: Spark does not start.
        UsageError: the threads of this program share those of Spark.
    """
    refuse_shared_threads()
    use_running_python()
    active = SparkSession.getActiveSession()
    if active is not None:
        _quieten_bridge()
        return active
    settings, quiet = _new_session_settings(), not os.environ.get("WEIR_SPARK_LOG")
    if quiet:
        # What fails reaches the user as an exception, not as a page of Java.
        log_settings = Path(__file__).with_name("log4j2.properties")
        option = f"-Dlog4j2.configurationFile=file:{log_settings}"
        settings["spark.driver.extraJavaOptions"] = option
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    conf = SparkConf().setAppName(app_name).setAll(list(settings.items()))
    try:
        with under_way("Spark is starting"):
            if quiet:
                launch_quiet_jvm(conf)
            return SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        msg = f"Spark did not start ({reason}): run 'weir doctor' to see what is missing"
        raise JobExecutionError(msg) from error


def _quieten_bridge() -> None:
    """Keep py4j from telling of every epoch, which calls this process, unless somebody chose."""
    bridge = logging.getLogger("py4j")
    if bridge.level == logging.NOTSET:
        bridge.setLevel(logging.WARNING)


def _new_session_settings() -> dict[str, str]:
    settings = dict(_NEW_SESSION_SETTINGS)
    master = os.environ.get("SPARK_MASTER")
    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit
        master = "local[*]"
    if master is not None:
        settings["spark.master"] = master
    if master is not None and master.startswith("local["):
        # Over TCP every small exchange with a worker waits 40 ms for a delayed acknowledgement.
        # Only here is it known that the path is short enough: executors may have long ones.
        settings["spark.python.unix.domain.socket.enabled"] = "true"
        settings["spark.python.unix.domain.socket.dir"] = _socket_dir()
        # Only here are the workers sure to find the module before any code was shipped to them.
        _let_workers_find_weir()
        settings[DAEMON_MODULE] = "weir.spark.daemon"
    return settings


def _socket_dir() -> str:
    """Return a place for Spark's sockets, which Spark itself would leave behind in /tmp.

    A socket's path has 104 bytes at most, on some systems, and Spark's names have 42 of them.
    """
    return str(temporary_directory("weir-spark-", longest=_SOCKET_DIR_MAX))


def _let_workers_find_weir() -> None:
    """Put a checkout on the workers' path; an installed package is there already."""
    base = str(Path(__file__).resolve().parents[2])
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if base not in (*paths, *site.getsitepackages(), site.getusersitepackages()):
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, base])


def is_local(spark: SparkSession) -> bool:
    """Tell whether executors live inside the driver's JVM."""
    master = str(spark.sparkContext.master)
    return master.startswith("local") and "cluster" not in master


@contextmanager
def query_settings(spark: SparkSession) -> Iterator[None]:
    """Apply the settings that a query copies when it starts, then restore the user's."""
    before = {key: spark.conf.get(key, None) for key in _QUERY_SETTINGS}
    for key, value in _QUERY_SETTINGS.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
