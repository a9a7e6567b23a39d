"""The kinds of keyed state in one table: name, the class that users know, and shape.

Formats, deltas, sweeps and stores go by the shape of a state and know no kinds, so that a new kind
of a shape that is there needs nothing of them.
"""

from __future__ import annotations

import enum
from typing import Final


class Shape(enum.Enum):
    """What is stored under one address."""

    ONE = "a value"
    LIST = "elements in order"
    MAP = "values by map key"


class StateKind(enum.Enum):
    """The kinds of keyed state; the value is the class that users know.

    Checkpoints name a kind by its name here.
    """

    shape: Shape

    VALUE = "ValueState", Shape.ONE
    LIST = "ListState", Shape.LIST
    MAP = "MapState", Shape.MAP
    REDUCING = "ReducingState", Shape.ONE
    AGGREGATING = "AggregatingState", Shape.ONE

    def __new__(cls, handle: str, shape: Shape) -> StateKind:
        """Make a row of the table."""
        kind = object.__new__(cls)
        kind._value_ = handle
        kind.shape = shape
        return kind


TIMER_KIND: Final = "TIMER"
"""The kind under which checkpoints name timers, which are stored like states of one value."""


def stored_shape(kind: str) -> Shape:
    """Return the shape of what a checkpoint holds under the name of a kind, timers included."""
    return StateKind[kind].shape if kind in StateKind.__members__ else Shape.ONE
