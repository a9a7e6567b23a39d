"""Frames: how records cross a shuffle, many in one row.

A frame is one Spark row: `salt` (decides the partition), `edge`, `origin` (sender and sequence
number, so that a receiver can restore a fixed order) and `payload`. The payload's first byte says
what follows:

    b"P"  pickle of (values, timestamps | None, keys | None, groups as bytes of uint16 | None)
    b"Q"  several of those, each after its length as uint32, little-endian
    b"A"  Arrow IPC stream of one record batch; column `__ts` holds timestamps and `__kg` key
          groups where the edge has them; keys are fields of the record. Where the sender combined
          records, `__merged` says how many are now one, or `__times` how often a record came
    b"C"  MessagePack array: control data of an upstream subtask (`Control`)
    b"R"  pickle of a report to the driver (`Report`): it holds users' records

Packing is what makes the shuffle cheap: Spark moves a few large rows instead of many small ones.
"""

from __future__ import annotations

import io
import pickle
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import cloudpickle
import msgspec
import numpy as np
import pyarrow as pa

from weir.backend.admission import holds_only_immutable
from weir.codec.arrow import batch_to_columns, columns_to_rows
from weir.codec.arrow_read import read_column
from weir.errors import UsageError
from weir.graph.plan import EdgeNode
from weir.keys import one_nan_many
from weir.runtime.report import Report

REPORT_EDGE = -1
TIMESTAMPS = "__ts"
GROUPS = "__kg"
MERGED = "__merged"
"""How many records a row has the effect of."""
TIMES = "__times"
"""How many records like it a row stands for."""
WEIGHTS = (MERGED, TIMES)
MIN_WATERMARK = -(1 << 63)
MAX_WATERMARK = (1 << 63) - 1


class Frame(NamedTuple):
    """One row on its way: target subtask, edge, origin, payload."""

    target: int
    edge: int
    origin: int
    payload: bytes | pa.Buffer


@dataclass(frozen=True)
class Incoming:
    """A frame as it arrives: edge, origin and payload."""

    edge: int
    origin: int
    payload: pa.Buffer


class Chunk:
    """A run of records of one edge, as parallel lists; `None` lists mean "none of them has one".

    `numbers` holds integer keys, and groups, once more as arrays, where they came as such. `type`
    is that of the columns that the records were, None when they were none. `merged` says how many
    records each is made of, None where nobody combined any.
    """

    __slots__ = ("groups", "keys", "merged", "numbers", "timestamps", "type", "values")

    def __init__(
        self,
        values: list[Any],
        timestamps: list[int | None] | None = None,
        keys: Sequence[Any] | None = None,
        groups: Sequence[int] | None = None,
        numbers: tuple[Any, Any] | None = None,
    ) -> None:
        """Hold the lists as they are."""
        self.numbers = numbers
        self.merged: list[int] | None = None
        self.type: Any = None
        self.values = values
        self.timestamps = timestamps
        self.keys = keys
        self.groups = groups

    def __len__(self) -> int:
        """Count the records."""
        return len(self.values)

    def rows(self, start: int, stop: int | None = None) -> Chunk:
        """Return some of the records."""
        part = Chunk(
            self.values[start:stop],
            None if self.timestamps is None else self.timestamps[start:stop],
            None if self.keys is None else self.keys[start:stop],
            None if self.groups is None else self.groups[start:stop],
        )
        part.merged = None if self.merged is None else self.merged[start:stop]
        return part


class ColumnChunk:
    """A run of records of one edge that is still columns."""

    __slots__ = ("batch", "timestamps")

    def __init__(self, batch: pa.RecordBatch, timestamps: pa.Array | None = None) -> None:
        """Hold the columns as they are."""
        self.batch = batch
        self.timestamps = timestamps


