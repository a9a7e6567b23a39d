"""PyFlink: the same programs in a local cluster inside this process, two subtasks.

Input is read by Flink's own CSV format in Java, one file and so one split for each partition. The
contender's name says how Python runs (thread, process) and where state lives (hashmap, rocksdb).
Flink SQL is in `flink_sql.py`: the same cluster without Python.
Every task gets a cluster of its own; the JVM is the same for all of them.
"""

from __future__ import annotations

import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.contenders import flink_sql
from benchmarks.contenders.flink_api import Configuration, StreamExecutionEnvironment, record
from benchmarks.contenders.flink_programs import Counting, build, passing, with_time
from benchmarks.contenders.progress import read
from benchmarks.contenders.protocol import Outcome, Task, of_marks, serve
from benchmarks.contenders.window_programs import longs
from benchmarks.workloads.catalogue import Workload
from benchmarks.workloads.rows import PARTITIONS, rules

STATE_CACHE = "1000000"
# In thread mode no checkpoint of session windows succeeds: Flink casts the namespace of the set of
# sessions to a window. So it has none there, which is to its advantage.
NO_CHECKPOINTS = "n11"
SQL = "flink-sql"
SQL_RUNS = ("", "thread", "hashmap")


def settings(task: Task) -> dict[str, str]:
    """Return the configuration of a user who has read the tuning pages."""
    _, mode, backend = task.contender.split("-") if task.contender != SQL else SQL_RUNS
    found = {
        "python.execution-mode": mode,
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.fn-execution.bundle.size": "10000",
        "python.fn-execution.bundle.time": "500",
        "python.state.cache-size": STATE_CACHE,
        "python.map-state.read-cache-size": STATE_CACHE,
        "python.map-state.write-cache-size": STATE_CACHE,
        "state.backend.type": backend,
        "execution.checkpointing.incremental": "true" if backend == "rocksdb" else "false",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": task.folder("checkpoints").as_uri(),
        "execution.checkpointing.num-retained": "1",
        "execution.runtime-mode": "STREAMING",
        "parallelism.default": str(PARTITIONS),
        "taskmanager.numberOfTaskSlots": str(PARTITIONS),
        "taskmanager.memory.managed.size": "1g",
        "taskmanager.memory.network.min": "128m",
        "taskmanager.memory.network.max": "128m",
        # A mistake is to be seen, not repeated.
        "restart-strategy.type": "none",
        "pipeline.object-reuse": "true",
    }
    if task.workload == NO_CHECKPOINTS and task.contender != SQL:
        del found["execution.checkpointing.interval"]
    return found


def run(task: Task) -> Outcome:
    """Run one workload."""
    from pyflink.table import StreamTableEnvironment

    dataset = task.input
    workload = dataset.workload
    configuration = Configuration()
    for key, value in settings(task).items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    tables = StreamTableEnvironment.create(env)
    if task.contender == SQL:
        return flink_sql.run(tables, task)
    stream = source(tables, workload, dataset.csv)
    pair = longs(2)
    if workload.kind in ("reduce", "sum") or workload.is_windowed:
        # The state has the stream's type, and checkpoints of a table's own row type fail.
        stream = stream.map(lambda row: record(*row), longs(len(workload.columns)))
    limits = env.from_collection(rules(), pair) if workload.kind == "rules" else None
    marks = str(task.folder("marks"))
    if workload.is_windowed and not workload.has_event_time and not task.verify:
        # Windows that are open at the end give no results to count: rows are counted before.
        stream = stream.filter(Counting(marks, None))
        results = build(workload, stream, limits, lambda row: row[0], task.verify)
        results.filter(lambda row: False).print()
    else:
        results = build(workload, stream, limits, lambda row: row[0], task.verify)
        results.filter(passing(workload, marks, task.verify)).print()
    with Checkpoints(task.folder("checkpoints")) as checkpoints:
        env.execute("benchmark")
    found, checksum = read(Path(marks))
    outcome = of_marks(task, found, checksum)
    outcome.checkpoints = checkpoints.highest
    return outcome


def source(tables: Any, workload: Workload, directory: Path) -> Any:
    """Stream the input.

    In event time each file is a source of its own: were one reader to get both of them, one after
    the other, all rows of the second would be late.
    """
    if not workload.has_event_time:
        return table(tables, workload, directory, "input")
    first, *others = [
        with_time(table(tables, workload, directory / f"{part}.csv", f"input{part}"), workload)
        for part in range(PARTITIONS)
    ]
    return first.union(*others)


def table(tables: Any, workload: Workload, path: Path, name: str) -> Any:
    """Return the rows of a file or folder as a stream."""
    columns = ", ".join(f"`{name}` {kind}" for name, kind in workload.columns)
    tables.execute_sql(
        f"CREATE TEMPORARY TABLE {name} ({columns}) WITH ("
        f"'connector' = 'filesystem', 'path' = '{path.as_uri()}', 'format' = 'csv')"
    )
    return tables.to_data_stream(tables.from_path(name))


class Checkpoints:
    """Watches a directory for the number of the newest completed checkpoint."""

    def __init__(self, directory: Path) -> None:
        """Remember where."""
        self.highest = 0
        self._directory = directory
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Checkpoints:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            for file in self._directory.glob("*/chk-*/_metadata"):
                self.highest = max(self.highest, int(file.parent.name.removeprefix("chk-")))


def versions() -> dict[str, str]:
    """Return what is installed here."""
    names = ("apache-flink", "pemja", "apache-beam", "pyarrow", "numpy")
    return {"python": sys.version.split()[0]} | {name: version(name) for name in names}


if __name__ == "__main__":
    serve(run, versions)
