"""The keyed backend SPI: working state of one operator subtask, addressed by key.

The address of an entry is (key group, key, namespace). One thread drives a backend; only
`KeyedSnapshot.write` runs on another. The operator loop sets `backend.current` directly before
each record and `current.key = NO_KEY` between epochs: access without a key raises, because
`NO_KEY` cannot be hashed, and so costs nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from weir.backend.handles import State
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.snapshot import SnapshotReader, SnapshotWriter


class StateKind(enum.Enum):
    """The five kinds of keyed state; the value is the class that users know."""

    VALUE = "ValueState"
    LIST = "ListState"
    MAP = "MapState"
    REDUCING = "ReducingState"
    AGGREGATING = "AggregatingState"


class _NoKey:
    """The current key when there is none."""

    __slots__ = ()

    def __hash__(self) -> int:
        msg = "No key set. This method should not be called outside of a keyed context."
        raise UsageError(msg)

    def __repr__(self) -> str:
        return "NO_KEY"


class _Void:
    """The namespace of all state that does not belong to a window."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "VOID"


NO_KEY: Final = _NoKey()
VOID: Final = _Void()
RESERVED_PREFIX: Final = "_timer."


class CurrentKey:
    """The key that state handles act on; the operator loop assigns the fields."""

    __slots__ = ("group", "key", "namespace")

    def __init__(self, group: int) -> None:
        """Start without a key, at a key group that the backend owns."""
        self.key: Any = NO_KEY
        self.group = group
        self.namespace: Any = VOID


class StateDeclaration(Protocol):
    """What a backend reads of a state descriptor.

    `value_type` is the type of the value, list element, map value or accumulator; `key_type` that
    of map keys. `function` is the reduce callable or the aggregate function.
    """

    kind: ClassVar[StateKind]
    name: str
    value_type: Any
    key_type: Any
    function: Any


class NamespaceMerging(Protocol):
    """What the handles of list, reducing and aggregating state can do for merging windows."""

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Move the current key's state of the source namespaces into the target namespace.

        What the target holds comes first, then the sources in the given order; afterwards the
        sources are empty.
        """


@dataclass(frozen=True)
class RestoreSource:
    """One old snapshot and the key groups to take from it.

    `states` is the operator's "keyed" part of the reader's footer.
    """

    reader: SnapshotReader
    states: Mapping[str, Mapping[str, Any]]
    key_groups: KeyGroupRange


class KeyedSnapshot(Protocol):
    """State as it was when `KeyedBackend.snapshot` was called."""

    checkpoint_id: int

    def write(self, writer: SnapshotWriter) -> dict[str, Any]:
        """Write the frozen state and return the operator's "keyed" footer part.

        Runs on any thread, at most once; later changes of the backend do not show.
        """

    def release(self) -> None:
        """Give the frozen layers back, on the backend's thread; also after a failed write."""


class KeyedBackend(Protocol):
    """Keyed state of one operator subtask."""

    current: CurrentKey
    key_groups: KeyGroupRange

    def state(self, declaration: StateDeclaration) -> State:
        """Return the handle of a state, the same one for the same name.

        Raises:
            UsageError: the name is in use with another kind or other types.
            IncompatibleStateError: the restored state has another kind or other types.
        """

    def snapshot(self, checkpoint_id: int) -> KeyedSnapshot:
        """Freeze the state in time proportional to states and key groups, not to entries."""

    def restore(self, sources: list[RestoreSource]) -> None:
        """Fill an empty backend; each key group that it owns comes from the sources that cover it.

        Bytes are checked now and decoded when the state is registered. State that is never
        registered is carried into later snapshots unchanged.
        """

    def keys(self, state_name: str, namespace: Any = None) -> Iterator[Any]:
        """Go through the keys that have an entry in a state (None: outside of namespaces)."""

    def size(self) -> int:
        """Count the entries of all registered states."""

    def approximate_bytes(self) -> int:
        """Estimate the memory of all entries from a sample."""

    def close(self) -> None:
        """Drop the state; the backend cannot be used afterwards."""
