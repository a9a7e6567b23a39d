"""What people may know about the checkpoints of a job: counts, and the last ones in detail.

Fed by the checkpoint runner, read by REST, metrics and tests. Times are wall-clock milliseconds,
durations are milliseconds, sizes are bytes. Nothing decides by what is remembered here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from weir.common._html import table
from weir.jobmanager.epoch_times import Spread
from weir.slot.messages import Acknowledge, OperatorShare

REMEMBERED: Final = 100
Status = Literal["IN_PROGRESS", "COMPLETED", "FAILED"]


_SHOWN = 10


@dataclass(frozen=True)
class SubtaskEntry:
    """What one slot said about its share.

    `written` is what this checkpoint had to write, `size` everything that it refers to. `operators`
    are the bytes written for each operator, by id, `states` the names of its states. Rows in flight
    are there when the barrier overtook them. `reused` is what of the size lies in files of earlier
    checkpoints, `state_sizes` the size by operator and state; under the name "" are files whose
    states are not told apart.
    """

    subtask: int
    ack_ms: int
    sync_ms: float = 0.0
    async_ms: float = 0.0
    written: int = 0
    size: int = 0
    operators: Mapping[str, int] = field(default_factory=dict)
    in_flight_bytes: int = 0
    in_flight_records: int = 0
    states: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reused: int = 0
    state_sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckpointEntry:
    """One checkpoint or savepoint, under way or over.

    `overtook` tells that its barrier overtook rows. `path` is where it is, once it is complete;
    `discarded` that it has been deleted since.
    """

    checkpoint_id: int
    trigger_ms: int
    num_subtasks: int
    is_savepoint: bool = False
    savepoint_format: str | None = None
    status: Status = "IN_PROGRESS"
    overtook: bool = False
    acks: Mapping[int, SubtaskEntry] = field(default_factory=dict)
    duration_ms: int = 0
    path: str | None = None
    discarded: bool = False
    failure: str | None = None
    failure_ms: int | None = None

    @property
    def written(self) -> int:
        """Return the bytes that this checkpoint had to write."""
        return sum(ack.written for ack in self.acks.values())

    @property
    def size(self) -> int:
        """Return the bytes that the checkpoint refers to."""
        return sum(ack.size for ack in self.acks.values())

    @property
    def reused(self) -> int:
        """Return the bytes in files of earlier checkpoints; a full checkpoint has none."""
        return sum(ack.reused for ack in self.acks.values())

    def state_sizes(self) -> dict[tuple[str, str], int]:
        """Return the bytes of all subtasks by operator and state."""
        found: dict[tuple[str, str], int] = {}
        for ack in self.acks.values():
            for operator, sizes in ack.state_sizes.items():
                for state, size in sizes.items():
                    found[operator, state] = found.get((operator, state), 0) + size
        return found

    @property
    def in_flight_bytes(self) -> int:
        """Return the bytes of rows that the barrier overtook."""
        return sum(ack.in_flight_bytes for ack in self.acks.values())

    @property
    def latest_ack_ms(self) -> int:
        """Return when the last slot acknowledged; the trigger while none has."""
        return max((ack.ack_ms for ack in self.acks.values()), default=self.trigger_ms)


@dataclass(frozen=True)
class RestoredEntry:
    """What the job started from, or was restored from after a failure."""

    checkpoint_id: int
    restored_ms: int
    is_savepoint: bool
    path: str


@dataclass(frozen=True)
class HistoryView:
    """Everything remembered at one moment; entries newest first.

    `durations` are those of all checkpoints that completed, also of those long forgotten.
    """

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    restored: int = 0
    latest_restored: RestoredEntry | None = None
    entries: tuple[CheckpointEntry, ...] = ()
    durations: Spread = field(default_factory=Spread)

    @property
    def in_progress(self) -> int:
        """Count the checkpoints that are under way."""
        return sum(entry.status == "IN_PROGRESS" for entry in self.entries)

    def latest(self, status: Status, *, savepoint: bool | None = None) -> CheckpointEntry | None:
        """Return the newest entry of a status; only savepoints, only checkpoints, or both."""
        for entry in self.entries:
            if entry.status == status and savepoint in (None, entry.is_savepoint):
                return entry
        return None

    def states(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the states of each operator, as the newest checkpoint has them."""
        newest = self.latest("COMPLETED")
        found: dict[str, set[str]] = {}
        for ack in () if newest is None else newest.acks.values():
            for operator, names in ack.states.items():
                found.setdefault(operator, set()).update(names)
        return {operator: tuple(sorted(names)) for operator, names in found.items()}

    def _repr_html_(self) -> str:
        """Show a notebook the newest checkpoints and savepoints."""
        rows = [
            (
                entry.checkpoint_id,
                "savepoint" if entry.is_savepoint else "checkpoint",
                entry.status,
                f"{entry.duration_ms} ms",
                f"{entry.size:,} bytes",
                entry.path,
            )
            for entry in self.entries[:_SHOWN]
        ]
        head = ("id", "kind", "status", "duration", "size", "path")
        return table(head, rows) if rows else "no checkpoint yet"

    def find(self, checkpoint_id: int) -> CheckpointEntry | None:
        """Return a checkpoint that is still remembered."""
        return next((e for e in self.entries if e.checkpoint_id == checkpoint_id), None)