class PartitionMark(msgspec.Struct, frozen=True, array_like=True):
    """How far one partition of a source came in an epoch.

    One that `ends` has no more records in later epochs; one that is `idle` says so itself.
    """

    partition: str
    watermark: int
    ends: bool = False
    idle: bool = False


class Control(msgspec.Struct, frozen=True, array_like=True):
    """What an upstream says at the end of its epoch on one edge.

    A subtask of a slot level says its watermark, and whether it is idle. A task of level 0 says
    how far the partitions came that it read; there `upstream` is what makes the watermarks: the
    index of an operator.
    """

    upstream: int
    watermark: int = MIN_WATERMARK
    idle: bool = False
    partitions: tuple[PartitionMark, ...] = ()


_decode_control = msgspec.msgpack.Decoder(Control).decode
_decode_frames = msgspec.msgpack.Decoder(list[tuple[int, int, int, bytes]]).decode


def origin(sender: int, sequence: int) -> int:
    """Number a frame: by sender, then in the order of sending."""
    return (sender << 32) | sequence


def dumps(value: Any) -> bytes:
    """Pickle at C speed; what only cloudpickle can handle takes the slow way.

    So do objects of the program's own module: other processes have a `__main__` too, without them.
    """
    try:
        data = pickle.dumps(value, 5)
        if b"__main__" not in data:
            return data
    except (pickle.PicklingError, AttributeError, TypeError):
        pass
    return bytes(cloudpickle.dumps(value, 5))


def load_program(data: bytes) -> Any:
    """Unpickle a plan with its user functions.

    Raises:
        UsageError: a module that the functions need is missing on this side.
    """
    try:
        return cloudpickle.loads(data)
    except ModuleNotFoundError as error:
        msg = (
            f"module {error.name!r} is not importable on the workers: put it beside the program, "
            "add it with env.add_python_file(), or install it on every host"
        )
        raise UsageError(msg) from error


def pack_chunk(chunk: Chunk) -> bytes:
    """Encode records of an edge without columnar type."""
    groups = None if chunk.groups is None else array("H", chunk.groups).tobytes()
    return b"P" + dumps((chunk.values, chunk.timestamps, chunk.keys, groups))


def join_pickles(payloads: list[bytes]) -> bytes:
    """Return the payload with the records of several payloads of `pack_chunk`, in order."""
    if len(payloads) == 1:
        return payloads[0]
    parts = [b"Q"]
    for payload in payloads:
        parts += (len(payload).to_bytes(4, "little"), payload)
    return b"".join(parts)


def pack_columns(batch: pa.RecordBatch) -> pa.Buffer:
    """Encode a record batch, extra columns included."""
    sink = pa.BufferOutputStream()
    sink.write(b"A")
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def pack_control(control: Control) -> bytes:
    """Encode control data."""
    return b"C" + msgspec.msgpack.encode(control)


def pack_report(report: Report) -> bytes:
    """Encode a report to the driver."""
    return b"R" + dumps(report)


def unpack_control(payload: bytes | pa.Buffer) -> Control:
    """Decode control data."""
    return _decode_control(memoryview(payload)[1:])


def unpack_report(payload: bytes | pa.Buffer) -> Report:
    """Decode a report."""
    report: Report = pickle.loads(memoryview(payload)[1:])
    return report


def payload_kind(payload: pa.Buffer | bytes) -> bytes:
    """Return the first byte of a payload."""
    return bytes(memoryview(payload)[:1])


def unpack_data(payload: pa.Buffer, edge: EdgeNode) -> Chunk:
    """Decode a data payload into Python records, keys and key groups."""
    if payload_kind(payload) == b"A":
        return batch_to_chunk(read_batch(payload), edge)
    chunks = list(_unpickle(payload))
    return chunks[0] if len(chunks) == 1 else join_chunks(chunks)


