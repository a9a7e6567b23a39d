"""What `describe` tells about checkpoints of every backend, sound and damaged."""

from __future__ import annotations

import json
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.offline.samples import KEYS, SAVEPOINT, armed, job, take_savepoint

from weir.checkpoint.metadata import (
    CheckpointMetadata,
    FileRecord,
    InFlightRecord,
    OperatorRecord,
    SourceLayout,
    SourcePositions,
    SubtaskRecord,
)
from weir.checkpoint.store import load_checkpoint, write_metadata
from weir.connector.position import position_text
from weir.errors import CorruptStateError, IncompatibleStateError, UsageError
from weir.jobmanager.settings import StateFileSettings
from weir.keygroup import key_group
from weir.offline import describe
from weir.offline.text import ranges_text, type_text
from weir.snapshot import SnapshotWriter
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import BACKENDS

GROUPS = ranges_text(key_group(key, 128) for key in range(KEYS))
PICKLED = "PICKLED_BYTE_ARRAY"


@pytest.fixture
def taken(tmp_path):
    """Take three checkpoints of a kind and return the directory of the last."""

    def take(kind="hashmap", **options):
        harness = job(tmp_path, kind, **options)
        for _ in range(3):
            harness.run_epoch(take=6, checkpoint=True)
        harness.end_slots()
        armed.append(True)
        return tmp_path / harness.job_id / "chk-3"

    yield take
    armed.clear()


def everything(description):
    return next(op for op in description.operators if op.uid == "everything")


def by_name(states):
    return {state.name: state for state in states}


@pytest.mark.parametrize("kind", list(BACKENDS))
def test_states_of_every_backend_are_told_without_decoding_any(kind, taken):
    found = describe(str(taken(kind)), verify=True)
    operator = everything(found)
    states = by_name(operator.states)
    kinds = {name: state.kind for name, state in states.items() if state.kind != "timers"}
    assert kinds == {"total": "ValueState", "seen": "MapState", "bombs": "ListState"}
    assert states["total"].types == {"key": "LONG", "namespace": PICKLED, "value": "LONG"}
    assert states["seen"].types["map_key"] == "STRING"
    assert states["seen"].types["value"] == "ROW<amount DOUBLE, tags LIST<STRING>>"
    assert states["bombs"].types["value"] == PICKLED
    assert [name for name, state in states.items() if state.expires] == ["total"]
    assert (states["_timer.event"].entries, states["_timer.event"].key_groups) == (KEYS, GROUPS)
    assert (operator.parallelism, operator.max_parallelism) == (2, 128)
    assert [s.key_groups for s in operator.subtasks] == [(0, 63), (64, 127)]
    assert found.problems == ()


def test_full_checkpoints_tell_entries_bytes_and_key_groups_exactly(taken):
    found = describe(str(taken()))
    operator = everything(found)
    states = by_name(operator.states)
    assert [(s.name, s.entries, s.changes, s.key_groups) for s in states.values()] == [
        ("bombs", KEYS, 0, GROUPS),
        ("seen", 1, 0, str(key_group(1, 128))),
        ("total", KEYS, 0, GROUPS),
        ("_timer.event", KEYS, 0, GROUPS),
        ("_timer.processing", 0, 0, None),
    ]
    assert all(state.bytes > 0 for state in states.values() if state.entries)
    assert operator.bytes < found.bytes, "footers come on top"
    assert (operator.raw_bytes, operator.raw_key_groups) == (10, "0, 64")
    kept = by_name(operator.operator_states)
    assert (kept["buffer"].mode, kept["buffer"].elements) == ("SPLIT", 6)
    assert kept["buffer"].types == {"value": "STRING"}
    assert kept["_raw_operator"].elements == 2
    assert (found.shared_bytes, found.files, found.relocatable) == (0, 2, True)


def test_changes_are_counted_where_they_are_stored_as_such(taken):
    total = by_name(everything(describe(str(taken("hashmap-changelog")))).states)["total"]
    assert (total.entries, total.changes) == (None, 18)
    assert total.bytes > 0


