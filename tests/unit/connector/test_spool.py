"""The spool: data and the splits that name it."""

from __future__ import annotations

import datetime
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weir.connector.builtin_sources import CollectionSource, FunctionSource, TextFileSource
from weir.connector.decoder import NumberRanges, PickledRecords, Records, TextLines
from weir.connector.file_source import FileSource, StreamFormat
from weir.connector.source import Journal, Opening
from weir.connector.spool import ParquetFiles, Spool, SpoolWriter, pickled_table, write_split
from weir.errors import StorageError, UsageError

SPLIT = '{"file":"a.parquet"}'


def test_data_that_no_split_names_yet_is_written_again(tmp_path):
    SpoolWriter(tmp_path).append(pickled_table([1, 2]))
    (tmp_path / "00000001.parquet").write_bytes(b"torn")
    assert Spool(tmp_path, 0).journaled() == 2
    SpoolWriter(tmp_path).append(pickled_table([3]))
    assert Spool(tmp_path, 0).journaled() == 3
    names = sorted(path.name for path in (tmp_path / "splits").iterdir())
    assert names == ["00000000.parquet", "00000001.parquet"]


def test_a_split_names_its_file_and_nothing_else(tmp_path):
    (tmp_path / "splits").mkdir()
    write_split(tmp_path, "a b.parquet", 0)
    text = (tmp_path / "splits" / "a b.parquet").read_text()
    assert json.loads(text) == {"file": "a b.parquet"}
    assert text.endswith("\n")


def test_a_file_that_this_host_does_not_see_is_an_error_that_says_so(tmp_path):
    with pytest.raises(StorageError, match=r"a\.parquet.*weir\.work-dir.*all hosts share"):
        list(ParquetFiles(str(tmp_path)).read(SPLIT))


def test_columns_are_found_by_name_and_get_the_types_that_are_expected(tmp_path):
    at = datetime.datetime(2020, 1, 2, 3, 4, 5, 678901)
    table = pa.table({"at": [at], "n": pa.array([7], pa.int32())})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "Europe/Berlin"))])
    (batch,) = ParquetFiles(str(tmp_path), schema).read(SPLIT)
    assert batch.schema == schema
    assert batch.column("n").to_pylist() == [7]
    utc = at.replace(tzinfo=datetime.timezone.utc)
    assert batch.column("at").to_pylist()[0].astimezone(datetime.timezone.utc) == utc


def test_long_ranges_become_numbers_in_pieces():
    batch = pa.record_batch({"start": [0, 7], "stop": [70_000, 9]})
    pieces = list(NumberRanges().decode(batch))
    assert [len(piece.values) for piece in pieces] == [65_536, 4_464, 2]
    assert pieces[-1] == Records([7, 8])


def test_lines_and_pickles_are_records():
    text = pa.record_batch({"value": ["a", "b"]})
    assert list(TextLines().decode(text)) == [Records(["a", "b"])]
    rows = pickled_table(list(range(1500))).to_batches()
    sizes = [len(p.values) for batch in rows for p in PickledRecords().decode(batch)]
    assert sizes == [1000, 500]


def test_a_source_says_whether_it_ends_and_what_it_holds(tmp_path):
    function = object()
    opening = Opening("name", tmp_path)
    assert CollectionSource([1]).bounded
    assert not FunctionSource(function).bounded
    assert FunctionSource(function).open(opening) == Journal(function)
    with pytest.raises(UsageError, match="does not exist"):
        TextFileSource(str(tmp_path / "none")).open(opening)


def test_a_file_source_is_read_path_by_path(tmp_path):
    lines = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(lines, "a", "b").build()
    with pytest.raises(UsageError, match=r"'name'.*by its parts"):
        source.open(Opening("name", tmp_path))
