"""What triggers, assigners, evictors and window functions see of the window operator.

Each context is one object that the operator points at a key and window before a call. State of a
trigger is that of its window. State of a function is global, under the key alone; what it asks of
`window_state` is bound to the window of the call and stays so.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

from weir.backend.base import CurrentKey, Timers
from weir.backend.kinds import StateKind
from weir.errors import UsageError
from weir.graph.output_tag import OutputTag, require_tag
from weir.metrics import MetricGroup
from weir.runtime.context import RuntimeContext
from weir.state.descriptor import StateDescriptor

TRIGGER_PREFIX = "_trigger."
WINDOW_PREFIX = "_window."
GetState = Callable[[Any], Any]
_MERGEABLE = (StateKind.LIST, StateKind.REDUCING, StateKind.AGGREGATING)


class WindowClock(Protocol):
    """The times of a window operator, its timers and its current key."""

    event_timers: Timers
    processing_timers: Timers
    watermark: int

    def now_ms(self) -> int:
        """Return the processing time of this epoch."""

    def current_key(self) -> CurrentKey:
        """Return the current key."""


class WindowRuntimeContext(RuntimeContext):
    """A runtime context that is asked for states again and again, by the same descriptors."""

    _known: dict[str, tuple[Any, Any]] | None = None

    def _keyed(self, descriptor: Any) -> Any:
        known = self._known
        if known is None:
            known = self._known = {}
        found = known.get(descriptor.name)
        if found is not None and found[0] is descriptor:
            return found[1]
        handle = super()._keyed(descriptor)
        known[descriptor.name] = (descriptor, handle)
        return handle


class RenamedStates:
    """States under names with a prefix, so that they are never those of the user's functions."""

    def __init__(self, get_state: GetState, prefix: str) -> None:
        self._get_state = get_state
        self._prefix = prefix
        self._known: dict[str, tuple[Any, Any]] = {}

    def __call__(self, descriptor: StateDescriptor) -> Any:
        """Return the handle of a state; the same descriptor is looked up once."""
        found = self._known.get(descriptor.name)
        if found is not None and found[0] is descriptor:
            return found[1]
        own = copy.copy(descriptor)
        own.name = self._prefix + descriptor.name
        handle = self._get_state(own)
        self._known[descriptor.name] = (descriptor, handle)
        return handle


class _Times:
    """The two times, and metrics."""

    def __init__(self, operator: WindowClock, metrics: MetricGroup) -> None:
        self._operator = operator
        self._metrics = metrics

    def get_current_processing_time(self) -> int:
        """Return the processing time; it stands still during an epoch."""
        return self._operator.now_ms()

    def get_current_watermark(self) -> int:
        """Return the event time that the operator has reached."""
        return self._operator.watermark

    def get_metric_group(self) -> MetricGroup:
        """Return the operator's metrics."""
        return self._metrics


class EvictionContext(_Times):
    """Given to evictors."""


class AssignerContext:
    """Given to assigners."""

    def __init__(self, operator: WindowClock, runtime_context: RuntimeContext) -> None:
        self._operator = operator
        self._runtime_context = runtime_context

    def get_current_processing_time(self) -> int:
        """Return the processing time; it stands still during an epoch."""
        return self._operator.now_ms()

    def get_runtime_context(self) -> RuntimeContext:
        """Return the runtime context, whose keyed state is that of the record's key."""
        return self._runtime_context

    def key_group(self) -> int:
        """Return the group of the record's key."""
        return self._operator.current_key().group


