"""The functions behind `map_with_state`, `flat_map_with_state` and `filter_with_state`.

Each wraps a callable `f(value, state) -> (result, new state)` over one value per key, named
`STATE_NAME`. None stands for no state on both sides: a key without state gives None, and returning
None removes what the key had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weir.datastream._runtime_context import RuntimeContext
from weir.datastream.functions import FilterFunction, FlatMapFunction, Function, MapFunction
from weir.errors import UsageError
from weir.state.descriptor import ValueStateDescriptor
from weir.state.handles import ValueState

STATE_NAME = "state"
StateStep = Callable[[Any, Any], Any]


class _WithState(Function):
    """Runs a step over the state of the current key."""

    def __init__(self, step: StateStep, state_type: Any) -> None:
        self._step = step
        self._descriptor = ValueStateDescriptor(STATE_NAME, state_type)
        self._state: ValueState[Any] | None = None

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the state."""
        self._state = runtime_context.get_state(self._descriptor)

    def _apply(self, value: Any) -> Any:
        state = self._state
        if state is None:
            msg = "the function was not opened"
            raise RuntimeError(msg)
        outcome = self._step(value, state.value())
        if not isinstance(outcome, tuple) or len(outcome) != 2:
            msg = (
                f"a function with state returns a pair (result, new state), found {outcome!r}; "
                "None as new state removes the state of the key"
            )
            raise UsageError(msg)
        result, after = outcome
        # As in Flink: an update with None clears.
        state.update(after)
        return result


class MapWithState(_WithState, MapFunction):
    """One record in, one record out, by the state of its key."""

    def map(self, value: Any) -> Any:
        """Return the result of the step."""
        return self._apply(value)


class FlatMapWithState(_WithState, FlatMapFunction):
    """One record in, any number out, by the state of its key."""

    def flat_map(self, value: Any) -> Any:
        """Return the records of the step; None is none."""
        return self._apply(value)


class FilterWithState(_WithState, FilterFunction):
    """Keeps or drops records, by the state of their key."""

    def filter(self, value: Any) -> bool:
        """Return the decision of the step."""
        return bool(self._apply(value))
