"""Programs that change between two runs: what they find again, and what they must not lose.

One chain of jobs reads the same four kinds of sources bit by bit. Whatever ends a job, and whatever
changes before the next one, every element is counted once, and the counts go on.
"""

from __future__ import annotations

import csv
import json
import os
import threading
from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.jobs import invoke
from tests.spark.scenario import wait_until

from weir.common import Configuration, Types
from weir.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    SourceFunction,
    StreamExecutionEnvironment,
)
from weir.datastream.connectors.file_system import FileSink
from weir.datastream.state import ValueStateDescriptor
from weir.errors import IncompatibleStateError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
FILES = 16
PER_FILE = 3
ELEMENTS = FILES * PER_FILE
SOURCES = ("collection", "sequence", "files", "function")
C = "execution.checkpointing."


class Numbers(SourceFunction):
    """Collects numbers, a few at a time, and then waits to be told to go."""

    def __init__(self):
        self.told = threading.Event()

    def run(self, ctx):
        for number in range(ELEMENTS):
            ctx.collect(("function", number))
            if number % PER_FILE == PER_FILE - 1 and self.told.wait(0.25):
                return
        self.told.wait()

    def cancel(self):
        self.told.set()


class Count(KeyedProcessFunction):
    """Appends how many elements of the key came so far."""

    def open(self, runtime_context: RuntimeContext):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield (*value, count)


class Chain:
    """The directories of the chain, and its jobs one after another."""

    def __init__(self, root, spark):
        self.root = root
        self.spark = spark
        (root / "input").mkdir()
        for number in range(FILES):
            first = number * PER_FILE
            table = pa.table({"value": list(range(first, first + PER_FILE))})
            path = root / "input" / f"{number:04d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))

    def environment(self, **settings):
        configuration = Configuration()
        values = {
            C + "interval": "1 h",
            C + "dir": str(self.root / "checkpoints"),
            C + "savepoint-dir": str(self.root / "savepoints"),
            "weir.log.dir": str(self.root / "logs"),
            "weir.source.batch-rows": str(PER_FILE),
            "weir.trigger": "700 ms",
            **settings,
        }
        for key, value in values.items():
            configuration.set_string(key, value)
        return StreamExecutionEnvironment.get_execution_environment(configuration)

    def sources(self, env, names):
        files = (
            self.spark.readStream.schema("value bigint")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.root / "input"))
        )
        makers = {
            "collection": lambda: env.from_collection(
                [("collection", n) for n in range(ELEMENTS)]
            ).uid("collection"),
            "sequence": lambda: (
                env.from_sequence(0, ELEMENTS - 1).uid("sequence").map(lambda n: ("sequence", n))
            ),
            "files": lambda: (
                env.from_dataframe(files).uid("files").map(lambda row: ("files", row.value))
            ),
            "function": lambda: env.add_source(Numbers()).uid("function"),
            "added": lambda: env.from_collection([("added", n) for n in range(ELEMENTS)]).uid(
                "added"
            ),
        }
        first, *others = [makers[name]() for name in names]
        return first.union(*others)

    def submit(self, path=None, *, sources=SOURCES, count="count", extra=None, **settings):
        """Start a job; with `extra` there is a second counter, of that uid."""
        parallelism = settings.pop("parallelism", 2)
        if path is not None:
            settings["execution.state-recovery.path"] = path
        env = self.environment(**settings)
        env.set_parallelism(parallelism)
        stream = self.sources(env, sources)
        stream = stream.key_by(lambda row: row[0]).process(Count()).uid(count)
        if extra is None:
            stream = stream.map(lambda row: (*row, 0))
        else:
            stream = stream.key_by(lambda row: row[0]).process(Count()).uid(extra)
        stream.sink_to(FileSink.csv(str(self.root / "output"))).uid("sink")
        return env.execute_async("chain")

    def rows(self):
        """Return the committed rows of every source, in order of value: (value, count, extra)."""
        found = defaultdict(list)
        for path in (self.root / "output").rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                with path.open() as lines:
                    for name, *numbers in csv.reader(lines):
                        found[name].append(tuple(map(int, numbers)))
        return {name: sorted(rows) for name, rows in found.items()}

    def beyond(self, before):
        """Tell whether all sources are further than they were."""
        rows = self.rows()
        return all(len(rows.get(name, ())) > len(before.get(name, ())) for name in SOURCES)


@pytest.fixture
def chain(tmp_path, spark, monkeypatch):
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    made = Chain(tmp_path, spark)
    yield made
    for job in json.loads(invoke("list", "--json").stdout):
        invoke("cancel", job["job_id"])


def told(*words):
    """Run a command and return what it tells as JSON."""
    result = invoke(*words, "--json")
    assert result.exit_code == 0, f"{words}: {result.stderr}"
    return json.loads(result.stdout)


