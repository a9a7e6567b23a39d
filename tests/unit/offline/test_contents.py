"""Values of checkpoints and savepoints of every backend, read without a job."""

from __future__ import annotations

import pickle
import shutil

import pyarrow as pa
import pytest
from tests.harness.overtaking import Overtake, Total
from tests.harness.overtaking import job as overtaking_job
from tests.harness.programs import environment, started
from tests.unit.offline.samples import KEYS, armed, job, take_savepoint

from weir.checkpoint.paths import METADATA_NAME
from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.common.time import Duration, Time
from weir.common.typeinfo import Types
from weir.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from weir.connector.file_sink import FileSink
from weir.datastream import BroadcastProcessFunction
from weir.datastream.state import MapStateDescriptor, ValueStateDescriptor
from weir.datastream.window import TumblingEventTimeWindows
from weir.errors import CorruptStateError, StorageError, UsageError
from weir.keygroup import KeyGroupRange, key_group
from weir.offline import SavepointEdit, read_snapshot
from weir.snapshot import SnapshotReader
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import BACKENDS
from weir.testing.harness import collect

SPLITS = [(0, 0), (1, 63), (64, 127)]
RETAINED = CheckpointSettings(retention=Retention.RETAIN_ON_CANCELLATION)


@pytest.fixture
def taken(tmp_path):
    """Take three checkpoints of a kind and return the directory of the last, nobody unpickling."""

    def take(kind="hashmap", **options):
        harness = job(tmp_path, kind, **options)
        for _ in range(3):
            harness.run_epoch(take=6, checkpoint=True)
        harness.end_slots()
        armed.append(True)
        return tmp_path / harness.job_id / "chk-3"

    yield take
    armed.clear()


def rows(table, *arguments):
    found = [row for batch in table.batches(*arguments) for row in batch.to_pylist()]
    for batch in table.batches(*arguments):
        assert batch.schema == table.schema
    return found


def totals():
    """What the sample program has counted after 18 numbers."""
    found = {}
    for number in range(1, 19):
        found[number % KEYS] = found.get(number % KEYS, 0) + number
    return found


@pytest.mark.parametrize("kind", list(BACKENDS))
def test_entries_of_every_backend_are_read_without_running_code(kind, taken):
    contents = read_snapshot(str(taken(kind)))
    total = contents.table("everything", "total")
    expected = [
        {"key_group": key_group(k, 128), "key": k, "value": v, "ttl_timestamp": 0}
        for k, v in totals().items()
    ]
    by_group = sorted(expected, key=lambda row: (row["key_group"], row["key"]))
    assert sorted(rows(total), key=lambda row: (row["key_group"], row["key"])) == by_group
    parts = [row for split in SPLITS for row in rows(total, KeyGroupRange(*split))]
    assert parts == rows(total), "ranges of key groups are parts of the whole"
    assert [r["value"] for b in total.rows_of([3, 5, 99]) for r in b.to_pylist()] in (
        [totals()[3], totals()[5]],
        [totals()[5], totals()[3]],
    )
    [seen] = rows(contents.table("everything", "seen"))
    assert (seen["key"], seen["map_key"]) == (1, "first")
    assert seen["value"] == {"amount": 1.5, "tags": ["new"]}
    timers = rows(contents.table("everything", "_timer.event"))
    assert {row["key"] for row in timers} == set(range(KEYS))
    assert {row["timestamp"] for row in timers} == {1 << 40}
    buffer = rows(contents.table("everything", "buffer"))
    assert [tuple(row.values()) for row in buffer] == [
        (subtask, position, "abc"[position]) for subtask in (0, 1) for position in range(3)
    ]


@pytest.mark.parametrize("kind", ["hashmap", "hashmap-changelog", "rocksdb-incremental"])
def test_pickled_objects_are_loaded_only_when_that_is_allowed(kind, taken):
    path = str(taken(kind))
    table = read_snapshot(path).table("everything", "bombs")
    with pytest.raises(UsageError, match=r"state 'bombs'.* --unpickle"):
        rows(table)
    armed.clear()
    allowed = rows(read_snapshot(path, unpickle=True).table("everything", "bombs"))
    assert [row["position"] for row in allowed] == [0] * KEYS
    assert all("Bomb object" in row["value"] for row in allowed)


def test_entries_have_the_values_that_the_program_had(taken):
    table = read_snapshot(str(taken())).keyed_state("everything", "seen")
    [entry] = table.entries()
    assert (entry.key, entry.namespace) == (1, None)
    assert entry.value["first"].as_dict() == {"amount": 1.5, "tags": ["new"]}


def test_a_savepoint_is_read_wherever_it_was_moved(tmp_path):
    harness = job(tmp_path / "state")
    harness.run_epoch(take=4, checkpoint=True)
    path = tmp_path / "state" / take_savepoint(harness)
    harness.end_slots()
    moved = shutil.move(path, tmp_path / "elsewhere")
    contents = read_snapshot(f"file://{moved}/{METADATA_NAME}")
    assert len(rows(contents.table("All kinds", "total"))) == 6
    assert rows(contents.sources())[0]["source"] == "numbers"
    listed = rows(contents.operators())
    found = {row["state"]: row["kind"] for row in listed if row["operator_uid"] == "everything"}
    assert (found["total"], found["buffer"]) == ("ValueState", "operator list state")


