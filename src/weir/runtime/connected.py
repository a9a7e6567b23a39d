"""Two-input operators: co_map, co_flat_map, co_process and the broadcast pattern.

Within an epoch the first input is handled before the second; a broadcast input is handled before
the other one, so that results do not depend on luck.
"""

from __future__ import annotations

from typing import Any

from weir.errors import UsageError
from weir.runtime.context import OperatorTimerService
from weir.runtime.frame import Chunk
from weir.runtime.keyed import (
    ElementContext,
    ResidentProcess,
    TimerContext,
    keyed_stride,
    spread_stamps,
)
from weir.runtime.raised import whole
from weir.runtime.stateful import StatefulOperator
from weir.state.operator_state import refuse_ttl

BROADCAST_INPUT = 1


class CoMap(StatefulOperator):
    """`map1` for the first input, `map2` for the second."""

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Apply the input's function to every record; None results are dropped."""
        function = self.function.map1 if input_index == 0 else self.function.map2

        def one(v: Any) -> tuple[Any, ...]:
            result = function(v)
            return () if result is None else (result,)

        co_flat(self, one, chunk)


class CoFlatMap(StatefulOperator):
    """`flat_map1` for the first input, `flat_map2` for the second."""

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Apply the input's function to every record and flatten."""
        function = self.function.flat_map1 if input_index == 0 else self.function.flat_map2
        co_flat(self, function, chunk)


def co_flat(operator: StatefulOperator, function: Any, chunk: Chunk) -> None:
    """Run a flat function over a chunk, with keys where the input has them."""
    operator.records_in += len(chunk.values)
    out: list[Any] = []
    ends: list[int] | None = [] if chunk.timestamps is not None else None
    backend = operator.backend
    v: Any = None
    try:
        if backend is None or chunk.keys is None:
            for v in chunk.values:
                out.extend(whole(function(v) or ()))
                if ends is not None:
                    ends.append(len(out))
        else:
            for v, k, g in keyed_stride(backend, chunk, operator.ttl):
                backend.current.key = k
                backend.current.group = g
                out.extend(whole(function(v) or ()))
                if ends is not None:
                    ends.append(len(out))
    except BaseException as error:
        raise operator.failed(error, v) from None
    operator.end_stride()
    operator.emit_results(out, spread_stamps(chunk.timestamps, ends))


class CoProcess(ResidentProcess):
    """`process_element1` and `process_element2`."""

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Call the input's method for every record."""
        function = self.function
        method = function.process_element1 if input_index == 0 else function.process_element2
        self.run_elements(method, self.context, chunk)


class _BroadcastAccess:
    """Looks up broadcast states by descriptor, checked against what `broadcast()` declared."""

    def __init__(self, operator: BroadcastProcess, writable: bool) -> None:
        self._operator = operator
        self._writable = writable

    def get(self, descriptor: Any) -> Any:
        return self._operator.broadcast_state(descriptor, self._writable)


class BroadcastContext(ElementContext):
    """Context of `process_broadcast_element`: read-write broadcast state, no key, no timers."""

    __slots__ = ("_access",)

    def __init__(
        self, operator: BroadcastProcess, service: OperatorTimerService, writable: bool
    ) -> None:
        """Bind to an operator, with or without the right to write."""
        super().__init__(operator, service)
        self._access = _BroadcastAccess(operator, writable)

    def get_broadcast_state(self, state_descriptor: Any) -> Any:
        """Return the broadcast state."""
        return self._access.get(state_descriptor)

    def current_processing_time(self) -> int:
        """Return the wall clock in milliseconds."""
        return self._timer_service.current_processing_time()

    def current_watermark(self) -> int:
        """Return the event time that this operator has reached."""
        return self._timer_service.current_watermark()


class ReadOnlyContext(BroadcastContext):
    """Context of `process_element` beside a broadcast: read-only broadcast state."""

    __slots__ = ()


class BroadcastTimerContext(TimerContext):
    """Context of `on_timer` beside a broadcast: read-only broadcast state."""

    __slots__ = ("_access",)

    def __init__(self, operator: BroadcastProcess, service: OperatorTimerService) -> None:
        super().__init__(operator, service)
        self._access = _BroadcastAccess(operator, writable=False)

    def get_broadcast_state(self, state_descriptor: Any) -> Any:
        """Return the broadcast state, read-only."""
        return self._access.get(state_descriptor)

    def current_processing_time(self) -> int:
        """Return the wall clock in milliseconds."""
        return self._timer_service.current_processing_time()

    def current_watermark(self) -> int:
        """Return the event time that this operator has reached."""
        return self._timer_service.current_watermark()


class BroadcastProcess(ResidentProcess):
    """The broadcast pattern, keyed or not."""

    def open(self) -> None:
        """Create one context per side."""
        self._declared = {d.get_name() for d in self.node.options["descriptors"]}
        self._views: dict[tuple[str, bool], Any] = {}
        for descriptor in self.node.options["descriptors"]:
            self.operator_store.get_broadcast_state(descriptor)
        super().open()
        self.context = ReadOnlyContext(self, self.timer_service, writable=False)
        self.broadcast_context = BroadcastContext(self, self.timer_service, writable=True)
        self.timer_context = BroadcastTimerContext(self, self.timer_service)

    def broadcast_state(self, descriptor: Any, writable: bool) -> Any:
        """Return a view of a broadcast state."""
        name = descriptor.get_name()
        view = self._views.get((name, writable))
        if view is None:
            refuse_ttl(descriptor)
            if name not in self._declared and len(self._declared) == 1:
                # An example of Flink's documentation names the descriptor differently on both
                # sides; with one state there is no doubt which is meant.
                name = next(iter(self._declared))
            if name not in self._declared:
                msg = (
                    f"broadcast state '{name}' was not given to broadcast(): expected one of "
                    f"{sorted(self._declared)}"
                )
                raise UsageError(msg)
            declared = {d.get_name(): d for d in self.node.options["descriptors"]}[name]
            store = self.operator_store
            if writable:
                view = store.get_broadcast_state(declared)
            else:
                view = store.get_read_only_broadcast_state(declared)
            self._views[(descriptor.get_name(), writable)] = view
        return view

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Handle either side."""
        if input_index == BROADCAST_INPUT:
            self.clear_key()
            method = self.function.process_broadcast_element
            self.run_elements(method, self.broadcast_context, chunk)
        else:
            self.run_elements(self.function.process_element, self.context, chunk)