def go_on(chain, job):
    """Let a job commit a few elements of every source; returns its id."""
    before, number = chain.rows(), job.get_job_id().to_hex_string()

    def further():
        told("checkpoint", number)
        return chain.beyond(before)

    wait_until(further, 90, "rows of all sources")
    assert_middle(chain)
    return number


def assert_middle(chain):
    rows = chain.rows()
    assert all(len(rows[name]) < ELEMENTS for name in SOURCES), "nothing is left for the next job"


def refusal(chain, path, **changes):
    with pytest.raises(IncompatibleStateError) as caught:
        chain.submit(path, **changes)
    return str(caught.value)


def test_changed_programs_go_on_where_the_ones_before_ended(chain):
    pytest.importorskip("rocksdict")
    retained = retained_by_cancel(chain)
    check_what_must_not_be_missing(chain, retained, extra=None)
    canonical = canceled_with_a_savepoint(chain, retained)
    native = stopped_with_rocksdb(chain, canonical)
    check_what_must_not_be_missing(chain, native, extra="extra")
    restarted = left_behind_on_purpose(chain, native)
    for name in SOURCES:
        rows = chain.rows()[name]
        assert [row[:2] for row in rows] == [(n, n + 1) for n in range(ELEMENTS)]
        check_extra([row[2] for row in rows], restarted[name])
    assert [row[:2] for row in chain.rows()["added"]] == [
        (n, n + 1) for n in range(len(chain.rows()["added"]))
    ]


def retained_by_cancel(chain):
    """The first program, canceled: its checkpoint is retained."""
    retain = {C + "externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
    number = go_on(chain, chain.submit(**retain))
    last = told("checkpoint", number)
    assert told("cancel", number) == {"job_id": number, "status": "CANCELED"}
    found = list((chain.root / "checkpoints" / number).glob("chk-*"))
    assert [path.name for path in found] == [f"chk-{last['checkpoint_id']}"]
    return str(found[0])


def check_what_must_not_be_missing(chain, path, extra):
    """State without an operator is refused, and so is a position without a source."""
    message = refusal(chain, path, count="renamed", extra=extra)
    assert "count" in message
    assert "allowNonRestoredState" in message
    message = refusal(chain, path, sources=SOURCES[1:], extra=extra)
    assert "position of source 'collection'" in message
    if extra is not None:
        message = refusal(chain, path, sources=(*SOURCES, "added"))
        assert extra in message


def canceled_with_a_savepoint(chain, retained):
    """Another operator, another source, other stateless code, from the retained checkpoint."""
    job = chain.submit(retained, sources=("added", *SOURCES), extra="extra")
    number = go_on(chain, job)
    path = told("cancel", "-s", str(chain.root / "chosen"), number)["savepoint"]
    assert job.get_job_status().result().name == "CANCELED"
    assert path.startswith(f"file://{chain.root}/chosen/savepoint-{number[:6]}-")
    assert told("state", "show", path)["savepoint_format"] == "CANONICAL"
    return path


def stopped_with_rocksdb(chain, canonical):
    """The same program with three subtasks on RocksDB; its savepoint is in RocksDB's own format."""
    rocksdb = {"state.backend.type": "rocksdb"}
    sources = (*SOURCES, "added")
    job = chain.submit(canonical, sources=sources, extra="extra", parallelism=3, **rocksdb)
    number = go_on(chain, job)
    path = told("stop", "--type", "native", number)["savepoint"]
    assert told("state", "show", path)["savepoint_format"] == "NATIVE"
    return path


def left_behind_on_purpose(chain, native):
    """A source goes and a counter is renamed: with -n both are left behind; the rest goes on.

    Returns by source from which element on the renamed counter counts.
    """
    before = {name: len(rows) for name, rows in chain.rows().items()}
    settings = {
        "state.backend.type": "rocksdb",
        "execution.state-recovery.ignore-unclaimed-state": "true",
        C + "externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
        "weir.trigger": "default",
    }
    job = chain.submit(native, extra="other", **settings)
    number = job.get_job_id().to_hex_string()

    def all_there():
        told("checkpoint", number)
        return all(len(chain.rows()[name]) >= ELEMENTS for name in SOURCES)

    wait_until(all_there, 120, "all rows")
    assert told("cancel", number)["status"] == "CANCELED"
    assert list((chain.root / "checkpoints").rglob(f"{number}/*")) == []
    assert len(chain.rows()["added"]) == before["added"]
    return before


def check_extra(found, restarted):
    """The added counter begins with the second program, and anew when it was renamed."""
    added = found.index(1)
    assert found[:added] == [0] * added
    assert found[added:restarted] == list(range(1, restarted - added + 1))
    assert found[restarted:] == list(range(1, len(found) - restarted + 1))