class CheckpointHistory:
    """The checkpoints of one job; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, CheckpointEntry] = OrderedDict()
        self._view = HistoryView()

    def view(self) -> HistoryView:
        """Return everything that is remembered now."""
        with self._lock:
            return replace(self._view, entries=tuple(reversed(self._entries.values())))

    def triggered(self, entry: CheckpointEntry) -> None:
        """A barrier was sent."""
        with self._lock:
            self._entries[entry.checkpoint_id] = entry
            while len(self._entries) > REMEMBERED:
                self._entries.popitem(last=False)
            self._view = replace(self._view, triggered=self._view.triggered + 1)

    def overtook(self, checkpoint_id: int) -> None:
        """The barrier overtook rows."""
        self._change(checkpoint_id, overtook=True)

    def acknowledged(self, checkpoint_id: int, ack: SubtaskEntry) -> None:
        """A slot finished its share."""
        with self._lock:
            entry = self._entries.get(checkpoint_id)
            if entry is not None:
                acks = {**entry.acks, ack.subtask: ack}
                self._entries[checkpoint_id] = replace(entry, acks=acks)

    def in_flight(self, checkpoint_id: int, rows: Mapping[int, tuple[int, int]]) -> None:
        """Rows of these subtasks are part of the checkpoint: records and bytes; no others are."""
        with self._lock:
            entry = self._entries.get(checkpoint_id)
            if entry is None:
                return
            acks = {}
            for subtask, ack in entry.acks.items():
                records, size = rows.get(subtask, (0, 0))
                acks[subtask] = replace(ack, in_flight_records=records, in_flight_bytes=size)
            self._entries[checkpoint_id] = replace(entry, acks=acks)

    def completed(self, checkpoint_id: int, duration_ms: int, path: str) -> None:
        """The checkpoint exists."""
        with self._lock:
            self._view = replace(
                self._view,
                completed=self._view.completed + 1,
                durations=self._view.durations.with_one(duration_ms),
            )
        self._change(checkpoint_id, status="COMPLETED", duration_ms=duration_ms, path=path)

    def failed(self, checkpoint_id: int, now_ms: int, reason: str) -> None:
        """The checkpoint will never exist."""
        with self._lock:
            self._view = replace(self._view, failed=self._view.failed + 1)
            entry = self._entries.get(checkpoint_id)
        since = now_ms if entry is None else entry.trigger_ms
        self._change(
            checkpoint_id,
            status="FAILED",
            duration_ms=now_ms - since,
            failure=reason,
            failure_ms=now_ms,
        )

    def discarded(self, checkpoint_id: int) -> None:
        """The checkpoint was deleted."""
        self._change(checkpoint_id, discarded=True)

    def restored(self, entry: RestoredEntry) -> None:
        """An execution attempt starts from a checkpoint."""
        with self._lock:
            count = self._view.restored + 1
            self._view = replace(self._view, restored=count, latest_restored=entry)

    def _change(self, checkpoint_id: int, **changes: object) -> None:
        with self._lock:
            entry = self._entries.get(checkpoint_id)
            if entry is not None:
                self._entries[checkpoint_id] = replace(entry, **changes)  # type: ignore[arg-type]


def subtask_entry(message: Acknowledge, now_ms: int) -> SubtaskEntry:
    """Return what an acknowledgement says about a slot's share of a checkpoint."""
    own = [] if message.file is None else [message.file]
    refers = {h.path: h.size for p in message.operators for h in (*p.layers, *p.attachments)}
    rows = message.in_flight
    return SubtaskEntry(
        subtask=message.subtask,
        ack_ms=now_ms,
        sync_ms=message.sync_ms,
        async_ms=message.async_ms,
        written=sum(handle.size for handle in (*own, *message.created)),
        size=sum(handle.size for handle in own) + sum(refers.values()),
        operators={part.operator: part.size for part in message.operators},
        in_flight_bytes=0 if rows is None else rows.size,
        in_flight_records=0 if rows is None else rows.records,
        states={
            part.operator: (*part.keyed_states, *part.operator_states)
            for part in message.operators
            if part.keyed_states or part.operator_states
        },
        reused=sum(part.reused_size for part in message.operators),
        state_sizes={part.operator: sizes for part in message.operators if (sizes := _sizes(part))},
    )


def _sizes(part: OperatorShare) -> dict[str, int]:
    return part.state_sizes | ({"": part.other_size} if part.other_size else {})
