"""The keyed backend SPI: working state of one operator subtask, addressed by key.

The address of an entry is (key group, key, namespace). One thread drives a backend; only
`KeyedSnapshot.write` runs on another. The operator loop sets `backend.current` directly before
each record and `current.key = NO_KEY` between epochs: access without a key raises, because
`NO_KEY` cannot be hashed, and so costs nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias

from weir.backend.kinds import StateKind
from weir.common.state import State
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.snapshot import FileHandle, SnapshotReader, SnapshotWriter

Keep: TypeAlias = Callable[[Any], bool]
"""Given a stored value, list element, map value or accumulator, tell whether it is to stay."""


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
NATIVE_PREFIX: Final = "_native."
"""Begins the names of footer entries that only the backend that wrote them understands."""


class CurrentKey:
    """The key that state handles act on; the operator loop assigns the fields."""

    __slots__ = ("group", "key", "namespace")

    def __init__(self, group: int) -> None:
        """Start without a key, at a key group that the backend owns."""
        self.key: Any = NO_KEY
        self.group = group
        self.namespace: Any = VOID


class StateCleanup(Protocol):
    """How entries of a state are dropped that are too old to be seen again."""

    full_snapshot: bool
    """Leave what is expired out of full snapshots."""

    def keep(self) -> Keep:
        """Return the filter as of now: what is returned later does not read the clock again."""

    def now_ms(self) -> int:
        """Return the timestamp for restored values that were stored without one."""


class StateDeclaration(Protocol):
    """What a backend reads of a state descriptor.

    `value_type` is the type of the value, list element, map value or accumulator; `key_type` that
    of map keys. `function` is the reduce callable or the aggregate function. `cleanup` is there
    when entries expire: then the stored values are `(value, timestamp)` pairs of `value_type`.
    """

    kind: ClassVar[StateKind]
    name: str
    value_type: Any
    key_type: Any
    function: Any
    cleanup: StateCleanup | None


class NamespaceMerging(Protocol):
    """What the handles of list, reducing and aggregating state can do for merging windows."""

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Move the current key's state of the source namespaces into the target namespace.

        What the target holds comes first, then the sources in the given order; afterwards the
        sources are empty.
        """


class SnapshotKind(enum.Enum):
    """What a checkpoint may consist of."""

    FULL = "FULL"
    """Everything in the checkpoint's own file, in the format that all backends read."""
    NATIVE = "NATIVE"
    """Everything, as files that may be the backend's own, none of them of another checkpoint."""
    INCREMENTAL = "INCREMENTAL"
    """Whatever is least to write: files of completed checkpoints of this job are referred to."""


class SharedFiles(Protocol):
    """Where one operator subtask puts files that several checkpoints may use; on any thread.

    Names are unique to the attempt. Who deletes a file: the checkpoint's abort, when it was made
    by a `KeyedSnapshot.write`; the last completed checkpoint that used it, once there was one;
    and its maker, when no checkpoint ever used it.
    """

    def write(self, fill: Callable[[SnapshotWriter], dict[str, Any]]) -> FileHandle:
        """Make a snapshot file, durable on return; `fill` returns the "keyed" footer part."""

    def upload(self, local: Path) -> FileHandle:
        """Copy a local file to the storage, durable on return."""

    def delete(self, handle: FileHandle) -> None:
        """Delete a file that no checkpoint refers to; failures are logged."""


class SnapshotOutput(NamedTuple):
    """Where a snapshot goes: the checkpoint's own file, and files that others may share."""

    writer: SnapshotWriter
    shared: SharedFiles


@dataclass(frozen=True)
class KeyedPart:
    """What a keyed snapshot amounts to.

    `states` is the "keyed" footer part of the checkpoint's own file. `layers` are shared
    snapshot files to read before it, oldest first; `attachments` are further files that `states`
    names. Both list files of this and of older checkpoints.
    """

    states: dict[str, Any]
    layers: tuple[FileHandle, ...] = ()
    attachments: tuple[FileHandle, ...] = ()


@dataclass(frozen=True)
class StateLayer:
    """One snapshot file with keyed state of an operator, and its "keyed" footer part."""

    reader: SnapshotReader
    states: Mapping[str, Mapping[str, Any]]
    handle: FileHandle | None = None


class RestoreFiles(Protocol):
    """The other files of a checkpoint that is being restored."""

    def download(self, handle: FileHandle, target: Path) -> None:
        """Copy a file to a local path; a wrong size or checksum is a `CorruptStateError`."""

    def lasting(self, handle: FileHandle) -> FileHandle:
        """Return the handle by which new checkpoints refer to a file, where they may.

        A handle that a backend wrote into a checkpoint is relative to that checkpoint's job.
        """


@dataclass(frozen=True)
class RestoreSource:
    """What one old subtask stored, and the key groups to take from it.

    `layers` are applied in order, the checkpoint's own file last. `stored` are all key groups
    inside. With `reusable`, checkpoints to come may refer to these files: they belong to this
    job, and stay as long as a checkpoint needs them.
    """

    layers: tuple[StateLayer, ...]
    key_groups: KeyGroupRange
    stored: KeyGroupRange
    files: RestoreFiles | None = None
    reusable: bool = False

    @classmethod
    def of(
        cls, reader: SnapshotReader, states: Mapping[str, Any], key_groups: KeyGroupRange
    ) -> RestoreSource:
        """Take key groups of a single file."""
        return cls((StateLayer(reader, states),), key_groups, key_groups)


