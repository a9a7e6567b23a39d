"""The spool: data and the splits that name it."""

from __future__ import annotations

import datetime
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weir.common import Types
from weir.connector.builtin_sources import CollectionSource, FunctionSource, TextFileSource
from weir.connector.decoder import END, NumberRanges, PickledRecords, Records, TextLines
from weir.connector.file_reader import FormattedFiles, ReaderFormat
from weir.connector.file_source import FileSource, StreamFormat
from weir.connector.source import Journal, Opening, SplitRows
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


@pytest.mark.parametrize(
    "source", [CollectionSource([]), CollectionSource([1, 2])], ids=["empty", "of two"]
)
def test_also_what_holds_nothing_says_that_it_was_read(source, tmp_path):
    stream = source.open(Opening("name", tmp_path))
    (split,) = [path.read_text().strip() for path in stream.folder.iterdir()]
    pieces = list(
        SplitRows(stream.reader, stream.decoder).decode(pa.record_batch([[split]], ["s"]))
    )
    assert pieces[-1] == END
    records = [value for piece in pieces[:-1] for value in piece.values]
    assert records == source.elements
    assert stream.counted.records(1) == len(source.elements)


def test_a_job_that_resumes_behind_the_last_record_is_told_so(tmp_path):
    stream = CollectionSource([1, 2]).open(Opening("name", tmp_path, skip=2))
    assert stream.counted.records(1) == 2
    (split,) = [path.read_text().strip() for path in stream.folder.iterdir()]
    assert stream.reader.is_last(split)
    assert list(stream.reader.read(split)) == []


def text_source(folder, *names, watched=False, size=3):
    folder.mkdir()
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x\n" * size)
    return TextFileSource(str(folder), watched=watched)


def test_bounded_text_is_what_is_there_when_the_job_starts(tmp_path):
    names = ("b", "a", ".hidden", "_SUCCESS", "below/c", "day=1/d", "_day=2/e")
    source = text_source(tmp_path / "in", *names)
    opened = source.open(Opening("name", tmp_path))
    # Directories are read that are named by a column and its value.
    assert opened.only == ("a", "b", "d", "e")
    assert opened.path == tmp_path / "in"


def test_watched_text_is_whatever_comes(tmp_path):
    source = text_source(tmp_path / "in", "a", watched=True)
    assert source.open(Opening("name", tmp_path)).only == ()
    one = TextFileSource(str(tmp_path / "in" / "a"), watched=True)
    assert one.open(Opening("name", tmp_path)).only == ("a",)


@pytest.mark.parametrize("names", [(), ("a", "b"), (".hidden",)])
def test_text_without_bytes_is_a_collection_without_elements(names, tmp_path):
    source = text_source(tmp_path / "in", *names, size=0)
    stream = source.open(Opening("name", tmp_path / "work"))
    (split,) = [path.read_text().strip() for path in stream.folder.iterdir()]
    assert stream.reader.is_last(split)


class Lines(ReaderFormat):
    """Any format that workers read."""

    def get_produced_type(self):
        return Types.STRING()

    def read(self, path, faults):
        raise NotImplementedError


@pytest.mark.parametrize("watched", [False, True])
def test_files_of_other_formats_are_those_that_are_there_too(watched, tmp_path):
    text_source(tmp_path / "in", "b", "below/a", ".hidden", "_SUCCESS")
    opened = FormattedFiles(str(tmp_path / "in"), Lines(), watched).open(Opening("name", tmp_path))
    assert opened.only == (() if watched else ("a", "b"))
    assert opened.columns == ("path",)


def test_a_directory_without_files_of_another_format_says_that_it_was_read(tmp_path):
    (tmp_path / "in").mkdir()
    opening = Opening("name", tmp_path / "work")
    stream = FormattedFiles(str(tmp_path / "in"), Lines()).open(opening)
    (split,) = [path.read_text().strip() for path in stream.folder.iterdir()]
    assert stream.reader.is_last(split)


def test_a_file_source_is_read_path_by_path(tmp_path):
    lines = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(lines, "a", "b").build()
    with pytest.raises(UsageError, match=r"'name'.*by its parts"):
        source.open(Opening("name", tmp_path))
