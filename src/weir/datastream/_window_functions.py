"""Functions of windows: what is done with the contents of a window that fires.

They return or yield any number of results, or None. `tag, value` with an `OutputTag` goes to a side
output. Results have the last timestamp of a time window; those of count and global windows that of
the record or timer that made the window fire.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from weir.common._generics import IN, IN2, KEY, OUT
from weir.datastream._function_base import Function
from weir.datastream._runtime_context import KeyedStateStore
from weir.graph.output_tag import OutputTag
from weir.window.windows import Window

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVariable

    W = TypeVariable("W", bound=Window, default=Any)
    W2 = TypeVariable("W2", bound=Window, default=Any)
else:
    W = TypeVar("W", bound=Window)
    W2 = TypeVar("W2", bound=Window)


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Is given the records of a key and window.

    Example:
        class Size(WindowFunction):
            def apply(self, key, window, inputs):
                yield key, sum(1 for _ in inputs)
    """

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Any:
        """Return or yield the results of a window."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Is given the records of a window of a stream without keys.

    Example:
        class Size(AllWindowFunction):
            def apply(self, window, inputs):
                yield sum(1 for _ in inputs)
    """

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Any:
        """Return or yield the results of a window."""


class _WindowContext(ABC, Generic[W2]):
    """What every context of a window offers."""

    @abstractmethod
    def window(self) -> W2:
        """Return the window."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the processing time; it stands still during an epoch."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the event time that the operator has reached."""

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """Return the states of this key and window, which `clear` has to clear."""

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """Return the states of this key that all of its windows share."""

    @abstractmethod
    def output(self, output_tag: OutputTag, value: Any) -> None:
        """Emit a record to a side output, with the timestamp that results of the window have."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Is given the records of a key and window, and a context with times and state.

    Example:
        class Size(ProcessWindowFunction):
            def process(self, key, context, elements):
                yield key, context.window().start, sum(1 for _ in elements)
    """

    class Context(_WindowContext[W2]):
        """Given to `process` and `clear`."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Any:
        """Return or yield the results of a window."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Clear the window's own state: called once when the window is over, fired or not."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Is given the records of a window of a stream without keys, and a context.

    Example:
        class Size(ProcessAllWindowFunction):
            def process(self, context, elements):
                yield context.window().max_timestamp(), sum(1 for _ in elements)
    """

    class Context(_WindowContext[W2]):
        """Given to `process` and `clear`."""

    @abstractmethod
    def process(self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]) -> Any:
        """Return or yield the results of a window."""

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Clear the window's own state: called once when the window is over, fired or not."""


class JoinFunction(Function, Generic[IN, IN2, OUT]):
    """Is given every pair of records of two streams that share key and window.

    Example:
        class Pair(JoinFunction):
            def join(self, first, second):
                return first, second
    """

    @abstractmethod
    def join(self, first: IN, second: IN2) -> Any:
        """Return the result of a pair."""


class FlatJoinFunction(Function, Generic[IN, IN2, OUT]):
    """Like `JoinFunction`, with any number of results.

    Example:
        class Same(FlatJoinFunction):
            def join(self, first, second):
                if first == second:
                    yield first
    """

    @abstractmethod
    def join(self, first: IN, second: IN2) -> Any:
        """Return or yield the results of a pair."""


class CoGroupFunction(Function, Generic[IN, IN2, OUT]):
    """Is given the records of two streams that share key and window; one side may have none.

    Example:
        class Sizes(CoGroupFunction):
            def co_group(self, first, second):
                yield len(list(first)), len(list(second))
    """

    @abstractmethod
    def co_group(self, first: Iterable[IN], second: Iterable[IN2]) -> Any:
        """Return or yield the results of a key and window."""
