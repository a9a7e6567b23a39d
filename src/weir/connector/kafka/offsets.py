"""Where a Kafka source begins and ends, by PyFlink's names, and what that means in offsets."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from weir.errors import StorageError, UsageError

NO_RECORD = -1
"""What Kafka answers where no record is as new as it was asked for."""


class KafkaTopicPartition(NamedTuple):
    """One partition of a topic.

    Example:
        KafkaTopicPartition("clicks", 0)
    """

    topic: str
    partition: int


class KafkaOffsetResetStrategy(enum.Enum):
    """Where to begin in a partition that has no offset.

    Example:
        earliest = KafkaOffsetResetStrategy.EARLIEST
        KafkaOffsetsInitializer.committed_offsets(earliest)
    """

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class Lookup(Protocol):
    """What a cluster says about offsets; partitions without an answer are left out."""

    def earliest(self, partitions: Iterable[KafkaTopicPartition]) -> Offsets:
        """Return the first offset that is there."""

    def latest(self, partitions: Iterable[KafkaTopicPartition]) -> Offsets:
        """Return the offset behind the last record that may be read."""

    def committed(self, partitions: Iterable[KafkaTopicPartition]) -> Offsets:
        """Return what the group has committed."""

    def at_time(self, partitions: Iterable[KafkaTopicPartition], timestamp_ms: int) -> Offsets:
        """Return the first offset whose record is not older."""


Offsets = dict[KafkaTopicPartition, int]


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Says where to begin, or where to stop; made by its static methods.

    Example:
        KafkaOffsetsInitializer.earliest()
    """

    kind: str
    timestamp_ms: int | None = None
    given: tuple[tuple[KafkaTopicPartition, int], ...] = ()
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Take what the group has committed, else what the strategy says."""
        return KafkaOffsetsInitializer("committed", reset=_strategy(offset_reset_strategy))

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Take the first record that is not older, else the end of the partition."""
        if not isinstance(timestamp, int) or isinstance(timestamp, bool) or timestamp < 0:
            msg = f"KafkaOffsetsInitializer.timestamp: {timestamp!r}, expected milliseconds >= 0"
            raise UsageError(msg)
        latest = KafkaOffsetResetStrategy.LATEST
        return KafkaOffsetsInitializer("timestamp", timestamp, reset=latest)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Take the first record that is there."""
        return KafkaOffsetsInitializer("earliest", reset=KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Take the end of the partition when the job starts."""
        return KafkaOffsetsInitializer("latest", reset=KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Take these; for other partitions what the group has committed, else the strategy."""
        given = tuple((KafkaTopicPartition(*p), int(n)) for p, n in offsets.items())
        if not given or any(n < 0 for _, n in given):
            msg = f"KafkaOffsetsInitializer.offsets: {offsets!r}, expected offsets >= 0"
            raise UsageError(msg)
        return KafkaOffsetsInitializer("offsets", None, given, _strategy(offset_reset_strategy))


def _strategy(found: Any) -> KafkaOffsetResetStrategy:
    if not isinstance(found, KafkaOffsetResetStrategy):
        msg = f"expected a KafkaOffsetResetStrategy, found {found!r}"
        raise UsageError(msg)
    return found


def refuse_unknown(found: Offsets, least: int, address: str) -> None:
    """Refuse answers that are none: a broker that has just started may have no offsets yet.

    Raises:
        StorageError: asking again helps.
    """
    unknown = sorted(partition for partition, offset in found.items() if offset < least)
    if unknown:
        topic, number = unknown[0]
        msg = (
            f"Kafka at {address!r} does not say where partition {number} of topic {topic!r} begins "
            f"or ends (it answers {found[unknown[0]]}): its broker may have just started"
        )
        raise StorageError(msg)


def resolve(
    wanted: KafkaOffsetsInitializer, partitions: Iterable[KafkaTopicPartition], cluster: Lookup
) -> Offsets:
    """Return the offset of every partition.

    Raises:
        UsageError: a partition has none, and the strategy is NONE; or one is named that is not
            there.
    """
    left = set(partitions)
    found: Offsets = {}
    if wanted.kind == "timestamp" and wanted.timestamp_ms is not None:
        found = cluster.at_time(left, wanted.timestamp_ms)
    elif wanted.kind == "offsets":
        found = dict(wanted.given)
        if not set(found) <= left:
            missing = ", ".join(f"{t}-{p}" for t, p in sorted(set(found) - left))
            msg = f"KafkaOffsetsInitializer.offsets names {missing}, which the source does not read"
            raise UsageError(msg)
    if wanted.kind in ("offsets", "committed"):
        found = {**cluster.committed(left - set(found)), **found}
    left -= set(found)
    if left and wanted.reset is KafkaOffsetResetStrategy.NONE:
        names = ", ".join(f"{t}-{p}" for t, p in sorted(left))
        msg = (
            f"the group has committed no offset for {names}: set a KafkaOffsetResetStrategy, or "
            "begin at KafkaOffsetsInitializer.earliest()"
        )
        raise UsageError(msg)
    if left:
        is_latest = wanted.reset is KafkaOffsetResetStrategy.LATEST
        found.update(cluster.latest(left) if is_latest else cluster.earliest(left))
    return found
