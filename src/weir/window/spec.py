"""What a program says about one window operator, as a value that travels in the plan."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from weir.graph.output_tag import OutputTag
from weir.window.assigners import MergingWindowAssigner, WindowAssigner
from weir.window.evictors import Evictor
from weir.window.triggers import Trigger
from weir.window.windows import MAX_TIMESTAMP, Window


class Holding(enum.Enum):
    """What a window holds of its records."""

    RECORDS = "RECORDS"
    """All of them, in the order in which they came."""
    REDUCED = "REDUCED"
    """What a reduce function made of them."""
    AGGREGATED = "AGGREGATED"
    """The accumulator of an aggregate function."""


class Calling(enum.Enum):
    """Who gets what a window holds when it fires."""

    PASS = "PASS"
    """Nobody: the single value is the result."""
    APPLY = "APPLY"
    APPLY_ALL = "APPLY_ALL"
    PROCESS = "PROCESS"
    PROCESS_ALL = "PROCESS_ALL"


COUNT = "count"


@dataclass(frozen=True)
class FieldAggregate:
    """sum, min, max, min_by or max_by of a field; or a count, of no field."""

    op: str
    field: int | str | None


@dataclass(frozen=True)
class Contents:
    """What a window holds, the function that makes it, and its type (None: any).

    `aggregate` says what the function does, where that is known: columns can do it too.
    """

    holding: Holding
    function: Any
    value_type: Any
    aggregate: FieldAggregate | None = None
    record_type: Any = None
    """The type of the records that it is made of, where `value_type` is another."""


@dataclass(frozen=True)
class WindowSpec:
    """Which windows there are, when they fire, how long they stay, what they hold."""

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any]
    contents: Contents
    calling: Calling
    evictor: Evictor | None = None
    lateness_ms: int = 0
    late_tag: OutputTag | None = None

    @property
    def merging(self) -> bool:
        """Tell whether windows may grow together."""
        return isinstance(self.assigner, MergingWindowAssigner)

    def cleanup_time(self, window: Window) -> int:
        """Return when a window is over, in the assigner's time domain."""
        last = window.max_timestamp()
        if not self.assigner.is_event_time():
            return last
        return min(last + self.lateness_ms, MAX_TIMESTAMP)
