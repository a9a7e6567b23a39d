"""Staging for Spark writers, function sinks, the discarding sink, sources and module paths."""

from __future__ import annotations

import importlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from weir.common.time import Duration
from weir.common.typeinfo import Types
from weir.connector.builtin_sources import TextFileSource
from weir.connector.discard import DiscardingSink
from weir.connector.file_source import FileSource, StreamFormat
from weir.connector.sink import WriterContext
from weir.connector.staged_batch import (
    PICKLED_SCHEMA,
    StagedBatchSink,
    finish_staged,
    read_staged,
    unpickle_staged,
)
from weir.errors import CorruptStateError, UsageError
from weir.testing.clock import ManualClock

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def context(attempt: int = 1, job: str = "j" * 32, lineage: tuple[str, ...] = ()) -> WriterContext:
    return WriterContext(job, "0" * 32, attempt, 0, 1, lineage, clock=ManualClock(17))


def staged_files(folder):
    return sorted(folder.glob("staged-*"))


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
    finish_staged(first)
    finish_staged(first)
    assert len(staged_files(tmp_path)) == 1


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
    assert len(staged_files(tmp_path)) == 2
    sink.create_writer(context(attempt=2, lineage=("k" * 32,))).discard_leftovers(kept)
    assert unpickle_staged(read_staged(kept)) == [1]
    assert len(staged_files(tmp_path)) == 1


def test_a_damaged_staged_file_is_named(tmp_path):
    writer = StagedBatchSink(str(tmp_path)).create_writer(context())
    writer.write_batch([1], None)
    prepared = writer.prepare(1)
    (path,) = staged_files(tmp_path)
    Path(path).write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptStateError, match="staged-"):
        read_staged(prepared)
    path.unlink()
    with pytest.raises(CorruptStateError, match="staged-"):
        read_staged(prepared)


@pytest.mark.parametrize(
    "garbage",
    [
        b"{}",
        b"[" * 100_000,
        b'{"path": 0, "rows": 1, "encoding": "arrow"}',
        b'{"path": "x", "rows": "1", "encoding": "arrow"}',
    ],
)
def test_a_damaged_staged_committable_is_corrupt_state(garbage):
    with pytest.raises(CorruptStateError, match="damaged"):
        read_staged([garbage])


def test_a_staged_path_that_no_file_has_is_corrupt_state():
    with pytest.raises(CorruptStateError, match="cannot be read"):
        read_staged([b'{"path": "x\\u0000", "rows": 1, "encoding": "arrow"}'])


class Evil:
    """What somebody puts in place of a record: to unpickle it is to run it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def exchanged(path: Path, mark: Path) -> None:
    """Put other rows, as many as before, into a staged file."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array([pickle.dumps(Evil(mark))], pa.binary())], schema=PICKLED_SCHEMA
    )
    with path.open("wb") as out, pa.ipc.new_stream(out, PICKLED_SCHEMA) as writer:
        writer.write_batch(batch)


@pytest.mark.parametrize("declared", [None, SCHEMA])
def test_rows_that_somebody_exchanged_are_not_unpickled(tmp_path, declared):
    staging, mark = tmp_path / "staging", tmp_path / "executed"
    writer = StagedBatchSink(str(staging), declared).create_writer(context())
    writer.write_batch([(1, "a")], None)
    prepared = writer.prepare(1)
    (path,) = staged_files(staging)
    exchanged(path, mark)
    with pytest.raises(CorruptStateError, match="was changed: it has the digest"):
        read_staged(prepared)
    assert not mark.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_rows_without_a_digest_are_read_if_they_are_this_users(tmp_path):
    writer = StagedBatchSink(str(tmp_path)).create_writer(context())
    writer.write_batch([1], None)
    entry = json.loads(writer.prepare(1)[0])
    del entry["sha256"]
    older = [json.dumps(entry).encode()]
    assert unpickle_staged(read_staged(older)) == [1]
    os.chown(entry["path"], 65534, 65534)
    with pytest.raises(CorruptStateError, match="belongs to user 65534, expected 0"):
        read_staged(older)


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
    assert source.parts() == (TextFileSource("a", "latin-1"), TextFileSource("b", "latin-1"))
    watching = builder.monitor_continuously(Duration.of_seconds(5)).build()
    assert watching.discovery_interval_ms == 5000
    assert (source.bounded, watching.bounded) == (True, False)
    assert [(part.path, part.bounded) for part in watching.parts()] == [("a", False), ("b", False)]
    assert builder.process_static_file_set().build() == source


def test_file_source_mistakes_are_refused():
    with pytest.raises(UsageError, match="at least one path"):
        FileSource.for_record_stream_format(StreamFormat.text_line_format())
    with pytest.raises(UsageError, match="klingon"):
        StreamFormat.text_line_format("klingon")
    with pytest.raises(UsageError, match="ParquetColumnarRowInputFormat"):
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
    from weir.connector.builtin_sources import SequenceSource
    from weir.datastream.connectors.number_seq import NumberSequenceSource

    source = NumberSequenceSource(1, 3)
    assert isinstance(source, SequenceSource)
    assert (source.start, source.end) == (1, 3)
