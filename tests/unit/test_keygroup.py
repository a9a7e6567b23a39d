"""Flink's key-group formulas: its published values, and properties that hold for all keys."""

from __future__ import annotations

import datetime
import decimal
import enum
import subprocess
import sys
import uuid
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.common import Row
from weir.errors import UsageError
from weir.keygroup import (
    EMPTY_RANGE,
    KeyGroupRange,
    default_max_parallelism,
    key_group,
    key_groups_of_int64,
    murmur,
    range_of,
    round_up_to_power_of_two,
    stable_hash,
    subtask_of,
)


@pytest.mark.parametrize(
    ("keys", "maximum", "groups"),
    [
        (["8", "5", "25", "13", "4", "7", "1", "6", "9", "3"], 10, list(range(10))),
        (["a", "b"], 10, [1, 8]),
        ([7, 10], 10, [1, 9]),
        (
            list(range(16)),
            128,
            [94, 86, 127, 113, 7, 126, 18, 113, 15, 51, 67, 102, 50, 1, 27, 70],
        ),
        (["", "a", "b", "hello", "key", "flink", "Alice"], 128, [94, 81, 22, 35, 72, 98, 95]),
    ],
)
def test_keys_go_to_flinks_groups(keys, maximum, groups):
    assert [key_group(key, maximum) for key in keys] == groups


def test_the_keys_of_flinks_rescaling_test_go_to_their_groups():
    expected = (
        "10 3 8 6 5 6 3 5 11 9 10 4 7 9 4 8 2 7 12 0 9 12 8 0 2 2 5 9 11 10 1 0 10 2 6 3 1 5 3 7 "
        "11 2"
    )
    assert [key_group(key, 13) for key in range(42)] == list(map(int, expected.split()))


@pytest.mark.parametrize(
    ("code", "mixed"),
    [(0, 593689054), (1, 68075478), (2, 1085422463), (42, 1134849565), (-1, 1982413648)],
)
def test_the_mix_is_flinks(code, mixed):
    assert murmur(code & 0xFFFFFFFF) == mixed


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(1, 32768))
def test_columns_hash_as_single_keys_do(values, maximum):
    column = key_groups_of_int64(np.array(values, np.int64), maximum)
    assert column.tolist() == [key_group(v, maximum) for v in values]


@pytest.mark.parametrize(
    ("maximum", "parallelism", "ranges"),
    [
        (128, 3, [(0, 42), (43, 85), (86, 127)]),
        (
            128,
            7,
            [(0, 18), (19, 36), (37, 54), (55, 73), (74, 91), (92, 109), (110, 127)],
        ),
        (13, 2, [(0, 6), (7, 12)]),
        (13, 4, [(0, 3), (4, 6), (7, 9), (10, 12)]),
        (10, 4, [(0, 2), (3, 4), (5, 7), (8, 9)]),
    ],
)
def test_ranges_are_flinks(maximum, parallelism, ranges):
    found = [range_of(i, parallelism, maximum) for i in range(parallelism)]
    assert [(r.start, r.end) for r in found] == ranges


@pytest.mark.parametrize(
    ("maximum", "parallelism"),
    [(1, 1), (13, 1), (13, 2), (32767, 1), (32767, 13), (32767, 32767)],
)
def test_ranges_cover_every_group_once_and_are_those_of_their_subtasks(maximum, parallelism):
    covered = []
    for subtask in range(parallelism):
        groups = range_of(subtask, parallelism, maximum)
        covered.extend(groups)
        ends = (groups.start, groups.end)
        assert {subtask_of(group, parallelism, maximum) for group in ends} == {subtask}
    assert covered == list(range(maximum))


def test_keys_go_to_flinks_subtasks():
    # Flink's rescaling test of pattern matching: max parallelism 10, two subtasks.
    assert [subtask_of(key_group(key, 10), 2, 10) for key in (7, 10)] == [0, 1]


