"""Keys that are fields of columnar records: whatever a field can hold, as state finds it again."""

from __future__ import annotations

import datetime

import pytest
from tests.harness.programs import environment, run

from weir.common import Row
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.testing.harness import collect

UTC = datetime.timezone.utc
PAIR = Types.TUPLE([Types.LONG(), Types.STRING()])
KEYS = {
    "tuple": (PAIR, (1, "a"), (2, "b")),
    "tuple in tuple": (Types.TUPLE([PAIR, Types.LONG()]), ((1, "a"), 3), ((1, "b"), 3)),
    "boolean": (Types.BOOLEAN(), True, False),
    "double": (Types.DOUBLE(), 1.5, 2.5),
    "date": (Types.SQL_DATE(), datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)),
    "instant": (
        Types.TIMESTAMP_LTZ(),
        datetime.datetime(2024, 1, 1, tzinfo=UTC),
        datetime.datetime(2024, 1, 2, tzinfo=UTC),
    ),
    "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"a", b"b"),
}
ROUTES = {
    "from the source": lambda stream, declared: stream,
    "from a function": lambda stream, declared: stream.map(lambda row: row, declared),
    "from a slot": lambda stream, declared: stream.rebalance().map(lambda row: row, declared),
}


def by_sum(keyed):
    return keyed.sum(1)


def totals(key_type, records, route, key_by, reduce):
    env = environment()
    declared = Types.TUPLE([key_type, Types.LONG()])
    stream = route(env.from_collection(records, declared), declared)
    found = collect(reduce(key_by(stream)))
    results = run(env).collected(found)
    last = {}
    for key, total in results:
        last[key] = max(total, last.get(key, 0))
    return len(results), last


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("kind", KEYS)
def test_records_with_equal_keys_meet(kind, route):
    key_type, one, other = KEYS[kind]
    records = [(one, 1), (other, 10), (one, 2), (other, 20), (one, 3)]
    count, last = totals(
        key_type,
        records,
        route,
        lambda stream: stream.key_by(lambda row: row[0]),
        lambda keyed: keyed.reduce(lambda a, b: (a[0], a[1] + b[1])),
    )
    assert (count, last) == (5, {one: 6, other: 30})


@pytest.mark.parametrize("kind", KEYS)
def test_sums_by_any_key(kind):
    key_type, one, other = KEYS[kind]
    records = [(one, 1), (other, 10), (one, 2), (other, 20), (one, 3)]
    count, last = totals(
        key_type, records, ROUTES["from the source"], lambda s: s.key_by(0), by_sum
    )
    assert (count, last) == (5, {one: 6, other: 30})


def test_both_zeros_are_one_key():
    records = [(0.0, 1), (-0.0, 2), (0.0, 4)]
    count, last = totals(
        Types.DOUBLE(),
        records,
        ROUTES["from the source"],
        lambda stream: stream.key_by(0),
        by_sum,
    )
    assert (count, last) == (3, {0.0: 7})


def test_several_fields_one_of_them_nested():
    env = environment()
    declared = Types.TUPLE([PAIR, Types.LONG(), Types.LONG()])
    records = [((1, "a"), 1, 1), ((1, "a"), 2, 10), ((1, "a"), 1, 2)]
    stream = env.from_collection(records, declared).key_by(lambda row: (row[0], row[1]))
    found = collect(stream.reduce(lambda a, b: (a[0], a[1], a[2] + b[2])))
    assert sorted(run(env).collected(found)) == [
        ((1, "a"), 1, 1),
        ((1, "a"), 1, 3),
        ((1, "a"), 2, 10),
    ]


@pytest.mark.parametrize(
    ("key_type", "key"),
    [(Types.LIST(Types.LONG()), [1]), (Types.MAP(Types.STRING(), Types.LONG()), {"a": 1})],
    ids=["list", "map"],
)
def test_a_key_that_can_change_is_refused(key_type, key):
    with pytest.raises(UsageError, match=r"cannot be assigned to a key group .* unhashable"):
        totals(key_type, [(key, 1)], ROUTES["from the source"], lambda s: s.key_by(0), by_sum)


def test_a_row_is_a_key():
    records = [(Row(1), 1), (Row(2), 10), (Row(1), 2)]
    row = Types.ROW([Types.LONG()])
    count, last = totals(row, records, ROUTES["from the source"], lambda s: s.key_by(0), by_sum)
    assert (count, last) == (3, {Row(f0=1): 3, Row(f0=2): 10})
