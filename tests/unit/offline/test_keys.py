"""Keys as JSON, in which Spark's options hold them, and back."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal

import pytest

from weir.codec.portable import portable
from weir.common import Row
from weir.common.time import Instant
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.offline.keys import key_as_json, key_from_json

PAIR = Types.TUPLE([Types.STRING(), Types.PRIMITIVE_ARRAY(Types.BYTE())])
NAMED = Types.ROW_NAMED(["at", "n"], [Types.SQL_DATE(), Types.LONG()])
ANY = Types.PICKLED_BYTE_ARRAY()
DAY = datetime.date(2026, 2, 28)
KEYS = [
    (7, Types.LONG()),
    ("ann", Types.STRING()),
    (2.5, Types.DOUBLE()),
    (b"\x00\xff", Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (DAY, Types.SQL_DATE()),
    (datetime.time(1, 2, 3), Types.SQL_TIME()),
    (datetime.datetime(2026, 2, 28, 1, 2, 3, 4000), Types.SQL_TIMESTAMP()),
    (Instant(5, 6), Types.INSTANT()),
    (10**30, Types.BIG_INT()),
    (Decimal("1.50"), Types.BIG_DEC()),
    (("a", b"b"), PAIR),
    (Row(at=DAY, n=3), NAMED),
    (("a", (1, 2.5), None, True), ANY),
]


@pytest.mark.parametrize(("key", "of"), KEYS, ids=[repr(of) for _, of in KEYS])
def test_a_key_comes_back_from_json(key, of):
    for form in (portable(of), portable(of, True)):
        assert key_from_json(json.loads(key_as_json(key, form)), form) == key


@pytest.mark.parametrize("of", [Types.DOUBLE(), ANY])
def test_a_key_that_is_not_a_number_comes_back(of):
    form = portable(of)
    assert math.isnan(key_from_json(json.loads(key_as_json(math.nan, form)), form))


@pytest.mark.parametrize(
    ("key", "of"),
    [("2026-02-28", Types.SQL_DATE()), ("AP8=", KEYS[3][1]), ({"f0": "a", "f1": "Yg=="}, PAIR)],
)
def test_a_key_may_be_in_the_form_of_json(key, of):
    assert json.loads(key_as_json(key, portable(of))) == key


@pytest.mark.parametrize(
    ("key", "of", "message"),
    [
        ("x", Types.LONG(), "'x' cannot be asked for among keys of"),
        (None, Types.LONG(), "cannot be null"),
        (object(), Types.LONG(), "object object at .* cannot be asked for among keys of"),
        ({1, 2}, Types.STRING(), "{1, 2} cannot be asked for among keys of"),
        (b"x", ANY, "b'x' cannot be asked for, as the type of keys was not declared"),
        (DAY, ANY, "the type of keys was not declared"),
    ],
)
def test_what_is_no_key_is_refused_by_name(key, of, message):
    with pytest.raises(UsageError, match=message):
        key_as_json(key, portable(of))
