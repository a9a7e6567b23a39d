"""Whether and when a failed job starts again: pure restart strategies.

A strategy is a frozen value. It is asked with all failures of the job so far, oldest first, the
newest being the one to decide about, and with a random number between 0 and 1 that the caller
draws; the same arguments give the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from weir.errors import UsageError


@dataclass(frozen=True)
class RestartAfter:
    """Start again after this pause."""

    delay_ms: int


@dataclass(frozen=True)
class GiveUp:
    """The job fails for good."""

    reason: str


RestartDecision: TypeAlias = RestartAfter | GiveUp


class RestartStrategy(Protocol):
    """Decides about the newest of the failures."""

    def next_delay(self, failures_ms: Sequence[int], chance: float = 0.5) -> RestartDecision:
        """Decide, given when the job failed so far and a random number from 0 to 1."""


@dataclass(frozen=True)
class NoRestart:
    """The first failure is the last; the default without checkpoints."""

    def next_delay(self, failures_ms: Sequence[int], chance: float = 0.5) -> RestartDecision:
        """Give up."""
        return GiveUp("the job has no restart strategy")


@dataclass(frozen=True, kw_only=True)
class FixedDelayRestart:
    """Start again a number of times, each after the same pause."""

    attempts: int = 1
    delay_ms: int = 1000

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        _require("restart attempts", self.attempts, 0)
        _require("restart delay (ms)", self.delay_ms, 0)

    def next_delay(self, failures_ms: Sequence[int], chance: float = 0.5) -> RestartDecision:
        """Count failures."""
        if len(failures_ms) > self.attempts:
            return GiveUp(f"the job was restarted {self.attempts} times, which is the limit")
        return RestartAfter(self.delay_ms)


@dataclass(frozen=True, kw_only=True)
class FailureRateRestart:
    """Start again unless more than `max_failures` fall into one interval."""

    max_failures: int = 1
    interval_ms: int = 60_000
    delay_ms: int = 1000

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        _require("failures per interval", self.max_failures, 1)
        _require("failure rate interval (ms)", self.interval_ms, 1)
        _require("restart delay (ms)", self.delay_ms, 0)

    def next_delay(self, failures_ms: Sequence[int], chance: float = 0.5) -> RestartDecision:
        """Look at the failures of the interval that ends with the newest."""
        earliest = failures_ms[-1] - self.interval_ms
        recent = sum(1 for failure in failures_ms if failure >= earliest)
        if recent > self.max_failures:
            limit = f"{self.max_failures} in {self.interval_ms} ms"
            return GiveUp(
                f"the job failed {recent} times within the interval; the limit is {limit}"
            )
        return RestartAfter(self.delay_ms)


@dataclass(frozen=True, kw_only=True)
class ExponentialDelayRestart:
    """Start again after pauses that grow until the job runs well for a while; the default.

    The first pause is `initial_ms`; each further one is `multiplier` times longer, at most
    `max_ms`. A failure during the pause of an earlier one belongs to that one: there is one
    restart for both. When the job has run for `reset_ms` after a restart, pauses and attempts
    start anew. `jitter` spreads each pause by that share up and down, within the two bounds.
    `attempts` of None means without limit.
    """

    initial_ms: int = 1000
    max_ms: int = 60_000
    multiplier: float = 1.5
    reset_ms: int = 3_600_000
    jitter: float = 0.1
    attempts: int | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        _require("initial restart delay (ms)", self.initial_ms, 1)
        _require("maximum restart delay (ms)", self.max_ms, self.initial_ms)
        _require("restart delay reset threshold (ms)", self.reset_ms, 1)
        if self.attempts is not None:
            _require("restart attempts", self.attempts, 0)
        if self.multiplier <= 1 or not 0 <= self.jitter <= 1:
            msg = (
                f"restart delay multiplier is {self.multiplier!r} and jitter {self.jitter!r}, "
                "expected a multiplier above 1 and a jitter from 0 to 1"
            )
            raise UsageError(msg)

    def next_delay(self, failures_ms: Sequence[int], chance: float = 0.5) -> RestartDecision:
        """Follow the history to the current attempt and lengthen its pause."""
        attempt, restart_ms, is_merged = 0, failures_ms[0] - self.reset_ms, False
        for failure in failures_ms:
            is_merged = attempt > 0 and failure <= restart_ms
            if is_merged:
                continue
            if failure - restart_ms >= self.reset_ms:
                attempt = 0
            attempt += 1
            # The shortest pause that the jitter may have given: a failure after it is a new one.
            restart_ms = failure + int(self._pause_ms(attempt) * (1 - self.jitter))
        if self.attempts is not None and attempt > self.attempts:
            return GiveUp(f"the job was restarted {self.attempts} times, which is the limit")
        if is_merged:
            return RestartAfter(restart_ms - failures_ms[-1])
        pause = self._pause_ms(attempt)
        spread = int(pause * self.jitter)
        spread_pause = pause + round((2 * chance - 1) * spread)
        return RestartAfter(max(self.initial_ms, min(spread_pause, self.max_ms)))

    def _pause_ms(self, attempt: int) -> int:
        pause: float = self.initial_ms
        for _ in range(attempt - 1):
            if pause >= self.max_ms:
                break
            pause *= self.multiplier
        return int(min(pause, self.max_ms))


def default_restart_strategy(*, checkpointing: bool) -> RestartStrategy:
    """Return the strategy of a job that sets none."""
    return ExponentialDelayRestart() if checkpointing else NoRestart()


def _require(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        msg = f"{name} is {value!r}, expected at least {minimum!r}"
        raise UsageError(msg)
