"""Shapes of programs: unions, connected and broadcast streams, side outputs, partitioners."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
from tests.harness.programs import by_key, environment, run, started

from weir.common.typeinfo import Types
from weir.datastream import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
)
from weir.datastream.state import MapStateDescriptor, ValueStateDescriptor
from weir.errors import WeirError
from weir.testing.harness import collect


class Where(MapFunction):
    """Adds the subtask that a record is in."""

    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return self.subtask, value


def spread_over(stream, env, parallelism=3, partitions=1):
    collect(stream.map(Where()))
    return by_key(run(env, parallelism, partitions=partitions).collected())


def test_rebalance_spreads_evenly():
    env = environment()
    found = spread_over(env.from_sequence(1, 30).rebalance(), env)
    assert {k: len(v) for k, v in found.items()} == {0: 10, 1: 10, 2: 10}


def test_global_sends_everything_to_the_first_subtask():
    env = environment()
    assert set(spread_over(env.from_sequence(1, 30).global_(), env)) == {0}


def test_broadcast_sends_everything_to_all_subtasks():
    env = environment()
    found = spread_over(env.from_sequence(1, 5).broadcast(), env)
    assert {k: sorted(v for _, v in rows) for k, rows in found.items()} == {
        n: [1, 2, 3, 4, 5] for n in range(3)
    }


def test_a_custom_partitioner_chooses_the_subtask():
    env = environment()
    stream = env.from_sequence(1, 9).partition_custom(lambda key, n: key % n, lambda v: v)
    found = spread_over(stream, env)
    assert all(value % 3 == subtask for rows in found.values() for subtask, value in rows)


@pytest.mark.parametrize("spread", ["shuffle", "rescale", "forward", "rebalance"])
def test_no_partitioner_loses_or_repeats_a_record(spread):
    env = environment()
    found = spread_over(getattr(env.from_sequence(1, 50), spread)(), env, partitions=2)
    assert sorted(v for rows in found.values() for _, v in rows) == list(range(1, 51))


def test_a_union_holds_the_records_of_all_its_streams():
    env = environment()
    first, second = env.from_sequence(1, 3), env.from_sequence(3, 5)
    collect(first.union(second, first).key_by(lambda v: v % 2).map(lambda v: v * 10))
    assert Counter(run(env).collected()) == Counter([10, 20, 30, 30, 40, 50, 10, 20, 30])


class CoTag(CoMapFunction):
    def map1(self, value):
        return "first", value

    def map2(self, value):
        return ("second", value) if value > 1 else None


class CoRepeat(CoFlatMapFunction):
    def flat_map1(self, value):
        for _ in range(value):
            yield "first"

    def flat_map2(self, value):
        yield "second"


class CoCount(CoProcessFunction):
    def open(self, runtime_context):
        self.seen = 0

    def process_element1(self, value, ctx):
        self.seen += 1
        yield "first", self.seen

    def process_element2(self, value, ctx):
        yield "second", self.seen


@pytest.mark.parametrize(
    ("call", "function", "expected"),
    [
        ("map", CoTag(), [("first", 1), ("first", 2), ("second", 2)]),
        ("flat_map", CoRepeat(), ["first"] * 3 + ["second"] * 2),
        ("process", CoCount(), [("first", 1), ("first", 2), ("second", 2), ("second", 2)]),
    ],
)
def test_connected_streams_are_handled_first_input_first(call, function, expected):
    env = environment()
    connected = env.from_collection([1, 2]).connect(env.from_collection([1, 2]))
    collect(getattr(connected, call)(function))
    assert run(env, 1).collected() == expected


class KeyedJoin(CoMapFunction):
    def open(self, runtime_context):
        self.name = runtime_context.get_state(ValueStateDescriptor("name", Types.STRING()))

    def map1(self, value):
        self.name.update(value[1])

    def map2(self, value):
        return value[0], self.name.value(), value[1]


def test_connected_keyed_streams_share_the_state_of_a_key():
    env = environment()
    names = env.from_collection([(1, "a"), (2, "b")])
    facts = env.from_collection([(2, "x"), (1, "y"), (3, "z")])
    keyed = names.connect(facts).key_by(lambda r: r[0], lambda r: r[0])
    collect(keyed.map(KeyedJoin()))
    assert sorted(run(env, 3).collected(), key=str) == [
        (1, "a", "y"),
        (2, "b", "x"),
        (3, None, "z"),
    ]


class Rule(NamedTuple):
    name: str
    first: str
    second: str


class MyKeyedBroadcastProcessFunction(KeyedBroadcastProcessFunction):
    def __init__(self):
        self._map_state_desc = MapStateDescriptor(
            "item", Types.STRING(), Types.LIST(Types.PICKLED_BYTE_ARRAY())
        )
        self._rule_state_desc = MapStateDescriptor(
            "RulesBroadcastState", Types.STRING(), Types.PICKLED_BYTE_ARRAY()
        )
        self._map_state = None

    def open(self, ctx: RuntimeContext):
        self._map_state = ctx.get_map_state(self._map_state_desc)

    def process_broadcast_element(self, value, ctx: KeyedBroadcastProcessFunction.Context):
        ctx.get_broadcast_state(self._rule_state_desc).put(value.name, value)

    def process_element(self, value, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext):
        shape = value[1]
        for rule_name, rule in ctx.get_broadcast_state(self._rule_state_desc).items():
            stored = self._map_state.get(rule_name)
            if stored is None:
                stored = []
            if shape == rule.second and len(stored) > 0:
                for i in stored:
                    yield f"MATCH: {i} - {value}"
                stored = []
            if shape == rule.first:
                stored.append(value)
            if len(stored) == 0:
                self._map_state.remove(rule_name)
            else:
                self._map_state.put(rule_name, stored)


def matcher(env, items):
    descriptor = MapStateDescriptor(
        "RuleBroadcastState", Types.STRING(), Types.PICKLED_BYTE_ARRAY()
    )
    rules = env.from_collection([Rule("r", "square", "circle")]).uid("rules")
    keyed = env.from_collection(items).uid("items").key_by(lambda item: item[0])
    matched = keyed.connect(rules.broadcast(descriptor)).process(MyKeyedBroadcastProcessFunction())
    collect(matched.uid("matcher"))


ITEMS = [("red", "square"), ("blue", "square"), ("red", "circle"), ("green", "circle")]


def test_rules_match_items_of_one_color_and_come_before_the_items_of_their_epoch():
    env = environment()
    matcher(env, ITEMS)
    assert run(env, 3).collected() == ["MATCH: ('red', 'square') - ('red', 'circle')"]


def test_rules_and_half_matched_items_survive_a_failover_and_a_restart():
    env = environment()
    matcher(env, ITEMS)
    harness = started(env, 2)
    harness.run_epoch(take=2, checkpoint=True)
    harness.kill_slot(0)
    harness.fail_over()
    second = harness.restart(3)
    second.run()
    assert second.collected() == ["MATCH: ('red', 'square') - ('red', 'circle')"]


FLAGS = MapStateDescriptor("flags", Types.STRING(), Types.LONG())


class Flagged(BroadcastProcessFunction):
    def process_broadcast_element(self, value, ctx: BroadcastProcessFunction.Context):
        ctx.get_broadcast_state(FLAGS).put(value, len(value))
        yield "flag", value

    def process_element(self, value, ctx: BroadcastProcessFunction.ReadOnlyContext):
        yield value, tuple(sorted(ctx.get_broadcast_state(FLAGS).keys()))


def test_a_broadcast_reaches_every_subtask_of_a_stream_without_keys():
    env = environment()
    flags = env.from_collection(["x", "y"]).broadcast(FLAGS)
    collect(env.from_sequence(1, 4).connect(flags).process(Flagged()))
    results = run(env, 2).collected()
    assert Counter(r for r in results if r[0] == "flag") == Counter(
        {("flag", "x"): 2, ("flag", "y"): 2}
    )
    assert {r[1] for r in results if r[0] != "flag"} == {("x", "y")}


class Meddling(BroadcastProcessFunction):
    def process_broadcast_element(self, value, ctx):
        return []

    def process_element(self, value, ctx):
        ctx.get_broadcast_state(FLAGS).put("x", 1)
        return []


def test_broadcast_state_is_read_only_beside_the_broadcast():
    env = environment()
    flags = env.from_collection(["x"]).broadcast(FLAGS)
    collect(env.from_sequence(1, 2).connect(flags).process(Meddling()))
    with pytest.raises(WeirError, match="flags"):
        run(env, 2)


ODD = OutputTag("odd", Types.LONG())


class Sorting(ProcessFunction):
    def process_element(self, value, ctx):
        if value % 2:
            yield ODD, value
        else:
            yield value


class KeyedSorting(KeyedProcessFunction):
    def process_element(self, value, ctx):
        if value % 2:
            yield ODD, value
        else:
            yield value


def test_side_outputs_leave_the_main_stream():
    env = environment()
    main = env.from_sequence(1, 6).process(Sorting(), output_type=Types.LONG())
    even, odd = collect(main), collect(main.get_side_output(ODD))
    harness = run(env)
    assert sorted(harness.collected(even)) == [2, 4, 6]
    assert sorted(harness.collected(odd)) == [1, 3, 5]


def test_a_side_output_can_be_keyed_and_the_main_stream_too():
    env = environment()
    keyed = env.from_sequence(1, 6).key_by(lambda v: v)
    main = keyed.process(KeyedSorting(), output_type=Types.LONG())
    even = collect(main.key_by(lambda v: 0).reduce(lambda a, b: a + b))
    odd = collect(main.get_side_output(ODD).key_by(lambda v: 0).reduce(lambda a, b: a + b))
    harness = run(env, 3)
    assert max(harness.collected(even)) == 12
    assert max(harness.collected(odd)) == 9


SIDE = OutputTag("side")


def both_ways(method, value):
    """Give one result to the main output and one to a side output."""
    yield method, value
    yield SIDE, (method, -value)


class CoSides(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield from both_ways("first", value)

    def process_element2(self, value, ctx):
        yield from both_ways("second", value)


class KeyedCoSides(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield from both_ways("first", value)

    def process_element2(self, value, ctx):
        yield from both_ways("second", value)


class BroadcastSides(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield from both_ways("first", value)

    def process_broadcast_element(self, value, ctx):
        yield from both_ways("second", value)


class KeyedBroadcastSides(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield from both_ways("first", value)

    def process_broadcast_element(self, value, ctx):
        yield from both_ways("second", value)


def of_itself(value):
    return value


# The function over two streams, and in how many of two subtasks a record of the second is.
TWO_INPUTS = {
    "co": (lambda a, b: a.connect(b).process(CoSides()), 1),
    "keyed co": (
        lambda a, b: a.connect(b).key_by(of_itself, of_itself).process(KeyedCoSides()),
        1,
    ),
    "broadcast": (lambda a, b: a.connect(b.broadcast(FLAGS)).process(BroadcastSides()), 2),
    "keyed broadcast": (
        lambda a, b: a.key_by(of_itself).connect(b.broadcast(FLAGS)).process(KeyedBroadcastSides()),
        2,
    ),
}


@pytest.mark.parametrize("kind", TWO_INPUTS)
def test_both_methods_of_a_function_of_two_streams_have_side_outputs(kind):
    build, copies = TWO_INPUTS[kind]
    env = environment()
    main = build(env.from_sequence(1, 3), env.from_sequence(4, 6))
    out = collect(main)
    side = collect(main.get_side_output(SIDE).map(lambda v: (v[0], -v[1])))
    harness = run(env, 2)
    expected = Counter([("first", n) for n in (1, 2, 3)])
    expected += Counter([("second", n) for n in (4, 5, 6)] * copies)
    assert Counter(harness.collected(out)) == expected
    assert Counter(harness.collected(side)) == expected


def test_operators_may_have_different_parallelism():
    env = environment()
    first = env.from_sequence(1, 20).key_by(lambda v: v).map(Where()).set_parallelism(4)
    second = first.map(Where()).set_parallelism(2)
    collect(second.map(Where()).set_parallelism(1))
    results = run(env, 3).collected()
    assert sorted(r[1][1][1] for r in results) == list(range(1, 21))
    assert {r[0] for r in results} == {0}
    assert {r[1][0] for r in results} == {0, 1}
    assert {r[1][1][0] for r in results} == {0, 1, 2, 3}


def test_an_edge_may_skip_a_level():
    env = environment()
    source = env.from_collection([("k", n) for n in range(6)])
    deep = source.key_by(lambda r: r[0]).sum(1).key_by(lambda r: r[1]).map(lambda r: ("deep", r[1]))
    shallow = source.map(lambda r: ("shallow", r[1]))
    collect(deep.union(shallow).key_by(lambda r: r[0]).map(Where()))
    results = [value for _, value in run(env, 3, take=4).collected()]
    assert Counter(results) == Counter(
        [("shallow", n) for n in range(6)] + [("deep", n) for n in (0, 1, 3, 6, 10, 15)]
    )


def test_printed_lines_name_the_subtask_when_there_are_several():
    env = environment()
    env.from_collection(["a"]).global_().print()
    env.from_collection(["b"]).global_().print("out")
    assert sorted(run(env, 2).printed) == ["1> a", "out:1> b"]
    single = environment()
    single.from_collection(["a"]).print()
    assert run(single, 1).printed == ["a"]


def test_records_of_a_declared_type_keep_it_through_two_shuffles():
    env = environment()
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    source = env.from_collection([("a", 1), ("b", 2), ("a", 3)], pair)
    summed = source.key_by(lambda r: r[0]).sum(1).map(lambda r: r, output_type=pair)
    collect(summed.key_by(lambda r: r[0]).map(lambda r: r))
    assert by_key(run(env, 2).collected()) == {"a": [("a", 1), ("a", 4)], "b": [("b", 2)]}
