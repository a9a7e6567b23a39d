"""Savepoints that are read, changed and written without a job, and jobs that restore from them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.harness.programs import environment
from tests.harness.state_programs import STATES, every_kind, released, restore_point, run_job

from weir.checkpoint.paths import METADATA_NAME
from weir.common.typeinfo import Types
from weir.connector.file_sink import FileSink
from weir.datastream.state import ValueStateDescriptor
from weir.errors import IncompatibleStateError, StorageError, UsageError, WeirError
from weir.offline import read_snapshot
from weir.offline.contents import SnapshotContents
from weir.offline.edit_parts import GivenRows
from weir.offline.editing import SavepointEdit
from weir.offline.writing import state_kind
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import BACKENDS, settings_of
from weir.testing.clock import ManualClock


def checkpoint_of(root, kind="hashmap", parallelism=2, take=(5, 6), **program):
    """Run two epochs with a checkpoint each; return the place of the second."""
    harness = run_job(every_kind(**program), root, parallelism, backend=settings_of(kind))
    for count in take:
        harness.run_epoch(take=count, checkpoint=True)
    harness.end_slots()
    return root / harness.job_id / f"chk-{len(take)}"


def outcome(place, root, parallelism=2, kind="hashmap", **program):
    """What a job that starts there still emits."""
    restored = restore_point(root, place)
    env = every_kind(**program)
    harness = run_job(env, root, parallelism, restored, backend=settings_of(kind))
    harness.run()
    return released(harness)


def rewritten(place, target, states=STATES, unpickle=False):
    """Read states row by row and write them again."""
    contents = read_snapshot(str(place), unpickle=unpickle)
    edit = SavepointEdit.of(contents, clock=ManualClock())
    contents = SnapshotContents(contents.snapshot, unpickle, as_text=False)
    for name in states:
        table = contents.keyed_state("kinds", name)
        edit.with_keyed_state("kinds", name, None, GivenRows(list(table.batches())))
    elements = list(contents.operator_state("kinds", "buffer").elements())
    edit.with_operator_state("kinds", "buffer", "SPLIT", (Types.LONG(), None), elements)
    return edit.write(str(target))


@pytest.mark.matrix
@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    written=st.sampled_from([k for k in BACKENDS if k != "rocksdb-incremental"]),
    restored=st.sampled_from(list(BACKENDS)),
    before=st.integers(1, 4),
    after=st.integers(1, 4),
    key_type=st.sampled_from([Types.LONG(), Types.STRING()]),
    states=st.sets(st.sampled_from(STATES)),
)
def test_what_is_read_and_written_again_is_the_same_job(
    tmp_path_factory, written, restored, before, after, key_type, states
):
    root = tmp_path_factory.mktemp("state")
    place = checkpoint_of(root, written, before, key_type=key_type)
    expected = outcome(place, root, after, restored, key_type=key_type)
    copy = rewritten(place, root / "savepoint-copy", sorted(states))
    assert outcome(copy, root, after, restored, key_type=key_type) == expected
    assert expected, "something was left to do"


@pytest.mark.slow
@pytest.mark.parametrize("unpickle", [False, True])
def test_files_of_a_database_are_written_again_in_the_common_format(tmp_path, unpickle):
    place = checkpoint_of(tmp_path, "rocksdb-incremental")
    expected = outcome(place, tmp_path)
    copy = rewritten(place, tmp_path / "savepoint-copy", STATES, unpickle)
    assert outcome(copy, tmp_path) == expected
    found = read_snapshot(copy)
    assert not any(s.attachments for op in found.snapshot.metadata.operators for s in op.subtasks)


def test_a_wrong_value_is_fixed_and_the_rest_stays(tmp_path):
    place = checkpoint_of(tmp_path)
    contents = read_snapshot(str(place))
    table = pa.Table.from_batches(contents.keyed_state("kinds", "total").batches())
    keys = [scalar.as_py() for scalar in table.column("key")]
    values = [1000 if k == 3 else v.as_py() for k, v in zip(keys, table["value"], strict=True)]
    fixed = pa.table({"key": keys, "value": values})
    edit = SavepointEdit.of(contents)
    edit.with_keyed_state("kinds", "total", None, GivenRows(fixed.to_batches()))
    copy = edit.write(str(tmp_path / "savepoint-fixed"))
    before, after = (outcome(found, tmp_path) for found in (place, copy))
    differing = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {old[0] for old, _ in differing} == {3}
    assert all(new[2] - old[2] == 1000 - (3 + 10) for old, new in differing)


def test_a_state_is_renamed_an_operator_gets_another_uid_and_one_is_removed(tmp_path):
    place = checkpoint_of(tmp_path)
    contents = read_snapshot(str(place))
    rows = GivenRows(list(contents.keyed_state("kinds", "total").batches()))
    edit = SavepointEdit.of(contents)
    edit.with_keyed_state("kinds", "sum", edit.kinds("kinds")["total"], rows)
    edit.remove_state("kinds", "total").change_operator_identifier("kinds", "renamed")
    copy = read_snapshot(edit.write(str(tmp_path / "savepoint-renamed")))
    names = {stored.name for stored in copy.states()}
    assert "sum" in names
    assert "total" not in names
    before = [b.to_pylist() for b in contents.table("kinds", "total").batches()]
    assert [b.to_pylist() for b in copy.table("renamed", "sum").batches()] == before
    again = SavepointEdit.of(copy).remove_operator("renamed")
    last = read_snapshot(again.write(str(tmp_path / "savepoint-less")))
    assert last.states() == []


def test_a_job_that_is_bootstrapped_from_history_equals_the_one_that_saw_everything(tmp_path):
    whole = run_job(every_kind(), tmp_path / "whole", 2)
    whole.run()
    totals = {}
    for number in range(1, 21):
        totals[number % 7] = totals.get(number % 7, 0) + number
    history = pa.table({"key": list(totals), "value": list(totals.values())})
    edit = SavepointEdit.new(clock=ManualClock())
    edit.with_operator("kinds", parallelism=3, max_parallelism=128)
    kind = state_kind("VALUE", key=Types.LONG(), value=Types.LONG())
    edit.with_keyed_state("kinds", "total", kind, GivenRows(history.to_batches()))
    place = edit.write(str(tmp_path / "savepoint-history"))
    harness = run_job(every_kind(), tmp_path, 2, restore_point(tmp_path, place))
    harness.run()
    expected = {key: max(r[2] for r in released(whole) if r[0] == key) for key in range(7)}
    found = {key: max(r[2] for r in released(harness) if r[0] == key) for key in range(7)}
    assert found == {key: expected[key] + totals[key] for key in range(7)}


def kind_of(value=None, **others):
    return state_kind("VALUE", key=Types.LONG(), value=value or Types.LONG(), **others)


ANY = Types.PICKLED_BYTE_ARRAY()
NAN = float("nan")
NANS = state_kind("VALUE", key=Types.DOUBLE(), value=Types.LONG())
LISTED = state_kind("LIST", key=Types.LONG(), value=Types.LONG())
MAPPED = state_kind("MAP", key=Types.LONG(), value=Types.LONG(), map_key=Types.DOUBLE())
BAD = [
    ({"key": [NAN, NAN], "value": [1, 2]}, NANS, "key nan is there twice"),
    ({"key": [1, 1], "map_key": [NAN, NAN], "value": [1, 2]}, MAPPED, "map key nan of key 1 is"),
    ({"key": [1, 2], "value": [1, None]}, kind_of(), "ValueState cannot hold it; leave such rows"),
    ({"key": [1], "position": [0], "value": [None]}, LISTED, "ListState cannot hold it"),
    ({"key": [1], "value": ["{'a': 1}"]}, kind_of(ANY), "is text, expected binary"),
    ({"key": [1, 1], "value": [1, 2]}, kind_of(), "key 1 is there twice"),
    ({"key": [1, None], "value": [1, 2]}, kind_of(), "cannot be null"),
    ({"value": [1]}, kind_of(), "column 'key' is missing"),
    ({"key": [1]}, kind_of(), "'value' are missing"),
    ({"key": ["x"], "value": [1]}, kind_of(), "column 'key' is string"),
    ({"key": [1], "value": ["x"]}, kind_of(), "column 'value' is string"),
    ({"key": [1], "value": [1]}, kind_of(expires=True), "'ttl_timestamp' are missing"),
    ({"key": [1], "value": ["x"]}, kind_of(Types.BIG_INT()), "BIG_INT"),
]


@pytest.mark.parametrize(("columns", "kind", "message"), BAD, ids=[b[2] for b in BAD])
def test_rows_that_do_not_fit_are_refused_and_nothing_is_left(columns, kind, message, tmp_path):
    edit = SavepointEdit.new().with_operator("kinds", parallelism=2, max_parallelism=8)
    rows = GivenRows(pa.table(columns).to_batches())
    edit.with_keyed_state("kinds", "total", kind, rows)
    with pytest.raises(UsageError, match=message):
        edit.write(str(tmp_path / "savepoint-bad"))
    assert not (tmp_path / "savepoint-bad").exists()


@pytest.mark.parametrize("rows", [{"key": [1], "value": [1]}, ["key"], 5, "key"])
def test_what_holds_no_rows_is_refused_by_name(rows, tmp_path):
    edit = SavepointEdit.new().with_operator("kinds", parallelism=2, max_parallelism=8)
    total = ValueStateDescriptor("total", Types.LONG())
    with pytest.raises(UsageError, match=r"rows are a table or batches of Arrow.*not "):
        edit.with_rows("kinds", total, rows, key_type=Types.LONG()).write(str(tmp_path / "sp"))
    assert not (tmp_path / "sp").exists()


def test_a_target_that_exists_is_refused_and_left_alone(tmp_path):
    place = checkpoint_of(tmp_path)
    before = {p.name: p.read_bytes() for p in place.iterdir()}
    with pytest.raises(UsageError, match="not empty"):
        SavepointEdit.of(read_snapshot(str(place))).write(str(place))
    assert {p.name: p.read_bytes() for p in place.iterdir()} == before


def test_a_crash_while_writing_leaves_no_savepoint(tmp_path, monkeypatch):
    place = checkpoint_of(tmp_path)

    def fail(self, path, data):
        if path.endswith(METADATA_NAME):
            msg = "the disk is full"
            raise StorageError(msg)

    monkeypatch.setattr(LocalStorage, "create", fail)
    with pytest.raises(StorageError, match="full"):
        SavepointEdit.of(read_snapshot(str(place))).write(str(tmp_path / "savepoint-x"))
    assert not (tmp_path / "savepoint-x").exists()


def test_what_cannot_be_asked_for_is_refused_by_name(tmp_path):
    place = checkpoint_of(tmp_path)
    edit = SavepointEdit.of(read_snapshot(str(place)))
    rows = GivenRows([])
    with pytest.raises(UsageError, match="no operator 'x'"):
        edit.with_keyed_state("x", "total", None, rows)
    with pytest.raises(UsageError, match="is new"):
        edit.with_keyed_state("kinds", "x", None, rows)
    kind = state_kind("VALUE", key=Types.STRING(), value=Types.LONG())
    with pytest.raises(UsageError, match="must be alike"):
        edit.with_keyed_state("kinds", "total", kind, rows)
    with pytest.raises(UsageError, match="no state 'x'"):
        edit.remove_state("kinds", "x")
    with pytest.raises(UsageError, match="there already"):
        edit.with_operator("kinds", parallelism=1, max_parallelism=1)
    with pytest.raises(UsageError, match="no source 'x'"):
        edit.with_source_position("x", "{}", None)
    with pytest.raises(UsageError, match="expected one of SPLIT"):
        edit.with_operator_state("kinds", "y", "ALL", (Types.LONG(), None), [])


def test_a_source_goes_on_at_another_place(tmp_path):
    place = checkpoint_of(tmp_path)
    edit = SavepointEdit.of(read_snapshot(str(place)))
    copy = edit.with_source_position("numbers", '{"next": 35}', None).write(
        str(tmp_path / "savepoint-later")
    )
    numbers = [r for r in outcome(copy, tmp_path) if r[1] == "record"]
    assert len(numbers) == 5


def test_the_type_of_a_key_still_has_to_fit_the_program(tmp_path):
    edit = SavepointEdit.new().with_operator("kinds", parallelism=2, max_parallelism=128)
    rows = GivenRows(pa.table({"key": ["a"], "value": [1]}).to_batches())
    kind = state_kind("VALUE", key=Types.STRING(), value=Types.LONG())
    place = edit.with_keyed_state("kinds", "total", kind, rows).write(str(tmp_path / "sp"))
    with pytest.raises(IncompatibleStateError, match="key types cannot change"):
        outcome(place, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hashmap-changelog", "rocksdb-incremental"])
def test_the_max_parallelism_is_changed_which_a_restore_refuses(kind, tmp_path):
    place = checkpoint_of(tmp_path, kind)
    expected = outcome(place, tmp_path)
    with pytest.raises(WeirError, match="max parallelism"):
        outcome(place, tmp_path, max_parallelism=200)
    edit = SavepointEdit.of(read_snapshot(str(place)))
    copy = edit.with_max_parallelism("kinds", 200).write(str(tmp_path / "savepoint-wider"))
    assert outcome(copy, tmp_path, max_parallelism=200) == expected
    assert {op.max_parallelism for op in read_snapshot(copy).snapshot.metadata.operators} >= {200}
    with pytest.raises(UsageError, match="expected 2, its parallelism"):
        edit.with_max_parallelism("kinds", 1)


# ---- transactions of sinks -----------------------------------------------------------------------


def numbers_to_files(folder):
    env = environment()
    stream = env.from_sequence(1, 20).uid("numbers").key_by(lambda n: n % 7, Types.LONG())
    stream.map(str, Types.STRING()).uid("text").sink_to(FileSink.text(str(folder))).uid("files")
    return env


def lines_of(folder):
    parts = [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_"))]
    return sorted(int(line) for part in parts for line in part.read_text().split())


@pytest.mark.parametrize("unpickle", [False, True])
def test_transactions_of_a_sink_are_kept_or_dropped(tmp_path, unpickle):
    job = run_job(numbers_to_files(tmp_path / "out"), tmp_path, 2)
    asked = job.runner.savepoint(f"file://{tmp_path}/taken/savepoint-1")
    job.run_epoch(take=8)
    place = f"{tmp_path}/taken/savepoint-1"
    assert asked.result(0)
    job.end_slots()
    assert lines_of(tmp_path / "out") == [], "a savepoint commits nothing"
    contents = read_snapshot(str(place), unpickle=unpickle)
    shown = [row[1:] for row in contents.transactions("files").rows]
    assert len(shown) >= 2
    first = shown[0]
    edit = SavepointEdit.of(contents).filter_transactions("files", lambda n, t: (n, t) != first)
    left = edit.write(str(tmp_path / "savepoint-left"))
    found = read_snapshot(left)
    assert sorted(row[1:] for row in found.transactions("files").rows) == sorted(shown[1:])
    assert contents.transactions("files").rows, "the source is only read"
    successor = run_job(
        numbers_to_files(tmp_path / "out"), tmp_path, 2, restore_point(tmp_path, left)
    )
    successor.run()
    lines = lines_of(tmp_path / "out")
    assert set(range(9, 21)) <= set(lines) < set(range(1, 21))
    assert len(lines) == len(set(lines))


def test_what_is_no_sink_has_no_transactions(tmp_path):
    place = checkpoint_of(tmp_path)
    edit = SavepointEdit.of(read_snapshot(str(place)))
    with pytest.raises(UsageError, match=r"has no state '_sink.committables'"):
        edit.filter_transactions("kinds", lambda number, transaction: True)
    new = SavepointEdit.new().with_operator("new", parallelism=1, max_parallelism=4)
    with pytest.raises(UsageError, match="is new"):
        new.filter_transactions("new", lambda number, transaction: True)
