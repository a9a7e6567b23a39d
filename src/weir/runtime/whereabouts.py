"""Which operator a thread is in, seen from outside: it costs the thread nothing."""

from __future__ import annotations

import os
import reprlib
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType

from weir.errors import WeirError
from weir.runtime.operator import Operator
from weir.runtime.raised import is_own_code
from weir.runtime.stateful import StatefulOperator

# What the loops of operators call the record that they hand to a function.
_RECORD = "v"
# Never raises, whatever a user's object says about itself.
_show = reprlib.Repr()
_show.maxstring = _show.maxother = 200


@dataclass(frozen=True)
class Whereabouts:
    """An operator's name, the record in its hands, and the place in the user's code.

    Empty is what is not known: an operator may be between two records.
    """

    operator: str
    record: str = ""
    place: str = ""

    def __str__(self) -> str:
        """Say it in words."""
        record = f" at record {self.record}" if self.record else ""
        return f"operator '{self.operator}'{record}" + (f", in {self.place}" if self.place else "")


def at_work() -> Whereabouts | None:
    """Return where the thread is that is in an operator, None if none is."""
    frames = sys._current_frames()
    for number, frame in frames.items():
        if number != threading.get_ident():
            found = _find(_outwards(frame))
            if found is not None:
                return found
    return None


def most_state(operators: Iterable[Operator]) -> str:
    """Say which operator holds most keyed state, by estimate; nothing if none has any."""
    sizes = {op.node.name: _state_bytes(op) for op in operators}
    name = max(sizes, key=sizes.__getitem__, default="")
    if not sizes.get(name):
        return ""
    return f"most state: operator '{name}', about {sizes[name] / (1 << 20):.1f} MB"


def _state_bytes(operator: Operator) -> int:
    backend = operator.backend if isinstance(operator, StatefulOperator) else None
    try:
        return 0 if backend is None else backend.approximate_bytes()
    except (RuntimeError, LookupError, ValueError, WeirError):
        return 0  # the thread that handles records changes it meanwhile


def _outwards(frame: FrameType | None) -> Iterable[tuple[FrameType, int]]:
    while frame is not None:
        yield frame, frame.f_lineno
        frame = frame.f_back


def _find(innermost_first: Iterable[tuple[FrameType, int]]) -> Whereabouts | None:
    place = record = ""
    for frame, line in innermost_first:
        code, known = frame.f_code, frame.f_locals
        if not is_own_code(code.co_filename):
            # The user's function itself is the last one on the way out.
            place = f"{code.co_name} ({os.path.basename(code.co_filename)}:{line})"
        elif _RECORD in known:
            record = _show.repr(known[_RECORD])
        if isinstance(owner := known.get("self"), Operator):
            return Whereabouts(owner.node.name, record, place)
    return None