class KeyedSnapshot(Protocol):
    """State as it was when `KeyedBackend.snapshot` was called."""

    checkpoint_id: int

    def write(self, out: SnapshotOutput) -> KeyedPart:
        """Write what has to be written, timers included.

        Runs on any thread, at most once; later changes of the backend do not show.
        """

    def release(self) -> None:
        """Give the frozen layers back, on the backend's thread; also after a failed write."""


class Timer(NamedTuple):
    """One timer that is due."""

    timestamp: int
    group: int
    key: Any
    namespace: Any


class Timers(Protocol):
    """The timers of one time domain of one operator subtask.

    A timer is (timestamp, key, namespace), registered once however often it is asked for. Timers
    fire in timestamp order; equal timestamps by key group.
    """

    def __len__(self) -> int:
        """Count the timers."""

    def register(self, timestamp: int, key: Any, group: int, namespace: Any = VOID) -> bool:
        """Add a timer; return False when it was there already.

        Raises:
            UsageError: the timestamp is not a 64-bit integer, or there is no key.
        """

    def register_all(
        self, timestamp: int, keys: Sequence[Any], groups: Sequence[int], namespace: Any = VOID
    ) -> None:
        """Add a timer for each of some keys, where there is none yet."""

    def register_group(self, timestamp: int, group: int, addresses: Sequence[Any]) -> None:
        """Add a timer for each of some addresses of a key group, where there is none yet."""

    def delete(self, timestamp: int, key: Any, group: int, namespace: Any = VOID) -> bool:
        """Remove a timer; return False when there was none."""

    def next_timestamp(self) -> int | None:
        """Return the timestamp of the next timer, None when there is none."""

    def pop_due(self, up_to_ms: int) -> Iterator[Timer]:
        """Remove and yield all timers up to a time, inclusive, one by one.

        Timers that are registered or deleted meanwhile, by the functions that the yielded ones
        call, are taken into account.
        """

    def pop_buckets(self, up_to_ms: int) -> Iterator[tuple[int, int, list[Any]]]:
        """Remove and yield all timers up to a time: a time and key group, and all addresses.

        Addresses (`weir.backend.address`) are in the order of registration. What is registered or
        deleted meanwhile may belong to later times only.
        """


class OneKeyState(Protocol):
    """What a backend can do besides whose settings say `one_key`."""

    def forget(self, group: int) -> None:
        """Drop state and timers of the only key that has any; its key group is told."""


class KeyedBackend(Protocol):
    """Keyed state and timers of one operator subtask."""

    current: CurrentKey
    key_groups: KeyGroupRange

    def state(self, declaration: StateDeclaration) -> State:
        """Return the handle of a state, the same one for the same name.

        Raises:
            UsageError: the name is in use with another kind or other types.
            IncompatibleStateError: the restored state has another kind or other key types, or
                its values do not migrate to the declared type.
        """

    def timers(self, name: str) -> Timers:
        """Return the timers of a time domain (`EVENT_TIMERS`, `PROCESSING_TIMERS`)."""

    def begin_stride(
        self,
        keys: Sequence[Any],
        groups: Sequence[int],
        numbers: tuple[Any, Any] | None = None,
    ) -> None:
        """Learn the keys of the records that come next, and their key groups.

        Where the keys are integers, `numbers` may give both once more, as arrays.

        Until `end_stride` states are used under these keys alone, outside of namespaces, and
        nothing but states is asked for; a stride that fails is not ended, and the backend is given
        up.
        """

    def end_stride(self) -> None:
        """Learn that these records are handled."""

    def snapshot(self, checkpoint_id: int, kind: SnapshotKind = SnapshotKind.FULL) -> KeyedSnapshot:
        """Freeze the state in time proportional to states and key groups, not to entries."""

    def restore(self, sources: list[RestoreSource]) -> None:
        """Fill an empty backend; each key group that it owns comes from the sources that cover it.

        Bytes are checked now and decoded when the state is registered. State that is never
        registered is carried into later snapshots unchanged.
        """

    def end_epoch(self) -> None:
        """Take note that an epoch is over: a good moment for work put off."""

    def notify_complete(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint exists: later ones may refer to its files."""

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint will never exist; its files are being deleted."""

    def sweep(self, state_name: str, keep: Keep, limit: int) -> int:
        """Pass up to `limit` entries of a state through a filter; return how many it were.

        Goes on where the last sweep of the state ended and starts over at the end. Elements that
        are not kept are removed, and with the last one the entry.
        """

    def keys(self, state_name: str, namespace: Any = None) -> Iterator[Any]:
        """Go through the keys that have an entry in a state (None: outside of namespaces)."""

    def addresses(self, state_name: str) -> Iterator[tuple[int, Any, Any]]:
        """Go through key group, key and namespace of all entries of a state, each once."""

    def size(self) -> int:
        """Count the entries of all registered states."""

    def approximate_size(self) -> int:
        """Tell about how many entries there are, in time that does not depend on the answer."""

    def approximate_bytes(self) -> int:
        """Estimate the memory of all entries from a sample."""

    def close(self) -> None:
        """Drop the state; the backend cannot be used afterwards."""
