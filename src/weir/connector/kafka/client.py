"""Connections to Kafka: properties as Flink's users know them, and errors that name the cause.

Properties are those of the Java client where librdkafka has the same, or one that means the same.
One that means nothing here is warned of once; one that would silently mean something else is
refused. Values of properties never appear in messages, since some are passwords.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from weir.clock import SystemClock
from weir.errors import StorageError, UsageError, WeirError
from weir.notices import warn_once

log = logging.getLogger("weir.kafka")
TIMEOUT_S = 30.0
_LOOK_S = 1.0
# A broker that has just started may not know its users yet.
_REFUSED_MS = 3_000

# The Java client's names of what librdkafka calls otherwise.
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
}
# What schemas and Weir itself decide, in Flink, too.
DECIDED = frozenset(
    {
        "key.deserializer",
        "value.deserializer",
        "key.serializer",
        "value.serializer",
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.partition.eof",
    }
)
_WITHOUT_EFFECT = frozenset(
    {
        "max.poll.records",
        "default.api.timeout.ms",
        "max.block.ms",
        "buffer.memory",
        "register.consumer.metrics",
        "send.buffer.bytes",
        "receive.buffer.bytes",
        "ssl.enabled.protocols",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
    }
)
_STORE = re.compile(r"ssl\.(truststore|keystore)\.(.+)")
# What stores hold, as librdkafka names it: files and texts in PEM.
_PEM: Mapping[str, tuple[str, ...]] = {
    "truststore.location": ("ssl.ca.location",),
    "truststore.certificates": ("ssl.ca.pem",),
    "keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "keystore.certificate.chain": ("ssl.certificate.pem",),
    "keystore.key": ("ssl.key.pem",),
}
_JAAS = re.compile(r"(\w+)\s*=\s*\"((?:[^\"\\]|\\.)*)\"")
_RIGHTS = (
    "a source reads its topics and its group, a sink writes its topics, and exactly once a sink "
    "writes and reads its topics, reads consumer groups and writes transactional ids whose names "
    "begin with its prefix"
)
# What every client takes; the others are of consumers or producers alone.
_COMMON = re.compile(
    r"bootstrap\.servers|client\.|security\.|sasl\.|ssl\.|enable\.ssl|socket\.|broker\."
    r"|reconnect\.|retry\.backoff|topic\.metadata|metadata\.|api\.version|log_level|debug"
    r"|connections\.|enable\.sasl"
)


# Who sets one of these to another value than idempotence needs does without it, as with Java's.
_ALL_ACKS = ("all", "-1")
_IN_FLIGHT_MOST = 5
IDEMPOTENCE = "enable.idempotence"


def producer_defaults(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what producers are told as long as nobody has said otherwise: Java's own defaults.

    librdkafka's are others: a retry might change the order of a partition's records, and a key
    would belong to another partition than with all clients of Java.
    """
    own = {"partitioner": "murmur2_random", IDEMPOTENCE: "true"}
    conflict = next((key for key in properties if _rules_out_idempotence(key, properties)), None)
    if conflict is not None and IDEMPOTENCE not in properties:
        own[IDEMPOTENCE] = "false"
        warn_once(
            log,
            f"the Kafka property {conflict!r} rules out {IDEMPOTENCE!r}: when a broker fails, "
            "records may arrive twice, or in another order",
        )
    return {key: value for key, value in own.items() if key not in properties}


def _rules_out_idempotence(key: str, properties: Mapping[str, str]) -> bool:
    value = properties[key]
    if key in ("acks", "request.required.acks"):
        return value not in _ALL_ACKS
    if key in ("max.in.flight", "max.in.flight.requests.per.connection"):
        return value.isdecimal() and int(value) > _IN_FLIGHT_MOST
    if key in ("retries", "message.send.max.retries"):
        return value == "0"
    return key == "queuing.strategy" and value == "lifo"


