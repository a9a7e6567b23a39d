"""Query directories that make Spark go on behind a position, without Spark."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from weir.checkpoint.metadata import SourcePositions, layout_of, log_check
from weir.errors import CorruptStateError, StorageError
from weir.jobmanager.failures import is_recoverable
from weir.spark.positions import (
    LOG_DIRECTORY,
    has_listed,
    initial_positions,
    prepare_query_dir,
    read_positions,
    read_time,
)
from weir.spark.positions import log_of as source_log_of
from weir.spark.resume import Describer
from weir.spark.source_logs import file_log_offset

META = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def entry(batch, name):
    return json.dumps({"path": f"file:///in/{name}", "timestamp": batch, "batchId": batch})


def query_dir(tmp_path, batches, offsets):
    """Make a directory as Spark leaves it: offsets and a file source log, compacted every ten."""
    directory = tmp_path / "query"
    (directory / "offsets").mkdir(parents=True)
    (directory / "sources" / "0").mkdir(parents=True)
    for number, lines in enumerate(offsets):
        (directory / "offsets" / str(number)).write_text("\n".join(["v1", META, *lines]))
    for number in range(batches):
        lines = [entry(number, f"f{number}")]
        name = str(number)
        if (number + 1) % 10 == 0:
            lines = [entry(n, f"f{n}") for n in range(number + 1)]
            name += ".compact"
        (directory / "sources" / "0" / name).write_text("\n".join(["v1", *lines]))
        (directory / "sources" / "0" / f".{name}.crc").write_bytes(b"stale")
    return directory


def log_of(directory):
    return {p.name: p.read_text().splitlines() for p in (directory / "sources" / "0").iterdir()}


@pytest.mark.parametrize("last", [0, 3, 8, 9, 10, 12, 19, 23])
def test_a_file_log_is_cut_at_the_position_with_compact_files_where_spark_expects_them(
    tmp_path, last
):
    offsets = [[json.dumps({"logOffset": n})] for n in range(25)]
    old = query_dir(tmp_path, 25, offsets)
    layout = layout_of(["a"])
    positions = read_positions(old, last, layout)
    new = tmp_path / "new"
    prepare_query_dir(new, positions, layout)
    log = log_of(new)
    compact = (last + 1) // 10 * 10 - 1
    names = {str(n) for n in range(compact + 1, last + 1)}
    if compact >= 0:
        names.add(f"{compact}.compact")
    assert set(log) == names
    listed = sorted(json.loads(line)["batchId"] for lines in log.values() for line in lines[1:])
    assert listed == list(range(last + 1))
    assert (new / "offsets" / "0").read_text().splitlines()[2] == json.dumps({"logOffset": last})
    assert (new / "commits" / "0").exists()
    assert (new / "metadata").exists()


def test_starting_over_lists_all_files_anew(tmp_path):
    old = query_dir(tmp_path, 3, [[json.dumps({"logOffset": n})] for n in range(3)])
    layout = layout_of(["a"])
    new = tmp_path / "new"
    prepare_query_dir(new, initial_positions(old, layout), layout)
    assert not (new / "sources" / "0").exists()
    assert not (new / "offsets").exists()


def test_starting_over_keeps_where_other_sources_began(tmp_path):
    old = tmp_path / "query"
    (old / "sources" / "0").mkdir(parents=True)
    (old / "sources" / "0" / "0").write_text("v1\n1700000000000")
    layout = layout_of(["rate"])
    new = tmp_path / "new"
    prepare_query_dir(new, initial_positions(old, layout), layout)
    assert (new / "sources" / "0" / "0").read_text() == "v1\n1700000000000"


def test_sources_are_found_by_uid_when_some_were_added_and_removed(tmp_path):
    old = tmp_path / "query"
    (old / "offsets").mkdir(parents=True)
    lines = ["v1", META, '"x1"', '"y1"', '"z1"']
    (old / "offsets" / "4").write_text("\n".join(lines))
    for number, text in enumerate("xyz"):
        (old / "sources" / str(number)).mkdir(parents=True)
        (old / "sources" / str(number) / "0").write_text(f"v1\n{text}")
    positions = read_positions(old, 4, layout_of(["x", "y", "z"]))
    new = tmp_path / "new"
    prepare_query_dir(new, positions, layout_of(["z", "new", "x"]))
    assert (new / "offsets" / "0").read_text().splitlines()[2:] == ['"z1"', "-", '"x1"']
    assert (new / "sources" / "0" / "0").read_text() == "v1\nz"
    assert not (new / "sources" / "1").exists()
    assert (new / "sources" / "2" / "0").read_text() == "v1\nx"


@pytest.mark.parametrize(
    ("offset", "files", "over"),
    [
        ("-", 0, True),  # there is nothing to come
        ("-", 1, False),
        ('{"logOffset":0}', 1, True),
        ('{"logOffset":0}', 2, False),
        ('{"logOffset":1}', 2, True),
        ('{"logOffset":10}', 11, True),
        ('{"logOffset":10}', 12, False),
    ],
)
def test_files_are_over_when_the_log_has_all_of_them(tmp_path, offset, files, over):
    directory = query_dir(tmp_path, 12, [[offset]])
    positions = read_positions(directory, 0, layout_of(["s"]))
    assert has_listed(positions, 0, files) == over


def test_a_missing_log_entry_is_refused(tmp_path):
    old = query_dir(tmp_path, 3, [[json.dumps({"logOffset": n})] for n in range(3)])
    (old / "sources" / "0" / "1").unlink()
    layout = layout_of(["a"])
    with pytest.raises(CorruptStateError, match="lacks batch 1"):
        prepare_query_dir(tmp_path / "new", read_positions(old, 2, layout), layout)


def test_nothing_to_restore_leaves_an_empty_directory(tmp_path):
    prepare_query_dir(tmp_path / "new", None, layout_of(["a"]))
    assert list((tmp_path / "new").iterdir()) == []
    empty = SourcePositions(source_logs={LOG_DIRECTORY: str(tmp_path)})
    prepare_query_dir(tmp_path / "other", empty, layout_of(["a"]))
    assert list((tmp_path / "other").iterdir()) == []


def test_a_directory_that_cannot_be_written_is_named_and_may_be_tried_again(tmp_path):
    blocked = tmp_path / "query-7"
    blocked.write_text("not a directory")
    with pytest.raises(StorageError, match=r"query-7.*cannot be used: File exists") as caught:
        prepare_query_dir(blocked, None, layout_of(["a"]))
    assert is_recoverable(caught.value)


def test_a_file_that_cannot_be_written_is_named_too(tmp_path):
    old = query_dir(tmp_path, 3, [[json.dumps({"logOffset": n})] for n in range(3)])
    layout = layout_of(["a"])
    positions = read_positions(old, 2, layout)
    new = tmp_path / "new"
    new.mkdir()
    (new / "offsets").write_text("not a directory")
    with pytest.raises(StorageError, match=r"new' cannot be used: .*exists \(.*new/offsets\)"):
        prepare_query_dir(new, positions, layout)


def test_a_job_directory_that_has_vanished_is_not_made_anew(tmp_path):
    old = query_dir(tmp_path, 3, [[json.dumps({"logOffset": n})] for n in range(3)])
    layout = layout_of(["a"])
    positions = read_positions(old, 2, layout)
    gone = tmp_path / "unmounted" / "query-1"
    with pytest.raises(StorageError, match="No such file or directory") as caught:
        prepare_query_dir(gone, positions, layout)
    assert is_recoverable(caught.value)
    assert not gone.parent.exists()


def test_positions_that_cannot_be_read_name_the_directory(tmp_path):
    with pytest.raises(StorageError, match=r"query-3' cannot be used: No such file"):
        read_positions(tmp_path / "query-3", 0, layout_of(["a"]))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("v1", '{"batchTimestampMs":1790000000123,"conf":{}}', "{}"), 1790000000123),
        (("v1", '{"batchTimestampMs":0}'), None),
        (("v1", '{"batchTimestampMs":"soon"}'), None),
        (("v1", "{}"), None),
        (("v1", "[]"), None),
        (("v1", "no JSON"), None),
        (("v1",), None),
        ((), None),
    ],
)
def test_spark_says_when_it_decided_what_to_read(lines, expected):
    assert read_time(SourcePositions(batch_id=0, offset_lines=lines)) == expected


def long_log(tmp_path, batches=12):
    """Return positions that name a log by its directory, as those of a long one do."""
    old = query_dir(tmp_path, batches, [[json.dumps({"logOffset": n})] for n in range(batches)])
    layout = layout_of(["a"])
    describer = Describer(embedded_bytes_max=0)
    return old, describer.describe(read_positions(old, batches - 1, layout), None), layout


def test_a_flipped_bit_of_a_log_is_noticed_wherever_it_is(tmp_path):
    old, positions, layout = long_log(tmp_path)
    assert positions.source_logs[LOG_DIRECTORY] == str(old)
    expected = source_log_of(positions, 0)
    noticed = 0
    for path in [p for p in (old / "sources" / "0").iterdir() if not p.name.startswith(".")]:
        data = path.read_bytes()
        for place in range(len(data)):
            for bit in (0, 5, 7):
                flipped = bytearray(data)
                flipped[place] ^= 1 << bit
                path.write_bytes(flipped)
                try:
                    # What a later compact file says again may be damaged: it is not used.
                    assert source_log_of(positions, 0) == expected
                except CorruptStateError:
                    noticed += 1
        path.write_bytes(data)
    compact = (old / "sources" / "0" / "9.compact").stat().st_size
    assert noticed > 3 * compact
    prepare_query_dir(tmp_path / "new", positions, layout)


def test_a_log_that_spark_has_compacted_meanwhile_is_the_same_log(tmp_path):
    old, positions, layout = long_log(tmp_path, 9)
    folder = old / "sources" / "0"
    lines = [entry(n, f"f{n}") for n in range(10)]
    (folder / "9.compact").write_text("\n".join(["v1", *lines]))
    for number in range(9):
        (folder / str(number)).unlink()
    prepare_query_dir(tmp_path / "new", positions, layout)
    assert set(log_of(tmp_path / "new")) == {str(n) for n in range(9)}


def test_the_check_of_a_log_grows_with_it(tmp_path):
    offsets = [[json.dumps({"logOffset": n})] for n in range(25)]
    old, layout = query_dir(tmp_path, 25, offsets), layout_of(["a"])
    growing = Describer(embedded_bytes_max=0)
    folder = old / "sources" / "0"
    for last in (3, 4, 9, 12, 22, 7):
        positions = read_positions(old, last, layout)
        if last == 22:  # Spark has deleted what a compact file holds: all is read again.
            (folder / "14").unlink()
        found = growing.describe(positions, None)
        assert found == Describer(embedded_bytes_max=0).describe(positions, None)
        prepare_query_dir(tmp_path / f"new-{last}", found, layout)


def test_a_log_is_not_read_again_as_it_grows(tmp_path):
    offsets = [[json.dumps({"logOffset": n})] for n in range(25)]
    old, layout = query_dir(tmp_path, 25, offsets), layout_of(["a"])
    describer = Describer(embedded_bytes_max=0)
    right = describer.describe(read_positions(old, 20, layout), None)
    damaged = old / "sources" / "0" / "19.compact"
    text = damaged.read_text()
    damaged.write_text(text.replace("f7", "f8"))
    later = describer.describe(read_positions(old, 21, layout), None)
    for positions in (right, later):
        with pytest.raises(CorruptStateError, match="is damaged: size and crc32"):
            prepare_query_dir(tmp_path / "new", positions, layout)
    damaged.write_text(text)
    prepare_query_dir(tmp_path / "right", later, layout)


def test_the_log_of_another_source_is_checked_too(tmp_path):
    old, layout = tmp_path / "query", layout_of(["rate"])
    (old / "sources" / "0").mkdir(parents=True)
    (old / "sources" / "0" / "0").write_text("v1\n1700000000000")
    positions = Describer(embedded_bytes_max=0).describe(initial_positions(old, layout), None)
    prepare_query_dir(tmp_path / "new", positions, layout)
    (old / "sources" / "0" / "0").write_text("v1\n1700000000001")
    with pytest.raises(CorruptStateError, match="is damaged: size and crc32"):
        prepare_query_dir(tmp_path / "other", positions, layout)


def test_an_older_checkpoint_has_no_check_and_is_read(tmp_path):
    _, positions, layout = long_log(tmp_path)
    logs = {LOG_DIRECTORY: positions.source_logs[LOG_DIRECTORY]}
    prepare_query_dir(tmp_path / "new", replace(positions, source_logs=logs), layout)
    wrong = {**logs, log_check(0): "some"}
    with pytest.raises(CorruptStateError, match="its check is 'some'"):
        prepare_query_dir(tmp_path / "other", replace(positions, source_logs=wrong), layout)


@pytest.mark.parametrize("text", ["v1\n{", "v1\n{}", "v1\n[1]", 'v1\n{"batchId":null}', "v1\n7"])
def test_a_log_that_cannot_be_read_is_damaged_state(tmp_path, text):
    old = query_dir(tmp_path, 3, [[json.dumps({"logOffset": n})] for n in range(3)])
    (old / "sources" / "0" / "1").write_text(text)
    layout = layout_of(["a"])
    positions = read_positions(old, 2, layout)
    with pytest.raises(CorruptStateError, match="not as Spark writes it"):
        prepare_query_dir(tmp_path / "new", positions, layout)
    with pytest.raises(CorruptStateError, match="not as Spark writes it"):
        Describer().describe(positions, None)


@pytest.mark.parametrize("value", ["null", '"1"', "1.5", "true", "-1", str(2**63), "[]"])
def test_a_position_of_files_that_is_no_number_is_damaged_state(value):
    with pytest.raises(CorruptStateError, match="names no entry of its log"):
        file_log_offset(f'{{"logOffset":{value}}}')
    assert file_log_offset('{"logOffset":3}') == 3
    assert file_log_offset(value) is None
