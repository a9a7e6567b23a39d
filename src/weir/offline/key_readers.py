"""Functions of the user that read keyed state key by key, or window by window.

A reader function gets the states that it declares in `open` under each key that has any of them.
State is restored as a job restores it, a few key groups at a time; nothing is written back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

from weir.backend.base import VOID, RestoreSource
from weir.backend.restored import common_sources
from weir.backend.timers import EVENT_TIMERS, PROCESSING_TIMERS
from weir.checkpoint.metadata import OperatorRecord
from weir.clock import SystemClock
from weir.codec.codec import codec_for
from weir.errors import UsageError
from weir.graph import kinds
from weir.graph.plan import OperatorNode
from weir.keygroup import KeyGroupRange, key_group
from weir.keys import one_nan
from weir.offline.contents import SnapshotContents
from weir.offline.keyed import Entry, KeyedTable, StoredKind
from weir.runtime.context import RuntimeContext
from weir.runtime.operator import TaskFacts
from weir.runtime.raised import whole
from weir.runtime.stateful import StatefulOperator
from weir.runtime.window_contents import CONTENTS, Fold
from weir.runtime.window_context import (
    TRIGGER_PREFIX,
    WINDOW_PREFIX,
    RenamedStates,
    WindowStateStore,
)
from weir.runtime.window_operator import IN_FLIGHT
from weir.state.descriptor import StateDescriptor
from weir.window.namespaces import WindowNamespaces
from weir.window.windows import GlobalWindow

_NO_TIMERS: Final[frozenset[int]] = frozenset()
_SPACES: Final = "spaces"
_IN_READ_KEY: Final = (
    "read_key(): declare all states in open(), so that it is known which keys have any"
)
_IN_OPEN: Final = (
    "open(): ask for it in read_window(), by ctx.window_state(), ctx.global_state() or "
    "ctx.trigger_state()"
)


@dataclass(frozen=True)
class KeyFilter:
    """Which keys are read: those in `keys`, or those that `test` likes; without both, all."""

    keys: Collection[Any] | None = None
    test: Callable[[Any], bool] | None = None

    def groups(self, wanted: KeyGroupRange, max_parallelism: int) -> list[KeyGroupRange]:
        """Return the key groups that have to be read, one by one."""
        if self.keys is None:
            return [KeyGroupRange(g, g) for g in range(wanted.start, wanted.end + 1)]
        found = sorted({key_group(key, max_parallelism) for key in self.keys})
        return [KeyGroupRange(group, group) for group in found if group in wanted]

    @cached_property
    def _found(self) -> frozenset[Any]:
        """The wanted keys as they are looked up: a NaN is not equal to itself."""
        return frozenset(map(one_nan, self.keys or ()))

    def passes(self, key: Any) -> bool:
        """Tell whether a key is wanted."""
        if self.keys is not None:
            return one_nan(key) in self._found
        return self.test is None or bool(self.test(key))


class _Timers:
    """The timers of some key groups by key, all of them read when somebody asks for one."""

    def __init__(self, contents: SnapshotContents, operator: str, groups: KeyGroupRange) -> None:
        self._contents = contents
        self._operator = operator
        self._groups = groups
        self._found: dict[str, dict[Any, set[int]]] = {}

    def of(self, name: str, key: Any) -> set[int]:
        """Return the times at which a key, or a key and window, has timers."""
        if name not in self._found:
            self._found[name] = self._read(name)
        return set(self._found[name].get(key, _NO_TIMERS))

    def _read(self, name: str) -> dict[Any, set[int]]:
        found: dict[Any, set[int]] = {}
        if name in self._contents.kinds(self._contents.snapshot.operator(self._operator)):
            for entry in self._contents.keyed_state(self._operator, name).entries(self._groups):
                at = entry.key if entry.namespace is None else (entry.key, entry.namespace)
                found.setdefault(at, set()).add(entry.value)
        return found


class KeyContext:
    """Given to `read_key`: the timers of the key."""

    def __init__(self, timers: _Timers, at: Any) -> None:
        self._timers = timers
        self._at = at

    def registered_event_time_timers(self) -> set[int]:
        """Return the times of the key's event-time timers."""
        return self._timers.of(EVENT_TIMERS, self._at)

    def registered_processing_time_timers(self) -> set[int]:
        """Return the times of the key's processing-time timers."""
        return self._timers.of(PROCESSING_TIMERS, self._at)


