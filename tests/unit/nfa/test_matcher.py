"""What the matcher guarantees beyond the table: time, memory, conditions, skipping."""

from __future__ import annotations

import pytest
from tests.unit.nfa.notation import Event, found, pattern_of, takes

from weir.cep import AfterMatchSkipStrategy as Skip
from weir.cep import Pattern, SimpleCondition, WithinType
from weir.cep._pattern import spec_of
from weir.errors import UsageError
from weir.nfa.compiler import compile_pattern
from weir.nfa.matcher import NOTHING, Complete, Matcher, Memory, Node, Run


def test_matches_and_timeouts_do_not_depend_on_how_far_time_moves_at_once():
    pattern = pattern_of("a ~~ b !~ c").within(5)
    text = "a1@1 a2@2 b1@3 b2@4"
    at_once, timeouts = found(pattern, text, final=1_000)
    assert at_once == ["a1 b1", "a1 b2", "a2 b1", "a2 b2"]
    assert timeouts == ["a1 @6", "a2 @7"]
    assert found(pattern, f"{text} x1@5 x2@6 x3@7 x4@8")[0] == at_once


def test_a_match_that_time_completes_has_the_time_at_which_it_was_complete():
    automaton = compile_pattern(spec_of(pattern_of("a !~ b").within(5)))
    matcher = Matcher(automaton)
    matcher.process(Event("a", "a1", 0, 1), 1)
    matcher.advance(1 << 62)
    assert [time for _, time in matcher.found.matches] == [6]


def test_two_negations_at_the_end_hold_both():
    pattern = pattern_of("a !~ b !~ c").within(5)
    for text, expected in (("a@1 x@9", ["a"]), ("a@1 b@2 x@9", []), ("a@1 c@2 x@9", [])):
        assert found(pattern, text)[0] == expected


def test_a_negation_holds_through_not_next():
    pattern = pattern_of("a !~ b !> c ~ d")
    assert found(pattern, "a x d")[0] == ["a d"]
    assert found(pattern, "a x b d")[0] == []
    assert found(pattern, "a c d")[0] == []


def test_exactly_the_window_apart_is_too_late():
    assert found(pattern_of("a ~ b").within(5), "a@1 b@6")[0] == []
    assert found(pattern_of("a ~ b").within(5), "a@1 b@5")[0] == ["a b"]


def test_the_events_of_a_loop_may_be_bound_in_time():
    pattern = Pattern.begin("a").where(lambda e: e.kind == "a").times(2, window_time=3)
    assert found(pattern, "a1@1 a2@3 a3@6")[0] == ["a1 a2"]


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a1@1 a2@3 a3@5", ["a1", "a1 a2", "a1 a2 a3", "a2", "a2 a3", "a3"]),
        ("a1@1 a2@3 a3@6 a4@7", ["a1", "a1 a2", "a2", "a3", "a3 a4", "a4"]),
        ("a1@1 x@2 a2@3", ["a1", "a1 a2", "a2"]),
        ("a1@1 x@3 a2@4", ["a1", "a2"]),
    ],
)
def test_the_events_of_a_loop_without_end_may_be_bound_in_time(text, expected, pauses):
    pattern = Pattern.begin("a").where(takes("a")).one_or_more(window_time=3)
    assert sorted(found(pattern, text, pauses=pauses)[0]) == expected


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a1@1 a2@3 a3@5 a4@8", ["a1 a2", "a1 a2 a3", "a2 a3"]),
        ("a1@1 a2@4 a3@6", ["a2 a3"]),
        ("a1@1 x@2 a2@3 x@4 a3@6", ["a1 a2"]),
    ],
)
def test_what_a_loop_needs_at_least_is_bound_in_time_too(text, expected, pauses):
    pattern = Pattern.begin("a").where(takes("a")).times_or_more(2, window_time=3)
    assert sorted(found(pattern, text, pauses=pauses)[0]) == expected


@pytest.mark.parametrize(
    "quantified",
    [lambda p: p.one_or_more(3), lambda p: p.times_or_more(1, 3), lambda p: p.times(1, 2, 3)],
    ids=["one_or_more", "times_or_more", "times"],
)
def test_the_first_event_of_a_loop_may_be_far_from_the_one_before(quantified):
    pattern = quantified(pattern_of("c").followed_by("a").where(takes("a")))
    assert sorted(found(pattern, "c@1 a1@9 a2@11 a3@14")[0]) == ["c a1", "c a1 a2"]


def test_a_loop_that_is_bound_wider_than_the_pattern_is_refused():
    pattern = Pattern.begin("a").where(takes("a")).one_or_more(6).within(5)
    with pytest.raises(UsageError, match=r"cannot be larger .*'a' has 6 ms, the pattern 5 ms"):
        compile_pattern(spec_of(pattern))


def test_a_bound_between_events_holds_while_others_are_passed_over():
    pattern = pattern_of("a ~ b?").followed_by("c").where(lambda e: e.kind == "c")
    pattern.within(3, WithinType.PREVIOUS_AND_CURRENT)
    assert found(pattern, "a@1 x@2 c@3")[0] == ["a c"]
    matches, timeouts = found(pattern, "a@1 x@2 x2@3 c@4")
    assert (matches, timeouts) == ([], ["a @4"])


def test_everything_is_forgotten_that_nothing_needs():
    automaton = compile_pattern(spec_of(pattern_of("a ~ b")))
    matcher = Matcher(automaton)
    for number in range(5_000):
        matcher.process(Event("ab"[number % 2], str(number), 0, number), number)
        assert len(matcher.memory.nodes) < 2_500
        matcher.found.matches.clear()
    new, dropped = matcher.pause()
    assert (new, dropped, matcher.memory.nodes) == ({}, set(), {})
    assert matcher.memory.empty


