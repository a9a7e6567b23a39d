"""`AsyncDataStream`: applies an `AsyncFunction` to a stream, by PyFlink's names."""

from __future__ import annotations

import datetime
import inspect
from typing import Any

from weir.common.time import Duration, Time, to_ms
from weir.datastream._async_functions import (
    NO_RETRY_STRATEGY,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
)
from weir.datastream._checks import require_type
from weir.datastream._plain_functions import require_instance
from weir.datastream._stream import declared_type
from weir.datastream.data_stream import DataStream
from weir.errors import UsageError
from weir.graph import kinds

__all__ = ["AsyncDataStream"]

_NAME = "async wait operator"


class AsyncDataStream:
    """Applies an `AsyncFunction` to the records of a stream, many at a time.

    Of the records of a subtask at most `capacity` are unfinished at any moment, those between two
    attempts included. `timeout` counts from the first attempt of a record, over all of them, on
    the wall clock; then `AsyncFunction.timeout` gives the result. Every result has the timestamp
    of its record. The operator runs in slots, also directly behind a source.

    Example:
        class Lookup(AsyncFunction):
            async def async_invoke(self, value):
                return [value]

        AsyncDataStream.ordered_wait(stream, Lookup(), Time.seconds(5), 100)
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration | datetime.timedelta | int,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Emit results in the order of completion, but never across a watermark.

        A timeout of zero or less is none.
        """
        wait = {"ordered": False, "timeout": timeout, "capacity": capacity}
        return _declare(data_stream, async_function, wait, output_type=output_type)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration | datetime.timedelta | int,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Emit results in the order of their records; a timeout of zero or less is none."""
        wait = {"ordered": True, "timeout": timeout, "capacity": capacity}
        return _declare(data_stream, async_function, wait, output_type=output_type)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration | datetime.timedelta | int,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Like `unordered_wait`, and try records again as the strategy says."""
        _check_retry(async_retry_strategy, timeout)
        wait = {"ordered": False, "timeout": timeout, "capacity": capacity}
        return _declare(
            data_stream, async_function, wait, async_retry_strategy, output_type=output_type
        )

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration | datetime.timedelta | int,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Like `ordered_wait`, and try records again as the strategy says."""
        _check_retry(async_retry_strategy, timeout)
        wait = {"ordered": True, "timeout": timeout, "capacity": capacity}
        return _declare(
            data_stream, async_function, wait, async_retry_strategy, output_type=output_type
        )


def _check_retry(strategy: Any, timeout: Any) -> None:
    if strategy is None:
        msg = "the async retry strategy is None: give one, or call the method without retry"
        raise UsageError(msg)
    require_type(strategy, AsyncRetryStrategy, "an AsyncRetryStrategy")
    if to_ms(timeout) <= 0:
        msg = f"trying records again needs a timeout above zero, found {timeout!r}"
        raise UsageError(msg)


def _retry_on(strategy: AsyncRetryStrategy[Any]) -> tuple[Any, Any]:
    predicate: AsyncRetryPredicate[Any] | None = strategy.get_retry_predicate()
    if predicate is None:
        msg = (
            f"get_retry_predicate() of {type(strategy).__name__} returned None: return an "
            "AsyncRetryPredicate, whose predicates may be None"
        )
        raise UsageError(msg)
    return predicate.result_predicate(), predicate.exception_predicate()


def _declare(
    stream: DataStream,
    function: AsyncFunction[Any, Any],
    wait: dict[str, Any],
    retry: AsyncRetryStrategy[Any] = NO_RETRY_STRATEGY,
    *,
    output_type: Any,
) -> DataStream:
    require_type(stream, DataStream, "a DataStream")
    require_instance(function, "AsyncFunction")
    require_type(function, AsyncFunction, "an AsyncFunction")
    if not inspect.iscoroutinefunction(function.async_invoke):
        msg = (
            f"async_invoke() of {type(function).__name__} must be declared with 'async def' and "
            "return a list of results, not yield them"
        )
        raise UsageError(msg)
    capacity = wait["capacity"]
    if not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 1:
        msg = f"the capacity of an {_NAME} must be a whole number above zero, found {capacity!r}"
        raise UsageError(msg)
    options = {
        "ordered": wait["ordered"],
        "timeout_ms": max(to_ms(wait["timeout"]), 0),
        "capacity": capacity,
        "retry": retry,
        "retry_on": _retry_on(retry),
    }
    operator = stream._declare(
        kinds.ASYNC_WAIT,
        _NAME,
        function=function,
        output_type=declared_type(output_type),
        options=options,
    )
    return stream._after(operator)
