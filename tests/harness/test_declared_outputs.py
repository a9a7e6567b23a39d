"""What a function returns is what its declared output type holds, or is refused by name."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pytest
from tests.harness.programs import environment, run

from weir.common.time import Instant
from weir.common.typeinfo import Types
from weir.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
)
from weir.errors import UsageError
from weir.testing.harness import collect

pytestmark = pytest.mark.matrix

UTC = datetime.timezone.utc
NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=UTC)

# A type, a value that it holds, what that becomes, and one that it does not hold.
SCALARS = [
    (Types.BYTE(), np.int8(5), 5, 128),
    (Types.SHORT(), 5, 5, 1 << 15),
    (Types.INT(), 5, 5, 1 << 31),
    (Types.LONG(), np.int64(5), 5, "a"),
    (Types.LONG(), None, None, 1 << 63),
    (Types.LONG(), 5, 5, True),
    (Types.BIG_INT(), 1 << 80, 1 << 80, 1.5),
    (Types.FLOAT(), 1, 1.0, 1e39),
    (Types.DOUBLE(), 1, 1.0, "1"),
    (Types.STRING(), "a", "a", 1),
    (Types.CHAR(), "a", "a", "ab"),
    (Types.BOOLEAN(), np.bool_(True), True, 1),
    (Types.BIG_DEC(), Decimal("1.5"), Decimal("1.5"), 1.5),
    (Types.SQL_DATE(), NOON.date(), NOON.date(), NOON),
    (Types.SQL_TIME(), NOON.time(), NOON.time(), NOON.timetz()),
    (Types.SQL_TIMESTAMP(), NOON, NOON.replace(tzinfo=None), "noon"),
    (Types.TIMESTAMP_LTZ(), NOON, NOON, NOON.replace(tzinfo=None)),
    (Types.INSTANT(), Instant(1, 2), Instant(1, 2), NOON),
]


class Opened:
    def __init__(self, *results):
        self.results = results

    def open(self, runtime_context):
        pass

    def one(self, value, *_):
        return self.results[value]

    def some(self, value, *_):
        yield self.results[value]


class Mapped(Opened, MapFunction):
    map = Opened.one


class FlatMapped(Opened, FlatMapFunction):
    flat_map = Opened.some


class Processed(Opened, ProcessFunction):
    process_element = Opened.some


class KeyedProcessed(Opened, KeyedProcessFunction):
    process_element = Opened.some


class Timed(Opened, KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value)

    on_timer = Opened.some


class CoMapped(Opened, CoMapFunction):
    map1 = map2 = Opened.one


class CoFlatMapped(Opened, CoFlatMapFunction):
    flat_map1 = flat_map2 = Opened.some


class CoProcessed(Opened, CoProcessFunction):
    process_element1 = process_element2 = Opened.some


def both(stream):
    return stream.connect(stream)


FUNCTIONS = {
    "map": lambda s, results, t: s.map(lambda v: results[v], t),
    "map in a slot": lambda s, results, t: s.map(Mapped(*results), t),
    "map behind key_by": lambda s, results, t: s.key_by(lambda v: 0).map(Mapped(*results), t),
    "flat_map": lambda s, results, t: s.flat_map(lambda v: [results[v]], t),
    "flat_map in a slot": lambda s, results, t: s.flat_map(FlatMapped(*results), t),
    "flat_map behind key_by": lambda s, results, t: s.key_by(lambda v: 0).flat_map(
        FlatMapped(*results), t
    ),
    "process": lambda s, results, t: s.process(Processed(*results), t),
    "process behind key_by": lambda s, results, t: s.key_by(lambda v: 0).process(
        KeyedProcessed(*results), t
    ),
    "timer": lambda s, results, t: s.key_by(lambda v: 0).process(Timed(*results), t),
    "map_with_state": lambda s, results, t: s.key_by(lambda v: 0).map_with_state(
        lambda v, n: (results[v], n), output_type=t
    ),
    "co_map": lambda s, results, t: both(s).map(CoMapped(*results), t),
    "co_flat_map": lambda s, results, t: both(s).flat_map(CoFlatMapped(*results), t),
    "co_process": lambda s, results, t: both(s).process(CoProcessed(*results), t),
}
TARGETS = {
    "chained": lambda stream: stream,
    "by a computed key": lambda stream: stream.key_by(lambda v: 0).map(lambda v: v),
    "in columns": lambda stream: stream.rebalance().map(Same()),
}


class Same(MapFunction):
    def open(self, runtime_context):
        pass

    def map(self, value):
        return value


def refused(env, declared, value):
    with pytest.raises(UsageError) as caught:
        run(env, 1)
    message = str(caught.value)
    assert "operator 'under test' at record " in message
    assert f"its output is declared as {declared!r}" in message
    assert f"cannot hold {value!r} of type {type(value).__name__}: expected" in message
    return message


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_scalar_of_another_type_is_refused_wherever_it_goes(name, target):
    env = environment()
    numbers = env.from_collection([0, 1, 2])
    stream = FUNCTIONS[name](numbers, [7, "a", 9], Types.LONG()).name("under test")
    collect(TARGETS[target](stream))
    refused(env, Types.LONG(), "a")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("declared", "value", "kept", "bad"), SCALARS)
def test_every_scalar_type_is_kept_exactly_or_refused(declared, value, kept, bad, target):
    env = environment()
    stream = env.from_collection([0]).map(Mapped(value), declared).name("under test")
    collect(TARGETS[target](stream))
    (found,) = run(env, 1).collected()
    assert (found, type(found)) == (kept, type(kept))
    env = environment()
    stream = env.from_collection([0]).map(Mapped(bad), declared).name("under test")
    collect(TARGETS[target](stream))
    refused(env, declared, bad)


def test_the_record_of_a_map_is_its_input():
    env = environment()
    collect(env.from_collection([1]).map(Mapped(0, "a"), Types.LONG()).name("under test"))
    assert "at record 1:" in refused(env, Types.LONG(), "a")


@pytest.mark.parametrize("bad", [(1, 2), (1,), "a", (1, "\ud800")])
@pytest.mark.parametrize("spread", ["rebalance", "key_by"])
def test_a_tuple_that_does_not_fit_is_refused_with_the_operator_that_gave_it(bad, spread):
    declared = Types.TUPLE([Types.LONG(), Types.STRING()])
    env = environment()
    stream = env.from_collection([0, 1]).map(Mapped((1, "a"), bad), declared).name("under test")
    spreads = {"rebalance": stream.rebalance, "key_by": lambda: stream.key_by(lambda v: v[0])}
    collect(spreads[spread]().map(Same()))
    with pytest.raises(UsageError) as caught:
        run(env, 1)
    message = str(caught.value)
    assert f"operator 'under test' at record {bad!r}: its output is declared as" in message
    assert "cannot hold" in message


SIDE = OutputTag("side", Types.LONG())


class Sided(ProcessFunction):
    def process_element(self, value, ctx):
        yield value
        yield SIDE, value if value < 2 else str(value)


def test_a_scalar_of_a_side_output_is_checked_too():
    env = environment()
    numbers = env.from_collection([1, 2])
    stream = numbers.process(Sided(), Types.LONG()).name("under test")
    collect(stream.get_side_output(SIDE))
    refused(env, Types.LONG(), "2")
