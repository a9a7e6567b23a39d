"""When Spark looked at the sources: never later than it did."""

from __future__ import annotations

import pytest

from weir.spark.polls import EmptyPolls
from weir.testing.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock(1_000_000)


def asked_every_second(polls, clock, count, *, found_nothing=True):
    """Ask once a second, and return the answers."""
    answers = []
    for _ in range(count):
        clock.advance(1000)
        answers.append(polls.ask(lambda: found_nothing))
    return answers


def test_a_query_that_looks_all_the_time_has_looked_since_it_was_seen_to_wait(clock):
    polls = EmptyPolls(clock, 0)
    assert asked_every_second(polls, clock, 3) == [None, 1000, 2000]


def test_a_look_that_takes_long_counts_from_where_it_may_have_begun(clock):
    polls = EmptyPolls(clock, 0)
    asked_every_second(polls, clock, 2)
    assert asked_every_second(polls, clock, 30, found_nothing=False)[-1] == 1000
    assert asked_every_second(polls, clock, 2) == [2000, 33_000]


def test_a_query_with_triggers_has_looked_in_the_last_interval(clock):
    polls = EmptyPolls(clock, 10_000)
    # Not before the query began.
    assert asked_every_second(polls, clock, 12) == [0] * 10 + [1000, 2000]


def test_nothing_is_known_after_a_batch_until_a_look_finds_nothing(clock):
    polls = EmptyPolls(clock, 10_000)
    clock.advance(30_000)
    assert polls.ask(lambda: True) == 20_000
    polls.handled()
    assert asked_every_second(polls, clock, 8, found_nothing=False) == [None] * 8
    assert asked_every_second(polls, clock, 1) == [30_000]


@pytest.mark.parametrize("interval_ms", [0, 10_000])
def test_a_batch_that_comes_while_spark_is_asked_is_a_look_of_its_own(clock, interval_ms):
    polls = EmptyPolls(clock, interval_ms)
    asked_every_second(polls, clock, 3)

    def answer_that_a_batch_overtakes():
        clock.advance(5000)
        polls.handled()
        return True

    clock.advance(1000)
    assert polls.ask(answer_that_a_batch_overtakes) is None


def test_spark_is_asked_a_few_times_a_second_at_most(clock):
    polls, asked = EmptyPolls(clock, 0), []
    for _ in range(100):
        clock.advance(10)
        polls.ask(lambda: not asked.append(clock.monotonic_ms()))
    assert len(asked) == 20


def test_a_batch_was_planned_when_spark_says_so(clock):
    polls = EmptyPolls(clock, 0)
    clock.advance(5000)
    assert polls.planned_ms(clock.now_ms() - 300) == 4700
    assert polls.planned_ms(None) == 5000


@pytest.mark.parametrize(("turned_ms", "expected"), [(3_600_000, 4000), (-3_600_000, 5000)])
def test_a_turned_wall_clock_moves_a_batch_no_further_than_the_one_before(
    clock, turned_ms, expected
):
    polls = EmptyPolls(clock, 0)
    clock.advance(4000)
    polls.handled()
    clock.advance(1000)
    read_ms = clock.now_ms() - 300
    clock.set(clock.now_ms() + turned_ms)
    assert polls.planned_ms(read_ms) == expected
