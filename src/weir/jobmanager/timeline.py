"""How a job was over time: a bounded number of points, and what happened when.

A pure value over observations: it has no clock, no thread and no effect on the job. The newest
points are a second apart; older ones are merged in pairs again and again, so that a job of any age
takes the same memory. What happened is found by comparing two observations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from weir.jobmanager.epoch_times import EpochTimesView
from weir.jobmanager.history import CheckpointEntry, HistoryView

STEP_MS: Final = 1_000
POINTS: Final = 600
EVENTS: Final = 200
TEXT_CHARS: Final = 500
MARK_MIN: Final = -(2**62)
MARK_MAX: Final = 2**62
EventKind = Literal["restart", "rescale", "savepoint", "checkpoint failed", "status"]


@dataclass(frozen=True)
class SlotObservation:
    """What a slot has used so far; processor and busy time count since it began."""

    subtask: int
    memory_bytes: int = 0
    cpu_ms: int = 0
    busy_ms: int = 0


@dataclass(frozen=True)
class Observation:
    """A job at one moment; records count since its attempt began."""

    now_ms: int
    status: str
    attempt: int = 0
    parallelism: int = 1
    records_in: int = 0
    records_out: int = 0
    state_entries: int = 0
    watermark: int | None = None
    epochs: EpochTimesView = field(default_factory=EpochTimesView)
    slots: tuple[SlotObservation, ...] = ()
    history: HistoryView = field(default_factory=HistoryView)
    failure: str = ""


@dataclass(frozen=True)
class SlotPoint:
    """A slot in a stretch of time: shares of one processor, and of the time."""

    subtask: int
    memory_bytes: int
    cpu: float
    busy: float


@dataclass(frozen=True)
class Point:
    """A stretch of time that ends at `at_ms`: what was counted in it, and how things were then.

    `epoch_ms` is the longest epoch that was seen, of which Spark, level 0, shuffles and slots took
    the next ones. `commit_ms` is how long the last commit took that ended in it, and `latency_ms`
    the longest time from reading to it. `lag_ms` is how far the watermark was behind the clock. All
    of them are None without one.
    """

    at_ms: int
    span_ms: int
    records_in: int = 0
    records_out: int = 0
    epochs: int = 0
    epoch_ms: int | None = None
    slot_ms: int | None = None
    state_entries: int = 0
    state_bytes: int = 0
    lag_ms: int | None = None
    slots: tuple[SlotPoint, ...] = ()
    level_0_ms: int | None = None
    spark_ms: int | None = None
    shuffle_ms: int | None = None
    commit_ms: int | None = None
    latency_ms: int | None = None


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    at_ms: int
    kind: EventKind
    text: str


@dataclass(frozen=True)
class TimelineView:
    """Points of the last minutes, points of the whole life of the job, and events."""

    recent: tuple[Point, ...] = ()
    whole: tuple[Point, ...] = ()
    events: tuple[Event, ...] = ()


class Timeline:
    """Takes observations of one job; not thread-safe, one thread observes and reads."""

    def __init__(self, points: int = POINTS, step_ms: int = STEP_MS) -> None:
        self._most = points
        self._step_ms = step_ms
        self._coarse_ms = step_ms
        self._before: Observation | None = None
        self._recent: deque[Point] = deque(maxlen=points)
        self._whole: list[Point] = []
        self._pending: Point | None = None
        self._events: deque[Event] = deque(maxlen=EVENTS)

    def observe(self, now: Observation) -> None:
        """Take an observation; one that comes too soon after the last one adds no point."""
        before = self._before
        if before is None:
            self._before = now
            return
        ended = now.status != before.status
        # Whoever observes once a step is sometimes a little early.
        if now.now_ms - before.now_ms < self._step_ms * 9 // 10 and not ended:
            return
        self._events.extend(events_between(before, now))
        if now.now_ms > before.now_ms:
            self._add(point_between(before, now))
        self._before = now

    def _add(self, point: Point) -> None:
        self._recent.append(point)
        merged = point if self._pending is None else merge(self._pending, point)
        if merged.span_ms < self._coarse_ms:
            self._pending = merged
            return
        self._pending = None
        self._whole.append(merged)
        if len(self._whole) >= self._most:
            self._coarse_ms *= 2
            pairs = zip(self._whole[::2], self._whole[1::2], strict=False)
            odd = self._whole[-1:] if len(self._whole) % 2 else []
            self._whole = [merge(a, b) for a, b in pairs] + odd

    def view(self) -> TimelineView:
        """Return everything that is remembered."""
        rest = () if self._pending is None else (self._pending,)
        return TimelineView(tuple(self._recent), (*self._whole, *rest), tuple(self._events))


def point_between(before: Observation, now: Observation) -> Point:
    """Return what happened between two observations; a new attempt counts from zero."""
    span = max(now.now_ms - before.now_ms, 1)
    same = now.attempt == before.attempt
    ran = now.epochs.count - before.epochs.count
    known = {slot.subtask: slot for slot in before.slots} if same else {}
    committed = now.epochs.latency.count > before.epochs.latency.count
    parts = now.epochs.parts
    newest = now.history.latest("COMPLETED")
    return Point(
        at_ms=now.now_ms,
        span_ms=span,
        records_in=_counted(before.records_in, now.records_in, same=same),
        records_out=_counted(before.records_out, now.records_out, same=same),
        epochs=ran,
        epoch_ms=parts.whole_ms if ran else None,
        slot_ms=parts.slot_ms if ran else None,
        state_entries=now.state_entries,
        state_bytes=0 if newest is None else newest.size,
        lag_ms=lag_ms(now.watermark, now.now_ms),
        slots=tuple(_slot_point(known.get(slot.subtask), slot, span) for slot in now.slots),
        level_0_ms=parts.level_0_ms if ran else None,
        spark_ms=parts.spark_ms if ran else None,
        shuffle_ms=parts.shuffle_ms if ran else None,
        commit_ms=now.epochs.commit_ms if committed else None,
        latency_ms=now.epochs.latency_ms if committed else None,
    )


def lag_ms(watermark: int | None, now_ms: int) -> int | None:
    """Return how far a watermark is behind the clock; None at either end of time."""
    if watermark is None or not MARK_MIN < watermark < MARK_MAX:
        return None
    return now_ms - watermark


def _counted(before: int, now: int, *, same: bool) -> int:
    return now - before if same and now >= before else now


def _slot_point(before: SlotObservation | None, now: SlotObservation, span_ms: int) -> SlotPoint:
    if before is None:
        return SlotPoint(now.subtask, now.memory_bytes, 0.0, 0.0)
    cpu = max(now.cpu_ms - before.cpu_ms, 0) / span_ms
    busy = max(now.busy_ms - before.busy_ms, 0) / span_ms
    return SlotPoint(now.subtask, now.memory_bytes, round(cpu, 4), round(min(busy, 1.0), 4))


def merge(first: Point, second: Point) -> Point:
    """Return two stretches that follow each other as one."""
    span = first.span_ms + second.span_ms
    longest = max((first, second), key=lambda p: -1 if p.epoch_ms is None else p.epoch_ms)
    known = {slot.subtask: slot for slot in first.slots}
    return Point(
        at_ms=second.at_ms,
        span_ms=span,
        records_in=first.records_in + second.records_in,
        records_out=first.records_out + second.records_out,
        epochs=first.epochs + second.epochs,
        epoch_ms=longest.epoch_ms,
        slot_ms=longest.slot_ms,
        level_0_ms=longest.level_0_ms,
        spark_ms=longest.spark_ms,
        shuffle_ms=longest.shuffle_ms,
        commit_ms=_most(first.commit_ms, second.commit_ms),
        latency_ms=_most(first.latency_ms, second.latency_ms),
        state_entries=second.state_entries,
        state_bytes=second.state_bytes,
        lag_ms=second.lag_ms if second.lag_ms is not None else first.lag_ms,
        slots=tuple(
            _merge_slots(known.get(slot.subtask), slot, first.span_ms / span)
            for slot in second.slots
        ),
    )


def _most(first: int | None, second: int | None) -> int | None:
    return max((value for value in (first, second) if value is not None), default=None)


def _merge_slots(first: SlotPoint | None, second: SlotPoint, weight: float) -> SlotPoint:
    if first is None:
        return second
    cpu = first.cpu * weight + second.cpu * (1 - weight)
    busy = first.busy * weight + second.busy * (1 - weight)
    memory = max(first.memory_bytes, second.memory_bytes)
    return SlotPoint(second.subtask, memory, round(cpu, 4), round(busy, 4))


def events_between(before: Observation, now: Observation) -> Iterator[Event]:
    """Give what happened between two observations, oldest first within a kind."""
    if now.attempt > before.attempt and now.parallelism == before.parallelism:
        text = f"attempt {now.attempt}: {now.failure or 'the attempt before it failed'}"
        yield Event(now.now_ms, "restart", text[:TEXT_CHARS])
    if now.parallelism != before.parallelism:
        text = f"parallelism {before.parallelism} became {now.parallelism}"
        yield Event(now.now_ms, "rescale", text)
    for entry in reversed(now.history.entries):
        earlier = before.history.find(entry.checkpoint_id)
        if earlier is None or earlier.status != entry.status:
            yield from _of_checkpoint(entry)
    if now.status != before.status:
        yield Event(now.now_ms, "status", f"{before.status} became {now.status}")


def _of_checkpoint(entry: CheckpointEntry) -> Iterator[Event]:
    if entry.status == "COMPLETED" and entry.is_savepoint:
        at = entry.trigger_ms + entry.duration_ms
        yield Event(at, "savepoint", f"savepoint {entry.checkpoint_id}: {entry.path}"[:TEXT_CHARS])
    if entry.status == "FAILED":
        at = entry.trigger_ms if entry.failure_ms is None else entry.failure_ms
        text = f"checkpoint {entry.checkpoint_id}: {entry.failure}"
        yield Event(at, "checkpoint failed", text[:TEXT_CHARS])