def test_a_database_is_told_as_a_whole(taken):
    operator = everything(describe(str(taken("rocksdb-incremental"))))
    total = by_name(operator.states)["total"]
    assert (total.entries, total.bytes, total.key_groups) == (None, None, None)
    assert operator.database_bytes > 0
    roles = [file.role for file in operator.subtasks[0].files]
    assert roles[-1] == "own"
    assert "attachment" in roles


def test_a_checkpoint_that_shares_files_cannot_be_moved_and_says_why(taken):
    found = describe(str(taken("hashmap-incremental")))
    assert not found.relocatable
    assert "4 of its files lie outside" in found.outside[0]
    assert 0 < found.shared_bytes < found.bytes


@pytest.mark.parametrize("kind", ["hashmap", "hashmap-incremental", "rocksdb-changelog"])
def test_a_savepoint_is_described_wherever_it_was_moved(kind, tmp_path):
    harness = job(tmp_path / "root", kind)
    harness.run_epoch(take=6, checkpoint=True)
    take_savepoint(harness)
    harness.end_slots()
    shutil.move(tmp_path / "root" / SAVEPOINT, tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "root")
    found = describe(f"file://{tmp_path}/elsewhere/_metadata", verify=True)
    assert (found.kind, found.relocatable, found.problems) == ("savepoint", True, ())
    assert (found.job_id, found.epoch) == (harness.job_id, 2)
    assert by_name(everything(found).states)["bombs"].entries == 7


def test_state_inside_the_metadata_is_told_too(taken):
    path = taken(state_files=StateFileSettings(1 << 20))
    found = describe(str(path))
    assert found.files == 0
    assert all(f.in_metadata for s in everything(found).subtasks for f in s.files)
    assert by_name(everything(found).states)["total"].entries == KEYS


def test_sources_tell_where_they_are(taken):
    (source,) = describe(str(taken())).sources
    assert (source.uid, json.loads(source.offset)) == ("numbers", {"next": 18})


@pytest.mark.parametrize(
    ("offset", "records", "text"),
    [
        ('{"logOffset":4}', None, "files up to entry 4 of the source's log"),
        ('{"b":{"0":7},"a":{"10":2,"9":1}}', None, "a: 9=1, 10=2; b: 0=7"),
        ('{"a":{}}', None, '{"a":{}}'),
        ("17", None, "17"),
        ("not json", None, "not json"),
        (None, None, "not read yet"),
        ('{"logOffset":4}', 12345, "12,345 records read"),
    ],
)
def test_positions_are_readable(offset, records, text):
    assert position_text(offset, records) == text


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "fields", "names", "element", "key", "value"]), inner
            )
        ),
        max_leaves=8,
    )
)
def test_whatever_a_file_calls_a_type_has_a_text(stored):
    assert type_text(stored)


def test_a_source_without_a_line_has_not_been_read(tmp_path):
    layout = (SourceLayout("new", 1), SourceLayout("old", 0), SourceLayout("counted", 2, 5))
    sources = SourcePositions(3, ("v1", "{}", "9", "-"), (), {"@directory": "/q"}, layout)
    stored(tmp_path, sources=sources)
    found = describe(f"{tmp_path}/sp")
    assert [(s.uid, s.position) for s in found.sources] == [
        ("old", "9"),
        ("new", "not read yet"),
        ("counted", "5 records read"),
    ]
    assert found.outside == ("positions of its sources refer to '/q'",)


# ---- what is wrong -----------------------------------------------------------------------------


def stored(root, name="sp", **facts):
    metadata = CheckpointMetadata(1, "a" * 32, "job", 0, "savepoint", 1, **facts)
    write_metadata(LocalStorage(str(root)), name, metadata)
    return root / name


def own_file(path):
    return next(p for p in sorted(path.iterdir()) if p.name.startswith("state-s0"))


def test_a_missing_file_is_a_problem_and_the_rest_is_told(taken):
    path = taken()
    own_file(path).unlink()
    found = describe(str(path))
    assert len(found.problems) == 1
    assert "is missing" in found.problems[0]
    total = by_name(everything(found).states)["total"]
    assert 0 < total.entries < KEYS, "what the other subtask stored"


def test_a_cut_file_is_a_problem(taken):
    path = taken()
    file = own_file(path)
    file.write_bytes(file.read_bytes()[:-3])
    (problem,) = describe(str(path)).problems
    assert f"bytes, expected {file.stat().st_size + 3}" in problem


