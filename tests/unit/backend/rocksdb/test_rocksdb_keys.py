"""Equal keys are the same bytes, no address is the prefix of another, and all can be read back."""

from __future__ import annotations

import datetime
import decimal
import pickle
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.backend.address import address_of, split_address
from weir.backend.base import VOID
from weir.backend.key_bytes import AnyKeys, key_codec
from weir.backend.rocksdb.keys import Addresses, address_end, after
from weir.codec import codec_for
from weir.codec.plain import PlainCodec
from weir.common.typeinfo import Types
from weir.errors import CorruptStateError, UsageError
from weir.keys import one_nan, plain
from weir.testing.equal_keys import equal_map_keys

ANY = AnyKeys()
RUNS: list[int] = []


class Runs:
    """An object that is seen when it is loaded."""

    def __reduce__(self) -> Any:
        return RUNS.append, (1,)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False, allow_infinity=False)
)
keys = scalars | st.tuples(scalars, st.tuples(scalars)) | st.frozensets(scalars, max_size=3)


@dataclass(frozen=True)
class Account:
    bank: str
    number: int


@given(keys)
def test_undeclared_keys_come_back_equal(key: Any) -> None:
    assert ANY.decode(ANY.encode(key)) == key


@given(keys, keys)
def test_different_undeclared_keys_have_different_bytes(one: Any, other: Any) -> None:
    if one != other:
        assert ANY.encode(one) != ANY.encode(other)


@pytest.mark.parametrize(
    "equal",
    [
        (1, True, 1.0, decimal.Decimal("1.00")),
        (0, False, 0.0, -0.0),
        ((1, "ab"), (True, "a" + "b")),
        (frozenset({"x", "y", "z"}), frozenset({"z", "y", "x"})),
        (decimal.Decimal("2.50"), decimal.Decimal("2.5")),
        (Account("bank", 7), Account("ba" + "nk", 7)),
        (("same", "same"), ("same", "".join(["sa", "me"]))),
    ],
)
def test_equal_keys_have_equal_bytes(equal: tuple[Any, ...]) -> None:
    assert len({ANY.encode(key) for key in equal}) == 1


def test_objects_and_dates_come_back() -> None:
    for key in (Account("b", 1), datetime.date(2026, 1, 2), ("x", Account("c", 2))):
        assert ANY.decode(ANY.encode(key)) == key


def test_bytes_that_are_no_key_are_refused() -> None:
    for data in (b"", b"?", b"f123", b"t\0\0\0"):
        with pytest.raises(CorruptStateError, match="not a key"):
            ANY.decode(data)


@given(equal_map_keys())
def test_keys_that_are_one_key_have_equal_bytes(pair: tuple[Any, Any]) -> None:
    one, other = map(one_nan, pair)
    assert ANY.encode(one) == ANY.encode(other)
    assert one_nan(plain(one)) == one


@given(equal_map_keys())
def test_the_original_is_kept_beside_bytes_that_do_not_give_it_back(pair: tuple[Any, Any]) -> None:
    key = one_nan(pair[0])
    original = ANY.original(key)
    found = ANY.decode(ANY.encode(key)) if original is None else ANY.read_original(original)
    assert found == key
    assert found.__class__ is key.__class__


def test_plain_keys_are_read_without_running_code() -> None:
    readable, ran = key_codec(PlainCodec()), len(RUNS)
    for key in ["a", 1, 2.5, None, ("a", (1, b"b")), uuid.UUID(int=5), datetime.date(2026, 1, 2)]:
        assert readable.decode(ANY.encode(key)) == key
    assert readable.read_original(ANY.original(True) or b"") is True
    for hostile in (b"p" + pickle.dumps(Runs()), ANY.encode(("a", Runs()))):
        with pytest.raises(UsageError, match="--unpickle"):
            readable.decode(hostile)
    with pytest.raises(UsageError, match="--unpickle"):
        readable.read_original(pickle.dumps(Runs()))
    with pytest.raises(CorruptStateError, match=r"are beside a key of .*, which has none"):
        key_codec(codec_for(Types.LONG())).read_original(pickle.dumps(Runs()))
    assert len(RUNS) == ran


def test_declared_keys_find_what_equals_them() -> None:
    longs, doubles = key_codec(codec_for(Types.LONG())), key_codec(codec_for(Types.DOUBLE()))
    assert longs.encode(1) == longs.encode(1.0)
    assert doubles.encode(0.0) == doubles.encode(-0.0)
    assert doubles.encode(float("nan")) == doubles.encode(-float("nan"))
    pairs = key_codec(codec_for(Types.TUPLE([Types.DOUBLE(), Types.BIG_DEC()])))
    assert pairs.encode((0.0, decimal.Decimal(1))) == pairs.encode((-0.0, decimal.Decimal("1.0")))
    mixed = key_codec(codec_for(Types.TUPLE([Types.LONG(), Types.PICKLED_BYTE_ARRAY()])))
    assert mixed.encode((1, True)) == mixed.encode((1, 1))


@given(st.lists(st.tuples(st.integers(0, 127), keys, st.none() | keys), min_size=2, max_size=6))
def test_no_address_is_the_prefix_of_another(addresses: list[tuple[int, Any, Any]]) -> None:
    layout = Addresses(codec_for(None), codec_for(None))
    found = {}
    for group, key, namespace in addresses:
        address = address_of(key, VOID if namespace is None else namespace)
        prefix = layout.encode(group, address)
        assert address_end(prefix + b"rest") == len(prefix)
        assert split_address(layout.decode(prefix)) == split_address(address)
        assert prefix[:2] == group.to_bytes(2, "big")
        found[prefix] = prefix
    for one in found:
        assert not any(other != one and other.startswith(one) for other in found)
        stop = after(one)
        assert stop is not None
        assert one + b"\xff" * 20 < stop
