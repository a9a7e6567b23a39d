"""Every sink that Weir ships passes the sink contract."""

from __future__ import annotations

import ast
import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weir.connector.bucket import BucketAssigner
from weir.connector.file_sink import FileSink
from weir.connector.file_system import FileSystem
from weir.connector.rolling import RollingPolicy
from weir.connector.sink import Sink
from weir.testing.sink_conformance import ReferenceTwoPhaseSink, SinkConformance

pytestmark = pytest.mark.matrix


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


class TestTwoPhaseSink(SinkConformance):
    def make_sink(self, directory: Path, file_system: FileSystem) -> Sink:
        return ReferenceTwoPhaseSink(str(directory), file_system)

    def visible(self, directory: Path) -> list[Any]:
        return [ast.literal_eval(line) for line in lines(directory / "done") if line]

    def hidden(self, directory: Path) -> list[str]:
        return [str(p) for p in (directory / ".open").rglob("*") if p.is_file()]
