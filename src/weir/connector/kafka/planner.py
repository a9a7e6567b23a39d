"""Plans the epochs of a Kafka source: how far each may read, and which offset ranges that are.

One planner lives in the process in which Spark plans a query, another one in the driver, which
commits the group's offsets. Both ask the cluster; what they decide on the answers is pure
(`weir.connector.kafka.position`).
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from weir.clock import Clock, SystemClock
from weir.connector.kafka.client import Connection
from weir.connector.kafka.cluster import Cluster, Subscription
from weir.connector.kafka.offsets import Offsets
from weir.connector.kafka.position import (
    KafkaPosition,
    advance,
    check_topics,
    discover,
    plan_ranges,
)
from weir.connector.source import SplitPlanner
from weir.errors import UsageError, WeirError

log = logging.getLogger("weir.kafka")
# Spark asks a hundred times a second while nothing comes.
_ASK_MS = 50
# So often it is asked whether topics are still the same.
_SAME_MS = 1000
PER_EPOCH = "max.records.per.epoch"
PER_SECOND = "max.records.per.second"


@dataclass(frozen=True)
class Pace:
    """How much is read at once, how fast, and how often new partitions are looked for.

    `discovery_ms` of 0 or less: never, after the start.
    """

    records_per_epoch: int | None = 1_000_000
    records_per_second: int | None = None
    discovery_ms: int = 300_000


def _refuse_pace(pace: Pace) -> None:
    """Refuse limits where the engine asks for all that there is, and hears of no limit.

    Raises:
        UsageError: it names the property.
    """
    limits = {PER_EPOCH: pace.records_per_epoch, PER_SECOND: pace.records_per_second}
    usual = {PER_EPOCH: Pace().records_per_epoch, PER_SECOND: Pace().records_per_second}
    chosen = [key for key, value in limits.items() if value != usual[key]]
    if chosen:
        msg = (
            f"the property {chosen[0]!r} of the Kafka source needs Spark 4.2 or later: older "
            "versions read all that there is at once; leave it out, or use a later Spark"
        )
        raise UsageError(msg)


class _Tokens:
    """How many records a rate allows by now: what was not read adds up, for a second at most.

    They are counted in thousandths, so that a low rate is kept however often it is asked for.
    """

    def __init__(self, per_second: int | None) -> None:
        self._rate = per_second
        self._thousandths = (per_second or 0) * 1000
        self._at_ms: int | None = None

    def at(self, now_ms: int) -> int | None:
        """Return how many records may be read; None without a rate."""
        if self._rate is None:
            return None
        elapsed_ms = 0 if self._at_ms is None else now_ms - self._at_ms
        self._at_ms = now_ms
        self._thousandths = min(self._thousandths + self._rate * elapsed_ms, self._rate * 1000)
        return self._thousandths // 1000

    def take(self, records: int) -> None:
        """Count records that are read."""
        self._thousandths -= records * 1000

    @property
    def missing_s(self) -> float:
        """How long it takes until the next record may be read."""
        return 0.0 if self._rate is None else (1000 - self._thousandths) / self._rate / 1000


class KafkaPlanner(SplitPlanner):
    """Plans offset ranges; new partitions begin at their beginning, whatever others began at."""

    def __init__(
        self,
        connection: Connection,
        wanted: Subscription,
        start: KafkaPosition,
        pace: Pace,
        group: str | None,
        clock: Clock | None = None,
    ) -> None:
        """Begin at `start`, which is that of the first job, or where another one has stopped."""
        self._connection = connection
        self._wanted = wanted
        self._start = start
        self._pace = pace
        self._group = group
        self._clock = clock or SystemClock()
        self._forget()

    def _forget(self) -> None:
        self._cluster = Cluster(self._connection, self._group)
        self._found_ms: int | None = None
        self._asked_ms: int | None = None
        self._same_ms: int | None = None
        self._tokens = _Tokens(self._pace.records_per_second)
        self._committed = KafkaPosition({})
        # All partitions that are known, each where it begins.
        self._known = self._start
        self._bound: Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Travel without connections."""
        kept = ("_connection", "_wanted", "_start", "_pace", "_group", "_clock")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin anew in another process."""
        self.__dict__.update(state)
        self._forget()

    def begin(self) -> dict[str, Any]:
        """Return the position that was decided when the source was opened."""
        return self._start.to_json()

    def advance(self, position: dict[str, Any] | None) -> dict[str, Any]:
        """Return how far the next epoch may read; see `SplitPlanner.advance`."""
        if position is None:
            return self._everything().to_json()
        if self._bound is None and not self._asks_again():
            return position
        limit = self._limit()
        return position if limit == 0 else self._further(position, limit).to_json()

    def _asks_again(self) -> bool:
        """Tell whether the cluster is asked: not so often as Spark asks while nothing comes."""
        now = self._clock.monotonic_ms()
        if self._asked_ms is not None and now - self._asked_ms < _ASK_MS:
            return False
        self._asked_ms = now
        return True

    def _limit(self) -> int | None:
        """Return how many records may be read now; None for any number.

        To an engine that reads up to a bound, a position that does not change means that this is
        the end. So there the next record is waited for, as long as the rate says.
        """
        allowed = self._tokens.at(self._clock.monotonic_ms())
        while allowed == 0 and self._bound is not None:
            threading.Event().wait(self._tokens.missing_s)
            allowed = self._tokens.at(self._clock.monotonic_ms())
        most = self._pace.records_per_epoch
        return min((n for n in (most, allowed) if n is not None), default=None)

    def _further(self, position: dict[str, Any], limit: int | None) -> KafkaPosition:
        given = KafkaPosition.of(position)
        # Where the input ends is said by this job's source, not by who wrote the position down.
        at = replace(given, until=self._start.until, begins={})
        if self._bound is None:
            self._known = self._discover(self._known)
        at = discover(at, self._known.offsets, self._known.topics)
        if len(at.offsets) > len(given.offsets):
            # First it is written down where new partitions begin, then they are read from there.
            return at
        ends = self._cluster.latest(at.offsets) if self._bound is None else self._bound
        self._refuse_others(at)
        end = advance(at, ends, limit)
        self._tokens.take(sum(end.offsets.values()) - sum(at.offsets.values()))
        return end

    def _everything(self) -> KafkaPosition:
        """Return how far all epochs together may read, to an engine that does not say where it is.

        Nobody knows whether a partition that was found on the way is part of the position before.
        So this one says where it begins.
        """
        _refuse_pace(self._pace)
        self._known = self._discover(self._known)
        ends = self._cluster.latest(self._known.offsets)
        self._refuse_others(self._known)
        found = {p: n for p, n in self._known.offsets.items() if p not in self._start.offsets}
        return replace(advance(self._known, ends, None), begins=found)

    def _refuse_others(self, position: KafkaPosition) -> None:
        """Refuse topics that were created anew, also if they have as many records as before."""
        now = self._clock.monotonic_ms()
        if self._same_ms is not None and now - self._same_ms < _SAME_MS:
            return
        check_topics(position, self._cluster.ids({p.topic for p in position.offsets}))
        self._same_ms = now

    def _discover(self, position: KafkaPosition) -> KafkaPosition:
        """Look for new partitions and exchanged topics, at the start and now and then."""
        now = self._clock.monotonic_ms()
        if self._found_ms is not None and not self._is_due(now - self._found_ms):
            return position
        found = self._cluster.find(self._wanted)
        check_topics(position, found.ids)
        self._found_ms = now
        if position.until is not None:
            return position
        new = [p for p in found.partitions if p not in position.offsets]
        if new:
            log.info("new Kafka partitions: %s", ", ".join(f"{t}-{p}" for t, p in new))
        return discover(position, self._cluster.earliest(new), found.ids)

    def _is_due(self, elapsed_ms: int) -> bool:
        return 0 < self._pace.discovery_ms <= elapsed_ms

    def plan(self, start: dict[str, Any], end: dict[str, Any], tasks: int) -> list[tuple[str, ...]]:
        """Return the ranges between two positions; the first ones of a job name all partitions.

        A partition that nothing was read of yet holds event time back, as in Flink.
        """
        begin = KafkaPosition.of(start)
        first = begin.offsets == self._start.offsets
        return plan_ranges(begin, KafkaPosition.of(end), tasks, every=first)

    def bound(self) -> None:
        """Read to what is the end now, and no further; of partitions that are new, too."""
        self._found_ms = None
        self._known = self._discover(self._known)
        ends = self._cluster.latest(self._known.offsets)
        self._bound = advance(self._known, ends, None).offsets

    def is_over(self, position: dict[str, Any]) -> bool:
        """Tell whether a source that has an end was read to it, in all its partitions."""
        at, until = KafkaPosition.of(position), self._start.until
        return until is None or (set(until) <= set(at.offsets) and replace(at, until=until).is_over)

    def committed(self, position: dict[str, Any]) -> None:
        """Commit the group's offsets; they are for people to see, so that failing is only said."""
        if self._group is None:
            return
        self._committed = KafkaPosition.of(position)
        self._commit(wait=False)

    def _commit(self, *, wait: bool) -> None:
        try:
            self._cluster.commit(self._committed.offsets, wait=wait)
        except WeirError as error:
            log.warning("the group's offsets are not up to date: %s", error)

    def close(self) -> None:
        """Close the clients; the last commit has arrived by then, or is warned of."""
        if self._committed.offsets:
            self._commit(wait=True)
        self._cluster.close()