def import_kafka() -> Any:
    """Return the module `confluent_kafka`.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        msg = "Kafka needs the package confluent-kafka: pip install 'weir-spark[kafka]'"
        raise UsageError(msg) from error
    return confluent_kafka


def translate(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties as librdkafka knows them.

    Raises:
        UsageError: one of them cannot be had here.
    """
    found: dict[str, str] = {}
    for key, value in properties.items():
        if key in DECIDED:
            continue
        if key in _WITHOUT_EFFECT:
            warn_once(log, f"the Kafka property {key!r} has no effect here")
        elif key == "sasl.jaas.config":
            found.update(_jaas(value))
        elif key == "ssl.endpoint.identification.algorithm":
            found[key] = value or "none"
        elif (store := _STORE.fullmatch(key)) is not None:
            found.update(_store(store[1], store[2], properties))
        else:
            found[_RENAMED.get(key, key)] = str(value)
    return found


def _store(which: str, what: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Take certificates and keys as PEM, and PKCS12 as a key store; refuse what only Java reads."""
    key = f"ssl.{which}.{what}"
    kind = str(properties.get(f"ssl.{which}.type", "")).upper()
    inline = f"{which}.{what}" in _PEM and what != "location"
    if kind == "PEM" or inline:
        return {name: str(properties[key]) for name in _PEM.get(f"{which}.{what}", ())}
    if which == "keystore" and kind == "PKCS12":
        return {} if what == "type" else {key: str(properties[key])}
    files = " and ".join(map(repr, _PEM[f"{which}.location"]))
    msg = (
        f"the Kafka property {key!r} names a store of Java, which is not read here: export it as "
        f"PEM and name the files by {files}, or set 'ssl.{which}.type' to 'PEM'"
    )
    raise UsageError(msg)


def _jaas(text: str) -> dict[str, str]:
    fields = {key: re.sub(r"\\(.)", r"\1", value) for key, value in _JAAS.findall(text)}
    if not {"username", "password"} <= set(fields):
        msg = (
            "the Kafka property 'sasl.jaas.config' names no username and password; give "
            "'sasl.mechanism' and the properties of librdkafka for it"
        )
        raise UsageError(msg)
    return {"sasl.username": fields["username"], "sasl.password": fields["password"]}


class Connection:
    """How to reach one cluster; picklable, holds no socket. `repr` shows no property but one."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Take properties of the Java client or of librdkafka."""
        self.properties = translate(properties)
        if not self.properties.get("bootstrap.servers"):
            msg = "Kafka needs set_bootstrap_servers('host:port')"
            raise UsageError(msg)
        self.said = _Said()

    @property
    def address(self) -> str:
        """The servers to begin with."""
        return self.properties["bootstrap.servers"]

    def __repr__(self) -> str:
        """Show where, not how: properties hold passwords."""
        return f"Connection({self.address!r})"

    def consumer(self, **more: Any) -> Any:
        """Return a consumer that commits nothing by itself."""
        own = {"enable.auto.commit": False, "group.id": "weir", "auto.offset.reset": "error"}
        return self._make(import_kafka().Consumer, {**own, **self.properties, **more})

    def producer(self, **more: Any) -> Any:
        """Return a producer, with Java's defaults where the properties do not say otherwise."""
        own = producer_defaults(self.properties)
        if "transactional.id" in more:
            # Transactions need it: what rules it out is refused by the client, with its name.
            own.pop(IDEMPOTENCE, None)
        return self._make(import_kafka().Producer, {**own, **self.properties, **more})

    def admin(self) -> Any:
        """Return a client for questions about topics and groups."""
        common = {k: v for k, v in self.properties.items() if _COMMON.match(k)}
        return self._make(import_kafka().admin.AdminClient, common)

    def reach(self) -> None:
        """Wait until the cluster answers, so that a wrong password is found at once.

        Raises:
            UsageError: it refuses the user or the password.
            StorageError: nobody answers.
        """
        kafka, clock = import_kafka(), SystemClock()
        admin, began = self.admin(), clock.monotonic_ms()
        code = kafka.KafkaError
        patient = (code._TRANSPORT, code._TIMED_OUT, code._ALL_BROKERS_DOWN, code._AUTHENTICATION)
        while True:
            try:
                admin.list_topics(timeout=_LOOK_S)
            except kafka.KafkaException as error:  # noqa: PERF203 - it is tried again
                # What clients complain of is heard here only.
                admin.poll(0)
                waited = clock.monotonic_ms() - began
                if self.said.refusal and waited > _REFUSED_MS:
                    raise self._refused() from None
                found = error.args[0]
                if found.code() not in patient or waited > TIMEOUT_S * 1000:
                    doing = "connecting"
                    raise self.error(doing, found) from error
            else:
                self.said.forget()
                return

    def _refused(self) -> UsageError:
        return UsageError(
            f"Kafka at {self.address!r} refuses the user or the password: {self.said.refusal}; "
            "check 'sasl.username', 'sasl.password' and 'sasl.mechanism', or 'sasl.jaas.config'"
        )

    def _make(self, kind: Any, properties: Mapping[str, Any]) -> Any:
        # What goes wrong is raised or said by us; librdkafka would write it to the terminal.
        given = {"log_level": 0, "error_cb": self.said, **properties}
        try:
            return kind(given)
        except import_kafka().KafkaException as error:
            msg = f"Kafka at {self.address!r}: {error.args[0].str()}"
            raise UsageError(msg) from None
        except (TypeError, ValueError) as error:
            msg = f"Kafka at {self.address!r}: a property has a wrong value: {error}"
            raise UsageError(msg) from None

    @contextmanager
    def errors(self, doing: str, *, in_transaction: bool = False) -> Iterator[None]:
        """Turn what librdkafka raises into an error that names the cluster and what was tried."""
        kafka = import_kafka()
        try:
            yield
        except kafka.KafkaException as error:
            found = error.args[0]
            raise self.error(doing, found, in_transaction=in_transaction) from error

    def _look_at(self) -> str:
        if self.said.refusal:
            return "user and password"
        if self.said.insecure:
            return "'security.protocol', 'ssl.ca.location' and the broker's certificate"
        return "address, and that the broker runs"

    def error(self, doing: str, error: Any, *, in_transaction: bool = False) -> WeirError:
        """Return the error for one of librdkafka's; rows of a transaction are in the checkpoint."""
        code = import_kafka().KafkaError
        reason = error.str()
        late = (code._TIMED_OUT, code._MSG_TIMED_OUT)
        if error.code() in (code._TRANSPORT, code._ALL_BROKERS_DOWN, *late):
            reason = self.said.refusal or self.said.insecure or self.said.last or reason
            return StorageError(
                f"Kafka at {self.address!r} did not answer while {doing}: {reason}; check the "
                + self._look_at()
            )
        if error.code() in (
            code.TOPIC_AUTHORIZATION_FAILED,
            code.GROUP_AUTHORIZATION_FAILED,
            code.CLUSTER_AUTHORIZATION_FAILED,
            code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ):
            msg = f"Kafka at {self.address!r} does not allow {doing}: {reason}; {_RIGHTS}"
            return UsageError(msg)
        if error.code() in (code.MSG_SIZE_TOO_LARGE, code.INVALID_RECORD):
            return self._unwanted(doing, reason, in_transaction=in_transaction)
        if error.code() in (code._UNKNOWN_TOPIC, code.UNKNOWN_TOPIC_OR_PART):
            msg = f"Kafka at {self.address!r} has no such topic, {doing}: {reason}; create it"
            return UsageError(msg)
        if error.code() == code.INVALID_TRANSACTION_TIMEOUT:
            msg = (
                f"Kafka at {self.address!r} does not allow {doing}: {reason}; lower "
                "'transaction.timeout.ms', or raise the brokers' 'transaction.max.timeout.ms'"
            )
            return UsageError(msg)
        return StorageError(f"Kafka at {self.address!r} failed while {doing}: {reason}")

    def _unwanted(self, doing: str, reason: str, *, in_transaction: bool) -> UsageError:
        """Return the error for a record that no broker takes, and where it comes from again."""
        remedy = "raise the topic's 'max.message.bytes', or correct its schema, and resume from"
        told = (
            f"nothing was written: {remedy} the checkpoint, which holds the records"
            if in_transaction
            else f"others may have been written: {remedy} the newest checkpoint: what came "
            "behind it is written again"
        )
        place = f"Kafka at {self.address!r}"
        return UsageError(f"{place} refuses a record while {doing}: {reason}; {told}")


class _Said:
    """What clients complained of last, which their calls do not raise.

    A refused user and a failed handshake are kept apart: what follows them says less.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: the cluster has answered."""
        self.last = self.refusal = self.insecure = ""

    def __call__(self, error: Any) -> None:
        code = import_kafka().KafkaError
        self.last = error.str()
        if error.code() == code._AUTHENTICATION:
            self.refusal = self.last
        elif error.code() == code._SSL:
            self.insecure = self.last
