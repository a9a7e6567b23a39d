"""Frames that are handled part by part, and gathered from parts."""

from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pytest

from weir.common.typeinfo import Types
from weir.graph.plan import EdgeNode
from weir.graph.transformation import KeySpec, Partitioning
from weir.runtime.exchange import FRAME_ROWS, EdgeWriter, GatheringWriter
from weir.runtime.frame import Chunk, unpack_data, unpack_parts

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
def test_parts_hold_the_records_of_the_frame_in_order(edge, stamped):
    values = [record(edge, n) for n in range(50)]
    stamps = list(range(50)) if stamped else None
    frames = written(EdgeWriter(edge, 0, "target"), [Chunk(values, stamps)])
    for frame in frames:
        payload = pa.py_buffer(frame.payload)
        whole = fields(unpack_data(payload, edge))
        for rows in (1, 7, 1000):
            parts = list(unpack_parts(payload, edge, rows))
            assert max(map(len, parts)) <= rows
            assert list(chain.from_iterable(map(fields, parts))) == whole


def test_a_key_is_the_very_object_in_its_record():
    (frame, *_) = written(EdgeWriter(PLAIN, 0, "target"), [Chunk([record(PLAIN, 1)])])
    chunk = unpack_data(pa.py_buffer(frame.payload), PLAIN)
    assert chunk.keys[0] is chunk.values[0][0]


@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES)
def test_gathered_chunks_arrive_as_if_they_were_sent_one_by_one(edge):
    values = [record(edge, n) for n in range(60)]
    chunks = [Chunk(values[n : n + 4], None if n % 8 else [n] * 4) for n in range(0, 60, 4)]
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
