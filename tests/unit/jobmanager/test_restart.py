"""Restart strategies: when a failed job starts again, and when it stays down."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import UsageError
from weir.jobmanager.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    GiveUp,
    NoRestart,
    RestartAfter,
    default_restart_strategy,
)

PLAIN = ExponentialDelayRestart(
    initial_ms=100, max_ms=1000, multiplier=2.0, reset_ms=5000, jitter=0.0
)


def test_the_default_depends_on_checkpointing() -> None:
    assert default_restart_strategy(checkpointing=False) == NoRestart()
    assert default_restart_strategy(checkpointing=True) == ExponentialDelayRestart(
        initial_ms=1000, max_ms=60_000, multiplier=1.5, reset_ms=3_600_000, jitter=0.1
    )


def test_no_restart_gives_up_at_once() -> None:
    assert isinstance(NoRestart().next_delay([1]), GiveUp)


def test_fixed_delay_counts_attempts() -> None:
    strategy = FixedDelayRestart(attempts=2, delay_ms=7)
    assert strategy.next_delay([1]) == RestartAfter(7)
    assert strategy.next_delay([1, 2]) == RestartAfter(7)
    assert isinstance(strategy.next_delay([1, 2, 3]), GiveUp)
    assert isinstance(FixedDelayRestart(attempts=0).next_delay([1]), GiveUp)


def test_failure_rate_gives_up_above_the_limit_within_one_interval() -> None:
    strategy = FailureRateRestart(max_failures=2, interval_ms=100, delay_ms=7)
    assert strategy.next_delay([0]) == RestartAfter(7)
    assert strategy.next_delay([0, 1]) == RestartAfter(7)
    assert isinstance(strategy.next_delay([0, 1, 100]), GiveUp)
    assert strategy.next_delay([0, 1, 101]) == RestartAfter(7)
    assert isinstance(strategy.next_delay([0, 1, 101, 101]), GiveUp)


def test_exponential_pauses_grow_to_the_maximum() -> None:
    failures: list[int] = []
    now = 0
    delays = []
    for _ in range(6):
        failures.append(now)
        decision = PLAIN.next_delay(failures)
        assert isinstance(decision, RestartAfter)
        delays.append(decision.delay_ms)
        now += decision.delay_ms + 1
    assert delays == [100, 200, 400, 800, 1000, 1000]


def test_exponential_starts_anew_after_the_job_ran_well() -> None:
    assert PLAIN.next_delay([0, 101]) == RestartAfter(200)
    assert PLAIN.next_delay([0, 100 + 4999]) == RestartAfter(200)
    assert PLAIN.next_delay([0, 100 + 5000]) == RestartAfter(100)


def test_a_failure_during_the_pause_belongs_to_the_earlier_one() -> None:
    assert PLAIN.next_delay([0, 30]) == RestartAfter(70)
    assert PLAIN.next_delay([0, 30, 100]) == RestartAfter(0)
    assert PLAIN.next_delay([0, 30, 101]) == RestartAfter(200)


def test_exponential_attempts_are_limited_on_request_and_reset_with_the_pauses() -> None:
    strategy = ExponentialDelayRestart(
        initial_ms=100, max_ms=100, reset_ms=1000, jitter=0.0, attempts=2
    )
    assert strategy.next_delay([0, 200]) == RestartAfter(100)
    assert isinstance(strategy.next_delay([0, 200, 400]), GiveUp)
    assert strategy.next_delay([0, 200, 1300]) == RestartAfter(100)


@given(st.floats(0, 1), st.integers(1, 8))
def test_jitter_spreads_by_its_share_within_the_bounds(chance: float, attempt: int) -> None:
    strategy = ExponentialDelayRestart(initial_ms=1000, max_ms=10_000, multiplier=2.0, jitter=0.25)
    failures = [i * 20_000 for i in range(attempt)]
    pause = min(1000 * 2 ** (attempt - 1), 10_000)
    decision = strategy.next_delay(failures, chance)
    assert isinstance(decision, RestartAfter)
    assert max(1000, pause * 0.75) <= decision.delay_ms <= min(10_000, pause * 1.25)


def test_jitter_reaches_both_ends() -> None:
    strategy = ExponentialDelayRestart(initial_ms=8, max_ms=1000, multiplier=2.0, jitter=0.25)
    failures = [0, 100]
    assert strategy.next_delay(failures, 0.0) == RestartAfter(12)
    assert strategy.next_delay(failures, 1.0) == RestartAfter(20)


@pytest.mark.parametrize(
    ("strategy", "bad"),
    [
        (FixedDelayRestart, {"attempts": -1}),
        (FixedDelayRestart, {"delay_ms": -1}),
        (FailureRateRestart, {"max_failures": 0}),
        (FailureRateRestart, {"interval_ms": 0}),
        (FailureRateRestart, {"delay_ms": -1}),
        (ExponentialDelayRestart, {"initial_ms": 0}),
        (ExponentialDelayRestart, {"initial_ms": 10, "max_ms": 9}),
        (ExponentialDelayRestart, {"multiplier": 1.0}),
        (ExponentialDelayRestart, {"jitter": 1.1}),
        (ExponentialDelayRestart, {"reset_ms": 0}),
        (ExponentialDelayRestart, {"attempts": -1}),
    ],
)
def test_impossible_settings_are_refused(strategy: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected"):
        strategy(**bad)
