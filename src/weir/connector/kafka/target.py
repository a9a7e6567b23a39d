"""Kafka as a commit target: rows and the offset of a group, which is the marker, in a transaction.

An identity has a transactional id and a consumer group, both of the same name. The marker is the
group's committed offset on one of the topics written to: the number of the checkpoint. Transactions
are open while a checkpoint is committed, not from one to the next, so their timeout has nothing to
do with the interval of checkpoints.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeAlias

from weir.clock import SystemClock
from weir.connector.commit_target import CommitTarget
from weir.connector.kafka.client import Connection, import_kafka
from weir.errors import StorageError, UsageError
from weir.notices import warn_once

Row: TypeAlias = tuple[str, bytes | None, bytes | None, int | None]
"""Topic, key, value, timestamp."""

_CALL_S = 60.0
_PAUSE_S = 0.1
# The client's own errors, which say more, come first.
_GRACE_S = 1.0
# The partition that markers lie on.
_MARKED = 0
_RETENTION_MINUTES = 7 * 24 * 60
_SHORT_MINUTES = 24 * 60
_TIMEOUT_MS = 60_000
_RETENTION = "offsets.retention.minutes"
_LONGEST = "transaction.max.timeout.ms"
TIMEOUT = "transaction.timeout.ms"
log = logging.getLogger("weir.kafka")


class KafkaTarget(CommitTarget):
    """Writes transactions; a producer for every identity that was fenced."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        """Connect to nobody yet."""
        self._connection = connection
        self._prefix = prefix
        self._producers: dict[str, Any] = {}
        self._groups: dict[str, Any] = {}
        self._settings: dict[str, int] | None = None

    @property
    def retention_ms(self) -> int:  # type: ignore[override]
        """For how long the broker keeps offsets of a group that commits none."""
        return self._broker().get(_RETENTION, _RETENTION_MINUTES) * 60_000

    def _broker(self) -> dict[str, int]:
        """Return settings of the brokers; none where asking is not allowed."""
        if self._settings is None:
            self._settings = self._asked_settings()
        return self._settings

    def _asked_settings(self) -> dict[str, int]:
        kafka = import_kafka()
        admin = self._connection.admin()
        with self._connection.errors("asking for the brokers' settings"):
            # An empty list must not become a StopIteration, which callers could take for an end.
            (broker, *_) = admin.list_topics(timeout=_CALL_S).brokers
            asked = kafka.admin.ConfigResource(kafka.admin.ConfigResource.Type.BROKER, str(broker))
            try:
                (future,) = admin.describe_configs([asked], request_timeout=_CALL_S).values()
                found = future.result()
            except kafka.KafkaException as error:
                if error.args[0].code() != kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                    raise
                return {}
        return {n: int(found[n].value) for n in (_RETENTION, _LONGEST) if n in found}

    def check(self) -> None:
        """Refuse a timeout that the brokers do not allow, and warn of markers that are soon gone.

        Raises:
            UsageError: a transaction may not be open for so long.
        """
        given, longest = self._connection.properties.get(TIMEOUT), self._broker().get(_LONGEST)
        if given is not None and longest is not None and _number(given) > longest:
            msg = (
                f"the Kafka property {TIMEOUT!r} is {given}, and the brokers at "
                f"{self._connection.address!r} allow at most {longest} ({_LONGEST!r}): lower it; "
                "it has to be enough for the rows of one checkpoint"
            )
            raise UsageError(msg)
        kept = self._broker().get(_RETENTION, _RETENTION_MINUTES)
        if kept < _SHORT_MINUTES:
            warn_once(
                log,
                f"Kafka at {self._connection.address!r} forgets after {kept} minutes what an "
                f"exactly-once sink has written ({_RETENTION!r}): a job that crashed has to be "
                "resumed before that",
            )

    def _timeout_ms(self) -> int:
        """Return for how long a transaction is open at most: while a checkpoint is written."""
        return min(_TIMEOUT_MS, self._broker().get(_LONGEST, _TIMEOUT_MS))

    def _marker_s(self) -> float:
        """Return for how long a marker may be under way: the transaction is over after that."""
        given = _number(self._connection.properties.get(TIMEOUT, "")) or self._timeout_ms()
        return min(_CALL_S, given / 1000)

    def _name(self, identity: str) -> str:
        return f"{self._prefix}.{identity}"

    def fence(self, identities: Sequence[str]) -> None:
        """Abort what is open under the identities, and shut out who opened it."""
        for identity in identities:
            own: dict[str, Any] = {
                "transactional.id": self._name(identity),
                "linger.ms": "20",
                "queue.buffering.max.messages": "1000000",
                TIMEOUT: str(self._timeout_ms()),
            }
            given = {k: v for k, v in own.items() if k not in self._connection.properties}
            producer = self._connection.producer(**given)
            with self._connection.errors(f"fencing {self._name(identity)!r}"):
                producer.init_transactions(_CALL_S)
            group = self._connection.consumer(**{"group.id": self._name(identity)})
            self._groups[identity] = group.consumer_group_metadata()
            group.close()
            self._producers[identity] = producer

    def committed(self, identity: str) -> int | None:
        """Return the marker; a coordinator that is not ready yet is asked again."""
        kafka, name = import_kafka(), self._name(identity)
        code = kafka.KafkaError
        later = {
            code.COORDINATOR_LOAD_IN_PROGRESS,
            code.COORDINATOR_NOT_AVAILABLE,
            code.NOT_COORDINATOR,
            code.UNSTABLE_OFFSET_COMMIT,
        }
        pause, clock = threading.Event(), SystemClock()
        deadline = clock.monotonic_ms() + _CALL_S * 1000
        while True:
            try:
                return self._marker(name)
            except kafka.KafkaException as error:
                found = error.args[0]
                if found.code() == code.GROUP_ID_NOT_FOUND:
                    return None
                if found.code() not in later or clock.monotonic_ms() > deadline:
                    doing = f"asking what {name!r} has committed"
                    raise self._connection.error(doing, found) from error
            pause.wait(_PAUSE_S)

    def _marker(self, name: str) -> int | None:
        """Ask as a member of the group would, about every topic that the marker can lie on.

        An admin client could ask for all offsets of a group, but it crashes its process when the
        group has no coordinator for the moment, which is so behind the death of a broker.
        """
        kafka = import_kafka()
        # Offsets of open transactions are waited for.
        mine = {"group.id": name, "isolation.level": "read_committed"}
        consumer = self._connection.consumer(**mine)
        try:
            topics = consumer.list_topics(timeout=_CALL_S).topics
            asked = [kafka.TopicPartition(topic, _MARKED) for topic in topics]
            places = consumer.committed(asked, timeout=_CALL_S) if asked else []
        finally:
            consumer.close()
        for place in places:
            if place.error is not None:
                raise kafka.KafkaException(place.error)
        return max((place.offset for place in places if place.offset >= 0), default=None)

    def write(self, identity: str, checkpoint: int, rows: list[Any]) -> None:
        """Write a transaction."""
        kafka, name = import_kafka(), self._name(identity)
        producer = self._producers.get(identity)
        if producer is None:
            msg = f"{name!r} was not fenced"
            raise StorageError(msg)
        with self._connection.errors(f"writing checkpoint {checkpoint} of {name!r}"):
            producer.begin_transaction()
            try:
                for row in rows:
                    produce(producer, row)
                marker = kafka.TopicPartition(rows[0][0], _MARKED, checkpoint)
                self._send_marker(producer, identity, marker)
                producer.commit_transaction(_CALL_S)
            except BaseException:
                # The next try fences first, which aborts whatever is open.
                del self._producers[identity]
                raise

    def _send_marker(self, producer: Any, identity: str, marker: Any) -> None:
        """Add the marker to the transaction, within the time that is left to it.

        The client remembers the group's coordinator. When that broker has died and is back, the
        client may go on waiting for a connection that it has given up itself, whatever timeout the
        call has: until some connection changes, which may take minutes. So nobody waits for the
        call itself; the producer is left to it, and the next one asks where the coordinator is.
        """
        seconds = self._marker_s()
        call = _sent(producer, [marker], self._groups[identity], seconds)
        if not wait([call], seconds + _GRACE_S).done:
            msg = (
                f"Kafka at {self._connection.address!r} did not take the marker of checkpoint "
                f"{marker.offset} of {self._name(identity)!r} within {seconds:g} s, which its "
                "transaction has: the group's coordinator is away, or was"
            )
            raise StorageError(msg)
        call.result()

    def close(self) -> None:
        """Forget the producers; an open transaction is aborted by who fences it, or by time."""
        self._producers.clear()


def _sent(producer: Any, *arguments: Any) -> Future[None]:
    """Send offsets in a thread that nobody waits for, not even when the process ends."""
    answer: Future[None] = Future()

    def send() -> None:
        try:
            producer.send_offsets_to_transaction(*arguments)
        except BaseException as error:
            # Who waits raises it.
            answer.set_exception(error)
        else:
            answer.set_result(None)

    threading.Thread(target=send, name="weir-kafka-marker", daemon=True).start()
    return answer


def produce(producer: Any, row: Row, on_delivery: Any = None) -> None:
    """Hand a row to a producer, waiting while its queue is full."""
    topic, key, value, timestamp = row
    more: dict[str, Any] = {} if timestamp is None else {"timestamp": timestamp}
    if on_delivery is not None:
        more["on_delivery"] = on_delivery
    while True:
        try:
            producer.produce(topic, value=value, key=key, **more)
        except BufferError:
            producer.poll(0.05)
            continue
        producer.poll(0)
        return


def _number(text: str) -> int:
    """Return a number of milliseconds; what is none is refused by the client, with its name."""
    return int(text) if text.isdecimal() else 0


def largest_record(connection: Connection, topic: str) -> int | None:
    """Return how many bytes a record of a topic may have, as far as the brokers say.

    It counts what is sent, so nobody knows where records are compressed.
    """
    kafka = import_kafka()
    if connection.properties.get("compression.type", "none") != "none":
        return None
    asked = kafka.admin.ConfigResource(kafka.admin.ConfigResource.Type.TOPIC, topic)
    admin = connection.admin()
    with connection.errors(f"asking about topic {topic!r}"):
        try:
            (future,) = admin.describe_configs([asked], request_timeout=_CALL_S).values()
            return int(future.result()["max.message.bytes"].value)
        except kafka.KafkaException as error:
            if error.args[0].code() != kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            return None


def require_topic(connection: Connection, topic: str) -> None:
    """Refuse a topic that does not exist, before rows are prepared for it.

    Raises:
        UsageError: there is no such topic.
    """
    connection.reach()
    admin = connection.admin()
    with connection.errors(f"asking about topic {topic!r}"):
        found = admin.list_topics(topic, timeout=_CALL_S).topics[topic]
    if found.error is not None:
        msg = (
            f"Kafka at {connection.address!r} has no topic {topic!r} to write to "
            f"({found.error.str()}): create it, or correct its name"
        )
        raise UsageError(msg)
