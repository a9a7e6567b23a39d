"""Every sink that Weir ships passes the sink contract."""

from __future__ import annotations

import ast
import csv
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from weir.common.serialization import Encoder
from weir.connector.bucket import BucketAssigner
from weir.connector.compaction import FileCompactor, FileCompactStrategy
from weir.connector.file_sink import FileSink
from weir.connector.file_system import FileSystem
from weir.connector.rolling import RollingPolicy
from weir.connector.sink import Sink
from weir.datastream.formats.avro import AvroBulkWriters, AvroSchema
from weir.datastream.formats.orc import OrcBulkWriters
from weir.datastream.formats.parquet import ParquetBulkWriters
from weir.table import DataTypes
from weir.testing.sink_conformance import ReferenceTwoPhaseSink, SinkConformance

pytestmark = pytest.mark.matrix
PAIR = DataTypes.ROW(
    [DataTypes.FIELD("n", DataTypes.BIGINT()), DataTypes.FIELD("s", DataTypes.STRING())]
)


def files(directory: Path) -> list[Path]:
    return [p for p in directory.rglob("*") if p.is_file() and not p.name.startswith(".")]


def lines(directory: Path) -> list[str]:
    texts = [path.read_text() for path in files(directory)]
    assert all(text.endswith("\n") for text in texts if text)
    return [line for text in texts for line in text.splitlines()]


class TestParquetSink(SinkConformance):
    def make_sink(self, directory: Path, file_system: FileSystem) -> Sink:
        schema = pa.schema([("number", pa.int64()), ("text", pa.string())])
        return FileSink.parquet(str(directory), schema).with_file_system(file_system)

    def visible(self, directory: Path) -> list[Any]:
        tables = [pq.read_table(path) for path in files(directory)]
        return [tuple(row.values()) for table in tables for row in table.to_pylist()]


class TestJsonLinesSink(SinkConformance):
    def make_sink(self, directory: Path, file_system: FileSystem) -> Sink:
        return FileSink.json_lines(str(directory)).with_file_system(file_system)

    def visible(self, directory: Path) -> list[Any]:
        return [tuple(json.loads(line)) for line in lines(directory)]


class TestCsvSink(SinkConformance):
    def make_sink(self, directory: Path, file_system: FileSystem) -> Sink:
        return FileSink.csv(str(directory)).with_file_system(file_system)

    def visible(self, directory: Path) -> list[Any]:
        return [(int(number), text) for number, text in csv.reader(lines(directory))]


class TestTextSink(SinkConformance):
    def make_sink(self, directory: Path, file_system: FileSystem) -> Sink:
        return FileSink.text(str(directory)).with_file_system(file_system)

    def visible(self, directory: Path) -> list[Any]:
        return [ast.literal_eval(line) for line in lines(directory)]


class Parity(BucketAssigner):
    def get_bucket_id(self, element: Any, context: Any) -> str:
        return f"parity={element[0] % 2}"


class TestRollingBuckets(TestTextSink):
    """Many files per checkpoint: two buckets, and a file for every batch of a bucket."""

    def make_sink(self, directory: Path, file_system: FileSystem) -> Sink:
        policy = RollingPolicy.default_rolling_policy(part_size=1)
        sink = FileSink.text(str(directory), bucket_assigner=Parity(), rolling_policy=policy)
        return sink.with_file_system(file_system)


class TestOrcSink(SinkConformance):
    def make_sink(self, directory: Path, file_system: FileSystem) -> Sink:
        return bulk(directory, OrcBulkWriters.for_row_type(PAIR)).with_file_system(file_system)

    def visible(self, directory: Path) -> list[Any]:
        tables = [orc.read_table(path) for path in files(directory)]
        return [tuple(row.values()) for table in tables for row in table.to_pylist()]


class TestAvroSink(SinkConformance):
    def make_sink(self, directory: Path, file_system: FileSystem) -> Sink:
        fields = '[{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]'
        schema = AvroSchema.parse_string(f'{{"type": "record", "name": "R", "fields": {fields}}}')
        made = bulk(directory, AvroBulkWriters.for_generic_record(schema))
        return made.with_file_system(file_system)

    def records(self, checkpoint: int) -> list[Any]:
        return [Hashable(n=checkpoint * 10 + i, s=f"record {i}") for i in range(3)]

    def visible(self, directory: Path) -> list[Any]:
        found = []
        for path in files(directory):
            with path.open("rb") as stream:
                found += [Hashable(**record) for record in fastavro.reader(stream)]
        return found


class Hashable(dict[str, Any]):
    """A generic record that can be counted."""

    def __hash__(self) -> int:  # type: ignore[override]
        return len(self)


def bulk(directory: Path, form: Any) -> FileSink:
    sink = FileSink.for_bulk_format(str(directory), form)
    return sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()


class TestJoinedFiles(TestTextSink):
    """All files of a checkpoint and bucket become one, before anybody sees them."""

    def make_sink(self, directory: Path, file_system: FileSystem) -> Sink:
        strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(1).build()
        sink = FileSink.for_row_format(str(directory), Encoder.simple_string_encoder())
        sink.with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=1))
        sink.with_bucket_assigner(Parity())
        sink.enable_compact(strategy, FileCompactor.concat_file_compactor())
        return sink.build().with_file_system(file_system)


class TestRewrittenParquet(TestParquetSink):
    """Parquet files are read and written into one."""

    def make_sink(self, directory: Path, file_system: FileSystem) -> Sink:
        strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(1).build()
        sink = FileSink.for_bulk_format(str(directory), ParquetBulkWriters.for_row_type(PAIR))
        sink.with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=1))
        sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        sink.enable_compact(strategy, FileCompactor.record_wise_file_compactor())
        return sink.build().with_file_system(file_system)


class TestTwoPhaseSink(SinkConformance):
    def make_sink(self, directory: Path, file_system: FileSystem) -> Sink:
        return ReferenceTwoPhaseSink(str(directory), file_system)

    def visible(self, directory: Path) -> list[Any]:
        return [ast.literal_eval(line) for line in lines(directory / "done") if line]

    def hidden(self, directory: Path) -> list[str]:
        return [str(p) for p in (directory / ".open").rglob("*") if p.is_file()]
