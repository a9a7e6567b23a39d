"""Staging for Spark writers, function sinks, the discarding sink, sources and module paths."""

from __future__ import annotations

import importlib
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from weir.common.time import Duration
from weir.common.typeinfo import Types
from weir.connector.discard import DiscardingSink
from weir.connector.file_source import FileSource, StreamFormat
from weir.connector.sink import WriterContext
from weir.connector.staged_batch import (
    StagedBatchSink,
    read_staged,
    remove_staged,
    unpickle_staged,
)
from weir.errors import CorruptStateError, UsageError
from weir.graph.sources import TextFileSource
from weir.testing.clock import ManualClock

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def context(attempt: int = 1, job: str = "j" * 32, lineage: tuple[str, ...] = ()) -> WriterContext:
    return WriterContext(job, "0" * 32, attempt, 0, 1, lineage, clock=ManualClock(17))


def test_staged_rows_come_back_as_a_table_per_checkpoint(tmp_path):
    sink = pickle.loads(pickle.dumps(StagedBatchSink(str(tmp_path), SCHEMA)))
    writer = sink.create_writer(context())
    writer.write_batch([(1, "a")], None)
    writer.write_batch([(2, None)], None)
    first = writer.prepare(1)
    writer.write_batch([(3, "c")], None)
    second = writer.prepare(2)
    assert writer.prepare(3) == []
    writer.commit([*first, *second])
    writer.restore(first)
    assert read_staged(first).to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert read_staged([*first, *second]).num_rows == 3
    remove_staged(first)
    remove_staged(first)
    assert len(os.listdir(tmp_path)) == 1


def test_records_without_columns_are_staged_pickled(tmp_path):
    writer = StagedBatchSink(str(tmp_path)).create_writer(context())
    records: list[Any] = [1, {"a": (1, 2)}, None]
    writer.write_batch(records, None)
    assert unpickle_staged(read_staged(writer.prepare(1))) == records


def test_many_rows_are_staged_in_one_file(tmp_path):
    writer = StagedBatchSink(str(tmp_path), SCHEMA).create_writer(context())
    writer.write_batch([(i, "x") for i in range(70_000)], None)
    (committable,) = writer.prepare(1)
    assert read_staged([committable]).column("id").to_pylist() == list(range(70_000))


def test_abort_and_leftovers_remove_what_no_checkpoint_holds(tmp_path):
    sink = StagedBatchSink(str(tmp_path))
    writer = sink.create_writer(context())
    writer.write_batch([0] * 70_000, None)
    assert len(os.listdir(tmp_path)) == 1
    writer.abort()
    assert os.listdir(tmp_path) == []
    writer.write_batch([1], None)
    kept = writer.prepare(1)
    writer.write_batch([2], None)
    writer.prepare(2)
    other = sink.create_writer(context(job="k" * 32))
    other.write_batch([3], None)
    other.prepare(1)
    sink.create_writer(context(attempt=2)).discard_leftovers(kept)
    assert len(os.listdir(tmp_path)) == 2
    sink.create_writer(context(attempt=2, lineage=("k" * 32,))).discard_leftovers(kept)
    assert unpickle_staged(read_staged(kept)) == [1]
    assert len(os.listdir(tmp_path)) == 1


def test_a_damaged_staged_file_is_named(tmp_path):
    writer = StagedBatchSink(str(tmp_path)).create_writer(context())
    writer.write_batch([1], None)
    prepared = writer.prepare(1)
    (path,) = tmp_path.iterdir()
    Path(path).write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptStateError, match="staged-"):
        read_staged(prepared)
    path.unlink()
    with pytest.raises(CorruptStateError, match="staged-"):
        read_staged(prepared)
    with pytest.raises(CorruptStateError, match="damaged"):
        read_staged([b"{}"])


def test_the_discarding_sink_takes_everything():
    writer = DiscardingSink().create_writer(context())
    writer.write_batch([1, 2], None)
    assert writer.prepare(1) == []
    writer.commit([])
    writer.close()


def test_a_file_source_is_a_value():
    builder = FileSource.for_record_stream_format(
        StreamFormat.text_line_format("latin-1"), "a", "b"
    )
    source = builder.build()
    assert (source.paths, source.charset) == (("a", "b"), "latin-1")
    assert source.discovery_interval_ms is None
    assert source.get_produced_type() == Types.STRING()
    assert source.text_sources() == (TextFileSource("a", "latin-1"), TextFileSource("b", "latin-1"))
    watching = builder.monitor_continuously(Duration.of_seconds(5)).build()
    assert watching.discovery_interval_ms == 5000
    assert builder.process_static_file_set().build() == source


def test_file_source_mistakes_are_refused():
    with pytest.raises(UsageError, match="at least one path"):
        FileSource.for_record_stream_format(StreamFormat.text_line_format())
    with pytest.raises(UsageError, match="klingon"):
        StreamFormat.text_line_format("klingon")
    with pytest.raises(UsageError, match="from_dataframe"):
        FileSource.for_bulk_file_format(None, "a")
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "a")
    with pytest.raises(UsageError, match="discovery interval"):
        builder.monitor_continuously(0)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("base", "Source Sink DeliveryGuarantee"),
        (
            "file_system",
            "FileSink FileSource StreamFormat BucketAssigner RollingPolicy OutputFileConfig "
            "DefaultRollingPolicy OnCheckpointRollingPolicy BulkWriterFactory",
        ),
        ("number_seq", "NumberSequenceSource"),
        ("", "FileSink FileSource NumberSequenceSource Sink Source DeliveryGuarantee"),
    ],
)
def test_names_are_where_pyflink_has_them(module, names):
    path = "weir.datastream.connectors" + (f".{module}" if module else "")
    found = importlib.import_module(path)
    assert [name for name in names.split() if not hasattr(found, name)] == []


def test_a_number_sequence_source_is_the_engines_sequence():
    from weir.datastream.connectors.number_seq import NumberSequenceSource
    from weir.datastream.sources import SequenceSource

    source = NumberSequenceSource(1, 3)
    assert isinstance(source, SequenceSource)
    assert (source.start, source.end) == (1, 3)
