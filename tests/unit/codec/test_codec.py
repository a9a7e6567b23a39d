"""Codecs: exact round trips, refusals, and bytes that are not what they should be."""

from __future__ import annotations

import contextlib
import datetime
import pickle
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.codec.strategies import DECLARED_TYPES, exact, typed_lists

from weir.codec import codec_for
from weir.common.time import Instant
from weir.common.typeinfo import TypeInformation, Types, type_from_json
from weir.common.types import Row
from weir.errors import CorruptStateError, IncompatibleStateError, UsageError

FAST = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))


@FAST
@given(typed_lists())
def test_what_was_encoded_comes_back_with_the_same_classes(case: Any) -> None:
    type_info, values = case
    codec = codec_for(type_info)
    assert exact(codec.decode_many(codec.encode_many(values))) == exact(values)
    for value in values:
        assert exact(codec.decode(codec.encode(value))) == exact(value)


@FAST
@given(DECLARED_TYPES, st.binary(max_size=40))
def test_random_bytes_decode_or_are_reported_as_corrupt(
    type_info: TypeInformation, data: bytes
) -> None:
    codec = codec_for(type_info)
    for decode in (codec.decode, codec.decode_many):
        with contextlib.suppress(CorruptStateError):
            decode(data)


@FAST
@given(typed_lists(), st.data())
def test_truncated_bytes_are_always_reported_as_corrupt(case: Any, data: Any) -> None:
    type_info, values = case
    codec = codec_for(type_info)
    encoded = codec.encode_many(values)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(CorruptStateError):
        codec.decode_many(encoded[:cut])
    with pytest.raises(CorruptStateError):
        codec.decode_many(encoded + b"\x00")


@FAST
@given(typed_lists(), st.data())
def test_a_flipped_byte_never_raises_anything_but_corrupt(case: Any, data: Any) -> None:
    type_info, values = case
    codec = codec_for(type_info)
    encoded = bytearray(codec.encode_many(values))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(CorruptStateError):
        codec.decode_many(bytes(encoded))


@FAST
@given(DECLARED_TYPES)
def test_a_type_describes_itself_and_survives_pickling(type_info: TypeInformation) -> None:
    assert type_from_json(codec_for(type_info).describe()) == type_info
    assert pickle.loads(pickle.dumps(type_info)) == type_info
    assert codec_for(type_info).safe


REFUSED = [
    (Types.BYTE(), 128),
    (Types.SHORT(), -32769),
    (Types.INT(), 1 << 31),
    (Types.LONG(), 1 << 63),
    (Types.LONG(), True),
    (Types.LONG(), 1.0),
    (Types.DOUBLE(), "1.0"),
    (Types.DOUBLE(), 10**400),
    (Types.FLOAT(), 1e300),
    (Types.STRING(), b"x"),
    (Types.STRING(), "\ud800"),
    (Types.CHAR(), "ab"),
    (Types.BOOLEAN(), 1),
    (Types.SQL_DATE(), datetime.datetime(2020, 1, 1)),
    (Types.LIST(Types.LONG()), [1, "x"]),
    (Types.MAP(Types.STRING(), Types.LONG()), {"a": "b"}),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), (1,)),
    (Types.TUPLE([Types.LONG()]), 1),
    (Types.ROW_NAMED(["a"], [Types.LONG()]), Row(b=1)),
    (Types.ROW_NAMED(["a"], [Types.LONG()]), Row(a="x")),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [1]),
]


@pytest.mark.parametrize(("type_info", "value"), REFUSED, ids=repr)
def test_a_value_that_does_not_fit_is_refused_with_type_and_value(
    type_info: TypeInformation, value: Any
) -> None:
    codec = codec_for(type_info)
    with pytest.raises(UsageError, match=r"Types\."):
        codec.encode(value)
    with pytest.raises(UsageError, match=r"Types\."):
        codec.encode_many([None, value])


def test_numbers_become_what_the_declared_type_says() -> None:
    numpy = pytest.importorskip("numpy")
    assert exact(
        codec_for(Types.DOUBLE()).decode_many(
            codec_for(Types.DOUBLE()).encode_many([1, 2.5, numpy.float32(0.5)])
        )
    ) == exact([1.0, 2.5, 0.5])
    longs = codec_for(Types.LONG())
    assert exact(longs.decode_many(longs.encode_many([numpy.int32(7)]))) == exact([7])


def test_rows_keep_their_declared_names_and_order() -> None:
    codec = codec_for(Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()]))
    decoded = codec.decode(codec.encode(Row(b="x", a=1)))
    assert list(decoded) == [1, "x"]
    assert decoded.a == 1
    assert repr(codec.decode(codec.encode((1, "x")))) == "Row(a=1, b='x')"


def test_values_without_a_declared_type_are_pickled() -> None:
    codec = codec_for(None)
    values = [{1, 2}, (1, "a"), None, Row(a=1), Instant(1, 2), Decimal("1.0")]
    assert exact(codec.decode_many(codec.encode_many(values))) == exact(values)
    assert not codec.safe
    assert codec.describe() == {"type": "PICKLED_BYTE_ARRAY"}


def test_a_type_with_a_pickled_part_is_not_safe() -> None:
    codec = codec_for(Types.TUPLE([Types.LONG(), Types.PICKLED_BYTE_ARRAY()]))
    assert not codec.safe
    assert codec.decode(codec.encode((1, {2}))) == (1, {2})
    pairs = codec_for(Types.MAP(Types.PICKLED_BYTE_ARRAY(), Types.LONG()))
    assert pairs.decode(pairs.encode({(1,): 2})) == {(1,): 2}


def test_functions_are_pickled_by_value() -> None:
    codec = codec_for(None)
    assert codec.decode(codec.encode(lambda x: x + 1))(1) == 2


@pytest.mark.slow
def test_objects_of_the_main_program_can_be_read_by_another_process(tmp_path: Any) -> None:
    program = (
        "import sys\nfrom weir.codec import codec_for\n"
        "class Mine:\n    value = 42\n"
        "open(sys.argv[1], 'wb').write(codec_for(None).encode_many([Mine()]))\n"
    )
    target = tmp_path / "data"
    subprocess.run([sys.executable, "-c", program, str(target)], check=True)
    assert codec_for(None).decode_many(target.read_bytes())[0].value == 42


def test_broken_pickles_are_corrupt_and_missing_code_is_incompatible() -> None:
    codec = codec_for(None)
    for data in (b"", b"\x80\x05", b"garbage", pickle.dumps([1])[:-2], pickle.dumps(1)):
        with pytest.raises(CorruptStateError):
            codec.decode_many(data)
    with pytest.raises(IncompatibleStateError, match="no_such_module"):
        codec.decode(b"cno_such_module\nThing\n.")


def test_a_value_that_no_pickler_handles_is_refused() -> None:
    with pytest.raises(UsageError, match="generator"):
        codec_for(None).encode(x for x in [])


def test_bulk_forms_take_any_sequence_and_nothing() -> None:
    codec = codec_for(Types.LONG())
    assert codec.decode_many(codec.encode_many(())) == []
    assert codec.decode_many(memoryview(codec.encode_many((1, None)))) == [1, None]


def test_codecs_are_created_once_per_type() -> None:
    assert codec_for(Types.LIST(Types.LONG())) is codec_for(Types.LIST(Types.LONG()))
