"""The event time of a source: one watermark for each of its partitions, kept in the slots.

Level 0 runs in stateless workers, so it only tells how far each partition came that it read in the
epoch. Every slot is told the same, keeps the furthest watermark of each partition, and takes the
minimum over them. That is exactly repeatable: watermarks follow from the rows of the epochs alone,
not from the tasks that happened to read them. The partitions' watermarks are part of checkpoints,
so a partition that lags, and is silent in the first epoch after a restore, is not forgotten.

A partition counts from the epoch of its first records on. One that ends, such as a file, counts in
the epoch in which it is read, and no longer when later ones are read. One that has been silent for
longer than the strategy allows, from its last record to a look at the sources that found none, is
ignored until its next record. Rows of a source whose partitions
have no names are one partition, which is as far as its furthest row. The name of a partition begins
with that of its source. The end of time, said of a partition, lets it count no longer; said of a
source's name alone, it is the end of all of them. Several sources may come to one strategy: its
time is over when all of them are, also if they never had a record.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable
from typing import Final

from weir.notices import warn_once
from weir.runtime.frame import MAX_WATERMARK, MIN_WATERMARK, PartitionMark
from weir.runtime.looks import IdleTimer, Looks
from weir.runtime.watermarks import Combined

MANY = 10_000
_OF: Final = ":"
log = logging.getLogger("weir.time")


def partition_name(source: str, name: str = "") -> str:
    """Return a name that no partition of another source has; without one, that of the source."""
    return f"{source}{_OF}{name}"


def source_of(partition: str) -> str:
    """Return the name of the source that a partition is of."""
    return partition[: partition.find(_OF) + 1]


def partition_owner(partition: str, parallelism: int) -> int:
    """Return the subtask that all records of a partition go to, where that matters."""
    return zlib.crc32(partition.encode("utf-8", "surrogatepass")) % parallelism


class _Partition:
    """What is known of a partition beside its watermark."""

    def __init__(self, timer: IdleTimer) -> None:
        self.timer = timer
        self.ends = False
        self.says_idle = False

    @property
    def idle(self) -> bool:
        return self.says_idle or self.timer.expired


class SourceTime:
    """The watermark of all partitions that one strategy, or one source, makes watermarks for.

    `value` and `idle` are as of the last `settle`.
    """

    def __init__(self, looks: Looks, idleness_ms: int | None, sources: Iterable[str] = ()) -> None:
        """Begin without partitions, which holds everybody back unless it lasts for too long."""
        self._looks = looks
        self._idleness_ms = idleness_ms
        self._sources = {partition_name(source) for source in sources}
        self._combined = Combined()
        self._partitions: dict[str, _Partition] = {}
        self._empty = IdleTimer(looks, idleness_ms)
        self._before: list[tuple[str, int]] = []
        # Sources that are over, and whether they stay so in later jobs.
        self._ended: dict[str, bool] = {}
        # What was said in this epoch: by which sources, which of them are over, which partitions.
        self._heard: set[str] = set()
        self._over: dict[str, bool] = {}
        self._finished: set[str] = set()
        self.idle = False

    @property
    def value(self) -> int:
        """The watermark of all partitions."""
        return MAX_WATERMARK if self._is_over else self._combined.value

    @property
    def _is_over(self) -> bool:
        """Tell whether nothing can come any more: all sources said so, and none is read on."""
        return bool(self._ended) and self._sources <= self._ended.keys() and not self._partitions

    def begin(self) -> None:
        """Begin an epoch: nothing of it has been heard."""
        self._before = self._going_on()
        self._heard.clear()
        self._over.clear()
        self._finished.clear()

    def add(self, marks: Iterable[PartitionMark]) -> None:
        """Take what a task says of the partitions that it read in the epoch."""
        for mark in marks:
            if not self._heard:
                self._forget_ended()
            name, source = mark.partition, source_of(mark.partition)
            self._heard.add(source)
            if mark.watermark == MAX_WATERMARK:
                if name == source:
                    self._over[source] = mark.ends
                else:
                    self._finished.add(name)
                continue
            partition = self._known(name)
            self._combined.emit(name, mark.watermark)
            partition.timer.active()
            partition.ends, partition.says_idle = mark.ends, mark.idle

    def _known(self, name: str, watermark: int = MIN_WATERMARK) -> _Partition:
        partition = self._partitions.get(name)
        if partition is None:
            timer = IdleTimer(self._looks, self._idleness_ms)
            partition = self._partitions[name] = _Partition(timer)
            self._combined.add(name, watermark)
            if len(self._partitions) == MANY:
                warn_once(
                    log,
                    f"a source has {MANY} partitions, among them {name!r}: each is remembered, "
                    "and stored in checkpoints; name them by columns with few values",
                )
        return partition

    def _forget(self, name: str) -> None:
        del self._partitions[name]
        self._combined.remove(name)

    def _forget_ended(self) -> None:
        """Others are read now, so those that ended hold nobody back any more."""
        for name in [name for name, found in self._partitions.items() if found.ends]:
            self._forget(name)

    def settle(self) -> None:
        """Advance: all tasks of the epoch have been heard."""
        for source in self._heard - self._over.keys():
            # A later job found more of it than the job before.
            self._ended.pop(source, None)
        self._ended.update(self._over)
        for name in [name for name in self._partitions if self._has_no_more(name)]:
            self._forget(name)
        for name, partition in self._partitions.items():
            self._combined.mark_idle(name, idle=partition.idle)
        self._combined.update()
        silent = self._combined.idle if self._partitions else self._empty.expired
        self.idle = silent and not self._is_over

    def _has_no_more(self, name: str) -> bool:
        return name in self._finished or source_of(name) in self._ended

    def idle_from_ms(self) -> int | None:
        """Return from which look at the sources on the next silent partition is idle."""
        timers = [p.timer for p in self._partitions.values() if not p.idle]
        if not self._partitions and not self._empty.expired and not self._is_over:
            timers = [self._empty]
        return min((due for timer in timers if (due := timer.due_ms()) is not None), default=None)

    @property
    def partitions(self) -> list[str]:
        """The partitions that there are."""
        return list(self._partitions)

    def restore(self, watermarks: Iterable[tuple[str, int]]) -> None:
        """Know the partitions of a checkpoint: they count until they are idle or over."""
        for name, watermark in watermarks:
            if watermark == MAX_WATERMARK and name == source_of(name):
                self._ended[name] = True
            else:
                self._known(name, watermark)

    def watermarks(self, *, replayed: bool) -> list[tuple[str, int]]:
        """Return how far the partitions are that go on, for a checkpoint.

        With `replayed` the epoch will be read again, perhaps in parts: what it said is not known
        then. Sources that are over are among them: nothing would be heard of them again. A source
        function says its end again.
        """
        return self._before if replayed else self._going_on()

    def _going_on(self) -> list[tuple[str, int]]:
        found = [(str(name), mark) for name, mark in self._combined.watermarks().items()]
        going_on = [(name, mark) for name, mark in found if not self._partitions[name].ends]
        return going_on + [(name, MAX_WATERMARK) for name, stays in self._ended.items() if stays]
