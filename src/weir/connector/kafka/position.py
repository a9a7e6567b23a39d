"""How far a Kafka source is: the next offset of every partition, and which topics these are.

A position is one JSON object, which is all that another job needs::

    {"offsets": {"topic": {"0": 173}}, "topics": {"topic": "<id>"}, "until": {"topic": {"0": 900}}}

`topics` tells a topic from another one of the same name, `until` is where bounded input ends.
`begins`, in the form of `offsets`, says where partitions begin that were found on the way: it is
there only where nobody said what the position before this one was. The plain form of Spark's own
connector, `{"topic": {"0": 173}}`, is understood as well.

Invariant: all decisions here are pure; positions only grow, and never beyond `until`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from weir.connector.kafka.offsets import KafkaTopicPartition, Offsets
from weir.errors import CorruptStateError, IncompatibleStateError

_Nested = dict[str, dict[str, int]]


class _Written(msgspec.Struct, omit_defaults=True):
    offsets: _Nested
    topics: dict[str, str] = {}
    until: _Nested | None = None
    begins: _Nested = {}


_decode = msgspec.json.Decoder(_Written).decode


class KafkaPosition(msgspec.Struct, frozen=True):
    """The next offset of every partition; `until` is None for input without an end."""

    offsets: Offsets
    topics: dict[str, str] = {}
    until: Offsets | None = None
    begins: Offsets = {}

    def to_json(self) -> dict[str, Any]:
        """Return the form that is written down."""
        until = None if self.until is None else _nested(self.until)
        topics = dict(sorted(self.topics.items()))
        written = _Written(_nested(self.offsets), topics, until, _nested(self.begins))
        found: dict[str, Any] = msgspec.to_builtins(written)
        return found

    @classmethod
    def of(cls, data: Any) -> KafkaPosition:
        """Read a position.

        Raises:
            CorruptStateError: it is none.
        """
        try:
            if isinstance(data, dict) and "offsets" not in data:
                data = {"offsets": data}
            written = _decode(msgspec.json.encode(data))
            until = None if written.until is None else _flat(written.until)
            begins = _flat(written.begins)
            return cls(_flat(written.offsets), written.topics, until, begins)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            msg = f"{data!r:.300} is not the position of a Kafka source: {error}"
            raise CorruptStateError(msg) from error

    def ends(self, partition: KafkaTopicPartition) -> bool:
        """Tell whether a partition of bounded input was read to its end."""
        offset = self.offsets[partition]
        return self.until is not None and offset >= self.until.get(partition, offset)

    @property
    def is_over(self) -> bool:
        """Tell whether bounded input was read to its end."""
        return self.until is not None and all(map(self.ends, self.offsets))


def _nested(offsets: Offsets) -> _Nested:
    found: _Nested = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _flat(nested: _Nested) -> Offsets:
    return {
        KafkaTopicPartition(topic, int(partition)): offset
        for topic, partitions in nested.items()
        for partition, offset in partitions.items()
    }


def check_topics(position: KafkaPosition, ids: Mapping[str, str]) -> None:
    """Refuse topics that are gone, or that were created anew since they were read.

    Raises:
        IncompatibleStateError: it names them.
    """
    for topic in sorted({p.topic for p in position.offsets}):
        before, now = position.topics.get(topic), ids.get(topic)
        if now is None:
            msg = (
                f"the Kafka topic {topic!r}, which was read before, is gone: what was unread of it "
                "is lost; start without state, or under another uid of the source, to go on"
            )
            raise IncompatibleStateError(msg)
        if before is not None and before != now:
            msg = (
                f"the Kafka topic {topic!r} is another one than that which was read: it has the "
                f"id {now}, the position is one of {before}; start without state, or under another "
                "uid of the source, to read it from its beginning"
            )
            raise IncompatibleStateError(msg)


def discover(position: KafkaPosition, earliest: Offsets, ids: Mapping[str, str]) -> KafkaPosition:
    """Return the position with partitions that were not known: each begins at its beginning."""
    new = {p: n for p, n in earliest.items() if p not in position.offsets}
    if not new:
        return position
    topics = {**position.topics, **{p.topic: ids[p.topic] for p in new}}
    return replace(position, offsets={**position.offsets, **new}, topics=topics)


def advance(position: KafkaPosition, ends: Offsets, limit: int | None) -> KafkaPosition:
    """Return how far an epoch may read: to the ends, or to `until`, but no more than `limit`.

    Partitions get the same shares, but for what those with little cannot use: so none of them falls
    behind others because these have more.

    Raises:
        IncompatibleStateError: a partition ends before its position: records are gone.
    """
    backlog: Offsets = {}
    for partition, offset in position.offsets.items():
        end = ends.get(partition, offset)
        if end < offset:
            topic, number = partition
            msg = (
                f"partition {number} of the Kafka topic {topic!r} ends at offset {end}, and was "
                f"read up to {offset}: it was truncated, or created anew; start without state, or "
                "under another uid of the source, to go on"
            )
            raise IncompatibleStateError(msg)
        if position.until is not None:
            end = min(end, max(position.until.get(partition, offset), offset))
        backlog[partition] = end - offset
    total = sum(backlog.values())
    if limit is not None and total > limit:
        backlog = _share(backlog, limit)
    offsets = {p: n + backlog[p] for p, n in position.offsets.items()}
    return replace(position, offsets=offsets)


def _share(backlog: Offsets, limit: int) -> Offsets:
    shared: Offsets = {}
    smallest_first = sorted(backlog, key=lambda p: (backlog[p], p))
    for done, partition in enumerate(smallest_first):
        fair = -(-limit // (len(smallest_first) - done))
        shared[partition] = min(backlog[partition], fair)
        limit -= shared[partition]
    return shared


class Range(msgspec.Struct, frozen=True, omit_defaults=True):
    """A split: the records of a partition from one offset to before another.

    With the `last` ranges bounded input ends; its partition may be `over` before that. One without
    offsets says that there is a partition.
    """

    topic: str
    partition: int
    start: int
    end: int
    last: bool = False
    over: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is to be read."""
        return self.start == self.end


def plan_ranges(
    start: KafkaPosition, end: KafkaPosition, tasks: int, *, every: bool = False
) -> list[tuple[str, ...]]:
    """Return the ranges between two positions, dealt out so that tasks have about as much to do.

    New partitions are among them, and with `every` all partitions, also when nothing is to be read.
    One that `start` does not know is read from where it begins, as far as that is said.
    """
    ranges = [
        Range(
            *p,
            start.offsets.get(p, end.begins.get(p, n)),
            n,
            last=end.is_over,
            over=end.ends(p),
        )
        for p, n in sorted(end.offsets.items())
        if every or n > start.offsets.get(p, -1)
    ]
    heaps: list[list[Range]] = [[] for _ in range(min(tasks, len(ranges)))]
    sizes = [0] * len(heaps)
    for found in sorted(ranges, key=lambda r: r.start - r.end):
        least = sizes.index(min(sizes))
        heaps[least].append(found)
        sizes[least] += found.end - found.start
    return [tuple(msgspec.json.encode(r).decode() for r in heap) for heap in heaps]