class WindowContext(KeyContext):
    """Given to `read_window`: the window, its timers, and the states of window, trigger and key."""

    def __init__(
        self, timers: _Timers, at: Any, window: Any, stores: Callable[[str, Any], Any]
    ) -> None:
        super().__init__(timers, at)
        self._window = window
        self._stores = stores
        self._space = at[1] if isinstance(at, _At) else VOID

    def window(self) -> Any:
        """Return the window."""
        return self._window

    def window_state(self) -> WindowStateStore:
        """Return the states that `window_state()` of the job's function had for this window."""
        is_global = isinstance(self._window, GlobalWindow)
        store: WindowStateStore = self._stores(WINDOW_PREFIX if is_global else "", self._space)
        return store

    def global_state(self) -> WindowStateStore:
        """Return the states of the key that all of its windows share."""
        store: WindowStateStore = self._stores("", VOID)
        return store

    def trigger_state(self, descriptor: StateDescriptor) -> Any:
        """Return a state that the trigger had for this window."""
        return self._stores(TRIGGER_PREFIX, self._space).get_state(descriptor)


class _At(tuple[Any, Any]):
    """A key and the namespace of its window: where timers of the window are."""

    __slots__ = ()


class _Declaring(RuntimeContext):
    """Notes which states a function declares; after `open` it may declare no more."""

    declared: list[str]
    refusal = ""

    def _keyed(self, descriptor: Any) -> Any:
        if self.refusal:
            msg = f"state {descriptor.name!r} is asked for in {self.refusal}"
            raise UsageError(msg)
        self.declared.append(descriptor.name)
        return super()._keyed(descriptor)


class _Reading(StatefulOperator):
    """The operator of one key group, restored for a reader function."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        context = _Declaring(node, facts, self.metrics.group, self.backend, ttl=self.ttl)
        context.declared = []
        self.declaring = self.runtime_context = context

    def open(self) -> None:
        """Let the function declare its states."""
        super().open()
        self.declaring.refusal = _IN_READ_KEY


class _OfWindows(_Reading):
    """The operator of one key group whose namespaces are windows."""

    def namespace_type(self) -> Any:
        """Return the type of windows as namespaces."""
        spaces: WindowNamespaces = self.node.options[_SPACES]
        return spaces.type


class _WindowStates:
    """The states beside the contents of windows, restored when a function asks for one."""

    def __init__(
        self,
        contents: SnapshotContents,
        record: OperatorRecord,
        wanted: KeyGroupRange,
        node: OperatorNode,
    ) -> None:
        self._contents = contents
        self._record = record
        self._wanted = wanted
        self._node = node
        self._found: list[RestoreSource] | None = None
        self._reading: tuple[int, _OfWindows] | None = None

    def store(self, entry: Entry, prefix: str, namespace: Any) -> WindowStateStore:
        """Return the states of the entry's key in a namespace, whose names have a prefix."""
        reading = self._restored(entry.key_group)
        current = reading.current_key()
        current.key, current.group = entry.key, entry.key_group

        def get(descriptor: StateDescriptor) -> Any:
            table = self._contents.keyed_state(self._record.id, descriptor.name)
            _refuse_pickled(table, self._contents)
            return reading.runtime_context._keyed(descriptor)

        named = RenamedStates(get, prefix) if prefix else get
        return WindowStateStore(named, current, namespace)

    def _restored(self, group: int) -> _OfWindows:
        if self._reading is not None and self._reading[0] == group:
            return self._reading[1]
        self.close()
        if self._found is None:
            # Files of a database are read once for all key groups, which are many.
            self._found = _readable(self._contents, self._record, self._wanted)
        reading = _OfWindows(self._node, _facts(group))
        self._reading = (group, reading)
        own = _of_groups(self._found, KeyGroupRange(group, group))
        reading.restore(self._contents.snapshot.metadata.checkpoint_id, own, [])
        return reading

    def close(self) -> None:
        """Give back what was restored."""
        # Not the function, which was opened once for all key groups.
        if self._reading is not None and self._reading[1].backend is not None:
            self._reading[1].backend.close()
        self._reading = None