def test_altered_bytes_of_state_are_found_by_verification_alone(taken):
    path = taken()
    file = own_file(path)
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    assert describe(str(path)).problems == ()
    found = describe(str(path), verify=True)
    assert found.verified
    assert len(found.problems) == 1
    assert "has the checksum" in found.problems[0]


@pytest.mark.parametrize("footer", [{}, {"operators": {"op": {"keyed": {"s": 1}}}}])
def test_a_footer_of_an_unknown_form_is_a_problem_that_names_the_file(tmp_path, footer):
    with LocalStorage(str(tmp_path)).open_write("sp/state-s0-a0-01") as out:
        facts = SnapshotWriter(out).finish(footer)
    operator = OperatorRecord("op", None, "op", 1, 128, True, (SubtaskRecord(0, 0, (0, 127)),))
    files = (FileRecord("state-s0-a0-01", facts.size, facts.crc32, 0),)
    found = describe(str(stored(tmp_path, operators=(operator,), files=files)))
    assert len(found.problems) == 1
    assert "sp/state-s0-a0-01" in found.problems[0]
    assert "not in the known form" in found.problems[0]


def test_rows_in_flight_are_counted(tmp_path):
    data = b"rows"
    files = (FileRecord("state-s1-a0-01", 4, zlib.crc32(data), 1, data),)
    path = stored(tmp_path, files=files, in_flight=(InFlightRecord(1, 0, 2, 40, 4),))
    (rows,) = describe(str(path)).in_flight
    assert (rows.subtask, rows.level, rows.records, rows.bytes) == (1, 2, 40, 4)


def test_a_newer_format_is_refused_by_its_number(tmp_path):
    path = stored(tmp_path) / "_metadata"
    path.write_bytes(path.read_bytes().replace(b"weir-metadata 4", b"weir-metadata 99", 1))
    with pytest.raises(IncompatibleStateError, match="its format is 99"):
        describe(str(path))


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:30] + b"x" + b[31:]])
def test_damaged_metadata_is_refused(tmp_path, damage):
    path = stored(tmp_path) / "_metadata"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptStateError, match="_metadata' is damaged"):
        describe(str(path))


def test_a_place_without_a_checkpoint_says_what_lies_there(tmp_path):
    stored(tmp_path, "root/savepoint-1")
    (tmp_path / "file").write_text("no savepoint")
    with pytest.raises(UsageError, match="it holds savepoints: name one of them"):
        describe(f"{tmp_path}/root")
    with pytest.raises(UsageError, match="found a file"):
        describe(f"{tmp_path}/file")
    with pytest.raises(UsageError, match="found nothing"):
        describe(f"{tmp_path}/unknown")


@pytest.mark.parametrize("version", [2, 3])
def test_checkpoints_of_all_releases_are_described(version):
    golden = Path(__file__).parents[2] / "golden" / f"v{version}"
    found = describe(str(golden))
    metadata = load_checkpoint(LocalStorage(str(golden.parent)), golden.name)
    assert found.format_version == version
    assert len(found.operators) == len(metadata.operators)


def test_describing_changes_nothing(taken):
    path = taken("rocksdb-incremental")
    root = path.parents[1]
    before = {p: p.stat().st_mtime_ns for p in root.rglob("*")}
    describe(str(path), verify=True)
    assert {p: p.stat().st_mtime_ns for p in root.rglob("*")} == before


def test_a_checkpoint_that_goes_on_with_another_jobs_files_is_whole(tmp_path):
    storage = LocalStorage(str(tmp_path))
    old, new = "a" * 32, "b" * 32
    storage.create(f"{old}/shared/state-s0-a0-01", b"x")
    file = FileRecord(f"../../{old}/shared/state-s0-a0-01", 1, zlib.crc32(b"x"), 0)
    metadata = CheckpointMetadata(4, new, "job", 0, "checkpoint", 1, files=(file,))
    write_metadata(storage, f"{new}/chk-4", metadata)
    write_metadata(storage, f"{new}/chk-5", replace(metadata, files=(replace(file, size=2),)))
    assert describe(f"{tmp_path}/{new}/chk-4", verify=True).problems == ()
    assert len(describe(f"{tmp_path}/{new}/chk-5").problems) == 1
