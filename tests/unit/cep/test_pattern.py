"""What a pattern refuses, and how it is put together."""

from __future__ import annotations

import datetime

import pytest

from weir.cep import (
    CEP,
    AfterMatchSkipStrategy,
    IterativeCondition,
    Pattern,
    PatternProcessFunction,
    SimpleCondition,
    WithinType,
)
from weir.cep._pattern import spec_of
from weir.common import Duration, Time
from weir.datastream import OutputTag, StreamExecutionEnvironment
from weir.errors import UsageError
from weir.nfa.compiler import compile_pattern


def a():
    return Pattern.begin("a").where(lambda e: e == "a")


def bool_of(event):
    return bool(event)


def loop():
    return a().followed_by("b").one_or_more()


def begun_then(follow, change):
    """Change a stage after the next one was added."""
    begun = loop()
    whole = follow(begun)
    change(begun)
    return whole


REFUSED = {
    "not_followed_by at the end": (
        lambda: a().not_followed_by("b"),
        "NotFollowedBy is not supported without windowTime",
    ),
    "a name twice": (lambda: a().next("a"), "Duplicate pattern name: a"),
    "a name twice in a group": (lambda: a().next(Pattern.begin("a")), "Duplicate pattern name: a"),
    "a name with a colon": (lambda: Pattern.begin("a:b"), "without ':'"),
    "an empty name": (lambda: a().followed_by(""), "without ':'"),
    "no name": (lambda: a().followed_by(None), "expects a name"),
    "a negated group": (lambda: a().not_next(Pattern.begin("b")), "a group cannot be negated"),
    "not behind optional": (
        lambda: a().followed_by("b").optional().not_next("c"),
        "optional path to NOT condition is not supported",
    ),
    "not_followed_by behind optional": (
        lambda: a().optional().not_followed_by("c"),
        "optional path to NOT condition is not supported",
    ),
    "a group that ends with not": (
        lambda: a().next(Pattern.begin("b").not_followed_by("c")).within(5),
        "a group must not end with not_followed_by",
    ),
    "two quantifiers": (lambda: loop().times(2), "Already applied quantifier"),
    "a quantifier on not": (
        lambda: a().not_next("b").one_or_more(),
        "Option not applicable to NOT",
    ),
    "optional not": (lambda: a().not_next("b").optional(), "Option not applicable to NOT"),
    "optional twice": (lambda: loop().optional().optional(), "Optional already applied"),
    "optional behind greedy": (
        lambda: loop().greedy().followed_by("c").optional(),
        "Optional pattern cannot be preceded by greedy pattern",
    ),
    "greedy before optional": (
        lambda: begun_then(lambda b: b.followed_by("c").optional(), lambda b: b.greedy()),
        "Optional pattern cannot be preceded by greedy pattern",
    ),
    "optional before not": (
        lambda: begun_then(lambda b: b.not_next("c"), lambda b: b.optional()),
        "optional path to NOT condition is not supported",
    ),
    "times from 0 behind greedy": (
        lambda: loop().greedy().followed_by("c").times(0, 2),
        "Optional pattern cannot be preceded by greedy pattern",
    ),
    "greedy singleton": (lambda: a().greedy(), "Option not applicable to singleton quantifier"),
    "greedy group": (
        lambda: a().next(Pattern.begin("b")).one_or_more().greedy(),
        "Option not applicable to group pattern",
    ),
    "greedy combinations": (
        lambda: loop().allow_combinations().greedy(),
        "Option not applicable to FollowedByAny",
    ),
    "combinations of greedy": (
        lambda: loop().greedy().allow_combinations(),
        "cannot be joined with greedy",
    ),
    "consecutive singleton": (lambda: a().consecutive(), "not applicable to singleton"),
    "combinations of a singleton": (
        lambda: a().allow_combinations(),
        "not applicable to singleton",
    ),
    "consecutive combinations": (
        lambda: loop().consecutive().allow_combinations(),
        "either combinations or consecutive",
    ),
    "until on a singleton": (
        lambda: a().until(lambda e: True),
        "The until condition is only applicable to looping states",
    ),
    "until on times": (
        lambda: a().times(3).until(lambda e: True),
        "The until condition is only applicable to looping states",
    ),
    "until twice": (
        lambda: loop().until(lambda e: True).until(lambda e: True),
        "Only one until condition",
    ),
    "within nothing": (lambda: a().within(Duration.of_millis(0)), "at least one millisecond"),
    "within less than nothing": (lambda: a().within(Time.seconds(-1)), "at least one millisecond"),
    "within some text": (lambda: a().within("5 s"), "expected a Duration"),
    "a loop with gaps of nothing": (lambda: a().one_or_more(0), "at least one millisecond"),
    "a step above the window": (
        lambda: a().within(5).next("b").within(6, WithinType.PREVIOUS_AND_CURRENT),
        "cannot be larger than the window length",
    ),
    "no times": (lambda: a().times(0), "at least 1, found 0"),
    "times backwards": (lambda: a().times(3, 2), "at least 3, found 2"),
    "times of text": (lambda: a().times("2"), "whole number"),
    "no times or more": (lambda: a().times_or_more(0), "at least 1"),
    "times between groups": (
        lambda: Pattern.begin(a()).one_or_more(3),
        r"one_or_more\(\) of a group takes no window_time, found 3",
    ),
    "where on a group": (
        lambda: Pattern.begin(a()).where(lambda e: True),
        "A group does not support where",
    ),
    "a strategy in a group": (
        lambda: a().next(Pattern.begin("b", AfterMatchSkipStrategy.skip_to_next())),
        "belongs to the begin",
    ),
    "skipping to nobody": (
        lambda: Pattern.begin("a", AfterMatchSkipStrategy.skip_to_first("x")).next("b"),
        "can not be found in the given Pattern: found 'x', expected one of 'a', 'b'",
    ),
    "skipping to a negation": (
        lambda: Pattern.begin("a", AfterMatchSkipStrategy.skip_to_last("b")).not_next("b"),
        "can not be found in the given Pattern",
    ),
    "missing what is not looked for": (
        lambda: AfterMatchSkipStrategy.skip_to_next().throw_exception_on_miss(),
        "belongs to skip_to_first",
    ),
    "skipping to no name": (lambda: AfterMatchSkipStrategy.skip_to_first(""), "name of a pattern"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_is_refused_when_the_pattern_is_built(case):
    build, message = REFUSED[case]
    with pytest.raises(UsageError, match=message):
        CEP.pattern(stream(), build())


WRONG_KINDS = {
    "a condition that is a number": (lambda: a().where(5), "where.. expects a function"),
    "a condition of three": (lambda: a().where(lambda a, b, c: True), "expects a function"),
    "a condition of nothing": (lambda: a().where(lambda: True), "expects a function"),
    "a condition class": (lambda: a().where(Cheap), "add parentheses"),
    "a subtype that is none": (lambda: a().subtype("int"), "expects a class"),
    "a strategy that is none": (lambda: Pattern.begin("a", "skip"), "AfterMatchSkipStrategy"),
    "a kind of within": (lambda: a().within(5, "first"), "WithinType"),
}


class Cheap(SimpleCondition):
    def filter(self, value):
        return value < 5


class Rising(IterativeCondition):
    def filter(self, value, ctx):
        return all(value > e for e in ctx.get_events_for_pattern("a"))


@pytest.mark.parametrize("case", list(WRONG_KINDS))
def test_arguments_of_other_kinds_are_refused(case):
    build, message = WRONG_KINDS[case]
    with pytest.raises(TypeError, match=message):
        build()


def stream():
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([1])


def test_what_the_pattern_is_for_is_checked():
    tag = OutputTag("late")
    with pytest.raises(TypeError, match="expects a DataStream"):
        CEP.pattern([1], a())
    with pytest.raises(TypeError, match="expects a Pattern"):
        CEP.pattern(stream(), "a")
    with pytest.raises(TypeError, match="EventComparator"):
        CEP.pattern(stream(), a(), 5)
    found = CEP.pattern(stream(), a())
    with pytest.raises(TypeError, match="OutputTag"):
        found.side_output_late_data("late")
    with pytest.raises(TypeError, match="PatternProcessFunction"):
        found.process(lambda match, ctx: [])
    with pytest.raises(TypeError, match="add parentheses"):
        found.process(PatternProcessFunction)
    with pytest.raises(TypeError, match="PatternSelectFunction or a callable"):
        found.select(None)
    with pytest.raises(UsageError, match="both a tag and a function"):
        found.select(lambda match: match, timed_out_partial_matches_tag=tag)
    with pytest.raises(UsageError, match="both a tag and a function"):
        found.flat_select(lambda match: [], pattern_flat_timeout_function=lambda m, t: [])


@pytest.mark.parametrize(
    "length", [5_000, Duration.of_seconds(5), Time.seconds(5), datetime.timedelta(seconds=5)]
)
def test_lengths_of_time_have_every_spelling(length):
    assert compile_pattern(spec_of(a().within(length))).window_ms == 5_000


def test_the_smallest_window_of_all_holds_for_the_whole_pattern():
    group = Pattern.begin("b").within(7).next("c")
    pattern = a().within(9).next(group).followed_by("d").within(8)
    assert compile_pattern(spec_of(pattern)).window_ms == 7


def test_calls_change_the_last_stage_and_stages_know_the_one_before():
    first = a()
    second = first.next("b")
    assert second.where(lambda e: True) is second
    assert second.get_previous() is first
    assert (first.get_name(), second.get_name()) == ("a", "b")
    assert first.get_previous() is None
    assert second.get_after_match_skip_strategy() == AfterMatchSkipStrategy.no_skip()
    assert repr(second) == "Pattern(a b)"


def test_the_same_pattern_has_the_same_signature_and_others_have_another():
    def signature(pattern):
        return compile_pattern(spec_of(pattern)).signature

    assert signature(loop()) == signature(a().followed_by("b").where(bool_of).one_or_more())
    others = [a().followed_by("b"), a().next("b").one_or_more(), a().followed_by("c").one_or_more()]
    assert len({signature(p) for p in [loop(), *others]}) == 4


def test_optional_before_a_quantifier_is_not_forgotten():
    early = Pattern.begin("a").next("b").optional().one_or_more()
    late = Pattern.begin("a").next("b").one_or_more().optional()
    assert spec_of(early) == spec_of(late)
