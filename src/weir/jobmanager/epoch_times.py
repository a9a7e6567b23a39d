"""How long the epochs of a job take, where that time goes, and when their results are committed.

Told by the supervisor once an epoch and once a checkpoint, read by whoever watches. Nothing decides
by it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from weir.clock import Clock
from weir.runtime.report import SubtaskReport

BOUNDS_MS: Final = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000)
WINDOW: Final = 128
"""Of so many epochs Flink's metrics of latency tell quantiles."""
UNCOMMITTED_MAX: Final = 50_000


@dataclass(frozen=True)
class Spread:
    """How durations are spread: `counts` are those of up to each of `BOUNDS_MS`, then others."""

    count: int = 0
    sum_ms: int = 0
    counts: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)

    def with_one(self, elapsed_ms: int) -> Spread:
        """Return the spread with one more duration."""
        place = next((i for i, b in enumerate(BOUNDS_MS) if elapsed_ms <= b), len(BOUNDS_MS))
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return Spread(self.count + 1, self.sum_ms + elapsed_ms, counts)

    def buckets(self) -> list[tuple[str, int]]:
        """Return how many took at most so long, in seconds, as Prometheus wants to know it."""
        found, total = [], 0
        for bound, count in zip((*BOUNDS_MS, None), self.counts, strict=True):
            total += count
            found.append(("+Inf" if bound is None else f"{bound / 1000:g}", total))
        return found


@dataclass(frozen=True)
class EpochParts:
    """Where the time of an epoch went; together that is all of it.

    `level_0_ms` is from the begin of the first partition of level 0 to the end of the last one,
    `slot_ms` the same of the slots, level by level, and `shuffle_ms` what is between these: records
    on their way. The rest, `spark_ms`, is before the first of them and behind the last one:
    planning, starting tasks, collecting reports.
    """

    spark_ms: int = 0
    level_0_ms: int = 0
    shuffle_ms: int = 0
    slot_ms: int = 0

    @property
    def whole_ms(self) -> int:
        """Return how long the epoch took."""
        return self.spark_ms + self.level_0_ms + self.shuffle_ms + self.slot_ms


@dataclass(frozen=True)
class Arrivals:
    """How long records were on their way until a subtask had handled them, in the last epochs."""

    level: int
    subtask: int
    latencies_ms: tuple[int, ...] = ()


@dataclass(frozen=True)
class EpochTimesView:
    """All epochs that succeeded, and the last one.

    `latency` is how long results took from the moment when it was decided what to read until they
    were committed, `latency_ms` the longest that the last commit ended, and `commit_ms` how long
    that took after its checkpoint was complete; None as long as there was none.
    """

    spread: Spread = field(default_factory=Spread)
    last_ms: int = 0
    parts: EpochParts = field(default_factory=EpochParts)
    latency: Spread = field(default_factory=Spread)
    latency_ms: int | None = None
    commit_ms: int | None = None

    @property
    def count(self) -> int:
        """Return how many there were."""
        return self.spread.count


