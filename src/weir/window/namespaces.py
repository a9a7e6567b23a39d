"""Windows as namespaces of state and timers, with a declared type where the window is Weir's.

A time window is the pair of its bounds, a count window its number, the global window no namespace
at all. Plain values are compared and hashed without running Python code, and they are stored as
numbers. Windows of other classes are themselves, pickled: a serializer of the program's own is not
called, since state that was stored pickled could not be read by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from weir.backend.base import VOID
from weir.common.typeinfo import Types
from weir.errors import CorruptStateError
from weir.window.assigners import WindowAssigner
from weir.window.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
)

_NO_WINDOW = "a timer that was restored belongs to no window: its state is damaged"


@dataclass(frozen=True)
class WindowNamespaces:
    """How windows of one class become namespaces and back; `type` is None for any object."""

    type: Any
    of: Callable[[Any], Any]
    window: Callable[[Any], Any]


def _time(namespace: Any) -> TimeWindow:
    """Return the window of a namespace, which a timer of damaged state may lack.

    Raises:
        CorruptStateError: it is none of a time window.
    """
    if namespace is VOID:
        raise CorruptStateError(_NO_WINDOW)
    return TimeWindow(namespace[0], namespace[1])


def _count(namespace: Any) -> CountWindow:
    if namespace is VOID:
        raise CorruptStateError(_NO_WINDOW)
    return CountWindow(namespace)


TIME = WindowNamespaces(
    Types.TUPLE([Types.LONG(), Types.LONG()]), attrgetter("start", "end"), _time
)
COUNT = WindowNamespaces(Types.LONG(), attrgetter("id"), _count)
GLOBAL = WindowNamespaces(None, lambda window: VOID, lambda namespace: GlobalWindow.get())
ANY = WindowNamespaces(None, lambda window: window, lambda namespace: namespace)


def namespaces_of(assigner: WindowAssigner[Any, Any]) -> WindowNamespaces:
    """Return how the windows of an assigner become namespaces."""
    serializer = assigner.get_window_serializer()
    if isinstance(serializer, TimeWindowSerializer):
        return TIME
    if isinstance(serializer, CountWindowSerializer):
        return COUNT
    return GLOBAL if isinstance(serializer, GlobalWindowSerializer) else ANY
