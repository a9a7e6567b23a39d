"""What users write to read state key by key, and to make state of records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from weir.datastream.functions import (
    CheckpointedFunction,
    Function,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    ProcessFunction,
)
from weir.errors import UsageError
from weir.ids import operator_id
from weir.offline.key_readers import KeyContext, KeyFilter, WindowContext
from weir.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)


@dataclass(frozen=True)
class OperatorIdentifier:
    """Which operator of a savepoint: by its uid, or by the hash that logs and metadata show.

    Example:
        OperatorIdentifier.for_uid("count")
    """

    uid: str | None
    uid_hash: str

    @classmethod
    def for_uid(cls, uid: str) -> OperatorIdentifier:
        """Name an operator by the uid that its program gave it."""
        return cls(uid, operator_id(uid))

    @classmethod
    def for_uid_hash(cls, uid_hash: str) -> OperatorIdentifier:
        """Name an operator by its id, 32 hexadecimal digits."""
        return cls(None, uid_hash.lower())

    @property
    def name(self) -> str:
        """The uid where it is known, else the hash."""
        return self.uid or self.uid_hash

    @classmethod
    def of(cls, which: Any) -> OperatorIdentifier:
        """Take an identifier, or a uid as text.

        Raises:
            UsageError: it is neither.
        """
        if isinstance(which, cls):
            return which
        if isinstance(which, str) and which:
            return cls.for_uid(which)
        msg = f"an operator is named by OperatorIdentifier.for_uid('…') or its uid, not {which!r}"
        raise UsageError(msg)


class SavepointKeyFilter(KeyFilter):
    """Which keys are read. Exact keys leave key groups unread, other filters look at every key.

    Example:
        SavepointKeyFilter.exact("alice", "bob")
    """

    @classmethod
    def exact(cls, *keys: Any) -> SavepointKeyFilter:
        """Read these keys; a single set, which is no key, holds them."""
        one_set = len(keys) == 1 and isinstance(keys[0], set)
        return cls(frozenset(keys[0] if one_set else keys))

    @classmethod
    def empty(cls) -> SavepointKeyFilter:
        """Read nothing."""
        return cls(frozenset())

    @classmethod
    def range(
        cls, lower: Any, lower_inclusive: bool, upper: Any, upper_inclusive: bool
    ) -> SavepointKeyFilter:
        """Read the keys between two bounds; a bound that is None is none."""
        return cls(test=_Between(lower, lower_inclusive, upper, upper_inclusive))


@dataclass(frozen=True)
class _Between:
    lower: Any
    lower_inclusive: bool
    upper: Any
    upper_inclusive: bool

    def __call__(self, key: Any) -> bool:
        above = self.lower is None or key > self.lower
        below = self.upper is None or key < self.upper
        return (above or (self.lower_inclusive and key == self.lower)) and (
            below or (self.upper_inclusive and key == self.upper)
        )


class KeyedStateReaderFunction(Function, ABC):
    """Reads the state of one key at a time.

    `open` declares all states; the keys are those that have any of them.

    Example:
        class Totals(KeyedStateReaderFunction):
            def open(self, runtime_context):
                self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

            def read_key(self, key, ctx):
                yield key, self.total.value()
    """

    Context: ClassVar[type[KeyContext]] = KeyContext

    @abstractmethod
    def read_key(self, key: Any, ctx: KeyContext) -> Any:
        """Read what a key has; return or yield records."""


class DescribedStates(KeyedStateReaderFunction):
    """Reads states by their descriptors alone: a tuple of the key and what each state has for it.

    A value is None where there is none, of a list state it is a list, of a map state a dict.
    """

    def __init__(self, descriptors: Sequence[StateDescriptor]) -> None:
        """Read these states.

        Raises:
            UsageError: there are none, or one of them is no descriptor of keyed state.
        """
        self._descriptors = list(descriptors)
        wrong = [d for d in self._descriptors if not isinstance(d, StateDescriptor)]
        if wrong or not self._descriptors:
            found = repr(wrong[0]) if wrong else "none"
            msg = (
                "keyed state is read by a KeyedStateReaderFunction, or by descriptors of states, "
                f"one or several: found {found}"
            )
            raise UsageError(msg)

    def open(self, runtime_context: Any) -> None:
        """Declare the states."""
        self._read = [_reading(runtime_context, one) for one in self._descriptors]

    def read_key(self, key: Any, ctx: KeyContext) -> Any:
        """Return the one record of a key."""
        return [(key, *(read() for read in self._read))]


def _reading(runtime_context: Any, descriptor: StateDescriptor) -> Callable[[], Any]:
    """Return what reads a state of the current key."""
    if isinstance(descriptor, ListStateDescriptor):
        many = runtime_context.get_list_state(descriptor)
        return lambda: list(many.get())
    if isinstance(descriptor, MapStateDescriptor):
        entries = runtime_context.get_map_state(descriptor)
        return lambda: dict(entries.items())
    if isinstance(descriptor, AggregatingStateDescriptor):
        return cast(Callable[[], Any], runtime_context.get_aggregating_state(descriptor).get)
    if isinstance(descriptor, ReducingStateDescriptor):
        return cast(Callable[[], Any], runtime_context.get_reducing_state(descriptor).get)
    return cast(Callable[[], Any], runtime_context.get_state(descriptor).value)


class WindowReaderFunction(Function, ABC):
    """Reads the contents of one window of one key at a time.

    Example:
        class Sizes(WindowReaderFunction):
            def read_window(self, key, ctx, elements):
                yield key, ctx.window().start, len(elements)
    """

    Context: ClassVar[type[WindowContext]] = WindowContext

    @abstractmethod
    def read_window(self, key: Any, ctx: WindowContext, elements: list[Any]) -> Any:
        """Read a window; elements are its records, or the one result of what folds them."""


class PassThroughReader(WindowReaderFunction):
    """Gives the contents of windows as they are.

    Example:
        reader.window(assigner).reduce("sums", lambda a, b: a + b, PassThroughReader())
    """

    def read_window(self, key: Any, ctx: WindowContext, elements: list[Any]) -> Any:
        """Return the elements."""
        return elements


class KeyedStateBootstrapFunction(KeyedProcessFunction[Any, Any, Any]):
    """Makes keyed state of records: as a `KeyedProcessFunction`, but nothing is emitted.

    Timers can be registered; they fire in the job that starts from the savepoint.

    Example:
        class History(KeyedStateBootstrapFunction):
            def open(self, runtime_context):
                self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

            def process_element(self, value, ctx):
                self.total.update(value.amount)
    """


class StateBootstrapFunction(ProcessFunction[Any, Any], CheckpointedFunction):
    """Makes operator state of records; `snapshot_state` is called once, behind the last record.

    Example:
        class Buffer(StateBootstrapFunction):
            def initialize_state(self, context):
                store = context.get_operator_state_store()
                self.state = store.get_list_state(ListStateDescriptor("buffer", Types.LONG()))

            def process_element(self, value, ctx):
                self.state.add(value)

            def snapshot_state(self, context):
                pass
    """


class BroadcastStateBootstrapFunction(Function, ABC):
    """Makes broadcast state of records, which every subtask sees.

    Example:
        class Rules(BroadcastStateBootstrapFunction):
            def process_element(self, value, ctx):
                ctx.get_broadcast_state(RULES).put(value.name, value.limit)
    """

    class Context:
        """Given to `process_element`: where broadcast state is."""

        def __init__(self, store: Any) -> None:
            self._store = store

        def get_broadcast_state(self, descriptor: MapStateDescriptor) -> Any:
            """Return the state, to read and write."""
            return self._store.get_broadcast_state(descriptor)

    @abstractmethod
    def process_element(self, value: Any, ctx: BroadcastStateBootstrapFunction.Context) -> None:
        """Handle one record."""


class Broadcasting(StateBootstrapFunction):
    """Runs a function that makes broadcast state."""

    def __init__(self, function: BroadcastStateBootstrapFunction) -> None:
        self._function = function

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Keep the place of operator state."""
        self._context = self._function.Context(context.get_operator_state_store())

    def open(self, runtime_context: Any) -> None:
        """Open the function."""
        self._function.open(runtime_context)

    def close(self) -> None:
        """Close the function."""
        self._function.close()

    def process_element(self, value: Any, ctx: Any) -> None:
        """Give a record to the function."""
        self._function.process_element(value, self._context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Nothing: the state is up to date after every record."""