def unpack_strides(payload: pa.Buffer, edge: EdgeNode, rows: int) -> Iterator[Chunk]:
    """Decode a data payload in strides, each when it is asked for.

    Records that are made, handled and dropped before the next ones are made stay in the caches of
    the processor.
    """
    if payload_kind(payload) == b"A":
        batch = read_batch(payload)
        for start in range(0, batch.num_rows, rows):
            yield batch_to_chunk(batch.slice(start, rows), edge)
        return
    for chunk in _unpickle(payload):
        if len(chunk) <= rows:
            yield chunk
            continue
        for start in range(0, len(chunk), rows):
            yield chunk.rows(start, start + rows)


def _unpickle(payload: pa.Buffer) -> Iterator[Chunk]:
    view = memoryview(payload)
    if payload_kind(payload) == b"P":
        yield _unpickled(view[1:])
        return
    start = 1
    while start < len(view):
        end = start + 4 + int.from_bytes(view[start : start + 4], "little")
        yield _unpickled(view[start + 5 : end])
        start = end


def _unpickled(data: memoryview) -> Chunk:
    values, timestamps, keys, raw = pickle.loads(data)
    if raw is None:
        return Chunk(values, timestamps, keys, None)
    groups = array("H")
    groups.frombytes(raw)
    return Chunk(values, timestamps, keys, groups)


def join_chunks(chunks: list[Chunk]) -> Chunk:
    """Return the records of some chunks of one edge, all or none of which have keys."""
    values = list(chain.from_iterable(chunk.values for chunk in chunks))
    stamps: list[int | None] | None = None
    if any(chunk.timestamps is not None for chunk in chunks):
        stamps = []
        for chunk in chunks:
            stamps += chunk.timestamps or [None] * len(chunk.values)
    if chunks[0].keys is None:
        return Chunk(values, stamps)
    keys = list(chain.from_iterable(chunk.keys or () for chunk in chunks))
    groups = list(chain.from_iterable(chunk.groups or () for chunk in chunks))
    return Chunk(values, stamps, keys, groups)


def batch_to_chunk(batch: pa.RecordBatch, edge: EdgeNode) -> Chunk:
    """Return the records of a batch of a columnar payload."""
    timestamps, groups, owners, merged = None, None, None, None
    if TIMES in batch.schema.names:
        batch = _repeated(batch)
    names = batch.schema.names
    if MERGED in names:
        merged = batch.column(MERGED).to_pylist()
        batch = batch.drop_columns([MERGED])
        names = batch.schema.names
    if GROUPS in names:
        owners = batch.column(names.index(GROUPS)).to_numpy()
        groups = owners.tolist()
        batch = batch.drop_columns([GROUPS])
    if TIMESTAMPS in names:
        timestamps = batch.column(TIMESTAMPS).to_pylist()
        batch = batch.drop_columns([TIMESTAMPS])
    columns = batch_to_columns(batch, edge.type)
    keys = _keys(batch, columns, edge)
    numbers = None if owners is None else _key_numbers(batch, edge)
    chunk = Chunk(
        columns_to_rows(columns, edge.type),
        timestamps=timestamps,
        keys=keys,
        groups=groups,
        numbers=None if numbers is None else (numbers, owners),
    )
    chunk.type = edge.type
    chunk.merged = merged
    return chunk