@given(st.integers(1, 32768), st.data())
def test_every_group_lies_in_the_range_of_its_subtask(maximum, data):
    parallelism = data.draw(st.integers(1, maximum))
    group = data.draw(st.integers(0, maximum - 1))
    assert group in range_of(subtask_of(group, parallelism, maximum), parallelism, maximum)


@pytest.mark.parametrize(
    ("parallelism", "maximum"), [(1, 128), (171, 256), (172, 512), (32768, 32768)]
)
def test_the_default_max_parallelism_is_flinks(parallelism, maximum):
    assert default_max_parallelism(parallelism) == maximum


@pytest.mark.parametrize(
    ("number", "power"), [(0, 0), (1, 1), (3, 4), (9, 16), (125, 128), (25654, 32768)]
)
def test_rounding_up_to_powers_of_two(number, power):
    assert round_up_to_power_of_two(number) == power


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ((0, 10), (3, 7), (3, 7)),
        ((0, 10), (5, 20), (5, 10)),
        ((3, 12), (0, 10), (3, 10)),
    ],
)
def test_intersections_of_ranges(one, other, common):
    assert KeyGroupRange(*one).intersect(KeyGroupRange(*other)) == KeyGroupRange(*common)


def test_ranges_that_do_not_meet_have_an_empty_intersection():
    assert KeyGroupRange(0, 5).intersect(KeyGroupRange(6, 10)) == EMPTY_RANGE
    assert len(EMPTY_RANGE) == 0


def test_a_negative_start_is_refused():
    with pytest.raises(UsageError, match="-1"):
        KeyGroupRange(-1, 3)


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Point:
    x: int
    y: str


def test_keys_that_are_equal_hash_alike():
    assert stable_hash(1) == stable_hash(1.0) == stable_hash(True) == stable_hash(np.int64(1))
    assert stable_hash(decimal.Decimal("1.0")) == stable_hash(1)
    assert stable_hash(decimal.Decimal("0.5")) == stable_hash(0.5)
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.timezone.utc)
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert stable_hash(noon) == stable_hash(noon.astimezone(zone))
    assert stable_hash((1, "a")) == stable_hash((1.0, "a"))


@pytest.mark.slow
def test_hashes_are_the_same_in_another_process():
    code = (
        "import datetime, decimal, uuid\n"
        "from weir.keygroup import stable_hash\n"
        "print([stable_hash(k) for k in ("
        "'häß', b'x', 1.5, -7, 2**70, (1, 'a', None), datetime.date(2026, 1, 1),"
        " datetime.timedelta(1), decimal.Decimal('1.10'), uuid.UUID(int=5))])"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    keys = (
        *("häß", b"x", 1.5, -7, 2**70, (1, "a", None), datetime.date(2026, 1, 1)),
        *(datetime.timedelta(1), decimal.Decimal("1.10"), uuid.UUID(int=5)),
    )
    assert runs == {f"{[stable_hash(key) for key in keys]}\n"}


def test_enums_dataclasses_and_rows_are_keys():
    assert stable_hash(Colour.RED) == stable_hash(Colour.RED)
    assert stable_hash(Point(1, "a")) == stable_hash((1, "a"))
    assert key_group(Row(1, "a"), 128) == key_group(Row(1, "a"), 128)


@pytest.mark.parametrize(
    ("key", "message"),
    [(None, "must not be null"), ([1], "unhashable"), ({}, "unhashable"), (object(), "object")],
)
def test_what_cannot_be_a_key_is_refused_with_advice(key, message):
    with pytest.raises(UsageError, match=message):
        stable_hash(key)


def test_a_decimal_with_a_huge_exponent_is_refused_at_once_and_equal_numbers_hash_alike():
    with pytest.raises(UsageError, match="1000001 digits cannot be a key"):
        stable_hash(decimal.Decimal("1E+1000000"))
    assert stable_hash(decimal.Decimal("1E+9999")) == stable_hash(10**9999)
    assert stable_hash(decimal.Decimal("1E-1000000")) == stable_hash(decimal.Decimal("10E-1000001"))
    assert stable_hash(decimal.Decimal("0E+1000000")) == stable_hash(0)
