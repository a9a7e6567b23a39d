"""Which partition of a source rows are of."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from weir.connector.builtin_sources import DataFrameSource, SequenceSource
from weir.connector.decoder import (
    END,
    ByFile,
    Columns,
    Decoder,
    Partition,
    PickledRecords,
    Piece,
    Records,
    TextLines,
    TypedColumns,
)
from weir.connector.source import Opening, SplitReader, SplitRows

ROWS = pa.record_batch(
    {
        "topic": ["a", "b", "a", None, "a"],
        "partition": pa.array([0, 0, 1, 0, 0], pa.int32()),
        "value": [1, 2, 3, 4, 5],
    }
)


def decoded(decoder: Decoder, batch: pa.RecordBatch) -> list[tuple[Partition | None, list]]:
    """Return the values of the pieces, with the partition they are said to be of."""
    found: list[tuple[Partition | None, list]] = []
    current: Partition | None = None
    for piece in decoder.decode(batch):
        if isinstance(piece, Partition):
            current = piece
        elif isinstance(piece, Columns):
            found.append((current, piece.batch.column("value").to_pylist()))
    return found


def test_rows_are_split_by_the_columns_that_name_their_partition() -> None:
    assert decoded(TypedColumns(None, ("topic", "partition")), ROWS) == [
        (Partition('{"partition": 0, "topic": "a"}'), [1, 5]),
        (Partition('{"partition": 0, "topic": "b"}'), [2]),
        (Partition('{"partition": 1, "topic": "a"}'), [3]),
        (Partition('{"partition": 0, "topic": null}'), [4]),
    ]


def test_rows_of_one_partition_stay_as_they_are() -> None:
    (piece,) = list(TypedColumns(None, ("topic",)).decode(ROWS.slice(0, 1)))[1:]
    assert isinstance(piece, Columns)
    assert piece.batch.equals(ROWS.slice(0, 1))


def test_without_such_columns_nothing_is_said_of_partitions() -> None:
    assert decoded(TypedColumns(None), ROWS) == [(None, [1, 2, 3, 4, 5])]


def test_a_column_of_files_is_none_of_the_records() -> None:
    decoder = ByFile(TypedColumns(None), "topic")
    pieces: list[Piece] = list(decoder.decode(ROWS.slice(0, 2)))
    assert pieces[0] == Partition('{"topic": "a"}', ends=True)
    assert isinstance(pieces[1], Columns)
    assert pieces[1].batch.schema.names == ["partition", "value"]
    assert decoded(decoder, ROWS.slice(0, 3))[0][1] == [1, 3]


def test_lines_of_a_file_are_a_partition_that_ends() -> None:
    lines = pa.record_batch({"value": ["x", "y", "z"], "file": ["1", "2", "1"]})
    assert list(ByFile(TextLines(), "file").decode(lines)) == [
        Partition('{"file": "1"}', ends=True),
        Records(["x", "z"]),
        Partition('{"file": "2"}', ends=True),
        Records(["y"]),
    ]


def test_an_empty_batch_has_no_partitions() -> None:
    assert decoded(TypedColumns(None, ("topic",)), ROWS.slice(0, 0)) == []


class NoRows(SplitReader):
    def read(self, split: str):
        return iter(())


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_split_is_a_partition_that_ends_where_its_source_says_so(partitioned: bool) -> None:
    batch = pa.record_batch({"value": ["x", "y"]})
    pieces = list(SplitRows(NoRows(), PickledRecords(), partitioned).decode(batch))
    expected = [Partition("x", ends=True), Partition("y", ends=True)]
    assert pieces == (expected if partitioned else [])


class Numbered(NoRows):
    def is_last(self, split: str) -> bool:
        return split == "3"


def test_the_end_of_bounded_input_is_said_behind_the_last_split() -> None:
    decoder = SplitRows(Numbered(), PickledRecords())
    assert list(decoder.decode(pa.record_batch({"value": ["1", "2"]}))) == []
    assert list(decoder.decode(pa.record_batch({"value": ["3"]}))) == [END]


@pytest.mark.parametrize(("numbers", "files"), [(5, 3), (2, 1)])
def test_spooled_input_knows_its_last_split(numbers: int, files: int, tmp_path: Path) -> None:
    stream = SequenceSource(1, numbers).open(Opening("numbers", tmp_path, records_per_split=2))
    splits = [path.read_text().strip() for path in sorted(stream.folder.iterdir())]
    expected = [False] * (files - 1) + [True]
    assert [stream.reader.is_last(split) for split in splits] == expected


class Frame:
    """What a DataFrame says of itself."""

    def __init__(self, *columns: str, streaming: bool = True) -> None:
        self.columns = list(columns)
        self.isStreaming = streaming


KAFKA = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@pytest.mark.parametrize(
    ("frame", "partition_by", "expected"),
    [
        (Frame(*KAFKA), (), ("topic", "partition")),
        (Frame(*KAFKA), ("key",), ("key",)),
        (Frame(*KAFKA, streaming=False), (), ()),
        (Frame("topic", "partition"), (), ()),
    ],
)
def test_kafkas_partitions_are_known_by_its_columns(frame, partition_by, expected, tmp_path):
    source = DataFrameSource(frame, partition_by=partition_by)
    assert source.open(Opening("kafka", tmp_path)).partition_by == expected