def _of_groups(sources: list[RestoreSource], groups: KeyGroupRange) -> list[RestoreSource]:
    return [
        replace(source, key_groups=source.stored.intersect(groups))
        for source in sources
        if len(source.stored.intersect(groups))
    ]


@dataclass(frozen=True)
class ReadKeys:
    """Calls a `KeyedStateReaderFunction` for the keys of an operator; travels to workers."""

    operator: str
    function: Any
    keys: KeyFilter = KeyFilter()

    def read(self, contents: SnapshotContents, wanted: KeyGroupRange) -> Iterator[Any]:
        """Yield what the function yields, key group by key group.

        Raises:
            UsageError: the operator, or a state that the function declares, is not there; or it is
                pickled, and unpickling is not allowed.
            UserFunctionError: the function raised.
        """
        record = contents.snapshot.operator(self.operator)
        steps = self.keys.groups(wanted, record.max_parallelism)
        # Files of a database are read once for all key groups, which are many.
        found = _readable(contents, record, wanted)
        timers = _Timers(contents, self.operator, wanted)
        for groups in steps:
            sources = _of_groups(found, groups)
            if sources:
                yield from self._group(contents, record, groups, sources=sources, timers=timers)

    def _group(
        self,
        contents: SnapshotContents,
        record: OperatorRecord,
        groups: KeyGroupRange,
        sources: list[RestoreSource],
        timers: _Timers,
    ) -> Iterator[Any]:
        reading = _Reading(self._node(contents, record), _facts(groups.start))
        try:
            reading.restore(contents.snapshot.metadata.checkpoint_id, sources, [])
            reading.open()
            for name in reading.declaring.declared:
                _refuse_pickled(contents.keyed_state(self.operator, name), contents)
            for key in self._keys(reading):
                current = reading.current_key()
                current.key, current.group = key, groups.start
                call = partial(self.function.read_key, key, KeyContext(timers, key))
                yield from _called(reading, call)
        finally:
            reading.close()

    def _keys(self, reading: _Reading) -> list[Any]:
        backend = reading.backend
        names = reading.declaring.declared
        if backend is None or not names:
            msg = (
                f"{type(self.function).__name__} declares no state in open(): its keys are those "
                "that have one of the states that it declares"
            )
            raise UsageError(msg)
        found = {key: None for name in names for key in backend.keys(name)}
        return [key for key in found if self.keys.passes(key)]

    def _node(self, contents: SnapshotContents, record: OperatorRecord) -> OperatorNode:
        found = contents.kinds(record)
        if not found:
            msg = f"operator {self.operator!r} has no keyed state"
            raise UsageError(msg)
        key_type = next(iter(found.values())).type_of("key")
        return OperatorNode(
            index=0,
            id=record.id,  # type: ignore[arg-type]
            uid=record.uid,
            name=record.name,
            kind=kinds.PROCESS.name,
            function=self.function,
            options={},
            output_type=None,
            side_types={},
            level=1,
            parallelism=record.max_parallelism,
            max_parallelism=record.max_parallelism,
            max_parallelism_explicit=True,
            keyed=True,
            key_type=key_type,
        )


