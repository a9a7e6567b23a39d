"""The same work for Spark's pandas interfaces: columns within a key where numpy can do it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.contenders.row_processors import LONG, Processor
from benchmarks.workloads.catalogue import CLOSING_KEY, FLUSH_AT, REGIONS, TTL_MS, WINDOW_MS

Frames = Iterator[pd.DataFrame]


def with_least(frame: pd.DataFrame, least: int | None) -> tuple[pd.DataFrame, int]:
    """Return the rows with the least value so far, and the least of all."""
    lows = np.minimum.accumulate(frame["value"].to_numpy())
    if least is not None:
        lows = np.minimum(lows, least)
    return frame.assign(least=lows), int(lows[-1])


def with_total(frame: pd.DataFrame, total: int) -> tuple[pd.DataFrame, int]:
    """Return the sums so far, and the sum of all."""
    sums = frame["value"].to_numpy().cumsum() + total
    return pd.DataFrame({"key": frame["key"], "total": sums}), int(sums[-1])


def averages(key: int, values: list[int]) -> tuple[pd.DataFrame, list[int]]:
    """Return the averages of whole flushes, and the values that are left."""
    full = len(values) // FLUSH_AT * FLUSH_AT
    blocks = [sum(values[i : i + FLUSH_AT]) // FLUSH_AT for i in range(0, full, FLUSH_AT)]
    return pd.DataFrame({"key": [key] * len(blocks), "average": blocks}), values[full:]


class Least(Processor):
    """Every row with the least value of its key so far; also over wide rows."""

    def init(self, handle: Any) -> None:
        """Register the state."""
        self.least = handle.getValueState("least", LONG)

    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Frames:
        """Compare with the least value so far."""
        found = self.least.get()
        least = found[0] if found else None
        for frame in rows:
            result, least = with_least(frame, least)
            yield result
        self.least.update((least,))


class Distinct(Processor):
    """A user of a site, the first time on a day."""

    def init(self, handle: Any) -> None:
        """Register the state."""
        self.seen = handle.getMapState("seen", "user bigint", "seen boolean", TTL_MS)

    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Frames:
        """Emit who is new."""
        for frame in rows:
            once = frame.drop_duplicates()
            new = []
            for user, day in zip(once["user"].tolist(), once["day"].tolist(), strict=True):
                name = (day * 1_000_000 + user,)
                fresh = not self.seen.containsKey(name)
                new.append(fresh)
                if fresh:
                    self.seen.updateValue(name, (True,))
            yield once[new]


class RunningSum(Processor):
    """The sum of each key so far."""

    def init(self, handle: Any) -> None:
        """Register the state."""
        self.total = handle.getValueState("total", LONG)

    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Frames:
        """Add."""
        found = self.total.get()
        total = found[0] if found else 0
        for frame in rows:
            result, total = with_total(frame, total)
            yield result
        self.total.update((total,))


class Flush(Processor):
    """The average of every so many values of a key."""

    def init(self, handle: Any) -> None:
        """Register the state."""
        self.values = handle.getListState("values", LONG)

    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Frames:
        """Append, and flush when there are enough."""
        before = [value[0] for value in self.values.get()]
        new = [value for frame in rows for value in frame["value"].tolist()]
        result, left = averages(key[0], before + new)
        if not len(result):
            self.values.appendList([(value,) for value in new])
        elif left:
            self.values.put([(value,) for value in left])
        else:
            self.values.clear()
        yield result


class ByRegion(Processor):
    """Counts the rows of a region; the second of two stages."""

    def init(self, handle: Any) -> None:
        """Register the state."""
        self.count = handle.getValueState("count", LONG)

    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Frames:
        """Count."""
        found = self.count.get()
        count = found[0] if found else 0
        for frame in rows:
            numbers = np.arange(count + 1, count + 1 + len(frame))
            count += len(frame)
            yield pd.DataFrame(
                {
                    "region": frame["value"] % REGIONS,
                    "count": numbers,
                    "key": frame["key"],
                    "least": frame["least"],
                }
            )
        self.count.update((count,))


class Windows(Processor):
    """Counts rows in windows, each ended by a timer."""

    def init(self, handle: Any) -> None:
        """Register the state."""
        self.handle = handle
        self.counts = handle.getMapState("counts", "end bigint", "count bigint")

    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Frames:
        """Count, and ask to be called at the ends of windows."""
        if key[0] != CLOSING_KEY:
            for frame in rows:
                ends = frame["ts"] - frame["ts"] % WINDOW_MS + WINDOW_MS
                for end, count in ends.value_counts().items():
                    before = self.counts.getValue((int(end),))
                    if before is None:
                        self.handle.registerTimer(int(end))
                    total = int(count) + (before[0] if before else 0)
                    self.counts.updateValue((int(end),), (total,))
        yield pd.DataFrame({"key": [], "end": [], "count": []}, dtype="int64")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Frames:
        """Emit the count of the window."""
        end = expiredTimerInfo.getExpiryTimeInMs()
        count = self.counts.getValue((end,))[0]
        self.counts.removeKey((end,))
        yield pd.DataFrame({"key": [key[0]], "end": [end], "count": [count]})


def apply_least(key: Any, frames: Frames, state: Any) -> Frames:
    """Do the work of `Least` for `applyInPandasWithState`."""
    least = state.get[0] if state.exists else None
    for frame in frames:
        result, least = with_least(frame, least)
        yield result
    state.update((least,))


def apply_sum(key: Any, frames: Frames, state: Any) -> Frames:
    """Do the work of `RunningSum` for `applyInPandasWithState`."""
    total = state.get[0] if state.exists else 0
    for frame in frames:
        result, total = with_total(frame, total)
        yield result
    state.update((total,))


def apply_flush(key: Any, frames: Frames, state: Any) -> Frames:
    """Do the work of `Flush`; an array is no state here, so each value has a column of its own."""
    count, *values = state.get if state.exists else (0,)
    values = values[:count]
    for frame in frames:
        values.extend(frame["value"].tolist())
    result, left = averages(key[0], values)
    state.update((len(left), *left, *[0] * (FLUSH_AT - 1 - len(left))))
    yield result