def _repeated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return all records of rows that came several times."""
    times = batch.column(TIMES).to_numpy()
    batch = batch.drop_columns([TIMES])
    return batch.take(pa.array(np.repeat(np.arange(batch.num_rows), times)))


def read_batch(payload: pa.Buffer) -> pa.RecordBatch:
    """Decode the record batch of a columnar payload."""
    with pa.ipc.open_stream(payload.slice(1)) as reader:
        return reader.read_next_batch()


def _keys(batch: pa.RecordBatch, columns: list[list[Any]], edge: EdgeNode) -> list[Any] | None:
    if edge.key is None or edge.key.fields is None:
        return None
    types = edge.type.get_field_types()
    # A plain key is the very object in its record: made once, cached once. What can change, or
    # holds what can, is made anew: a function that changes its record must not change the key.
    found = [
        _key_column(columns[i], batch.column(i), types[i])
        for i in field_positions(batch.schema, edge.key.fields)
    ]
    return found[0] if len(found) == 1 else list(zip(*found, strict=True))


def _key_column(made: list[Any], column: pa.Array, declared: Any) -> list[Any]:
    if not holds_only_immutable(declared):
        return one_nan_many(read_column(column, declared))
    return one_nan_many(made) if pa.types.is_floating(column.type) else made


def _key_numbers(batch: pa.RecordBatch, edge: EdgeNode) -> Any:
    """Return the keys as an array where they are one column of integers."""
    if edge.key is None or edge.key.fields is None or len(edge.key.fields) != 1:
        return None
    column = batch.column(field_positions(batch.schema, edge.key.fields)[0])
    if not pa.types.is_signed_integer(column.type) or column.null_count:
        return None
    return column.to_numpy()


def field_positions(schema: pa.Schema, fields: Sequence[str | int]) -> list[int]:
    """Resolve key fields, by name or position, against a schema."""
    return [f if isinstance(f, int) else schema.get_field_index(f) for f in fields]


_BATCH_BYTES = 16 << 20
FRAME_SCHEMA = pa.schema(
    [
        pa.field("salt", pa.int32()),
        pa.field("edge", pa.int32()),
        pa.field("origin", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)


def frames_to_batch(frames: Sequence[Frame], salt: Callable[[int], int]) -> pa.RecordBatch:
    """Turn frames into one record batch of `FRAME_SCHEMA`."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([salt(f.target) for f in frames], pa.int32()),
            pa.array([f.edge for f in frames], pa.int32()),
            pa.array([f.origin for f in frames], pa.int64()),
            _binary_column([f.payload for f in frames]),
        ],
        schema=FRAME_SCHEMA,
    )


def split_frames(frames: Sequence[Frame]) -> Iterator[list[Frame]]:
    """Return the frames in parts that are batches of a bearable size."""
    part: list[Frame] = []
    size = 0
    for frame in frames:
        part.append(frame)
        size += len(memoryview(frame.payload))
        if size >= _BATCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _binary_column(payloads: list[Any]) -> pa.Array:
    sizes = np.fromiter((len(memoryview(p)) for p in payloads), np.int64, len(payloads))
    offsets = np.zeros(len(payloads) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data = io.BytesIO()
    for p in payloads:
        data.write(p)
    return pa.Array.from_buffers(
        pa.binary(), len(payloads), [None, pa.py_buffer(offsets), pa.py_buffer(data.getbuffer())]
    )


def pack_frames(frames: Sequence[Frame]) -> bytes:
    """Encode frames with their targets as one value, for a driver that hands them on itself."""
    return msgspec.msgpack.encode(
        [(f.target, f.edge, f.origin, memoryview(f.payload)) for f in frames]
    )


def unpack_frames(data: bytes) -> list[Frame]:
    """Decode frames with their targets."""
    return [Frame(*fields) for fields in _decode_frames(data)]


def size_of(frames: Sequence[Frame]) -> int:
    """Return the bytes of the payloads that go on to other subtasks; reports do not."""
    return sum(len(memoryview(f.payload)) for f in frames if f.edge != REPORT_EDGE)


def payload_views(column: pa.Array) -> list[pa.Buffer]:
    """Return the payloads of a frame column as buffers, without copying them."""
    return [value.as_buffer() for value in column]


def incoming_of(batch: pa.RecordBatch) -> list[Incoming]:
    """Return the frames of a record batch of `FRAME_SCHEMA` as they arrive, without copying."""
    columns: list[Any] = [batch.column(i).to_pylist() for i in (1, 2)]
    payloads = payload_views(batch.column(3))
    return [Incoming(e, o, p) for e, o, p in zip(*columns, payloads, strict=True)]
