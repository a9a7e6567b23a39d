"""Equal keys go to one key group, whether they are routed as objects or as columns."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.graph.plan import EdgeNode
from weir.graph.transformation import KeySpec, Partitioning
from weir.keygroup import key_group
from weir.keys import NAN, one_nan
from weir.runtime.exchange import EdgeWriter
from weir.runtime.frame import Chunk, unpack_data
from weir.testing.equal_keys import equal_keys

PAIR = Types.TUPLE([Types.DOUBLE(), Types.STRING()])
NUMBERS = st.sampled_from([float("nan"), -float("nan"), 0.0, -0.0]) | st.floats(width=32)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
COLUMNS = {
    "double": (Types.DOUBLE(), NUMBERS),
    "float": (Types.FLOAT(), NUMBERS),
    "long": (Types.LONG(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "string": (Types.STRING(), TEXTS),
    "tuple": (PAIR, st.tuples(NUMBERS, TEXTS)),
    "decimal": (Types.BIG_DEC(), st.decimals("-9", "9", places=2)),
}


def edge(record_type: Any, key_type: Any = None, parallelism: int = 3) -> EdgeNode:
    fields = None if record_type is None else (0,)
    return EdgeNode(
        id=0,
        source=0,
        target=1,
        input_index=0,
        partitioning=Partitioning.HASH,
        key=KeySpec(lambda record: record[0], fields, key_type),
        partition_fn=None,
        tag=None,
        type=record_type,
        source_level=0,
        target_level=1,
        parallelism=parallelism,
        max_parallelism=128,
    )


def routed(keys: list[Any], record_type: Any = None, key_type: Any = None) -> dict[int, Any]:
    """Send records through an edge; return target, key and key group by number."""
    declared = None if record_type is None else Types.TUPLE([record_type, Types.LONG()])
    node = edge(declared, key_type)
    writer = EdgeWriter(node, 0, "sender")
    writer.write(Chunk([(key, number) for number, key in enumerate(keys)]))
    found = {}
    for frame in writer.take_frames():
        chunk = unpack_data(pa.py_buffer(frame.payload), node)
        rows = zip(chunk.values, chunk.keys or (), chunk.groups or (), strict=True)
        found.update({value[1]: (frame.target, key, group) for value, key, group in rows})
    return found


@given(st.lists(equal_keys(), min_size=1, max_size=5))
def test_objects_that_are_one_key_meet(pairs: list[tuple[Any, Any]]) -> None:
    found = routed([key for pair in pairs for key in pair])
    for number, (one, other) in enumerate(pairs):
        target, key, group = found[2 * number]
        assert (target, key, group) == found[2 * number + 1]
        assert key == one_nan(one) == one_nan(other)
        assert group == key_group(one, 128)


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_go_where_objects_go(kind: str) -> None:
    declared, values = COLUMNS[kind]

    @given(st.lists(values, min_size=1, max_size=20))
    def check(keys: list[Any]) -> None:
        columns, objects = routed(keys, declared), routed(keys, key_type=declared)
        assert columns == objects == routed(keys)
        assert {key: group for _, key, group in columns.values()} == {
            one_nan(key): key_group(key, 128) for key in keys
        }

    check()


def test_a_key_becomes_what_its_declared_type_has() -> None:
    keys = [key for _, key, _ in routed([True, 1.0, 1], key_type=Types.LONG()).values()]
    assert [(key, type(key)) for key in keys] == [(1, int)] * 3
    with pytest.raises(UsageError, match=r"'sender'.*Types.LONG.*1.5"):
        routed([1.5], key_type=Types.LONG())


def test_a_nan_is_the_same_object_on_the_other_side() -> None:
    for keys in ([float("nan")], [decimal.Decimal("NaN")]):
        assert routed(keys)[0][1] is NAN
    assert routed([float("nan")], Types.DOUBLE())[0][1] is NAN


def test_a_surrogate_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"'sender'.*ud800.*surrogate"):
        routed(["\ud800"])
    with pytest.raises(UsageError, match=r"'sender'.*ud800"):
        routed(["\ud800"], Types.STRING())
