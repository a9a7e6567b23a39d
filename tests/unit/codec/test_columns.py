"""Columns of numbers from arrays: the codecs of their types read them like lists."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.codec import codec_for
from weir.codec.columns import encode_numbers
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
