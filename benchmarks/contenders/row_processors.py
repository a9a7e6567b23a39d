"""Processors for `transformWithState` on rows, written as its users are told to.

State is read once and written once for each key and epoch, not for each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from benchmarks.workloads.catalogue import CLOSING_KEY, FLUSH_AT, REGIONS, TTL_MS, WINDOW_MS

LONG = "value bigint"


class Processor(StatefulProcessor):
    """A processor without anything to close."""

    def close(self) -> None:
        """Do nothing."""


class Least(Processor):
    """Every row with the least value of its key so far."""

    def init(self, handle: Any) -> None:
        """Register the state."""
        self.least = handle.getValueState("least", LONG)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Compare with the least value so far."""
        found = self.least.get()
        least = found[0] if found else None
        for row in rows:
            if least is None or row[1] < least:
                least = row[1]
            yield self.result(row, least)
        self.least.update((least,))

    def result(self, row: Row, least: int) -> Row:
        """Return an output row."""
        return Row(key=row[0], value=row[1], least=least)


class Wide(Least):
    """The same over wide rows."""

    def result(self, row: Row, least: int) -> Row:
        """Return an output row."""
        return Row(**row.asDict(), least=least)


class Distinct(Processor):
    """A user of a site, the first time on a day."""

    def init(self, handle: Any) -> None:
        """Register the state."""
        self.seen = handle.getMapState("seen", "user bigint", "seen boolean", TTL_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Emit who is new."""
        for row in rows:
            user = (row[2] * 1_000_000 + row[1],)
            if not self.seen.containsKey(user):
                self.seen.updateValue(user, (True,))
                yield Row(site=row[0], user=row[1], day=row[2])


class RunningSum(Processor):
    """The sum of each key so far."""

    def init(self, handle: Any) -> None:
        """Register the state."""
        self.total = handle.getValueState("total", LONG)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Add."""
        found = self.total.get()
        total = found[0] if found else 0
        for row in rows:
            total += row[1]
            yield Row(key=row[0], total=total)
        self.total.update((total,))


class Flush(Processor):
    """The average of every so many values of a key."""

    def init(self, handle: Any) -> None:
        """Register the state."""
        self.values = handle.getListState("values", LONG)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Append, and flush when there are enough."""
        before = [value[0] for value in self.values.get()]
        values = list(before)
        flushed = False
        for row in rows:
            values.append(row[1])
            if len(values) == FLUSH_AT:
                yield Row(key=row[0], average=sum(values) // FLUSH_AT)
                values, flushed = [], True
        if not flushed:
            self.values.appendList([(value,) for value in values[len(before) :]])
        elif values:
            self.values.put([(value,) for value in values])
        else:
            self.values.clear()


class ByRegion(Processor):
    """Counts the rows of a region; the second of two stages."""

    def init(self, handle: Any) -> None:
        """Register the state."""
        self.count = handle.getValueState("count", LONG)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Count."""
        found = self.count.get()
        count = found[0] if found else 0
        for row in rows:
            count += 1
            yield Row(region=row[1] % REGIONS, count=count, key=row[0], least=row[2])
        self.count.update((count,))


class Windows(Processor):
    """Counts rows in windows, each ended by a timer."""

    def init(self, handle: Any) -> None:
        """Register the state."""
        self.handle = handle
        self.counts = handle.getMapState("counts", "end bigint", "count bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Count, and ask to be called at the ends of windows."""
        if key[0] == CLOSING_KEY:
            return
        added: dict[int, int] = {}
        for row in rows:
            end = row[1] - row[1] % WINDOW_MS + WINDOW_MS
            added[end] = added.get(end, 0) + 1
        for end, count in added.items():
            before = self.counts.getValue((end,))
            if before is None:
                self.handle.registerTimer(end)
            self.counts.updateValue((end,), (count + (before[0] if before else 0),))
        yield from ()

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """Emit the count of the window."""
        end = expiredTimerInfo.getExpiryTimeInMs()
        count = self.counts.getValue((end,))[0]
        self.counts.removeKey((end,))
        yield Row(key=key[0], end=end, count=count)
