"""What Flink's own tests expect of patterns, as one table."""

from __future__ import annotations

import pytest
from tests.unit.nfa.notation import expand, found, pattern_of

from weir.cep import AfterMatchSkipStrategy as Skip
from weir.cep import Pattern, WithinType
from weir.common import Duration

BETWEEN = WithinType.PREVIOUS_AND_CURRENT


def above_three(event):
    return event.price > 3


def is_five(event):
    return event.price == 5


def short(text, letter="a"):
    return [expand(word, letter) for word in text.split()]


def words(text):
    return [word.strip() for word in text.split(",")] if text else []


ALL_PAIRS = words("a b, a c, a d, a e, b c, b d, b e, c d, c e, d e")
RUNS = words("a b c d e, a b c d, a b c, a b, b c d e, b c d, b c, c d e, c d, d e")
SIMPLE = [
    ("1", "any ~ any", "a b c d e", words("a b, b c, c d, d e")),
    ("2", "any ~~ any", "a b c d e", ALL_PAIRS),
    ("3", "any ~ any+", "a b c d e", RUNS),
    ("4", "a > b", "a b", ["a b"]),
    ("4 apart", "a > b", "a c b", []),
    ("9", "c ~~ a+x? ~ b", "c a1 a2 b", short("c12b c1b c2b cb")),
    ("10", "c ~ a+? ~ b", "c a1 a2 d a3 b", short("c123b c12b c1b cb")),
    ("11", "a+? ~ b", "a1 a2 a3 b", short("123b 12b 23b 1b 2b 3b b")),
    (
        "12",
        "c ~~ a+x? ~ d+x? ~ e",
        "c a d1 d2 e",
        words("c a d1 d2 e, c a d1 e, c d1 d2 e, c d1 e, c a e, c e"),
    ),
    ("13", "d ~ a+? > b", "d a1 a2 c b", []),
    ("14", "d ~~ a+x? > b", "d a1 a2 b", short("d12b d2b")),
    ("15", "c ~~ a+ ~~ b", "c a1 a2 a3 b", short("c123b c12b c23b c3b c2b c1b")),
    ("16", "s > m+c? ~ e", "s x m1 m2 m3 e", ["s e"]),
    ("17", "c ~ a? ~ b", "c a b", words("c a b, c b")),
    ("18", "c > a*2x ~ b", "c a1 a2 a3 b", short("c12b c13b")),
    ("19", "a*2c ~ b", "a1 a2 a3 b", short("12b 23b")),
    ("20", "c ~ a*2 ~ b", "c a1 a2 a3 b", short("c12b")),
    ("21", "c ~~ a*2x ~ b", "c a1 a2 a3 b", short("c12b c13b c23b")),
    ("22", "c ~~ a*2? ~ b", "c f a1 f a2 a3 b", short("c12b c23b cb")),
    ("23", "c ~~ a*2c? ~ b", "c f a1 f a2 a3 b", short("c23b cb")),
    ("24", "c ~~ a+c? ~ b", "c f a1 f a2 a3 b", short("c23b c1b c2b c3b cb")),
    ("25 strict", "c ~ a+c ~ b", "c d a1 a2 a3 d a4 b", short("c123b c12b c1b")),
    ("25 relaxed", "c ~ a+ ~ b", "c d a1 a2 a3 d a4 b", short("c123b c12b c1b c1234b")),
    (
        "25 any",
        "c ~ a+x ~ b",
        "c d a1 a2 a3 d a4 b",
        short("c1234b c134b c123b c124b c12b c13b c14b c1b"),
    ),
    ("26", "c ~ a+?", "c a1 a2 a3", short("c123 c12 c1 c")),
    ("27", "a+c", "c a1 c a2 a3", short("1 23 2 3")),
    ("28", "c ~ a+g? ~ d", "c x a1 x a2 x a3 d", short("c123d")),
    ("28 none", "c ~ a+g? ~ d", "c x d", ["c d"]),
    ("29", "c ~ a+g ~ d", "c x d", []),
    ("31", "c ~ a+g?", "c a1 a2 x a3", short("c c1 c12 c123")),
    ("31 strict", "c ~ a+cg?", "c a1 a2 x a3", short("c c1 c12")),
    ("32", "c ~ a*2-5g ~ d", "c a1 a2 a3 a4 d", short("c1234d")),
    ("32 end", "c ~ a*2-5g", "c a1 a2 a3 a4", short("c12 c123 c1234")),
    ("33", "c > a*1-3x ~ b", "c a1 a2 a3 b", short("c123b c12b c13b c1b")),
    ("33 from zero", "c > a*0-2x ~ b", "c a1 a2 a3 b", short("c12b c13b c1b cb")),
    ("34", "c ~ a*2+x ~ b", "c a1 a2 a3 b", short("c123b c12b c13b")),
    ("37", "a !> b ~~ c ~ d", "a c1 b c2 d", words("a c1 d, a c2 d")),
    ("37 relaxed", "a !> b ~ c ~ d", "a b c1 c2 d", []),
    ("38", "a ~~ c ~~ d !> b", "a c1 c2 d b", []),
    ("39", "a !~ b ~~ c ~ d", "a c1 b c2 d", ["a c1 d"]),
    ("39 optional", "a !~ b ~~ c? ~ d", "a c1 b c2 d", ["a c1 d"]),
    ("40", "a ~~ b*2 !~ c ~ d", "a b1 c b2 d", []),
    ("41", "a !~ b ~~ c*2? ~ d", "a c1 b c2 d", ["a c1 c2 d"]),
    ("42", "a !~ b ~ c ~ d", "a1 b c1 a2 c2 d", ["a2 c2 d"]),
    ("43", "a ~ b+ !~ c ~ d", "a b1 b2 b3 c b4 b5 b6 d", []),
    ("43 any", "a ~ b+x !~ c ~ d", "a b1 b2 b3 c b4 b5 b6 d", []),
    (
        "44",
        "a ~~ b+ !~ c ~ d",
        "a b1 b2 b3 c b4 b5 b6 d",
        short("a456d a45d a4d a56d a5d a6d", "b"),
    ),
    (
        "44 any",
        "a ~~ b+x !~ c ~ d",
        "a b1 b2 b3 c b4 b5 b6 d",
        short("a456d a45d a4d a56d a5d a6d a46d", "b"),
    ),
    ("55 times", "c ~ ( a ~ b )*2 ~ d", "c a1 b1 a2 b2 d", ["c a1 b1 a2 b2 d"]),
    ("55 optional", "c ~ ( a ~ b )? ~ d", "c a1 a2 b d", words("c d, c a1 b d")),
    ("55 loop", "c ~ ( a ~ b )+ ~ d", "c a1 b1 a2 b2 d", words("c a1 b1 d, c a1 b1 a2 b2 d")),
    (
        "55 optional loop",
        "c ~ ( a ~ b )+? ~ d",
        "c a1 b1 a2 b2 d",
        words("c a1 b1 d, c a1 b1 a2 b2 d, c d"),
    ),
    (
        "56",
        "c ~~ ( a ~ b )*2x ~ d",
        "c a1 b1 a2 b2 a3 b3 d",
        words("c a1 b1 a2 b2 d, c a1 b1 a3 b3 d, c a2 b2 a3 b3 d"),
    ),
    ("60", "s ~~ m ~~ e", "s1 m2 e3 s4 m5 e6", words("s1 m2 e3, s1 m2 e6, s1 m5 e6, s4 m5 e6")),
]

