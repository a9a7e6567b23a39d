"""Columns of numbers from arrays: the codecs of their types read them like lists."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.codec import codec_for
from weir.codec.columns import decode_numbers, encode_numbers
from weir.common.typeinfo import Types

LONG_MAX = (1 << 63) - 1


@given(st.lists(st.integers(-LONG_MAX - 1, LONG_MAX)))
def test_integers_are_read_as_they_are(numbers: list[int]) -> None:
    data = encode_numbers(np.array(numbers, np.int64))
    assert codec_for(Types.LONG()).decode_many(data) == numbers


@given(st.lists(st.floats(allow_nan=False)))
def test_floats_are_read_as_they_are(numbers: list[float]) -> None:
    found = codec_for(Types.DOUBLE()).decode_many(encode_numbers(np.array(numbers, np.float64)))
    assert found == numbers
    assert [math.copysign(1, x) for x in found] == [math.copysign(1, x) for x in numbers]


def test_a_float_that_is_no_number_stays_one() -> None:
    (found,) = codec_for(Types.DOUBLE()).decode_many(encode_numbers(np.array([math.nan])))
    assert math.isnan(found)


@pytest.mark.parametrize(
    ("low", "high", "size"),
    [
        (0, 255, 2),
        (0, 256, 3),
        (0, 65_535, 3),
        (0, 65_536, 5),
        (0, (1 << 32) - 1, 5),
        (0, 1 << 32, 9),
        (-128, 127, 2),
        (-129, 0, 3),
        (-1, 128, 3),
        (-(1 << 31), 0, 5),
        (-(1 << 31) - 1, 0, 9),
        (-LONG_MAX - 1, LONG_MAX, 9),
    ],
)
def test_all_numbers_are_as_long_as_the_longest_needs(low: int, high: int, size: int) -> None:
    data = encode_numbers(np.array([low, high], np.int64))
    assert len(data) == 5 + 2 * size
    assert codec_for(Types.LONG()).decode_many(data) == [low, high]


@pytest.mark.parametrize("declared", [Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG()])
def test_every_integer_type_reads_them(declared: object) -> None:
    data = encode_numbers(np.array([-128, 0, 127], np.int64))
    assert codec_for(declared).decode_many(data) == [-128, 0, 127]  # type: ignore[arg-type]


@given(st.lists(st.integers(-LONG_MAX - 1, LONG_MAX), min_size=1))
def test_arrays_of_integers_come_back_as_arrays(numbers: list[int]) -> None:
    found = decode_numbers(encode_numbers(np.array(numbers, np.int64)))
    assert found.dtype == np.int64
    assert found.tolist() == numbers


@given(st.lists(st.floats(), min_size=1))
def test_arrays_of_floats_come_back_bit_by_bit(numbers: list[float]) -> None:
    given_array = np.array(numbers, np.float64)
    found = decode_numbers(encode_numbers(given_array))
    assert found.tobytes() == given_array.tobytes()


@given(st.lists(st.integers(-LONG_MAX - 1, LONG_MAX) | st.floats() | st.none()) | st.booleans())
def test_lists_that_nobody_wrote_from_arrays_are_left_to_their_codecs_or_read_the_same(
    numbers: list[int | float | None] | bool,
) -> None:
    found = decode_numbers(msgspec.msgpack.encode(numbers))
    assert found is None or found.tolist() == numbers


@given(st.binary(max_size=64))
def test_other_bytes_are_no_numbers_or_those_that_msgpack_reads(data: bytes) -> None:
    found = decode_numbers(data)
    assert found is None or np.array_equal(found, msgspec.msgpack.decode(data), equal_nan=True)


def test_numbers_beyond_64_bits_with_a_sign_are_left_to_their_codecs() -> None:
    assert decode_numbers(b"\xdd\x00\x00\x00\x01\xcf" + b"\xff" * 8) is None
