"""Pairs of a value and a timestamp: bytes and back, descriptions, checks, damage."""

from __future__ import annotations

import pickle

import pytest

from weir.backend.admission import admission, holds_only_immutable, list_that_stays
from weir.codec import codec_for
from weir.codec.stamped import (
    StampedTypeInfo,
    encoded_timestamp,
    stored_type,
    timestamp_of,
    value_of,
)
from weir.common.typeinfo import Types
from weir.common.types import Row
from weir.errors import CorruptStateError, UsageError

CASES = [
    (Types.LONG(), [(1, 0), (-5, -(1 << 63)), (7, (1 << 63) - 1)]),
    (Types.STRING(), [("a", 1), (None, 2), ("", 3)]),
    (Types.ROW_NAMED(["x"], [Types.INT()]), [(Row(x=1), 10)]),
    (Types.LIST(Types.DOUBLE()), [([1.5], 3), ([], 4)]),
    (None, [({"any": {1}}, 5), (None, 6)]),
]


@pytest.mark.parametrize(("value_type", "pairs"), CASES)
def test_pairs_survive_one_by_one_and_in_bulk(value_type, pairs):
    codec = codec_for(StampedTypeInfo(value_type))
    assert [codec.decode(codec.encode(pair)) for pair in pairs] == pairs
    assert codec.decode_many(codec.encode_many(pairs)) == pairs
    assert codec.decode_many(memoryview(codec.encode_many([]))) == []
    assert codec.safe is codec_for(value_type).safe


def test_the_timestamp_of_an_encoded_pair_is_read_without_its_value():
    assert encoded_timestamp(codec_for(StampedTypeInfo(Types.LONG())).encode((9, -77))) == -77
    assert value_of((9, -77)) == 9
    assert timestamp_of((9, -77)) == -77


@pytest.mark.parametrize("value_type", [case[0] for case in CASES])
def test_the_description_gives_the_type_back(value_type):
    stamped = StampedTypeInfo(value_type)
    assert stamped.to_json() == {"type": "STAMPED", "value": stamped.value_type.to_json()}
    assert stored_type(codec_for(stamped).describe()) == stamped
    assert pickle.loads(pickle.dumps(stamped)) == stamped
    assert stamped != stamped.value_type


def test_a_description_without_its_value_type_is_damage():
    with pytest.raises(CorruptStateError):
        stored_type({"type": "STAMPED"})


@pytest.mark.parametrize("pair", [("x", 1), (1, 1 << 63), (1, "now"), (1,), 5, None])
def test_what_is_no_pair_of_the_type_is_refused(pair):
    codec = codec_for(StampedTypeInfo(Types.LONG()))
    with pytest.raises(UsageError):
        codec.encode(pair)
    with pytest.raises(UsageError):
        codec.encode_many([(1, 1), pair])


def test_bytes_that_are_cut_anywhere_are_damage():
    codec = codec_for(StampedTypeInfo(Types.STRING()))
    one, many = codec.encode(("abc", 1)), codec.encode_many([("abc", 1), ("d", 2)])
    for length in range(len(one)):
        with pytest.raises(CorruptStateError):
            codec.decode(one[:length])
    for length in range(len(many)):
        with pytest.raises(CorruptStateError):
            codec.decode_many(many[:length])


def test_as_many_values_as_timestamps_are_needed():
    codec, values = codec_for(StampedTypeInfo(Types.LONG())), codec_for(Types.LONG())
    data = codec.encode_many([(1, 1), (2, 2)])
    with pytest.raises(CorruptStateError, match="2 timestamps and 3 values"):
        codec.decode_many(data[:20] + values.encode_many([1, 2, 3]))


def test_admission_checks_the_value_of_a_pair_and_keeps_its_timestamp():
    admit = admission("the state", StampedTypeInfo(Types.LONG()))
    pair = (5, 1)
    assert admit(pair) is pair
    for wrong in ("x", 1 << 63, True):
        with pytest.raises(UsageError, match="the state"):
            admit((wrong, 1))
    assert admission("d", StampedTypeInfo(Types.DOUBLE()))((3, 1)) == (3.0, 1)
    assert admission("any", StampedTypeInfo(None))(({1}, 1)) == ({1}, 1)


def test_a_stamped_immutable_type_is_immutable():
    assert holds_only_immutable(StampedTypeInfo(Types.LONG()))
    assert not holds_only_immutable(StampedTypeInfo(None))
    assert not holds_only_immutable(StampedTypeInfo(Types.LIST(Types.LONG())))


def test_lists_that_stay_are_lists_whose_values_nobody_watches():
    pair = Types.TUPLE([Types.LONG(), Types.STRING()])
    stays = list_that_stays(pair)
    assert (stays, stays.to_json()) == (Types.LIST(pair), Types.LIST(pair).to_json())
    assert holds_only_immutable(stays)
    for element in (
        Types.ROW([Types.LONG()]),
        Types.LIST(Types.LONG()),
        Types.TUPLE([Types.ROW([])]),
    ):
        assert not holds_only_immutable(list_that_stays(element))