either_way = pytest.mark.parametrize("pauses", [False, True], ids=["at once", "with pauses"])


def put_in_order(matches):
    """Sort matches, and the events of each: a match holds those of a repeated group by name."""
    return sorted(" ".join(sorted(match.split())) for match in matches)


@either_way
@pytest.mark.parametrize(
    ("pattern", "text", "expected"), [c[1:] for c in SIMPLE], ids=[c[0] for c in SIMPLE]
)
def test_a_pattern_finds_the_matches_that_flink_finds(pattern, text, expected, pauses):
    matches, _ = found(pattern_of(pattern), text, pauses=pauses)
    assert put_in_order(matches) == put_in_order(expected)


UNTIL = [
    ("30", "c ~ a+g? ~ d", "c a1/2 a2/3 a3/3 a4/4 d", short("c123d")),
    ("30 at once", "c ~ a+g? ~ d", "c a9/4 a1/2 a2/3 a3/3 d", ["c d"]),
    ("30 not optional", "c ~ a+g ~ d", "c a9/4 a1/2 a2/3 a3/3 d", []),
]


@either_way
@pytest.mark.parametrize(
    ("pattern", "text", "expected"), [c[1:] for c in UNTIL], ids=[c[0] for c in UNTIL]
)
def test_until_ends_a_greedy_loop(pattern, text, expected, pauses):
    matches, _ = found(pattern_of(pattern, until={"a": above_three}), text, pauses=pauses)
    assert sorted(matches) == sorted(expected)