@dataclass(frozen=True)
class ReadWindows:
    """Calls a `WindowReaderFunction` for the windows of an operator; travels to workers.

    Contents that were folded are shown as what `fold` makes of them; with `evicting` they were
    kept with their timestamps.
    """

    operator: str
    function: Any
    spaces: WindowNamespaces
    fold: Fold | None = None
    evicting: bool = False

    def read(self, contents: SnapshotContents, wanted: KeyGroupRange) -> Iterator[Any]:
        """Yield what the function yields, key group by key group.

        Raises:
            UsageError: the operator has no windows; or their contents are pickled, and unpickling
                is not allowed.
            UserFunctionError: the function raised.
        """
        record = contents.snapshot.operator(self.operator)
        table = contents.keyed_state(self.operator, CONTENTS)
        _refuse_pickled(table, contents)
        node = ReadKeys(self.operator, self.function)._node(contents, record)
        node = replace(node, options={_SPACES: self.spaces})
        reading = _Reading(node, _facts(0))
        reading.declaring.refusal = _IN_OPEN
        states = _WindowStates(contents, record, wanted, node)
        try:
            reading.open()
            timers = _Timers(contents, self.operator, wanted)
            actual = self._actual(contents, record, wanted)
            for entry in table.entries(wanted):
                space = actual.get((entry.key, entry.namespace), entry.namespace)
                at = entry.key if space is None else _At((entry.key, space))
                stores = partial(states.store, entry)
                context = WindowContext(timers, at, self.spaces.window(space), stores)
                elements = self._elements(entry.value)
                call = partial(self.function.read_window, entry.key, context, elements)
                yield from _called(reading, call)
        finally:
            states.close()
            reading.close()

    def _elements(self, held: Any) -> list[Any]:
        values = [value for value, _ in held] if self.evicting else held
        if self.fold is None:
            return list(values)
        if not self.evicting:
            return [self.fold.result(held)]
        folded = self.fold.first(values[0])
        for value in values[1:]:
            folded = self.fold.add(folded, value)
        return [self.fold.result(folded)]

    @staticmethod
    def _actual(
        contents: SnapshotContents, record: OperatorRecord, groups: KeyGroupRange
    ) -> dict[Any, Any]:
        """Return the windows of merged ones, by key and the window under which they are kept."""
        if IN_FLIGHT not in contents.kinds(record):
            return {}
        merged = contents.keyed_state(record.id, IN_FLIGHT).entries(groups)
        return {
            (entry.key, tuple(kept)): tuple(window)
            for entry in merged
            for window, kept in entry.value
        }


def _facts(subtask: int) -> TaskFacts:
    return TaskFacts(
        job_id="",
        job_name="state processor",
        attempt=0,
        subtask=subtask,
        clock=SystemClock(),
        report=lambda index, kind, values: None,
    )


def _called(reading: _Reading, call: partial[Any]) -> Iterable[Any]:
    """Call a reader function, which may yield, return an iterable, or nothing."""
    try:
        given = call()
        return [] if given is None else list(whole(given))
    except BaseException as error:
        raise reading.failed_in(error, call.func) from None


def _readable(
    contents: SnapshotContents, record: OperatorRecord, wanted: KeyGroupRange
) -> list[RestoreSource]:
    """Return where the states of an operator are; without those that must not be unpickled."""
    sources = contents.snapshot.keyed_sources(record, wanted)
    if contents.unpickle:
        return common_sources(sources, wanted)
    names = {name for name, kind in contents.kinds(record).items() if not _is_pickled(kind)}
    return common_sources(sources, wanted, names, plain=True)


def _is_pickled(stored: StoredKind) -> bool:
    roles = [role for role in stored.types if role != "namespace"]
    return not all(codec_for(stored.type_of(role)).safe for role in roles)


def _refuse_pickled(table: KeyedTable, contents: SnapshotContents) -> None:
    if contents.unpickle or not _is_pickled(table.stored):
        return
    msg = (
        f"state {table.name!r} holds pickled values, and reading those runs code of whoever wrote "
        "them: allow it with unpickle=True"
    )
    raise UsageError(msg)
