"""`CompletableFuture`: PyFlink's view of a result that is not there yet."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any

__all__ = ["CompletableFuture"]


class CompletableFuture:
    """A result to come; safe to use from any thread.

    `convert` is applied to the result each time it is read.

    Example:
        future = CompletableFuture.completed(3)
        future.result()
    """

    def __init__(
        self, future: Future[Any] | None = None, convert: Callable[[Any], Any] | None = None
    ) -> None:
        """Wrap a future; without one, create a future that `complete` ends."""
        self._future: Future[Any] = Future() if future is None else future
        self._convert = convert

    @staticmethod
    def completed(value: Any) -> CompletableFuture:
        """Return a future that already has its result."""
        made = CompletableFuture()
        made.complete(value)
        return made

    def complete(self, value: Any) -> None:
        """Set the result."""
        self._future.set_result(value)

    def complete_exceptionally(self, error: BaseException) -> None:
        """Set the failure."""
        self._future.set_exception(error)

    def cancel(self) -> bool:
        """Cancel unless it has ended or runs already; tell whether it is cancelled now."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Tell whether it was cancelled."""
        return self._future.cancelled()

    def done(self) -> bool:
        """Tell whether it has ended in any way."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result and return it, or raise what it failed with."""
        value = self._future.result(timeout)
        return value if self._convert is None else self._convert(value)

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the result and return it."""
        return self.result(timeout)

    def exception(self) -> BaseException | None:
        """Return what it failed with; None while it runs and when it succeeded."""
        if not self._future.done():
            return None
        try:
            return self._future.exception()
        except CancelledError as error:
            return error

    def then_apply(self, function: Callable[[Any], Any]) -> CompletableFuture:
        """Return a view of the same future with the function applied to its result."""
        convert = self._convert
        if convert is None:
            return CompletableFuture(self._future, function)
        return CompletableFuture(self._future, lambda value: function(convert(value)))

    def when_complete(
        self, action: Callable[[Any, BaseException | None], object]
    ) -> CompletableFuture:
        """Call an action with the result, or with what it failed with, as soon as it has ended.

        The thread that ends it calls the action, which should be short and raise nothing; it is
        called at once where it has ended already.
        """

        def ended(future: Future[Any]) -> None:
            error = CancelledError() if future.cancelled() else future.exception()
            action(self.result() if error is None else None, error)

        self._future.add_done_callback(ended)
        return self

    def __str__(self) -> str:
        """Show the state."""
        return f"CompletableFuture({self._future!s})"