UNTIL_FIVE = [
    ("35", "c ~ a+ ~ z", "c/1 a1/2 a2/3 a3/5 a4/6", short("c123 c13")),
    ("35 any", "c ~ a+x ~ z", "c/1 a1/2 a2/3 a3/4 a4/5", short("c1234 c124 c134 c14")),
    ("35 optional", "c ~ a+? ~ z", "c/1 a1/2 a2/3 a3/5 a4/6", short("c123 c13 c3")),
    ("36", "c ~~ a+", "c/1 a1/2 a2/3 a3/5 a4/6", short("c12 c1 c2 c4")),
]


@either_way
@pytest.mark.parametrize(
    ("pattern", "text", "expected"), [c[1:] for c in UNTIL_FIVE], ids=[c[0] for c in UNTIL_FIVE]
)
def test_until_ends_a_loop(pattern, text, expected, pauses):
    looked_for = pattern_of(pattern, until={"a": is_five}, where={"z": is_five})
    matches, _ = found(looked_for, text, pauses=pauses)
    assert sorted(matches) == sorted(expected)


STARTS = "s1@1 s2@2 m@3 x@4 e1@11 e2@13"
WINDOWS = [
    ("5", "s ~ m ~ e", 10, None, STARTS, "s2 m e1", "s1 m @11"),
    ("6", "s ~ m ~ e", 9, BETWEEN, STARTS, "s1 m e1, s2 m e1", ""),
    ("7", "s ~~ m ~~ e", 10, None, STARTS, "s2 m e1", "s1 m @11, s2 m @12, s1 @11, s2 @12"),
    ("8", "s !~ m", 5, None, "s1@1 m1@4 s2@5 s3@11 m2@18", "s2, s3", ""),
    ("45", "a !~ b", 3, None, "a1@1 b1@2 a2@4 c@5 b2@10 a3@11 b3@13", "a2", ""),
    (
        "46",
        "a !~ b ~ c*0-2",
        3,
        None,
        "a1@1 b1@2 a2@10 c1@11 c2@12 a3@20 c3@21 c4@24",
        "a1, a2, a2 c1, a2 c1 c2, a3, a3 c3",
        None,
    ),
]


@either_way
@pytest.mark.parametrize(
    ("pattern", "length", "kind", "text", "expected", "timed_out"),
    [c[1:] for c in WINDOWS],
    ids=[c[0] for c in WINDOWS],
)
def test_time_ends_partial_matches(pattern, length, kind, text, expected, timed_out, pauses):
    looked_for = pattern_of(pattern)
    looked_for.within(Duration.of_millis(length), kind or WithinType.FIRST_AND_LAST)
    matches, timeouts = found(looked_for, text, pauses=pauses)
    assert sorted(matches) == sorted(words(expected))
    if timed_out is not None:
        assert sorted(timeouts) == sorted(words(timed_out))


