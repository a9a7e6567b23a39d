"""A backend with a log of its changes: checkpoints are ready when the last changes are written.

The state is written as a whole now and then (materialised), beside checkpoints, and its changes
are logged at the end of every epoch. A checkpoint is the last materialisation and the log since.

Invariant: materialisation, log and what is not drained from the inner backend yet are together
exactly the state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from weir.backend.base import (
    Keep,
    KeyedPart,
    KeyedSnapshot,
    RestoreSource,
    SharedFiles,
    SnapshotKind,
    SnapshotOutput,
    StateDeclaration,
    Timers,
)
from weir.backend.chain import reusable_layers
from weir.backend.changelog.log import ChangeLog
from weir.backend.changelog.pieces import Piece, Usage
from weir.backend.changelog.settings import ChangelogSettings
from weir.backend.changes import ChangeSource
from weir.backend.context import BackgroundExecutor
from weir.backend.peek import Entries, Peekable, SeenState
from weir.clock import Clock
from weir.common.state import State
from weir.errors import StorageError, UsageError
from weir.snapshot import FileHandle, SnapshotWriter

_THREADS = 2


@dataclass(frozen=True)
class ChangelogPlace:
    """Where a changelog lives: files, time, settings, and the operator for messages."""

    shared: SharedFiles
    clock: Clock
    settings: ChangelogSettings
    operator: str = "operator"


@dataclass
class Base:
    """The whole state as of a cut of the log: layers, and one more that is being made.

    `frozen` is what that one is made from, until it is done.
    """

    cut: int = 0
    layers: tuple[FileHandle, ...] = ()
    piece: Piece | None = None
    frozen: KeyedSnapshot | None = None

    def make(self) -> tuple[FileHandle, ...]:
        """Return all layers, durable; on any thread."""
        return self.layers if self.piece is None else (*self.layers, self.piece.make())

    @property
    def pieces(self) -> list[Piece]:
        """Return the files that this backend made."""
        return [] if self.piece is None else [self.piece]

    def settled(self) -> bool:
        """Give back what was frozen once it is written or never will be; tell whether it is."""
        piece = self.piece
        if piece is not None and not piece.made and piece.error is None:
            return False
        self.release()
        return True

    def release(self) -> None:
        """Give back what was frozen."""
        if self.frozen is not None:
            self.frozen.release()
            self.frozen = None


class ChangelogBackend:
    """Logs the changes of another backend; see `weir.backend.base.KeyedBackend`.

    Handles and timers are those of the inner backend.
    """

    def __init__(
        self,
        inner: ChangeSource,
        place: ChangelogPlace,
        background: BackgroundExecutor | None = None,
    ) -> None:
        """Wrap an empty backend; `background` is for tests, otherwise there are two threads."""
        self.current = inner.current
        self.key_groups = inner.key_groups
        self._inner = inner
        self._place = place
        self._settings = place.settings
        self._background = background or ThreadPoolExecutor(_THREADS, "weir-changelog")
        self._log = ChangeLog(
            place.shared,
            attempts=place.settings.attempts,
            limit=place.settings.preemptive_bytes,
        )
        self._usage = Usage(self._background.submit)
        # Empty state is whole without any file. None: the next checkpoint writes all of it.
        self._base: Base | None = Base()
        self._next_base: Base | None = None
        self._materialized_ms = place.clock.monotonic_ms()
        self._materializations = 0
        self._failures = 0

    def state(self, declaration: StateDeclaration) -> State:
        """Return the handle of a state; see the inner backend."""
        return self._inner.state(declaration)

    def timers(self, name: str) -> Timers:
        """Return the timers of a time domain."""
        return self._inner.timers(name)

    def begin_stride(
        self,
        keys: Sequence[Any],
        groups: Sequence[int],
        numbers: tuple[Any, Any] | None = None,
    ) -> None:
        """Learn the keys of the records that come next."""
        self._inner.begin_stride(keys, groups, numbers)

    def end_stride(self) -> None:
        """Learn that these records are handled."""
        self._inner.end_stride()

    def end_epoch(self) -> None:
        """Log what the epoch changed, and take care of materialisation.

        Raises:
            StorageError: the state could not be written as a whole too many times in a row.
        """
        self._log_changes()
        self._inner.end_epoch()
        self._settle()
        if self._log.open_size >= self._settings.preemptive_bytes:
            self._usage.retire(self._log.close_segment())
            self._background.submit(self._log.segments[-1].piece.make)
        self._bound_memory()
        if self._is_due():
            self._materialized_ms = self._place.clock.monotonic_ms()
            self._next_base = base = self._materialize()
            self._background.submit(base.make)

    def _log_changes(self) -> None:
        changes = self._inner.drain()
        if changes is None:
            self._start_over()
        elif self._base is not None:
            self._log.append(changes)

    def _bound_memory(self) -> None:
        """Wait for the log when too much of it is in memory; do without it when that fails."""
        waiting = self._log.unwritten()
        size = sum(segment.size for segment in waiting)
        for segment in waiting:
            if size <= self._settings.in_flight_bytes:
                return
            try:
                segment.piece.make()
            except (OSError, StorageError):
                self._start_over()
                return
            size -= segment.size

    def _start_over(self) -> None:
        """Give the log up: the next checkpoint writes the whole state."""
        old = [base for base in (self._base, self._next_base) if base is not None]
        self._base = self._next_base = None
        for base in old:
            base.release()
        self._usage.retire([*self._log.clear(), *(p for base in old for p in base.pieces)])

    def _is_due(self) -> bool:
        interval, base = self._settings.materialize_ms, self._base
        if interval is None or base is None or base.frozen is not None or self._next_base:
            return False
        if not self._log.segments and not self._log.open_size:
            return False
        return self._place.clock.monotonic_ms() - self._materialized_ms >= interval

    def _materialize(self) -> Base:
        """Freeze the whole state at a cut of the log."""
        cut, replaced = self._log.cut()
        self._usage.retire(replaced)
        self._materializations += 1
        frozen = self._inner.snapshot_states(self._materializations)

        def fill(writer: SnapshotWriter) -> dict[str, Any]:
            return frozen.write(SnapshotOutput(writer, self._place.shared)).states

        piece = Piece(self._place.shared, fill, attempts=1, once=True)
        return Base(cut, (), piece, frozen)

    def _settle(self) -> None:
        """Go on with a materialisation that is done, or count one that failed."""
        base = self._base
        if base is not None and base.settled() and base.piece is not None and not base.piece.made:
            self._base = None
            self._usage.retire([*self._log.clear(), base.piece])
        new = self._next_base
        if new is None or new.piece is None or not new.settled():
            return
        self._next_base = None
        if new.piece.made:
            self._failures = 0
            old = [] if self._base is None else self._base.pieces
            self._base = new
            self._usage.retire([*old, *self._log.truncate(new.cut)])
            return
        self._usage.retire(new.pieces)
        self._failures += 1
        if self._failures >= self._settings.failures_max:
            msg = (
                f"the state of {self._place.operator!r} could not be written as a whole "
                f"{self._failures} times in a row, last: {new.piece.error}; look after the "
                f"storage of checkpoints"
            )
            raise StorageError(msg)

    def snapshot(self, checkpoint_id: int, kind: SnapshotKind = SnapshotKind.FULL) -> KeyedSnapshot:
        """Freeze timers and log what is not logged yet; a full snapshot is the inner backend's."""
        self._log_changes()
        if kind is not SnapshotKind.INCREMENTAL:
            return self._inner.snapshot(checkpoint_id, kind)
        self._settle()
        if self._base is None:
            self._base = self._materialize()
        self._usage.retire(self._log.close_segment())
        base, segments = self._base, [s.piece for s in self._log.segments]
        self._usage.taken(checkpoint_id, [*base.pieces, *segments])
        timers = self._inner.snapshot_timers(checkpoint_id)
        return ChangelogSnapshot(checkpoint_id, base, segments, timers)

    def restore(self, sources: list[RestoreSource]) -> None:
        """Fill the inner backend; go on with the restored layers if that is possible."""
        self._inner.restore(sources)
        if sources:
            layers = reusable_layers(sources, self.key_groups)
            self._base = None if layers is None else Base(0, layers)

    def notify_complete(self, checkpoint_id: int) -> None:
        """Leave the files of this checkpoint to the checkpoints."""
        self._inner.notify_complete(checkpoint_id)
        self._usage.completed(checkpoint_id)

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Delete files that only this checkpoint still used."""
        self._inner.notify_aborted(checkpoint_id)
        self._usage.aborted(checkpoint_id)

    def sweep(self, state_name: str, keep: Keep, limit: int) -> int:
        """Pass up to `limit` entries of a state through a filter; return how many it were."""
        return self._inner.sweep(state_name, keep, limit)

    def keys(self, state_name: str, namespace: Any = None) -> Iterator[Any]:
        """Go through the keys that have an entry in a state."""
        return self._inner.keys(state_name, namespace)

    def addresses(self, state_name: str) -> Iterator[tuple[int, Any, Any]]:
        """Go through key group, key and namespace of all entries of a state."""
        return self._inner.addresses(state_name)

    def seen_states(self) -> list[SeenState]:
        """Return the registered and the restored states of the inner backend."""
        return self._peekable().seen_states()

    def peek(self, name: str, group: int, keys: Collection[Any], *, spaced: bool) -> Entries:
        """Return the entries of some keys of the inner backend."""
        return self._peekable().peek(name, group, keys, spaced=spaced)

    def peek_group(self, name: str, group: int) -> Entries:
        """Return all entries of a key group of the inner backend."""
        return self._peekable().peek_group(name, group)

    def _peekable(self) -> Peekable:
        if isinstance(self._inner, Peekable):
            return self._inner
        msg = (
            f"the state backend of {self._place.operator!r} cannot be looked at while it runs: ask "
            "for committed state, or let the backend fulfil weir.backend.peek.Peekable"
        )
        raise UsageError(msg)

    def size(self) -> int:
        """Count the entries of all registered states."""
        return self._inner.size()

    def approximate_size(self) -> int:
        """Tell about how many entries there are."""
        return self._inner.approximate_size()

    def approximate_bytes(self) -> int:
        """Estimate the memory of all entries and of the log."""
        log = sum(s.size for s in self._log.unwritten()) + self._log.open_size
        return self._inner.approximate_bytes() + log

    def close(self) -> None:
        """Begin no more work in the background and drop the state; waits for nothing."""
        self._background.shutdown(wait=False, cancel_futures=True)
        for base in (self._base, self._next_base):
            if base is not None:
                base.release()
        self._inner.close()


class ChangelogSnapshot:
    """Whole state, log, and timers; see `weir.backend.base.KeyedSnapshot`."""

    def __init__(
        self, checkpoint_id: int, base: Base, segments: list[Piece], timers: KeyedSnapshot
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self._base = base
        self._segments = segments
        self._timers = timers

    def write(self, out: SnapshotOutput) -> KeyedPart:
        """Make what is not durable yet; timers go into the checkpoint's own file.

        Raises:
            StorageError: a file cannot be made: the checkpoint has to be declined.
        """
        layers = (*self._base.make(), *(piece.make() for piece in self._segments))
        return KeyedPart(self._timers.write(out).states, layers)

    def release(self) -> None:
        """Give the timers back; the rest is of use to later checkpoints."""
        self._timers.release()
