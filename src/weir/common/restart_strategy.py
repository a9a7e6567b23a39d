"""What happens after a failure: restart strategies as values.

`to_config` gives the same choice in Flink's configuration keys.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from weir.common.time import Duration, Time, to_ms
from weir.errors import UsageError

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]

_Length = datetime.timedelta | Time | Duration | int


def _at_least(name: str, value: int, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        msg = f"restart strategy: {name} must be a whole number from {least}, got {value!r}"
        raise UsageError(msg)
    return value


def _length_ms(name: str, value: _Length) -> int:
    return _at_least(f"{name} (milliseconds)", to_ms(value), 0)


@dataclass(frozen=True)
class RestartStrategyConfiguration:
    """A choice of restart strategy.

    Example:
        strategy = RestartStrategies.no_restart()
        isinstance(strategy, RestartStrategyConfiguration)
    """

    def get_description(self) -> str:
        """Describe the strategy to people."""
        return "The cluster's restart strategy"

    def to_config(self) -> dict[str, Any]:
        """Return the same choice as configuration entries."""
        return {}


def _ms(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)


class RestartStrategies:
    """All restart strategies, by PyFlink's names.

    Example:
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10_000))
    """

    @dataclass(frozen=True)
    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        """The first failure fails the job."""

        def get_description(self) -> str:
            """Describe the strategy to people."""
            return "Restart deactivated."

        def to_config(self) -> dict[str, Any]:
            """Return the same choice as configuration entries."""
            return {"restart-strategy.type": "none"}

    @dataclass(frozen=True)
    class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Whatever the configuration says."""

    @dataclass(frozen=True)
    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """So many restarts, each after the same delay."""

        restart_attempts: int
        delay_ms: int

        def get_restart_attempts(self) -> int:
            """Return how often the job may restart."""
            return self.restart_attempts

        def get_delay_between_attempts_interval(self) -> datetime.timedelta:
            """Return the delay before a restart."""
            return _ms(self.delay_ms)

        def get_description(self) -> str:
            """Describe the strategy to people."""
            return (
                f"Restart with fixed delay ({self.delay_ms} ms), "
                f"at most {self.restart_attempts} times."
            )

        def to_config(self) -> dict[str, Any]:
            """Return the same choice as configuration entries."""
            return {
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": self.restart_attempts,
                "restart-strategy.fixed-delay.delay": f"{self.delay_ms} ms",
            }

    @dataclass(frozen=True)
    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restarts as long as failures do not come too often."""

        max_failure_rate: int
        failure_interval_ms: int
        delay_ms: int

        def get_max_failure_rate(self) -> int:
            """Return how many failures one interval may have."""
            return self.max_failure_rate

        def get_failure_interval(self) -> datetime.timedelta:
            """Return the interval in which failures are counted."""
            return _ms(self.failure_interval_ms)

        def get_delay_between_attempts_interval(self) -> datetime.timedelta:
            """Return the delay before a restart."""
            return _ms(self.delay_ms)

        def get_description(self) -> str:
            """Describe the strategy to people."""
            return (
                f"Restart after {self.delay_ms} ms unless there are more than "
                f"{self.max_failure_rate} failures in {self.failure_interval_ms} ms."
            )

        def to_config(self) -> dict[str, Any]:
            """Return the same choice as configuration entries."""
            prefix = "restart-strategy.failure-rate"
            return {
                "restart-strategy.type": "failure-rate",
                f"{prefix}.max-failures-per-interval": self.max_failure_rate,
                f"{prefix}.failure-rate-interval": f"{self.failure_interval_ms} ms",
                f"{prefix}.delay": f"{self.delay_ms} ms",
            }

    @dataclass(frozen=True)
    class ExponentialDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restarts with growing delays; a quiet time starts them over."""

        initial_backoff_ms: int
        max_backoff_ms: int
        backoff_multiplier: float
        reset_threshold_ms: int
        jitter_factor: float

        def get_description(self) -> str:
            """Describe the strategy to people."""
            return (
                f"Restart with delays from {self.initial_backoff_ms} ms to "
                f"{self.max_backoff_ms} ms, growing by {self.backoff_multiplier}."
            )

        def to_config(self) -> dict[str, Any]:
            """Return the same choice as configuration entries."""
            prefix = "restart-strategy.exponential-delay"
            return {
                "restart-strategy.type": "exponential-delay",
                f"{prefix}.initial-backoff": f"{self.initial_backoff_ms} ms",
                f"{prefix}.max-backoff": f"{self.max_backoff_ms} ms",
                f"{prefix}.backoff-multiplier": self.backoff_multiplier,
                f"{prefix}.reset-backoff-threshold": f"{self.reset_threshold_ms} ms",
                f"{prefix}.jitter-factor": self.jitter_factor,
            }

    @staticmethod
    def no_restart() -> RestartStrategies.NoRestartStrategyConfiguration:
        """Never restart."""
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> RestartStrategies.FallbackRestartStrategyConfiguration:
        """Leave the choice to the configuration."""
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: _Length
    ) -> RestartStrategies.FixedDelayRestartStrategyConfiguration:
        """Restart so many times, each after the same delay (milliseconds or a timedelta)."""
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(
            _at_least("restart_attempts", restart_attempts, 0),
            _length_ms("delay_between_attempts", delay_between_attempts),
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: _Length, delay_interval: _Length
    ) -> RestartStrategies.FailureRateRestartStrategyConfiguration:
        """Restart unless failures exceed a number within an interval."""
        return RestartStrategies.FailureRateRestartStrategyConfiguration(
            _at_least("failure_rate", failure_rate, 1),
            _length_ms("failure_interval", failure_interval),
            _length_ms("delay_interval", delay_interval),
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: _Length,
        max_backoff: _Length,
        backoff_multiplier: float,
        reset_backoff_threshold: _Length,
        jitter_factor: float,
    ) -> RestartStrategies.ExponentialDelayRestartStrategyConfiguration:
        """Restart with growing delays; a time without failures starts them over."""
        return RestartStrategies.ExponentialDelayRestartStrategyConfiguration(
            initial_backoff_ms=_length_ms("initial_backoff", initial_backoff),
            max_backoff_ms=_length_ms("max_backoff", max_backoff),
            backoff_multiplier=float(backoff_multiplier),
            reset_threshold_ms=_length_ms("reset_backoff_threshold", reset_backoff_threshold),
            jitter_factor=float(jitter_factor),
        )