def test_what_is_not_there_is_named_together_with_what_is(taken, tmp_path):
    contents = read_snapshot(str(taken()))
    with pytest.raises(UsageError, match=r"no operator 'x': those with state are 'everything'"):
        contents.table("x", "total")
    with pytest.raises(UsageError, match=r"no state 'x': there are .*'total'"):
        contents.table("everything", "x")
    with pytest.raises(UsageError, match="not keyed state"):
        contents.keyed_state("everything", "buffer")
    with pytest.raises(UsageError, match="not operator state"):
        contents.operator_state("everything", "total")
    with pytest.raises(UsageError, match="there is no checkpoint or savepoint"):
        read_snapshot(str(tmp_path / "nothing"))


def test_every_flipped_byte_of_a_state_is_found(taken):
    path = taken()
    before = read_snapshot(str(path)).table("everything", "total")
    expected = rows(before)
    file = max(path.glob("state-*"), key=lambda p: p.stat().st_size)
    whole = file.read_bytes()
    for position in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        file.write_bytes(damaged)
        assert damage_or_rows(path) in (file.name, expected), "or the byte is of another state"


def damage_or_rows(path):
    """Return the rows of a state, or the name of the file that is found to be damaged."""
    try:
        return rows(read_snapshot(str(path)).table("everything", "total"))
    except CorruptStateError as error:
        return next(name for name in str(error).replace("'", "/").split("/") if "state-" in name)


def test_a_missing_file_is_named(taken):
    path = taken()
    file = next(path.glob("state-*"))
    file.unlink()
    with pytest.raises(StorageError, match=file.name):
        rows(read_snapshot(str(path)).table("everything", "total"))


class First(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value * 1000


def test_windows_are_columns_of_their_bounds(tmp_path):
    env = environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    stream = env.from_collection([1, 2, 3, 7], Types.LONG()).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(First())
    )
    windows = stream.key_by(lambda n: "k", Types.STRING()).window(
        TumblingEventTimeWindows.of(Time.seconds(5))
    )
    collect(windows.reduce(lambda a, b: a + b).uid("sums"))
    storage = LocalStorage(str(tmp_path))
    harness = started(env, storage=storage, checkpoints=RETAINED, partitions=1)
    harness.run_epoch(take=2, checkpoint=True)
    harness.end_slots()
    contents = read_snapshot(str(tmp_path / harness.job_id / "chk-1"))
    [row] = rows(contents.table("sums", "_window_contents"))
    assert (row["key"], row["window_start"], row["window_end"]) == ("k", 0, 5000)
    [timer] = rows(contents.table("sums", "_timer.event"))
    assert (timer["window_end"], timer["timestamp"]) == (5000, 4999)
    [entry] = contents.keyed_state("sums", "_window_contents").entries()
    assert entry.namespace == (0, 5000)


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Remember(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(f"rule {value}", value)


def test_broadcast_state_is_read_once_and_transactions_are_shown(tmp_path):
    env = environment()
    rules = env.from_collection([1, 2], Types.LONG()).broadcast(RULES)
    numbers = env.from_sequence(1, 10)
    stream = numbers.connect(rules).process(Remember(), Types.LONG()).uid("remember")
    stream.sink_to(FileSink.text(str(tmp_path / "out"))).uid("files")
    storage = LocalStorage(str(tmp_path / "state"))
    harness = started(env, storage=storage, checkpoints=RETAINED)
    harness.run_epoch(take=4, checkpoint=True)
    harness.end_slots()
    contents = read_snapshot(str(tmp_path / "state" / harness.job_id / "chk-1"))
    table = contents.table("remember", "rules")
    assert table.kind == "broadcast state"
    found = sorted((row["map_key"], row["value"]) for row in rows(table))
    assert found == [("rule 1", 1), ("rule 2", 2)]
    prepared = rows(contents.transactions("files"))
    assert prepared
    assert {row["checkpoint_id"] for row in prepared} == {1}
    raw = rows(contents.table("files", "_sink.committables"))
    assert all(isinstance(pickle.loads(row["value"]), bytes) for row in raw)


def test_rows_in_flight_are_shown_by_edge(tmp_path):
    env = environment()
    stream = env.from_sequence(1, 24).key_by(lambda n: n % 5).process(Total()).uid("totals")
    collect(stream)
    storage = LocalStorage(str(tmp_path))
    harness = overtaking_job(env, Overtake(at=3), storage=storage)
    harness.run_epoch(checkpoint=True)
    harness.end_slots()
    [path] = tmp_path.glob("*/chk-1")
    contents = read_snapshot(str(path))
    waiting = rows(contents.in_flight())
    assert {row["to_operator"] for row in waiting} == {"totals"}
    assert all(row["frames"] > 0 and row["bytes"] > 0 for row in waiting)
    counted = sum(row["value"] for row in rows(contents.table("totals", "total")))
    assert 0 < counted < sum(range(1, 25)), "the state is that in the middle of the epoch"


def test_memory_holds_a_few_key_groups_while_rows_are_read(tmp_path, monkeypatch):
    numbers = pa.table({"key": range(20_000), "value": range(20_000)})
    edit = SavepointEdit.new().with_operator("o", parallelism=1, max_parallelism=128)
    edit.with_rows("o", ValueStateDescriptor("s", Types.LONG()), numbers, key_type=Types.LONG())
    place = edit.write(str(tmp_path / "savepoint"))
    fetched, sections = [], SnapshotReader.sections

    def recorded(self, addresses):
        data = sections(self, addresses)
        fetched.append(sum(map(len, data)))
        return data

    monkeypatch.setattr(SnapshotReader, "sections", recorded)
    monkeypatch.setattr("weir.offline.keyed._CHUNK_BYTES", 10_000)
    batches = read_snapshot(place).table("o", "s").batches()
    first = next(batches)
    assert len(fetched) == 1, "the first rows come before the rest is read"
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 20_000
    assert max(fetched) <= 10_000 < sum(fetched)
