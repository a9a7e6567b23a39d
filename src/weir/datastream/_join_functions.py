"""The function that users write for interval joins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic

from weir.common._generics import IN1, IN2, OUT
from weir.datastream._function_base import Function
from weir.graph.output_tag import OutputTag


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Handles the pairs of an interval join, one call each.

    Yield a value for the main output, `tag, value` with an `OutputTag` for a side output, or call
    `ctx.output(tag, value)`. Every output has the later of the two timestamps. The function may
    keep keyed state of its own: the key of the pair is the current one.

    Example:
        class Both(ProcessJoinFunction):
            def process_element(self, left, right, ctx):
                yield left, right, ctx.get_timestamp()
    """

    class Context(ABC):
        """Given to `process_element`: the times of the pair, and side outputs."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """Return the timestamp of the left record."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """Return the timestamp of the right record."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """Return the timestamp of the pair: the later of the two."""

        @abstractmethod
        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Emit a record to a side output, with the timestamp of the pair."""

    @abstractmethod
    def process_element(self, left: IN1, right: IN2, ctx: ProcessJoinFunction.Context) -> Any:
        """Handle one pair; return or yield the outputs."""
