"""Which functions without keys ask for keyed state, as far as their code tells without running it.

Only calls that `open` makes in any case count: those in its straight beginning, on its own
argument. What lies behind a condition, in a helper or in a `try` is left to the slots.
"""

from __future__ import annotations

import dis
from types import CodeType, FunctionType
from typing import Any, Final

from weir.errors import UsageError
from weir.graph.transformation import StreamGraph

_STATE_CALLS: Final = frozenset(
    {
        "get_state",
        "get_list_state",
        "get_map_state",
        "get_reducing_state",
        "get_aggregating_state",
    }
)
_BRANCHES: Final = ("JUMP", "FOR_ITER", "SETUP_", "SEND", "RETURN_")


def refuse_state_without_keys(graph: StreamGraph) -> None:
    """Refuse a function that will ask for keyed state where there are no keys.

    Raises:
        UsageError: there is one.
    """
    for t in graph.transformations:
        asked = None if t.keyed else keyed_state_in_open(t.function)
        if asked is not None:
            name = type(t.function).__name__
            msg = (
                f"operator '{t.name}': {name}.open() calls {asked}(), and keyed state can only be "
                "used on a 'keyed stream', i.e., after a 'key_by()' operation; call key_by() on "
                "the stream before, or keep operator state with a CheckpointedFunction"
            )
            raise UsageError(msg)


def keyed_state_in_open(function: Any) -> str | None:
    """Return the first method for keyed state that `open` is sure to call, None if there is none.

    Functions of Weir itself are not looked at: they know where they run.
    """
    opener = getattr(type(function), "open", None)
    if not isinstance(opener, FunctionType) or opener.__module__.split(".")[0] == "weir":
        return None
    code = opener.__code__
    if code.co_argcount < 2 or getattr(code, "co_exceptiontable", None):
        return None
    return _first_call(code, code.co_varnames[1])


def _first_call(code: CodeType, context: str) -> str | None:
    loaded: Any = None
    for step in dis.get_instructions(code):
        if any(part in step.opname for part in _BRANCHES):
            return None
        is_call = step.opname in ("LOAD_METHOD", "LOAD_ATTR") and step.argval in _STATE_CALLS
        if is_call and loaded == context:
            return str(step.argval)
        # Newer interpreters load two variables in one step; the last one is on top.
        loaded = None
        if step.opname.startswith(("LOAD_FAST", "STORE_FAST_LOAD_FAST")):
            loaded = step.argval[-1] if isinstance(step.argval, tuple) else step.argval
    return None
