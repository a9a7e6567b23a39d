"""Keys that compare oddly: NaN, equal keys of different classes, texts that nothing can store."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import pickle
import uuid
import zoneinfo
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.harness.programs import environment, started

from weir.common import Row
from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction
from weir.datastream.state import MapStateDescriptor, ValueStateDescriptor
from weir.errors import UsageError
from weir.testing.campaign_backends import BACKENDS, settings_of
from weir.testing.harness import collect

pytestmark = pytest.mark.matrix
UTC = datetime.timezone.utc
COUNTS = [1, 2, 1, 3, 4, 2, 5, 6, 3]
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=UTC)
CET = datetime.timezone(datetime.timedelta(hours=1))
NEW_YORK = zoneinfo.ZoneInfo("America/New_York")
SOME_BACKENDS = pytest.mark.parametrize("backend", ["hashmap-changelog", "rocksdb-incremental"])
EVERY_BACKEND = pytest.mark.parametrize("backend", BACKENDS)


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Point:
    x: Any
    y: Any = 1


@dataclass(frozen=True)
class Noted:
    number: int
    note: str = field(compare=False)


@dataclass(eq=False)
class Loner:
    number: int


class Level(enum.IntEnum):
    ONE = 1


class Name(str, enum.Enum):
    A = "a"


class Count(KeyedProcessFunction):
    """Count per key, in a value and in a map under what the record has as its key."""

    def open(self, runtime_context):
        self.value = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map"))

    def process_element(self, value, ctx):
        key, number = value
        count = (self.value.value() or 0) + 1
        self.value.update(count)
        assert self.map.contains(key) is (count > 1)
        assert (self.map.get(key) or 0) == count - 1
        self.map.put(key, count)
        assert list(self.map.values()) == [count]
        yield number, count


def counts(keys, backend, key_type=None, record_type=None, then=None):
    """Count every key in epochs of three: a failover after the first, a rescaling after the next.

    Every record has its own copy of its key. After the rescaling the backend may be another.
    """
    env = environment()
    records = [(pickle.loads(pickle.dumps(k)), i) for i, k in enumerate(keys)]
    stream = env.from_collection(records, record_type)
    counted = stream.key_by(lambda row: row[0], key_type).process(Count()).name("count")
    found = collect(counted)
    job = started(env, 1, backend=settings_of(backend), partitions=1)
    job.run_epoch(take=3, checkpoint=True)
    job.fail_over()
    job.run_epoch(take=3, checkpoint=True)
    results = list(job.collected(found))
    job.options.backend = settings_of(then or backend)
    job = job.restart(2).run()
    return [count for _, count in sorted(results + job.collected(found))]


NANS = {
    "numpy": [np.float64("nan"), np.float32("nan"), 2.5],
    "decimal": [decimal.Decimal("NaN"), decimal.Decimal("-NaN123"), decimal.Decimal("2.5")],
    "of two kinds": [decimal.Decimal("NaN"), np.float32("nan"), decimal.Decimal("2.5")],
    "in tuples": [(1, float("nan")), (1, float("nan")), (1, 2.5)],
    "in named tuples": [Pair(1, float("nan")), Pair(1, np.float64("nan")), Pair(1, 2.5)],
    "in rows": [Row(a=float("nan"), b=1), Row(b=1, a=-float("nan")), Row(a=2.5, b=1)],
    "in dataclasses": [Point(float("nan")), Point(float("nan")), Point(2.5)],
    "deep inside": [(Point((float("nan"),)),), (Point((float("nan"),)),), (Point((2.5,)),)],
}


@EVERY_BACKEND
def test_nan_is_one_key_on_every_backend(backend):
    assert counts([float("nan"), -float("nan"), 2.5] * 3, backend) == COUNTS


@SOME_BACKENDS
@pytest.mark.parametrize("kind", NANS)
def test_every_nan_is_one_key(kind, backend):
    assert counts(NANS[kind] * 3, backend) == COUNTS


@SOME_BACKENDS
@pytest.mark.parametrize("declared", [Types.DOUBLE(), Types.FLOAT()], ids=["double", "float"])
@pytest.mark.parametrize("columns", [False, True], ids=["objects", "columns"])
def test_every_nan_is_one_key_of_a_declared_type(backend, declared, columns):
    record = Types.TUPLE([declared, Types.LONG()]) if columns else None
    keys = [float("nan"), -float("nan"), 2.5] * 3
    assert counts(keys, backend, key_type=declared, record_type=record) == COUNTS


@SOME_BACKENDS
def test_every_nan_is_one_key_in_columns_of_tuples(backend):
    declared = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
    record = Types.TUPLE([declared, Types.LONG()])
    keys = [(1, float("nan")), (1, -float("nan")), (1, 2.5)] * 3
    assert counts(keys, backend, record_type=record) == COUNTS


@SOME_BACKENDS
def test_every_nan_is_one_key_of_decimals(backend):
    keys = [decimal.Decimal("NaN"), decimal.Decimal("-NaN"), decimal.Decimal("2.5")] * 3
    assert counts(keys, backend, key_type=Types.BIG_DEC()) == COUNTS


@SOME_BACKENDS
@pytest.mark.parametrize("columns", [False, True], ids=["objects", "columns"])
def test_zero_has_no_sign(backend, columns):
    record = Types.TUPLE([Types.DOUBLE(), Types.LONG()]) if columns else None
    assert counts([0.0, -0.0, 2.5] * 3, backend, record_type=record) == COUNTS


def test_the_key_of_a_nan_is_a_float_that_is_not_a_number():
    class Look(KeyedProcessFunction):
        def process_element(self, value, ctx):
            key = ctx.get_current_key()
            yield isinstance(key, float), math.isnan(key), key != key, repr(key)

    env = environment()
    stream = env.from_collection([float("nan")]).key_by(lambda value: value)
    found = collect(stream.process(Look()))
    assert started(env).run().collected(found) == [(True, True, True, "nan")]


EQUAL = {
    "numbers": [1, 1.0, True, np.int64(1), np.float32(1), Level.ONE],
    "decimals": [decimal.Decimal("1.00"), 1, 1.0, decimal.Decimal(1), Level.ONE],
    "halves": [0.5, decimal.Decimal("0.50"), np.float16(0.5)],
    "texts": ["a", Name.A, np.str_("a")],
    "bytes": [b"a", np.bytes_(b"a")],
    "tuples": [(1, 2), Pair(1, 2), (True, 2.0), Pair(np.int8(1), Level.ONE + 1)],
    "instants": [NOON, NOON.astimezone(CET), NOON.astimezone(NEW_YORK)],
    "times of day": [datetime.time(12, tzinfo=UTC), datetime.time(13, tzinfo=CET)],
    "dataclasses": [Point(1, "a"), Point(1.0, Name.A), Point(np.int64(1), np.str_("a"))],
    "not compared": [Noted(1, "one"), Noted(1, "other")],
    "rows": [Row(a=1, b="x"), Row(b="x", a=True), Row(a=1.0, b="x")],
    "infinities": [math.inf, decimal.Decimal("Infinity"), np.float32("inf")],
    "UUIDs": [uuid.UUID(int=7), uuid.UUID(int=7, is_safe=uuid.SafeUUID.safe)],
}


@SOME_BACKENDS
@pytest.mark.parametrize("kind", EQUAL)
def test_equal_keys_share_state(kind, backend):
    keys = EQUAL[kind]
    assert counts(keys * 2, backend) == list(range(1, 2 * len(keys) + 1))


@pytest.mark.parametrize("kind", ["numbers", "texts", "tuples", "instants", "rows"])
@pytest.mark.parametrize(
    ("backend", "then"), [("rocksdb-incremental", "hashmap"), ("hashmap-changelog", "rocksdb")]
)
def test_equal_keys_share_state_after_a_change_of_backend(kind, backend, then):
    keys = EQUAL[kind] * 3
    assert counts(keys, backend, then=then) == list(range(1, len(keys) + 1))
    assert counts([float("nan"), -float("nan"), 2.5] * 3, backend, then=then) == COUNTS


@SOME_BACKENDS
@pytest.mark.parametrize(
    ("declared", "keys"),
    [
        (Types.LONG(), [1, np.int64(1), Level.ONE, True, 1.0]),
        (Types.STRING(), ["a", Name.A, np.str_("a")]),
        (Types.DOUBLE(), [1.0, 1, np.float32(1), np.int8(1)]),
        (Types.BIG_DEC(), [decimal.Decimal(1), decimal.Decimal("1.00"), 1]),
        (Types.TIMESTAMP_LTZ(), [NOON, NOON.astimezone(CET)]),
        (Types.TUPLE([Types.LONG(), Types.DOUBLE()]), [(1, 0.0), Pair(np.int8(1), -0.0)]),
        (Types.TUPLE([Types.LONG(), Types.PICKLED_BYTE_ARRAY()]), [(1, 1), (1, True)]),
    ],
    ids=repr,
)
def test_equal_keys_of_a_declared_type_share_state(backend, declared, keys):
    assert counts(keys * 2, backend, key_type=declared) == list(range(1, 2 * len(keys) + 1))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_key_that_its_declared_type_cannot_hold_is_refused(backend):
    with pytest.raises(UsageError, match=r"'count'.*Types.LONG.*'a'"):
        counts(["a"], backend, key_type=Types.LONG())


@pytest.mark.parametrize("key", ["\ud800", ("x", "\ud800"), Point("\ud800")], ids=ascii)
def test_a_key_with_a_surrogate_is_refused_by_name(key):
    with pytest.raises(UsageError, match=r"'count'.*\\ud800.*surrogate"):
        counts([key], "hashmap")


def test_a_key_with_a_surrogate_in_a_column_is_refused_by_name():
    record = Types.TUPLE([Types.STRING(), Types.LONG()])
    with pytest.raises(UsageError, match=r"'.*ud800"):
        counts(["\ud800"], "hashmap", record_type=record)


def test_a_key_that_equals_nothing_but_itself_is_refused():
    with pytest.raises(UsageError, match=r"'count'.*Loner.*equals nothing but itself"):
        counts([Loner(1)], "hashmap")


class Remember(KeyedProcessFunction):
    def open(self, runtime_context):
        self.map = runtime_context.get_map_state(MapStateDescriptor("map"))

    def process_element(self, value, ctx):
        self.map.put(value[0], 1)
        ctx.timer_service().register_event_time_timer(1000)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), list(self.map.keys())


@SOME_BACKENDS
@pytest.mark.parametrize("key", [Pair(1, 2), Name.A, Level.ONE, 1.0, (Name.A, 1)], ids=repr)
def test_keys_keep_their_class(key, backend):
    env = environment()
    stream = env.from_collection([(key, 0)])
    found = collect(stream.key_by(lambda row: row[0]).process(Remember()).uid("remember"))
    job = started(env, 1, backend=settings_of(backend))
    job.run_epoch(checkpoint=True)
    job = job.restart(1)
    job.finish()
    timer_key, map_keys = job.collected(found)[0]
    assert [repr(timer_key)] == [repr(k) for k in map_keys] == [repr(key)]