@dataclass
class EpochTimes:
    """Takes the times of epochs; thread-safe.

    With `at_once` results wait for no checkpoint: an epoch is committed when it is over. Of more
    than `UNCOMMITTED_MAX` epochs that one commit covers, the newest have a latency.
    """

    clock: Clock
    at_once: bool = False
    _view: EpochTimesView = field(default_factory=EpochTimesView)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _read: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=UNCOMMITTED_MAX))
    _covered: dict[int, tuple[int, int]] = field(default_factory=dict)
    _arrivals: dict[tuple[int, int], deque[int]] = field(default_factory=dict)

    @contextmanager
    def timing(self, epoch: int, read_ms: int | None = None) -> Iterator[list[SubtaskReport]]:
        """Time an epoch, whose reports go into the list; one that fails does not count.

        What it reads was decided at `read_ms`; None for an epoch without input.
        """
        reports: list[SubtaskReport] = []
        begun, since_ms = self.clock.monotonic_ms(), self.clock.now_ms()
        yield reports
        elapsed = self.clock.monotonic_ms() - begun
        parts = parts_of(reports, since_ms, elapsed, read_ms=read_ms)
        with self._lock:
            spread = self._view.spread.with_one(elapsed)
            self._view = replace(self._view, spread=spread, last_ms=elapsed, parts=parts)
            if read_ms is not None:
                self._read.append((epoch, read_ms))
                self._note_arrivals(reports, read_ms)
            if self.at_once:
                self._commit(epoch)

    def covered(self, checkpoint_id: int, epoch: int) -> None:
        """A checkpoint is complete that covers everything up to an epoch: commits begin."""
        with self._lock:
            self._covered[checkpoint_id] = (epoch, self.clock.monotonic_ms())

    def committed(self, checkpoint_id: int) -> None:
        """Everybody has committed what a checkpoint covers."""
        with self._lock:
            found = self._covered.pop(checkpoint_id, None)
            if found is None:
                return
            epoch, since = found
            self._view = replace(self._view, commit_ms=self.clock.monotonic_ms() - since)
            self._commit(epoch)

    def restart(self) -> None:
        """Forget what was not committed: the next attempt reads it again."""
        with self._lock:
            self._read.clear()
            self._covered.clear()
            self._arrivals.clear()

    def _commit(self, epoch: int) -> None:
        latency, longest, now = self._view.latency, None, self.clock.now_ms()
        while self._read and self._read[0][0] <= epoch:
            taken = max(0, now - self._read.popleft()[1])
            latency = latency.with_one(taken)
            longest = taken if longest is None else max(longest, taken)
        if longest is not None:
            self._view = replace(self._view, latency=latency, latency_ms=longest)

    def _note_arrivals(self, reports: Sequence[SubtaskReport], read_ms: int) -> None:
        for report in reports:
            if report.level > 0:
                window = self._arrivals.setdefault(report.place, deque(maxlen=WINDOW))
                window.append(max(0, report.begun_ms + report.busy_ms - read_ms))

    def view(self) -> EpochTimesView:
        """Return what is known now."""
        with self._lock:
            return self._view

    def arrivals(self) -> tuple[Arrivals, ...]:
        """Return how long records took to each subtask in the last epochs of the attempt."""
        with self._lock:
            found = sorted(self._arrivals.items())
            return tuple(Arrivals(*place, tuple(window)) for place, window in found)


def parts_of(
    reports: Sequence[SubtaskReport], begun_ms: int, elapsed_ms: int, *, read_ms: int | None = None
) -> EpochParts:
    """Split the time of an epoch by what was told of it; times are those of wall clocks.

    Levels follow each other, so what a clock says that is not right counts for what was before.
    """
    first = begun_ms if read_ms is None else min(read_ms, begun_ms)
    at, over = first, begun_ms + elapsed_ms
    spark = level_0 = shuffle = slots = 0
    for number, (level, begin, end) in enumerate(_stages(reports)):
        began = min(max(begin, at), over)
        ended = min(max(end, began), over)
        if number == 0:
            spark += began - at
        else:
            shuffle += began - at
        if level == 0:
            level_0 += ended - began
        else:
            slots += ended - began
        at = ended
    return EpochParts(spark + over - at, level_0, shuffle, slots)


def _stages(reports: Sequence[SubtaskReport]) -> list[tuple[int, int, int]]:
    """Return each level with the begin of the first subtask and the end of the last one."""
    stages: dict[int, tuple[int, int]] = {}
    for report in reports:
        begin, end = report.begun_ms, report.begun_ms + report.busy_ms
        # An epoch without input has no level 0, of which something may be told all the same.
        if begin > 0:
            low, high = stages.get(report.level, (begin, end))
            stages[report.level] = (min(low, begin), max(high, end))
    return [(level, *stages[level]) for level in sorted(stages)]
