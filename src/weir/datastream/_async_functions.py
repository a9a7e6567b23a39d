"""Functions that wait for others: `AsyncFunction`, and what is tried again, how often and when.

Strategies are values that hold nothing about the records that they are asked for, so records that
are tried again at the same time do not disturb each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from weir.common._generics import IN, OUT
from weir.datastream._function_base import Function
from weir.errors import UsageError

ResultPredicate: TypeAlias = Callable[[Any], bool] | None
ExceptionPredicate: TypeAlias = Callable[[Exception], bool] | None


class AsyncFunction(Function, Generic[IN, OUT]):
    """Asks somebody else about each record, without keeping other records waiting.

    All coroutines of a subtask run on one event loop, in a thread of its own. `open` and `close`
    run in the subtask's thread, while that loop runs. There is no keyed state and there are no
    timers.

    Guarantee: all results of an epoch are there before the watermark and the barrier of a
    checkpoint pass, so that nothing is in flight in a checkpoint. After a failure the records
    since the last checkpoint are asked about again: what `async_invoke` does outside happens at
    least once.

    Example:
        class Lookup(AsyncFunction):
            async def async_invoke(self, value):
                return [(value, await ask(value))]

        AsyncDataStream.unordered_wait(stream, Lookup(), Time.seconds(5))
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """Return the records that replace `value`; an empty list for none."""

    def timeout(self, value: IN) -> list[OUT]:
        """Return the records for a `value` that took too long; fails the job unless overridden.

        Called on the event loop. The coroutine is cancelled, and what it returns is dropped.
        """
        msg = (
            f"async_invoke() gave no result in time for input {value!r}: raise the timeout, or "
            "override timeout() to return something else"
        )
        raise TimeoutError(msg)


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Which results and which exceptions are reasons to try again.

    Example:
        RetryPredicate(lambda result: not result, None)
    """

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """Return what says of a result whether to try again; None: no result is a reason."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate:
        """Return what says of an exception whether to try again; None: no exception is one."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """How often a record is tried again, and after how long. Attempts are counted from 1.

    Example:
        strategy: AsyncRetryStrategy = AsyncRetryStrategy.fixed_delay(3, 100)
    """

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Tell whether there is another attempt after that many."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return how many milliseconds to wait after that many attempts."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return the reasons to try again."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Any]:
        """Never try again."""
        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate = None,
        exception_predicate: ExceptionPredicate = None,
    ) -> AsyncRetryStrategy[Any]:
        """Try again up to `max_attempts` times, always after the same time."""
        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate = None,
        exception_predicate: ExceptionPredicate = None,
    ) -> AsyncRetryStrategy[Any]:
        """Try again up to `max_attempts` times, after times that grow by a factor."""
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts,
            initial_delay,
            max_retry_delay,
            multiplier,
            result_predicate=result_predicate,
            exception_predicate=exception_predicate,
        )


class RetryPredicate(AsyncRetryPredicate[OUT]):
    """Two callables as reasons to try again.

    Example:
        RetryPredicate(lambda result: not result, None)
    """

    def __init__(
        self,
        result_predicate: ResultPredicate = None,
        exception_predicate: ExceptionPredicate = None,
    ) -> None:
        """Hold the callables; None: no reason."""
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate:
        """Return what says of a result whether to try again."""
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate:
        """Return what says of an exception whether to try again."""
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[OUT]):
    """Every record is tried once.

    Example:
        AsyncRetryStrategy.no_restart()
    """

    def can_retry(self, current_attempts: int) -> bool:
        """Say no."""
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return -1: there is no other attempt."""
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return no reasons."""
        return RetryPredicate()


NO_RETRY_STRATEGY: Final[NoRetryStrategy[Any]] = NoRetryStrategy()


class _LimitedRetries(AsyncRetryStrategy[OUT]):
    """A number of attempts behind the first one, for given reasons."""

    def __init__(
        self,
        max_attempts: int,
        result_predicate: ResultPredicate,
        exception_predicate: ExceptionPredicate,
    ) -> None:
        self._max_attempts = _positive("max_attempts", max_attempts)
        self._predicate: RetryPredicate[OUT] = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        """Tell whether there is another attempt: there are `max_attempts` behind the first."""
        return current_attempts <= self._max_attempts

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return the reasons to try again."""
        return self._predicate


class FixedDelayRetryStrategy(_LimitedRetries[OUT]):
    """Up to `max_attempts` more attempts, always after the same time.

    Example:
        AsyncRetryStrategy.fixed_delay(3, 100)
    """

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate = None,
        exception_predicate: ExceptionPredicate = None,
    ) -> None:
        """Hold numbers and reasons.

        Raises:
            UsageError: a number is not above zero.
        """
        super().__init__(max_attempts, result_predicate, exception_predicate)
        self._backoff_time_millis = _positive("backoff_time_millis", backoff_time_millis)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the time."""
        return self._backoff_time_millis


class ExponentialBackoffDelayRetryStrategy(_LimitedRetries[OUT]):
    """Up to `max_attempts` more attempts, after times that grow by a factor up to a limit.

    Example:
        AsyncRetryStrategy.exponential_backoff(5, 100, 10_000, 2.0)
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate = None,
        exception_predicate: ExceptionPredicate = None,
    ) -> None:
        """Hold numbers and reasons; times are milliseconds.

        Raises:
            UsageError: a number is not above zero.
        """
        super().__init__(max_attempts, result_predicate, exception_predicate)
        self._initial_delay = _positive("initial_delay", initial_delay)
        self._max_retry_delay = _positive("max_retry_delay", max_retry_delay)
        self._multiplier = _positive("multiplier", multiplier)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the initial time, and after each further attempt that much more."""
        delay: float = self._initial_delay
        for _ in range(current_attempts - 1):
            before, delay = delay, min(delay * self._multiplier, self._max_retry_delay)
            if delay == before:
                break
        return int(delay)


N = TypeVar("N", int, float)


def _positive(name: str, number: N) -> N:
    valid = isinstance(number, (int, float)) and not isinstance(number, bool)
    if not valid or not number > 0:
        msg = f"{name} of a retry strategy must be above zero, found {number!r}"
        raise UsageError(msg)
    return number
