"""What a Kafka cluster says about topics and offsets, asked through the connection's clients."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from weir.connector.kafka.client import TIMEOUT_S, Connection, import_kafka
from weir.connector.kafka.offsets import (
    NO_RECORD,
    KafkaTopicPartition,
    Offsets,
    refuse_unknown,
)
from weir.connector.kafka.position import KafkaPosition
from weir.errors import IncompatibleStateError, UsageError


@dataclass(frozen=True)
class Subscription:
    """What a source reads: topics by name, by a pattern, or single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[KafkaTopicPartition, ...] = ()

    def has(self, partition: KafkaTopicPartition) -> bool:
        """Tell whether a partition is read, if there is one."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, partition.topic) is not None
        return partition.topic in self.topics or partition in self.partitions


def check_wanted(position: KafkaPosition, wanted: Subscription) -> None:
    """Refuse a position in partitions that the source does not read any more.

    Raises:
        IncompatibleStateError: it names one.
    """
    other = sorted(p for p in position.offsets if not wanted.has(p))
    if other:
        topic, number = other[0]
        msg = (
            f"the state has a position in partition {number} of the Kafka topic {topic!r}, which "
            "the source does not read any more: set_topics, set_topic_pattern or set_partitions "
            "have changed under the same uid; let the source read it on, or give the source "
            "another uid to begin anew"
        )
        raise IncompatibleStateError(msg)


@dataclass(frozen=True)
class Found:
    """The partitions of a subscription, and the id of every topic."""

    partitions: tuple[KafkaTopicPartition, ...]
    ids: dict[str, str]


class Cluster:
    """Answers questions; not for several threads. Clients are made when they are first needed."""

    def __init__(self, connection: Connection, group: str | None = None) -> None:
        """Ask on behalf of a consumer group, where there is one."""
        self._connection = connection
        self._group = group
        self._admin_client: Any = None
        self._consumer_client: Any = None

    def _admin(self) -> Any:
        if self._admin_client is None:
            self._admin_client = self._connection.admin()
        return self._admin_client

    def _consumer(self) -> Any:
        if self._consumer_client is None:
            group = {} if self._group is None else {"group.id": self._group}
            self._consumer_client = self._connection.consumer(**group)
        return self._consumer_client

    def find(self, wanted: Subscription) -> Found:
        """Return the partitions that are there now; single ones count only if they exist.

        Raises:
            UsageError: a topic or partition that is named does not exist.
            StorageError: nobody answers.
        """
        names = self._names(wanted)
        described = self._describe(names)
        every = {
            KafkaTopicPartition(name, p.id)
            for name, topic in described.items()
            for p in topic.partitions
        }
        ids = {name: str(topic.topic_id) for name, topic in described.items()}
        missing = sorted(set(wanted.partitions) - every)
        if missing:
            msg = f"Kafka at {self._connection.address!r} has no partition {missing[0]!r}"
            raise UsageError(msg)
        chosen = wanted.partitions or tuple(sorted(every))
        return Found(tuple(sorted(chosen)), ids)

    def _names(self, wanted: Subscription) -> list[str]:
        if wanted.pattern is None:
            return sorted({*wanted.topics, *(p.topic for p in wanted.partitions)})
        with self._connection.errors("listing topics"):
            every = self._admin().list_topics(timeout=TIMEOUT_S).topics
        matches = re.compile(wanted.pattern).fullmatch
        return sorted(name for name in every if matches(name) and not name.startswith("__"))

    def _describe(self, names: list[str]) -> dict[str, Any]:
        kafka = import_kafka()
        if not names:
            return {}
        with self._connection.errors("asking about topics"):
            futures = self._admin().describe_topics(
                kafka.TopicCollection(names), request_timeout=TIMEOUT_S
            )
        answers = {name: self._description(future) for name, future in futures.items()}
        return {name: found for name, found in answers.items() if found is not None}

    def _description(self, future: Any) -> Any:
        """Return what a topic is like, None if there is none."""
        kafka = import_kafka()
        try:
            return future.result()
        except kafka.KafkaException as error:
            if error.args[0].code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            doing = "asking about a topic"
            raise self._connection.error(doing, error.args[0]) from None

    def require(self, wanted: Subscription, found: Found) -> None:
        """Refuse topics that were named and do not exist.

        Raises:
            UsageError: it names them.
        """
        missing = [name for name in wanted.topics if name not in found.ids]
        if missing:
            msg = (
                f"Kafka at {self._connection.address!r} has no topic {missing[0]!r}: create it, or "
                "correct its name"
            )
            raise UsageError(msg)
        if not found.partitions and wanted.pattern is None:
            msg = f"the Kafka source reads no partition of {wanted!r}"
            raise UsageError(msg)

    def earliest(self, partitions: Iterable[KafkaTopicPartition]) -> Offsets:
        """Return the first offset that is there."""
        return self._listed(partitions, import_kafka().admin.OffsetSpec.earliest())

    def latest(self, partitions: Iterable[KafkaTopicPartition]) -> Offsets:
        """Return the end: with read_committed, where the first open transaction begins."""
        return self._listed(partitions, import_kafka().admin.OffsetSpec.latest())

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of those topics that exist."""
        described = self._describe(sorted(topics))
        return {name: str(topic.topic_id) for name, topic in described.items()}

    def at_time(self, partitions: Iterable[KafkaTopicPartition], timestamp_ms: int) -> Offsets:
        """Return the first offset whose record is not older, where there is one."""
        spec = import_kafka().admin.OffsetSpec.for_timestamp(timestamp_ms)
        found = self._listed(partitions, spec, least=NO_RECORD)
        return {p: n for p, n in found.items() if n != NO_RECORD}

    def _listed(
        self, partitions: Iterable[KafkaTopicPartition], spec: Any, least: int = 0
    ) -> Offsets:
        kafka = import_kafka()
        asked = {kafka.TopicPartition(*p): spec for p in partitions}
        if not asked:
            return {}
        code = kafka.KafkaError
        with self._connection.errors("asking for offsets"):
            try:
                found = self._answered(asked)
            except kafka.KafkaException as error:
                if error.args[0].code() not in (code.FENCED_LEADER_EPOCH, code._NOENT):
                    raise
                # The client goes by leaders that it has heard of minutes ago; a new one asks.
                self._admin_client = None
                found = self._answered(asked)
        refuse_unknown(found, least, self._connection.address)
        return found

    def _answered(self, asked: dict[Any, Any]) -> Offsets:
        level = import_kafka().IsolationLevel
        committed = self._connection.properties.get("isolation.level") == "read_committed"
        futures = self._admin().list_offsets(
            asked,
            isolation_level=level.READ_COMMITTED if committed else level.READ_UNCOMMITTED,
            request_timeout=TIMEOUT_S,
        )
        return {
            KafkaTopicPartition(tp.topic, tp.partition): future.result().offset
            for tp, future in futures.items()
        }

    def committed(self, partitions: Iterable[KafkaTopicPartition]) -> Offsets:
        """Return what the group has committed, where it has."""
        kafka = import_kafka()
        asked = [kafka.TopicPartition(*p) for p in partitions]
        if not asked or self._group is None:
            return {}
        with self._connection.errors(f"asking for the offsets of group {self._group!r}"):
            found = self._consumer().committed(asked, timeout=TIMEOUT_S)
        return {KafkaTopicPartition(f.topic, f.partition): f.offset for f in found if f.offset >= 0}

    def commit(self, offsets: Offsets, *, wait: bool) -> None:
        """Commit offsets of the group, for others to see how far the job is.

        Without `wait` an error is not raised: the next commit makes up for this one.
        """
        kafka = import_kafka()
        given = [kafka.TopicPartition(*p, n) for p, n in offsets.items()]
        with self._connection.errors(f"committing offsets of group {self._group!r}"):
            self._consumer().commit(offsets=given, asynchronous=not wait)
            self._consumer().poll(0)

    def close(self) -> None:
        """Close what was opened."""
        if self._consumer_client is not None:
            self._consumer_client.close()
        self._admin_client = self._consumer_client = None
