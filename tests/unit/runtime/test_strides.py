"""Frames that are handled stride by stride, and gathered from strides."""

from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pytest

from weir.common import Row
from weir.common.typeinfo import Types
from weir.graph.plan import EdgeNode
from weir.graph.transformation import KeySpec, Partitioning
from weir.runtime.columnar import ColumnInput
from weir.runtime.exchange import EdgeWriter
from weir.runtime.frame import Chunk, unpack_data, unpack_strides
from weir.runtime.gather import FRAME_BYTES, FRAME_ROWS, GatheringWriter

NESTED = Types.TUPLE(
    [Types.STRING(), Types.LIST(Types.LONG()), Types.MAP(Types.LONG(), Types.LONG())]
)
PLAIN = EdgeNode(
    id=0,
    source=0,
    target=1,
    input_index=0,
    partitioning=Partitioning.HASH,
    key=KeySpec(lambda row: row[0], (0,)),
    partition_fn=None,
    tag=None,
    type=NESTED,
    source_level=1,
    target_level=2,
    parallelism=2,
    max_parallelism=128,
)
EDGES = {
    "columns": PLAIN,
    "two key fields": replace(
        PLAIN,
        type=Types.TUPLE([Types.LONG(), Types.STRING()]),
        key=KeySpec(lambda row: (row[0], row[1]), (0, 1)),
    ),
    "pickled": replace(PLAIN, type=None, key=KeySpec(lambda row: row[0])),
    "no key": replace(PLAIN, key=None, partitioning=Partitioning.REBALANCE),
}


def record(edge, n):
    if edge is EDGES["two key fields"]:
        return (n % 7, f"k{n % 3}")
    return (f"k{n % 5}", None if n % 4 == 0 else list(range(n % 3)), {n: n + 1} if n % 2 else {})


def written(writer, chunks):
    for chunk in chunks:
        writer.write(chunk)
    return writer.take_frames()


def fields(chunk):
    stamps = chunk.timestamps or [None] * len(chunk)
    keys = chunk.keys or [None] * len(chunk)
    groups = chunk.groups or [None] * len(chunk)
    return list(zip(chunk.values, stamps, keys, groups, strict=True))


def received(frames, edge, target):
    payloads = [pa.py_buffer(frame.payload) for frame in frames if frame.target == target]
    return list(chain.from_iterable(fields(unpack_data(p, edge)) for p in payloads))


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES)
def test_strides_hold_the_records_of_the_frame_in_order(edge, stamped):
    values = [record(edge, n) for n in range(50)]
    stamps = list(range(50)) if stamped else None
    frames = written(EdgeWriter(edge, 0, "target"), [Chunk(values, stamps)])
    for frame in frames:
        payload = pa.py_buffer(frame.payload)
        whole = fields(unpack_data(payload, edge))
        for rows in (1, 7, 1000):
            strides = list(unpack_strides(payload, edge, rows))
            assert max(map(len, strides)) <= rows
            assert list(chain.from_iterable(map(fields, strides))) == whole


def test_a_plain_key_is_the_very_object_in_its_record():
    (frame, *_) = written(EdgeWriter(PLAIN, 0, "target"), [Chunk([record(PLAIN, 1)])])
    chunk = unpack_data(pa.py_buffer(frame.payload), PLAIN)
    assert chunk.keys[0] is chunk.values[0][0]


def test_a_key_that_can_change_is_not_the_object_in_its_record():
    edge = replace(PLAIN, type=Types.TUPLE([Types.ROW([Types.LONG()])]))
    (frame, *_) = written(EdgeWriter(edge, 0, "target"), [Chunk([(Row(7),)])])
    chunk = unpack_data(pa.py_buffer(frame.payload), edge)
    chunk.values[0][0][0] = 8
    assert chunk.keys == [Row(f0=7)]


ROWS = Types.TUPLE([Types.STRING(), Types.ROW([Types.LONG()])])


@pytest.mark.parametrize(
    "edge",
    [
        replace(PLAIN, type=ROWS),
        replace(PLAIN, type=None, key=KeySpec(lambda row: row[0])),
        replace(PLAIN, type=ROWS, key=None, partitioning=Partitioning.REBALANCE),
        replace(PLAIN, type=None, key=None, partitioning=Partitioning.BROADCAST),
    ],
    ids=["columns", "pickled", "spread columns", "pickled to all"],
)
def test_what_is_changed_after_it_was_sent_was_sent_as_it_was(edge):
    row = Row(0)
    writer = GatheringWriter(edge, 0, "target")
    for n in range(6):
        row[0] = n
        writer.write(Chunk([("k", row)]))
    frames = writer.take_frames()
    got = {v[1][0] for t in range(edge.parallelism) for v, *_ in received(frames, edge, t)}
    assert got == set(range(6))


@pytest.mark.parametrize("columns", [True, False])
def test_wide_records_are_sent_before_there_are_many(columns):
    edge = replace(PLAIN, type=Types.STRING() if columns else None, key=None)
    edge = replace(edge, partitioning=Partitioning.GLOBAL)
    writer = GatheringWriter(edge, 0, "target")
    for _ in range(3):
        writer.write(Chunk(["x" * FRAME_BYTES]))
    assert len(writer.frames) == 3


def test_records_are_dealt_one_by_one_to_the_targets_of_a_rescaled_edge():
    edge = replace(PLAIN, partitioning=Partitioning.RESCALE, key=None, parallelism=4)
    frames = written(
        GatheringWriter(edge, 1, "target"), [Chunk([record(edge, n)]) for n in range(8)]
    )
    assert [len(received(frames, edge, target)) for target in range(4)] == [2, 2, 2, 2]


@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES)
def test_gathered_chunks_arrive_as_if_they_were_sent_one_by_one(edge):
    values = [record(edge, n) for n in range(60)]
    chunks = [Chunk(values[n : n + 4], None if n < 32 else [n] * 4) for n in range(0, 60, 4)]
    one_by_one = written(EdgeWriter(edge, 1, "target"), chunks)
    gathered = written(GatheringWriter(edge, 1, "target"), chunks)
    assert len(gathered) < len(one_by_one)
    for target in range(edge.parallelism):
        assert received(gathered, edge, target) == received(one_by_one, edge, target)


def test_a_frame_is_sent_when_there_are_enough_records_for_it():
    edge = replace(PLAIN, type=Types.LONG(), key=None, partitioning=Partitioning.GLOBAL)
    writer = GatheringWriter(edge, 0, "target")
    writer.write(Chunk(list(range(FRAME_ROWS - 1))))
    assert writer.frames == []
    writer.write(Chunk([1, 2]))
    assert len(writer.frames) == 1
    writer.write(Chunk([3]))
    writer.restart()
    assert writer.take_frames() == []


def test_columns_of_which_only_some_have_timestamps_are_not_joined():
    edge = replace(PLAIN, parallelism=1)
    chunks = [Chunk([record(edge, 1)], [5]), Chunk([record(edge, 2)])]
    frames = written(GatheringWriter(edge, 0, "target"), chunks)
    payloads = [pa.py_buffer(frame.payload) for frame in frames]
    assert len(payloads) == 2
    assert ColumnInput.of(payloads) is None
    assert ColumnInput.of(payloads[:1]).timestamps.to_pylist() == [5]
