"""Committed state: the last completed checkpoint, read from its files without any slot.

It is there as long as the driver is, also while the job fails over or rescales. A checkpoint that
is deleted while it is read is left for the newer one that replaced it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pyarrow.compute as pc

from weir.backend.address import address_of
from weir.backend.base import VOID
from weir.checkpoint.metadata import CheckpointMetadata
from weir.checkpoint.paths import is_uri
from weir.checkpoint.store import load_checkpoint
from weir.errors import CorruptStateError, StorageError, UsageError
from weir.jobmanager.queries import QueryError, QueryRefusedError, StateUnavailableError
from weir.jobmanager.supervisor import Supervisor
from weir.keygroup import KeyGroupRange
from weir.offline.contents import SnapshotContents
from weir.offline.keyed import KeyedTable, entries_batch
from weir.offline.opened import OpenSnapshot, open_snapshot
from weir.offline.tables import TTL_TIMESTAMP
from weir.queryable.catalog import KnownState

_TRIES: Final = 3
_ENTRIES_KEPT: Final = 500_000
T = TypeVar("T")
Addressed = dict[Any, dict[Any, Any]]
"""What is stored by key, then by address."""


@dataclass
class OpenedCheckpoint:
    """A checkpoint that is open: its tables, and key groups that were decoded lately."""

    contents: SnapshotContents
    _tables: dict[tuple[str, str], KeyedTable | None] = field(default_factory=dict)
    _groups: OrderedDict[tuple[str, str, int], Addressed] = field(default_factory=OrderedDict)

    @property
    def metadata(self) -> CheckpointMetadata:
        """Everything there is to know about the checkpoint."""
        return self.contents.snapshot.metadata

    def table(self, state: KnownState) -> KeyedTable | None:
        """Return the table of a state, None when the checkpoint holds nothing of it."""
        at = (state.operator.id, state.described.name)
        if at not in self._tables:
            operators = {op.id for op in self.metadata.operators}
            try:
                found = self.contents.keyed_state(*at) if at[0] in operators else None
            except UsageError:
                found = None  # no record had led to it by then
            self._tables[at] = None if found is None else found.prepared()
        return self._tables[at]

    def group(self, state: KnownState, group: int) -> Addressed:
        """Return the entries of a key group by key."""
        at = (state.operator.id, state.described.name, group)
        found = self._groups.pop(at, None)
        if found is None:
            found = {}
            table = self.table(state)
            entries = () if table is None else table.entries(KeyGroupRange(group, group))
            for entry in entries:
                space = VOID if entry.namespace is None else entry.namespace
                found.setdefault(entry.key, {})[address_of(entry.key, space)] = entry.value
        self._groups[at] = found
        while sum(map(len, self._groups.values())) > _ENTRIES_KEPT and len(self._groups) > 1:
            self._groups.popitem(last=False)
        return found


class CommittedReader:
    """Reads the last completed checkpoint of a job; thread-safe, one caller at a time."""

    def __init__(self, job: Supervisor) -> None:
        self._job = job
        self._lock = threading.RLock()
        self._opened: tuple[int, OpenedCheckpoint] | None = None

    def keys(
        self, state: KnownState, wanted: Mapping[int, Collection[Any]]
    ) -> tuple[list[Any], CheckpointMetadata]:
        """Return the rows of keys, given by key group, and the checkpoint that they are of.

        Raises:
            QueryError: there is no checkpoint that can be read.
        """

        def read(opened: OpenedCheckpoint) -> list[Any]:
            batches = []
            for group, keys in sorted(wanted.items()):
                by_key = opened.group(state, group)
                entries = {a: v for key in keys for a, v in by_key.get(key, {}).items()}
                if entries:
                    batches.append(entries_batch(state.layout, group, entries))
            return self.unexpired(state, opened.metadata, batches)

        return self._with_newest(state, read)

    def batches(self, state: KnownState) -> tuple[Iterator[Any], CheckpointMetadata]:
        """Return all rows of a state in batches, and the checkpoint that they are of.

        Raises:
            QueryError: there is no checkpoint that can be read.
        """

        def read(opened: OpenedCheckpoint) -> Iterator[Any]:
            table = opened.table(state)
            found = iter(()) if table is None else table.batches()
            return self._streamed(state, opened.metadata, found)

        return self._with_newest(state, read)

    def _streamed(
        self, state: KnownState, metadata: CheckpointMetadata, batches: Iterator[Any]
    ) -> Iterator[Any]:
        try:
            while True:
                with self._lock:
                    batch = next(batches, None)
                if batch is None:
                    return
                yield from self.unexpired(state, metadata, [batch])
        except (StorageError, CorruptStateError, UsageError) as error:
            raise self._unreadable(state, error) from error

    def newest(self) -> CheckpointMetadata | None:
        """Return the last completed checkpoint, None before the first one."""
        with self._lock:
            try:
                return self._open().metadata
            except QueryError:
                return None

    def unexpired(
        self, state: KnownState, metadata: CheckpointMetadata, batches: list[Any]
    ) -> list[Any]:
        """Leave out what is expired by now, or by the watermark of the checkpoint."""
        ttl_ms = state.described.ttl_ms
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

    def _with_newest(
        self, state: KnownState, read: Callable[[OpenedCheckpoint], T]
    ) -> tuple[T, CheckpointMetadata]:
        with self._lock:
            for left in reversed(range(_TRIES)):
                opened = self._open()
                try:
                    return read(opened), opened.metadata
                except (StorageError, CorruptStateError, UsageError) as error:
                    self._opened = None
                    newer = self._newest_id() != opened.metadata.checkpoint_id
                    if not (left and newer):
                        raise self._unreadable(state, error) from error
        msg = f"committed state {state.name!r} cannot be read: checkpoints come and go too fast"
        raise StateUnavailableError(msg)

    @staticmethod
    def _unreadable(state: KnownState, error: Exception) -> QueryError:
        if isinstance(error, UsageError):
            return QueryRefusedError(f"state {state.name!r} cannot be shown: {error}")
        msg = f"committed state {state.name!r} cannot be read: {error}"
        return StateUnavailableError(msg)

    def _newest_id(self) -> int | None:
        refs = list(self._job.checkpoints.coordinator.completed)
        return max((ref.checkpoint_id for ref in refs), default=None)

    def _open(self) -> OpenedCheckpoint:
        """Return the newest checkpoint, opened once.

        Raises:
            StateUnavailableError: there is none, or it cannot be opened.
        """
        refs = list(self._job.checkpoints.coordinator.completed)
        newest = max(refs, key=lambda ref: ref.checkpoint_id, default=None)
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
        if self._opened is None or self._opened[0] != number:
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


def _watermark(metadata: CheckpointMetadata, operator_id: str) -> int | None:
    """Return how far an operator was in event time, None before its beginning."""
    operator = next((op for op in metadata.operators if op.id == operator_id), None)
    marks = [] if operator is None else [subtask.watermark for subtask in operator.subtasks]
    known = [mark for mark in marks if mark is not None]
    return min(known) if known and len(known) == len(marks) else None