def test_a_condition_on_the_event_alone_is_asked_once_for_it():
    asked = []

    class Counting(SimpleCondition):
        def filter(self, value):
            asked.append(value.name)
            return value.kind == "a"

    pattern = Pattern.begin("first").where(Counting()).followed_by_any("b").one_or_more()
    found(pattern, "a1 a2 a3 x1 x2")
    assert asked == ["a1", "a2", "a3", "x1", "x2"]


def test_a_condition_on_the_match_is_asked_once_for_each_and_sees_it_alone():
    seen = []

    def second(event, ctx):
        seen.append(([e.name for e in ctx.get_events_for_pattern("a")], event.name))
        assert ctx.timestamp() == event.time
        assert ctx.current_processing_time() == 0
        return event.kind == "b"

    found(pattern_of("a ~~ b", where={"b": second}), "a1 a2 b1")
    assert seen == [(["a1"], "a2"), (["a1"], "b1"), (["a2"], "b1")]


def test_asking_for_a_pattern_that_does_not_exist_is_refused():
    pattern = pattern_of("a ~ b", where={"b": lambda e, ctx: ctx.get_events_for_pattern("z")})
    with pytest.raises(UsageError, match="there is no such pattern, only 'a', 'b'"):
        found(pattern, "a b")


def test_a_stage_without_events_yet_has_none():
    def nothing(event, ctx):
        return ctx.get_events_for_pattern("b") == []

    assert found(pattern_of("a ~ b", where={"b": nothing}), "a b")[0] == ["a b"]


def test_only_instances_of_a_class_fit_a_subtype():
    class Special(Event):
        pass

    pattern = Pattern.begin("a").where(lambda e: e.kind == "a").subtype(Special)
    matcher = Matcher(compile_pattern(spec_of(pattern)))
    for cls in (Event, Special):
        matcher.process(cls("a", cls.__name__, 0, 1), 1)
    assert [m["a"][0].name for m, _ in matcher.found.matches] == ["Special"]


def test_skipping_to_what_is_missing_can_be_an_error():
    strict = Skip.skip_to_first("b").throw_exception_on_miss()
    with pytest.raises(UsageError, match=r"Could not skip to 'b'.* has no such event"):
        found(pattern_of("a ~ b? > c", skip=strict), "a c")
    with pytest.raises(UsageError, match="Could not skip to first element of a match"):
        found(pattern_of("a > b", skip=Skip.skip_to_last("a").throw_exception_on_miss()), "a b")
    assert found(pattern_of("a ~ b? > c", skip=Skip.skip_to_first("b")), "a c")[0] == ["a c"]


def test_a_match_waits_for_an_earlier_one_until_time_ends_that():
    def of_same_price(event, ctx):
        return event.kind == "c" and event.price == ctx.get_events_for_pattern("a")[0].price

    pattern = pattern_of("a ~ c", where={"c": of_same_price}, skip=Skip.skip_to_next()).within(10)
    matcher = Matcher(compile_pattern(spec_of(pattern)), timeouts=True)
    for kind, price, time in (("a", 1, 1), ("a", 2, 5), ("c", 2, 7)):
        matcher.process(Event(kind, f"{kind}{time}", price, time), time)
    assert matcher.found.matches == []
    matcher.advance(500)
    assert [([e.name for e in m["c"]], time) for m, time in matcher.found.matches] == [(["c7"], 11)]
    assert [(m["a"][0].name, time) for m, time in matcher.found.timeouts] == [("a1", 11)]


def test_a_loop_of_a_group_that_may_be_empty_ends():
    pattern = pattern_of("c ~ ( a? ~ b? )+ ~ d")
    assert found(pattern, "c d")[0] == ["c d"]


RUN = Run(0, node=4, first=7, first_ms=1, last_ms=2)
NODES = {3: Node(0, 7, NOTHING), 4: Node(1, 9, 3)}


@pytest.mark.parametrize(
    ("memory", "damage"),
    [
        (Memory([RUN], [Complete(3, 7)], NODES), None),
        (Memory([RUN._replace(node=5)], [], NODES), "with node 5"),
        (Memory([RUN._replace(node=NOTHING)], [], NODES), "with node -1"),
        (Memory([RUN._replace(first=9)], [], NODES), "from event 9"),
        (Memory([RUN._replace(state=99)], [], NODES), "state 99"),
        (Memory([RUN._replace(state=-1)], [], NODES), "state -1"),
        (Memory([], [Complete(5, 7)], NODES), "with node 5"),
        (Memory([RUN], [], NODES | {4: Node(1, 9, 4)}), "node 4 comes behind node 4"),
        (Memory([RUN], [], NODES | {3: Node(1, 7, 4)}), "node 3 comes behind node 4"),
        (Memory([RUN], [], NODES | {4: Node(1, 9, 2)}), "node 4 comes behind node 2"),
        (Memory([RUN], [], NODES | {4: Node(1, 7, 3)}), "node 4 comes behind node 3"),
        (Memory([RUN], [], NODES | {4: Node(2, 9, 3)}), "stage 2"),
        (Memory([RUN], [], NODES | {4: Node(-1, 9, 3)}), "stage -1"),
        (Memory([RUN], [], NODES | {3: Node(0, -1, NOTHING)}), "event -1"),
        (Memory([RUN], [], NODES | {-1: Node(0, 7, NOTHING)}), "node -1"),
    ],
)
def test_a_memory_that_no_matcher_leaves_is_damaged(memory, damage):
    found = Matcher(compile_pattern(spec_of(pattern_of("a ~ b")))).damage_of(memory)
    assert found is None if damage is None else damage in found