AFTER = [
    ("47", "a*3", Skip.no_skip(), "a1 a2 a3 a4 a5 a6", short("123 234 345 456")),
    ("47 past", "a*3", Skip.skip_past_last_event(), "a1 a2 a3 a4 a5 a6", short("123 456")),
    ("48", "a ~~ b", Skip.no_skip(), "a1 b1 a2 b2", words("a1 b1, a1 b2, a2 b2")),
    ("48 next", "a ~~ b", Skip.skip_to_next(), "a1 b1 a2 b2", words("a1 b1, a2 b2")),
    ("49", "a > b+", Skip.no_skip(), "a b1 b2 b3", short("a1 a12 a123", "b")),
    ("49 next", "a > b+", Skip.skip_to_next(), "a b1 b2 b3", short("a1", "b")),
    (
        "50 first",
        "ab*2 > ab*2",
        Skip.skip_to_first("ab_2"),
        "ab1 ab2 ab3 ab4 ab5 ab6",
        short("1234 3456", "ab"),
    ),
    (
        "50 last",
        "ab*2 > ab*2",
        Skip.skip_to_last("ab_2"),
        "ab1 ab2 ab3 ab4 ab5 ab6 ab7",
        short("1234 4567", "ab"),
    ),
    (
        "51",
        "a ~~ b ~~ c ~ d",
        Skip.skip_past_last_event(),
        "a1 a2 b1 b2 c1 c2 d1 d2",
        ["a1 b1 c1 d1"],
    ),
    ("52 past", "a+cg > b", Skip.skip_past_last_event(), "a1 a2 a3 b", short("123b")),
    ("52 last", "a+cg > b", Skip.skip_to_last("a"), "a1 a2 a3 b", short("123b 3b")),
    ("52 first", "a+cg > b", Skip.skip_to_first("a"), "a1 a2 a3 b", short("123b 23b 3b")),
    ("52 no skip", "a+cg > b", Skip.no_skip(), "a1 a2 a3 b", short("123b 23b 3b")),
]


@either_way
@pytest.mark.parametrize(
    ("pattern", "skip", "text", "expected"), [c[1:] for c in AFTER], ids=[c[0] for c in AFTER]
)
def test_a_match_removes_others(pattern, skip, text, expected, pauses):
    matches, _ = found(pattern_of(pattern, skip=skip), text, pauses=pauses)
    assert sorted(matches) == sorted(expected)


@either_way
def test_53_a_loop_of_three_alternatives(pauses):
    def one_of(*kinds):
        return lambda event: event.kind in kinds

    where = {"a": one_of("a", "c"), "b": one_of("b", "c")}
    pattern = pattern_of("a ~ b ~ c+g ~ d", where=where, skip=Skip.skip_to_first("c"))
    matches, _ = found(pattern, "a b c1 c2 c3 d", pauses=pauses)
    assert matches == ["a b c1 c2 c3 d", "c1 c2 c3 d"]


@either_way
def test_54_a_condition_on_an_earlier_event(pauses):
    def same_price(event, ctx):
        first = ctx.get_events_for_pattern("a")[0]
        return event.kind == "b" and event.price == first.price

    pattern = pattern_of("a ~ c ~ b", where={"b": same_price}, skip=Skip.skip_to_first("c"))
    text = "a1/0 c1/0 a2/1 c2/0 b1/1 b2/0"
    matches, _ = found(pattern, text, pauses=pauses)
    assert sorted(matches) == ["a1 c1 b2", "a2 c2 b1"]


@either_way
@pytest.mark.parametrize(
    ("stage", "expected"),
    [("s+?", "12e 1e 2e 3e e"), ("s+x?", "12e 1e 2e 3e e 13e")],
)
def test_57_a_condition_on_the_sum_so_far(stage, expected, pauses):
    def below_five(event, ctx):
        total = sum(e.price for e in ctx.get_events_for_pattern("s"))
        return event.kind == "s" and total + event.price < 5

    pattern = pattern_of(f"{stage} ~ e", where={"s": below_five})
    matches, _ = found(pattern, "s1/1 s2/2 s3/3 e", pauses=pauses)
    assert sorted(matches) == sorted(short(expected, "s"))


def test_60_alternatives_of_a_stage():
    pattern = Pattern.begin("s").where(lambda e: e.kind == "s").followed_by_any("m")
    pattern.where(lambda e: e.price == 2).or_(lambda e: e.price == 5)
    pattern = pattern.followed_by_any("e").where(lambda e: e.kind == "e")
    matches, _ = found(pattern, "s1 m2/2 e3 s4 m5/5 e6")
    assert sorted(matches) == words("s1 m2 e3, s1 m2 e6, s1 m5 e6, s4 m5 e6")
