"""Plans the epochs of a Kafka source: how far each may read, and which offset ranges that are.

One planner lives in the process in which Spark plans a query, another one in the driver, which
commits the group's offsets. Both ask the cluster; what they decide on the answers is pure
(`weir.connector.kafka.position`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from weir.clock import Clock, SystemClock
from weir.connector.kafka.client import Connection
from weir.connector.kafka.cluster import Cluster, Subscription
from weir.connector.kafka.position import (
    KafkaPosition,
    advance,
    check_topics,
    discover,
    plan_ranges,
)
from weir.connector.source import SplitPlanner
from weir.errors import WeirError

log = logging.getLogger("weir.kafka")
# Spark asks a hundred times a second while nothing comes.
_ASK_MS = 50
# So often it is asked whether topics are still the same.
_SAME_MS = 1000


@dataclass(frozen=True)
class Pace:
    """How much is read at once, how fast, and how often new partitions are looked for.

    `discovery_ms` of 0 or less: never, after the start.
    """

    records_per_epoch: int | None = 1_000_000
    records_per_second: float | None = None
    discovery_ms: int = 300_000


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
        self._paced_ms: int | None = None
        self._committed = KafkaPosition({})
        self._bound: KafkaPosition | None = None

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
            return self._latest(self._start, None).to_json()
        now = self._clock.monotonic_ms()
        if self._asked_ms is not None and now - self._asked_ms < _ASK_MS:
            return position
        self._asked_ms = now
        return self._latest(KafkaPosition.of(position), self._limit(now)).to_json()

    def _limit(self, now_ms: int) -> int | None:
        most, rate = self._pace.records_per_epoch, self._pace.records_per_second
        if rate is None:
            return most
        before = now_ms - 1000 if self._paced_ms is None else self._paced_ms
        self._paced_ms = now_ms
        allowed = max(int(rate * min(now_ms - before, 1000) / 1000), 1)
        return allowed if most is None else min(most, allowed)

    def _latest(self, position: KafkaPosition, limit: int | None) -> KafkaPosition:
        if self._bound is not None:
            ends = {p: max(n, self._bound.offsets.get(p, n)) for p, n in position.offsets.items()}
            return advance(position, ends, limit)
        found = self._discover(position)
        if limit is not None and len(found.offsets) > len(position.offsets):
            # First it is written down where new partitions begin, then they are read from there.
            return found
        ends = self._cluster.latest(found.offsets)
        self._refuse_others(found)
        return advance(found, ends, limit)

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
        self._found_ms = self._same_ms = now
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
        return plan_ranges(begin, KafkaPosition.of(end), tasks, every=begin == self._start)

    def bound(self) -> None:
        """Read to what is the end now, and no further."""
        self._bound = self._latest(self._start, None)

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
