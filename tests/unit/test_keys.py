"""What is one key: plain keys, and the NaN that is found again."""

from __future__ import annotations

import copy
import datetime
import decimal
import fractions
import math
import pickle
import zoneinfo
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.keygroup import stable_hash
from weir.keys import NAN, one_nan, one_nan_many, plain
from weir.state.descriptor import MapStateDescriptor
from weir.state.operator_handles import OperatorBroadcastState
from weir.testing.equal_keys import Name, Pair, equal_keys, equal_map_keys

NEW_YORK = zoneinfo.ZoneInfo("America/New_York")


@given(equal_map_keys())
def test_a_plain_key_equals_its_key_and_is_itself_plain(pair: tuple[Any, Any]) -> None:
    for key in map(one_nan, pair):
        found = plain(key)
        assert found == key
        assert {found: 1}[key] == 1
        assert plain(found) is found


@given(equal_map_keys())
def test_equal_keys_have_plain_keys_of_one_class(pair: tuple[Any, Any]) -> None:
    one, other = plain(pair[0]), plain(pair[1])
    assert one == other
    assert one.__class__ is other.__class__
    assert repr(one) == repr(other)


@given(equal_keys())
def test_equal_keys_hash_alike(pair: tuple[Any, Any]) -> None:
    assert stable_hash(pair[0]) == stable_hash(pair[1])


@pytest.mark.slow
@given(st.lists(equal_map_keys().map(lambda pair: pair[0])))
def test_many_keys_are_made_as_single_ones_are(keys: list[Any]) -> None:
    assert one_nan_many(keys) == [one_nan(key) for key in keys]


def test_the_nan_is_one_object_wherever_it_goes() -> None:
    for copied in (pickle.loads(pickle.dumps(NAN)), copy.deepcopy(NAN), copy.copy(NAN)):
        assert copied is NAN
    assert pickle.loads(pickle.dumps(Pair(NAN, 1))).x is NAN
    assert math.isnan(NAN)
    assert NAN == NAN
    assert math.nan != NAN
    assert repr(NAN) == "nan"


def test_a_key_without_a_nan_stays_the_object_it_is() -> None:
    for key in (1.5, (1, 2.5), Pair(1.5, "a"), Name.A, frozenset({1.5}), decimal.Decimal("1.0")):
        assert one_nan(key) is key


def test_a_key_with_a_nan_keeps_its_class() -> None:
    found = one_nan(Pair(float("nan"), 1))
    assert (type(found), found.x is NAN, found.y) == (Pair, True, 1)


def test_a_complex_nan_is_refused() -> None:
    with pytest.raises(UsageError, match="complex"):
        one_nan(complex(float("nan"), 1))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (fractions.Fraction(1, 10), decimal.Decimal("0.1")),
        (decimal.Decimal("0.50"), 0.5),
        (decimal.Decimal("-Infinity"), -math.inf),
        (10**1001, decimal.Decimal("1E+1001")),
        (np.longdouble(1), 1),
        (memoryview(b"a"), b"a"),
        (complex(2, 0), 2),
    ],
    ids=["fraction", "decimal", "infinity", "huge", "long double", "memory", "complex"],
)
def test_numbers_have_one_form(key: Any, expected: Any) -> None:
    found = plain(key)
    assert (found, type(found)) == (expected, type(expected))


def test_an_hour_that_comes_twice_is_the_key_that_python_takes_it_for() -> None:
    first = datetime.datetime(2026, 11, 1, 1, 30, tzinfo=NEW_YORK)
    second = first.replace(fold=1)
    assert first == second
    assert plain(first) == plain(second)
    assert stable_hash(first) == stable_hash(second)
    assert plain(first) != first.astimezone(datetime.timezone.utc)


def test_times_of_day_beyond_midnight_are_keys() -> None:
    east = datetime.timezone(datetime.timedelta(hours=2))
    one = datetime.time(0, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    other = datetime.time(1, 30, tzinfo=east)
    assert one == other
    assert plain(one) == one
    assert stable_hash(one) == stable_hash(other)


def test_broadcast_state_finds_what_equals_a_key() -> None:
    state = OperatorBroadcastState(MapStateDescriptor("rules"))
    state.put(float("nan"), 1)
    state.put(float("nan"), 2)
    state.put(np.int64(1), 3)
    assert (state.get(decimal.Decimal("NaN")), state.get(1), len(state.keys())) == (2, 3, 2)
    again = OperatorBroadcastState(MapStateDescriptor("rules"))
    again.fill(pickle.loads(pickle.dumps(state.elements())))
    again.remove(-float("nan"))
    assert again.keys() == [1]
    longs = OperatorBroadcastState(MapStateDescriptor("longs", Types.LONG(), Types.LONG()))
    longs.put(1, 5)
    assert (longs.get(True), longs.contains("1")) == (5, False)
