"""Kafka as a commit target: rows and the offset of a group, which is the marker, in a transaction.

An identity has a transactional id and a consumer group, both of the same name. The marker is the
group's committed offset, the number of the checkpoint, on every topic that is written to: what
becomes of one topic later says nothing about the others. Transactions are open while a checkpoint
is committed, not from one to the next, so their timeout has nothing to do with the interval of
checkpoints.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

from weir.clock import SystemClock
from weir.connector.commit_target import CommitTarget
from weir.connector.kafka.client import Connection, import_kafka
from weir.connector.kafka.deadline import Calls
from weir.errors import StorageError, UsageError, WeirError
from weir.notices import warn_once

Row: TypeAlias = tuple[str, bytes | None, bytes | None, int | None]
"""Topic, key, value, timestamp; a record without a value says that its key is gone."""

_CALL_S = 60.0
_ASK_S = 10.0
_PAUSE_S = 0.1
_BETWEEN_POLLS = 1_000
# The client chooses the partition.
_ANY = -1
# A marker takes milliseconds. Who waits in vain fences and asks again, which finds its way.
_MARKER_S = 10.0
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
_markers = Calls("weir-kafka-marker")


class KafkaTarget(CommitTarget):
    """Writes transactions; a producer for every identity that was fenced."""

    remembers_rows = True

    def __init__(self, connection: Connection, prefix: str, *, one_topic: bool = False) -> None:
        """Connect to nobody yet; with `one_topic` rows of a checkpoint are all for the same."""
        self._connection = connection
        self._prefix = prefix
        self._one_topic = one_topic
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
        """Refuse what rules out transactions, and warn of markers that are soon gone.

        Raises:
            UsageError: a property does not fit, or a transaction may not be open for so long.
        """
        given, longest = self._connection.properties.get(TIMEOUT), self._broker().get(_LONGEST)
        if given is not None and longest is not None and _number(given) > longest:
            msg = (
                f"the Kafka property {TIMEOUT!r} is {given}, and the brokers at "
                f"{self._connection.address!r} allow at most {longest} ({_LONGEST!r}): lower it; "
                "it has to be enough for the rows of one checkpoint"
            )
            raise UsageError(msg)
        # Clients look at all their properties when they are made.
        self._producer("check")
        if _RETENTION not in self._broker():
            warn_once(
                log,
                f"Kafka at {self._connection.address!r} does not let this user see its settings: "
                "an exactly-once sink goes by Kafka's own, and counts on markers that are kept for "
                f"{_RETENTION_MINUTES // 1440} days ({_RETENTION!r})",
            )
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

    def _open_s(self) -> float:
        """Return for how long a transaction may be open."""
        given = _number(self._connection.properties.get(TIMEOUT, "")) or self._timeout_ms()
        return given / 1000

    def _marker_s(self) -> float:
        """Return for how long a marker may be under way: the transaction is over after that."""
        return min(_MARKER_S, self._open_s())

    def _name(self, identity: str) -> str:
        return f"{self._prefix}.{identity}"

    def fence(self, identities: Sequence[str]) -> None:
        """Abort what is open under the identities, and shut out who opened it."""
        for identity in identities:
            producer = self._producer(identity)
            with self._connection.errors(f"fencing {self._name(identity)!r}"):
                producer.init_transactions(_CALL_S)
            group = self._connection.consumer(**{"group.id": self._name(identity)})
            self._groups[identity] = group.consumer_group_metadata()
            group.close()
            self._producers[identity] = producer

    def _producer(self, identity: str) -> Any:
        own: dict[str, Any] = {
            "linger.ms": "20",
            "queue.buffering.max.messages": "1000000",
            TIMEOUT: str(self._timeout_ms()),
        }
        given = {k: v for k, v in own.items() if k not in self._connection.properties}
        return self._connection.producer(**given, **{"transactional.id": self._name(identity)})

    def places_of(self, rows: list[Any]) -> list[str]:
        """Return the topics of rows."""
        return [rows[0][0]] if self._one_topic else sorted({row[0] for row in rows})

    def committed(self, identity: str) -> int | None:
        """Return the newest marker on any topic of the cluster."""
        return self.committed_in(identity, ())

    def committed_in(self, identity: str, places: Sequence[str]) -> int | None:
        """Return the newest marker on some topics; a coordinator that is not ready is asked again.

        A broker that lags behind may not know of all topics that there are, so it is better to name
        some.
        """
        kafka, name = import_kafka(), self._name(identity)
        code = kafka.KafkaError
        later = {
            code.COORDINATOR_LOAD_IN_PROGRESS,
            code.COORDINATOR_NOT_AVAILABLE,
            code.NOT_COORDINATOR,
            code.UNSTABLE_OFFSET_COMMIT,
            code._TIMED_OUT,
        }
        doing = f"asking what {name!r} has committed"
        pause, clock = threading.Event(), SystemClock()
        deadline = clock.monotonic_ms() + _CALL_S * 1000
        while True:
            try:
                return self._marker(name, places)
            except kafka.KafkaException as error:
                found = error.args[0]
                if found.code() == code.GROUP_ID_NOT_FOUND:
                    return None
                if found.code() not in later:
                    raise self._connection.error(doing, found) from error
                if clock.monotonic_ms() > deadline:
                    raise self._unanswered(name, places, doing, found) from error
            pause.wait(_PAUSE_S)

    def _unanswered(self, name: str, places: Sequence[str], doing: str, error: Any) -> WeirError:
        """Return why there is no answer: a transaction that holds the marker back is named."""
        try:
            self._marker(name, places, "read_uncommitted")
        except import_kafka().KafkaException:
            return self._connection.error(doing, error)
        return StorageError(
            f"Kafka at {self._connection.address!r} has had an open transaction on the offsets of "
            f"group {name!r} for {_CALL_S:g} s, so nobody knows what it has committed. Where that "
            "does not end with the transaction's timeout, the broker has lost its end: "
            "'kafka-transactions.sh find-hanging' finds it, and 'abort' ends it"
        )

    def _marker(
        self, name: str, topics: Sequence[str], isolation: str = "read_committed"
    ) -> int | None:
        """Ask as a member of the group would, about some topics or about all that there are.

        An admin client could ask for all offsets of a group, but it crashes its process when the
        group has no coordinator for the moment, which is so behind the death of a broker.
        """
        kafka = import_kafka()
        # Offsets of open transactions are waited for when what is committed is asked for.
        mine = {"group.id": name, "isolation.level": isolation}
        consumer = self._connection.consumer(**mine)
        try:
            every = topics or consumer.list_topics(timeout=_CALL_S).topics
            asked = [kafka.TopicPartition(topic, _MARKED) for topic in every]
            places = consumer.committed(asked, timeout=_ASK_S) if asked else []
        except kafka.KafkaException:
            # Why nobody is found who could answer is not raised, but comes as a message.
            message = consumer.poll(0)
            if message is not None and message.error() is not None:
                raise kafka.KafkaException(message.error()) from None
            raise
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
        doing = f"writing checkpoint {checkpoint} of {name!r}"
        clock = SystemClock()
        began_ms = clock.monotonic_ms()
        with self._connection.errors(doing, in_transaction=True):
            producer.begin_transaction()
            try:
                produce(producer, rows)
                topics = self.places_of(rows)
                markers = [kafka.TopicPartition(t, _MARKED, checkpoint) for t in topics]
                self._send_markers(producer, identity, markers)
                producer.commit_transaction(max(_CALL_S, self._open_s()))
            except BaseException as error:
                # The next try fences first, which aborts whatever is open.
                del self._producers[identity]
                self._explain(doing, (clock.monotonic_ms() - began_ms) / 1000, error)
                raise

    def _explain(self, doing: str, seconds: float, error: BaseException) -> None:
        """Say that a transaction was open for too long, if that may be the reason of an error."""
        if seconds > self._open_s() and isinstance(error, import_kafka().KafkaException):
            msg = (
                f"Kafka at {self._connection.address!r} failed while {doing}: "
                f"{error.args[0].str()}. It took {seconds:.0f} s, and a transaction may be open "
                f"for {self._open_s():g} s: raise {TIMEOUT!r}, or take checkpoints more often"
            )
            raise StorageError(msg) from error

    def _send_markers(self, producer: Any, identity: str, markers: list[Any]) -> None:
        """Add the markers to the transaction, within the time that is left to it.

        The client remembers the group's coordinator. When that broker has died and is back, the
        client may go on waiting for a connection that it has given up itself, whatever timeout the
        call has: until some connection changes, which may take minutes. So nobody waits for the
        call itself; the producer is left to it, and the next one asks where the coordinator is.
        """
        seconds = self._marker_s()
        arguments = (markers, self._groups[identity], seconds)
        try:
            _markers.call(
                lambda: producer.send_offsets_to_transaction(*arguments), seconds + _GRACE_S
            )
        except TimeoutError as error:
            msg = (
                f"Kafka at {self._connection.address!r} did not take the marker of checkpoint "
                f"{markers[0].offset} of {self._name(identity)!r} within {seconds:g} s: the "
                f"group's coordinator is away, or was ({error})"
            )
            raise StorageError(msg) from None

    def close(self) -> None:
        """Forget the producers; an open transaction is aborted by who fences it, or by time."""
        self._producers.clear()


def produce(producer: Any, rows: Sequence[Row], on_delivery: Any = None) -> None:
    """Hand rows to a producer, waiting while its queue is full.

    What it has to say is heard now and then: asking after every row costs a third of the time.
    """
    hand = producer.produce
    for start in range(0, len(rows), _BETWEEN_POLLS):
        for topic, key, value, timestamp in rows[start : start + _BETWEEN_POLLS]:
            # To the client 0 means now. Named arguments take it twice as long to look at, and
            # most rows have none of the rest. It has two names for who hears of a delivery, and
            # takes what stands at the first place, whatever stands at the second.
            plain = timestamp is None and on_delivery is None
            rest = () if plain else (_ANY, on_delivery, None, timestamp or 0)
            while True:
                try:
                    hand(topic, value, key, *rest)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)


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