class WindowTriggerContext(_Times):
    """Given to triggers; `namespace` is that of their window, `merged` those of merged ones."""

    def __init__(self, operator: WindowClock, metrics: MetricGroup, get_state: GetState) -> None:
        super().__init__(operator, metrics)
        self._states = RenamedStates(get_state, TRIGGER_PREFIX)
        self.namespace: Any = None
        self.merged: Iterable[Any] = ()

    def register_processing_time_timer(self, time: int) -> None:
        """Call `on_processing_time` of this key and window at a time."""
        self._add(self._operator.processing_timers, time)

    def register_event_time_timer(self, time: int) -> None:
        """Call `on_event_time` of this key and window when the watermark reaches a time."""
        self._add(self._operator.event_timers, time)

    def delete_processing_time_timer(self, time: int) -> None:
        """Forget a processing-time timer."""
        self._remove(self._operator.processing_timers, time)

    def delete_event_time_timer(self, time: int) -> None:
        """Forget an event-time timer."""
        self._remove(self._operator.event_timers, time)

    def _add(self, timers: Timers, time: int) -> None:
        current = self._operator.current_key()
        timers.register(time, current.key, current.group, self.namespace)

    def _remove(self, timers: Timers, time: int) -> None:
        current = self._operator.current_key()
        timers.delete(time, current.key, current.group, self.namespace)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        """Return a state of this key and window."""
        return self._states(state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Move a state of the merged windows into this window.

        Raises:
            UsageError: the state is neither a list nor a reducing nor an aggregating one.
        """
        if state_descriptor.kind not in _MERGEABLE:
            msg = (
                "The given state descriptor does not refer to a mergeable state (MergingState): "
                f"{state_descriptor!r}"
            )
            raise UsageError(msg)
        state = self.get_partitioned_state(state_descriptor)
        state.merge_namespaces(self.namespace, self.merged)


class _InNamespace:
    """A state handle that acts on one namespace, whatever the current one is."""

    def __init__(self, handle: Any, current: CurrentKey, namespace: Any) -> None:
        self._handle = handle
        self._current = current
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        """Return a method that runs in the namespace."""
        return partial(self._run, getattr(self._handle, name))

    def _run(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        current = self._current
        before = current.namespace
        current.namespace = self._namespace
        try:
            return method(*args, **kwargs)
        finally:
            current.namespace = before

    # Python looks for these in the class, not by `__getattr__`. A kind of state that has no such
    # method says so itself, as outside of windows.

    def __getitem__(self, key: Any) -> Any:
        return self._run(operator.getitem, self._handle, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._run(operator.setitem, self._handle, key, value)

    def __delitem__(self, key: Any) -> None:
        self._run(operator.delitem, self._handle, key)

    def __contains__(self, key: object) -> bool:
        return bool(self._run(operator.contains, self._handle, key))

    def __iter__(self) -> Iterator[Any]:
        # All at once: between two steps another namespace may be the current one.
        return iter(self._run(list, self._handle))


class WindowStateStore:
    """The keyed states of one window."""

    def __init__(self, get_state: GetState, current: CurrentKey, space: Any) -> None:
        self._get_state = get_state
        self._current = current
        self._namespace = space

    def get_state(self, state_descriptor: Any) -> Any:
        """Return a ValueState of this window."""
        return _InNamespace(self._get_state(state_descriptor), self._current, self._namespace)

    get_list_state = get_map_state = get_reducing_state = get_aggregating_state = get_state
    get_folding_state = get_state


class WindowFunctionContext:
    """Given to `process` and `clear` of window functions."""

    def __init__(self, operator: WindowClock, get_state: GetState, *, merging: bool) -> None:
        self._operator = operator
        self._get_state = get_state
        self._merging = merging
        self._global: Any = None
        self._window: Any = None
        self._namespace: Any = None
        self.aside: list[tuple[OutputTag, Any]] = []

    def at(self, window: Any, namespace: Any) -> None:
        """Point at a window."""
        self._window = window
        self._namespace = namespace

    def serve(self, global_store: Any) -> None:
        """Take the store of state that all windows of a key share."""
        self._global = global_store

    def window(self) -> Any:
        """Return the window."""
        return self._window

    def current_processing_time(self) -> int:
        """Return the processing time; it stands still during an epoch."""
        return self._operator.now_ms()

    def current_watermark(self) -> int:
        """Return the event time that the operator has reached."""
        return self._operator.watermark

    def window_state(self) -> WindowStateStore:
        """Return the states of this key and window; `clear` has to clear them.

        Raises:
            UsageError: windows may merge, which state of one of them could not follow.
        """
        if self._merging:
            msg = (
                "Per-window state is not allowed when using merging windows. Keep it in "
                "global_state(), or aggregate it with the records"
            )
            raise UsageError(msg)
        return WindowStateStore(self._get_state, self._operator.current_key(), self._namespace)

    def global_state(self) -> Any:
        """Return the states of this key that all of its windows share."""
        return self._global

    def output(self, output_tag: OutputTag, value: Any) -> None:
        """Emit a record to a side output, with the timestamp that results of the window have.

        Raises:
            TypeError: it is no `OutputTag`.
        """
        self.aside.append((require_tag(output_tag), value))
