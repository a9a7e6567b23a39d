"""Committed state: the last completed checkpoint, read from its files without any slot.

It is there as long as the driver is, also while the job fails over or rescales. A checkpoint that
is read is held (`weir.checkpoint.held`), so that newer ones do not take its files away: reading may
take longer than the interval of checkpoints, and several states are read as of one moment.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

import pyarrow.compute as pc

from weir.backend.address import address_of
from weir.backend.base import VOID
from weir.checkpoint.held import LEASE_MS, Hold
from weir.checkpoint.metadata import CheckpointMetadata
from weir.checkpoint.paths import is_uri
from weir.checkpoint.retention import CheckpointRef
from weir.checkpoint.store import load_checkpoint
from weir.errors import CorruptStateError, StorageError, UsageError
from weir.jobmanager.queries import QueryRefusedError, StateUnavailableError
from weir.jobmanager.supervisor import Supervisor
from weir.keygroup import KeyGroupRange
from weir.offline.contents import SnapshotContents
from weir.offline.keyed import KeyedTable, entries_batch
from weir.offline.opened import OpenSnapshot, open_snapshot
from weir.offline.tables import TTL_TIMESTAMP
from weir.queryable.catalog import KnownState

_TRIES: Final = 3
_BYTES_KEPT: Final = 128 << 20
# Python objects have some times the bytes of their encoded form, and dicts their own.
_OBJECT_FACTOR: Final = 4
_ENTRY_BYTES: Final = 300
_SAMPLE: Final = 64
T = TypeVar("T")
Addressed = dict[Any, dict[Any, Any]]
"""What is stored by key, then by address."""


@dataclass
class OpenedCheckpoint:
    """A checkpoint that is open: its tables, and key groups that were decoded lately.

    Of these about `bytes_kept` are kept, and always the last one. Thread-safe; files are read by
    all callers at the same time.
    """

    contents: SnapshotContents
    bytes_kept: int = _BYTES_KEPT
    _tables: dict[tuple[str, str], KeyedTable | None] = field(default_factory=dict)
    _preparing: dict[tuple[str, str], threading.Lock] = field(default_factory=dict)
    _groups: OrderedDict[tuple[str, str, int], tuple[Addressed, int]] = field(
        default_factory=OrderedDict
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def metadata(self) -> CheckpointMetadata:
        """Everything there is to know about the checkpoint."""
        return self.contents.snapshot.metadata

    def table(self, state: KnownState) -> KeyedTable | None:
        """Return the table of a state, None when the checkpoint holds nothing of it."""
        at = (state.operator.id, state.described.name)
        with self._lock:
            if at in self._tables:
                return self._tables[at]
            mine = self._preparing.setdefault(at, threading.Lock())
        # Files of a database are looked through once, and nobody who reads another state waits.
        with mine:
            with self._lock:
                if at in self._tables:
                    return self._tables[at]
                found = self._stored(at)
            table = None if found is None else found.prepared()
            with self._lock:
                self._tables[at] = table
            return table

    def _stored(self, at: tuple[str, str]) -> KeyedTable | None:
        if at[0] not in {op.id for op in self.metadata.operators}:
            return None
        try:
            return self.contents.keyed_state(*at)
        except UsageError:
            return None  # no record had led to it by then

    def group(self, state: KnownState, group: int) -> Addressed:
        """Return the entries of a key group by key."""
        at = (state.operator.id, state.described.name, group)
        with self._lock:
            known = self._groups.pop(at, None)
            if known is not None:
                self._groups[at] = known
                return known[0]
        found: Addressed = {}
        table = self.table(state)
        entries = () if table is None else table.entries(KeyGroupRange(group, group))
        for entry in entries:
            space = VOID if entry.namespace is None else entry.namespace
            found.setdefault(entry.key, {})[address_of(entry.key, space)] = entry.value
        size = 0 if table is None else _size_of(table, found)
        with self._lock:
            self._groups[at] = found, size
            while sum(n for _, n in self._groups.values()) > self.bytes_kept:
                if len(self._groups) == 1:
                    break
                self._groups.popitem(last=False)
        return found


class PinnedCheckpoint:
    """A checkpoint that stays while it is read: all that is read from it is of one moment."""

    def __init__(
        self, reader: CommittedReader, opened: OpenedCheckpoint, hold: Hold | None
    ) -> None:
        self.opened = opened
        self._reader = reader
        self._hold = hold

    @property
    def metadata(self) -> CheckpointMetadata:
        """Everything there is to know about the checkpoint."""
        return self.opened.metadata

    def keys(self, state: KnownState, wanted: Mapping[int, Collection[Any]]) -> Iterator[Any]:
        """Yield the rows of keys, given by key group.

        Raises:
            QueryError: it cannot be read, or not be shown.
        """
        with self._read(state):
            self.opened.table(state)
            for group, keys in sorted(wanted.items()):
                self.renew()  # it may have taken a while until here
                by_key = self.opened.group(state, group)
                entries = {a: v for key in keys for a, v in by_key.get(key, {}).items()}
                if entries:
                    batch = entries_batch(state.layout, group, entries)
                    yield from self._reader.unexpired(state, self.metadata, [batch])

    def batches(self, state: KnownState) -> Iterator[Any]:
        """Yield all rows of a state, in batches.

        Raises:
            QueryError: it cannot be read, or not be shown.
        """
        with self._read(state):
            table = self.opened.table(state)
            self.renew()
            for batch in () if table is None else table.batches():
                yield from self._reader.unexpired(state, self.metadata, [batch])
                self.renew()

    def renew(self) -> None:
        """Hold it some time longer."""
        if self._hold is not None:
            self._hold.renew()

    @contextmanager
    def _read(self, state: KnownState) -> Iterator[None]:
        try:
            yield
        except UsageError as error:
            msg = f"state {state.name!r} cannot be shown: {error}"
            raise QueryRefusedError(msg) from error
        except (StorageError, CorruptStateError) as error:
            self._reader.forget(self.opened)
            number = self.metadata.checkpoint_id
            msg = f"committed state {state.name!r} of checkpoint {number} cannot be read: {error}"
            raise StateUnavailableError(msg) from error


class CommittedReader:
    """Reads the last completed checkpoint of a job; thread-safe."""

    def __init__(self, job: Supervisor, lease_ms: int = LEASE_MS) -> None:
        """Read for so long between two renewals of a hold."""
        self._job = job
        self._lease_ms = lease_ms
        self._lock = threading.RLock()
        self._opened: tuple[int, OpenedCheckpoint] | None = None

    @contextmanager
    def pinned(self) -> Iterator[PinnedCheckpoint]:
        """Open the newest checkpoint, which stays until the end of the context.

        Raises:
            StateUnavailableError: there is none, or it cannot be opened.
        """
        newest, hold = self._hold()
        try:
            yield PinnedCheckpoint(self, self._open(newest), hold)
        finally:
            if hold is not None:
                hold.release()

    def read(self, what: Callable[[PinnedCheckpoint], T]) -> T:
        """Return what is read from the newest checkpoint; from a newer one where it is lost.

        Raises:
            QueryError: there is no checkpoint that can be read.
        """
        left = _TRIES
        while True:
            left -= 1
            with self.pinned() as pinned:
                try:
                    return what(pinned)
                except StateUnavailableError:
                    if not left or self._newest_id() == pinned.metadata.checkpoint_id:
                        raise

    def forget(self, opened: OpenedCheckpoint) -> None:
        """Open a checkpoint anew the next time: something of it could not be read."""
        with self._lock:
            if self._opened is not None and self._opened[1] is opened:
                self._opened = None

    def unexpired(
        self, state: KnownState, metadata: CheckpointMetadata, batches: list[Any]
    ) -> list[Any]:
        """Leave out what is expired by now, or by the watermark of the checkpoint.

        Raises:
            StateUnavailableError: the program has not said yet what is.
        """
        ttl_ms = state.described.ttl_ms
        if state.described.restored and state.layout.expires:
            msg = (
                f"state {state.name!r} was restored, and what of it is expired is not known before "
                "the program asks for it with its time to live: ask again in a moment"
            )
            raise StateUnavailableError(msg)
        if ttl_ms is None:
            return batches
        if state.described.event_time:
            now = _watermark(metadata, state.operator.id)
            if now is None:
                return batches
        else:
            now = self._job.clock.now_ms()
        limit = now - ttl_ms
        left = [b.filter(pc.greater(b.column(TTL_TIMESTAMP), limit)) for b in batches]
        return [batch for batch in left if batch.num_rows]

    def _newest(self) -> CheckpointRef | None:
        refs = list(self._job.checkpoints.coordinator.completed)
        return max(refs, key=lambda ref: ref.checkpoint_id, default=None)

    def _newest_id(self) -> int | None:
        newest = self._newest()
        return None if newest is None else newest.checkpoint_id

    def _hold(self) -> tuple[CheckpointRef | None, Hold | None]:
        """Hold the newest checkpoint of the job; what it started from is not its to delete."""
        for _ in range(_TRIES):
            newest = self._newest()
            if newest is None:
                return None, None
            hold = self._job.restoration.held.take(newest.checkpoint_id, self._lease_ms)
            if hold is not None:
                return newest, hold
        msg = "checkpoints come and go too fast to be read: keep more of them (num-retained)"
        raise StateUnavailableError(msg)

    def _open(self, newest: CheckpointRef | None) -> OpenedCheckpoint:
        """Return a checkpoint, opened once; without one it is what the job started from.

        Raises:
            StateUnavailableError: there is none, or it cannot be opened.
        """
        point = self._job.restoration.point
        if newest is not None:
            number, uri, directory = newest.checkpoint_id, "", newest.directory
        elif point is not None:
            number, uri = point.metadata.checkpoint_id, point.storage_uri
            directory = point.directory
        else:
            msg = (
                "no checkpoint of the job is complete yet: ask for live state, or again when "
                "there is one"
            )
            raise StateUnavailableError(msg)
        with self._lock:
            if self._opened is not None and self._opened[0] == number:
                return self._opened[1]
            try:
                found = self._snapshot(uri, directory)
            except (StorageError, CorruptStateError, UsageError) as error:
                msg = f"checkpoint {number} cannot be opened: {error}"
                raise StateUnavailableError(msg) from error
            self._opened = (number, OpenedCheckpoint(SnapshotContents(found)))
            return self._opened[1]

    def _snapshot(self, uri: str, directory: str) -> OpenSnapshot:
        """Open a checkpoint on the job's storage, or on another one."""
        storage, options = self._job.spec.storage, self._job.settings.storage
        if is_uri(directory):
            return open_snapshot(directory, options)
        if uri not in ("", storage.uri):
            return open_snapshot(f"{uri}/{directory}", options)
        return OpenSnapshot(storage, directory, load_checkpoint(storage, directory))


def _size_of(table: KeyedTable, entries: Addressed) -> int:
    """Estimate the memory of decoded entries from some of them."""
    every = ((address, stored) for own in entries.values() for address, stored in own.items())
    sample = list(islice(every, _SAMPLE))
    if not sample:
        return 0
    data = table.layout.format.encode([a for a, _ in sample], [s for _, s in sample])
    one = _ENTRY_BYTES + _OBJECT_FACTOR * len(data) // len(sample)
    return one * sum(map(len, entries.values()))


def _watermark(metadata: CheckpointMetadata, operator_id: str) -> int | None:
    """Return how far an operator was in event time, None before its beginning."""
    operator = next((op for op in metadata.operators if op.id == operator_id), None)
    marks = [] if operator is None else [subtask.watermark for subtask in operator.subtasks]
    known = [mark for mark in marks if mark is not None]
    return min(known) if known and len(known) == len(marks) else None
