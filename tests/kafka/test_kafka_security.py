"""TLS and passwords against a broker that insists on them: what works, and what is said if not."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests import brokers
from tests.certificates import make_files
from tests.kafka.topics import Topics, records_of, until

from weir.common.serialization import SimpleStringSchema
from weir.connector.kafka import client
from weir.connector.sink import WriterContext
from weir.connector.source import Opening, SplitRows
from weir.datastream.connectors.base import DeliveryGuarantee
from weir.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from weir.errors import StorageError, UsageError

pytestmark = pytest.mark.kafka
PASSWORD = f"canary-{uuid.uuid4().hex}"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
USER = {"sasl.username": "weir", "sasl.password": PASSWORD}


def jaas(kind: str, password: str = PASSWORD) -> str:
    module = f"org.apache.kafka.common.security.{kind}.{kind.title()}LoginModule"
    return f'{module} required username="weir" password="{password}";'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: Any) -> Iterator[brokers.SecureBroker]:
    folder = tmp_path_factory.mktemp("secure")
    with brokers.running(lambda: brokers.SecureBroker(folder, PASSWORD)) as running:
        yield running


def ways(broker: brokers.SecureBroker) -> dict[str, tuple[str, dict[str, str]]]:
    """Return listeners and properties that lead through them."""
    tls, secure = broker.tls, {"security.protocol": "SASL_SSL", "ssl.ca.location": broker.tls.ca}
    both = str(broker.folder / "server.pem")
    return {
        "PLAIN": ("SASL", {**SASL, **USER}),
        "PLAIN by JAAS": ("SASL", {**SASL, "sasl.jaas.config": jaas("plain")}),
        "SCRAM by JAAS": (
            "SASL",
            {**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas("scram")},
        ),
        "SCRAM over TLS": ("SECURE", {**secure, "sasl.mechanism": "SCRAM-SHA-256", **USER}),
        "certificates": (
            "CERTIFIED",
            {
                "security.protocol": "SSL",
                "ssl.ca.location": tls.ca,
                "ssl.certificate.location": tls.certificate,
                "ssl.key.location": tls.key,
            },
        ),
        "stores of Java's client, as PEM": (
            "CERTIFIED",
            {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": tls.ca,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": both,
            },
        ),
        "certificates as text": (
            "CERTIFIED",
            {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": Path(tls.ca).read_text(),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": Path(tls.certificate).read_text(),
                "ssl.keystore.key": Path(tls.key).read_text(),
            },
        ),
    }


WAYS = (
    "PLAIN",
    "PLAIN by JAAS",
    "SCRAM by JAAS",
    "SCRAM over TLS",
    "certificates",
    "stores of Java's client, as PEM",
    "certificates as text",
)


def sink(address: str, topic: str, properties: Mapping[str, str]) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    schema.set_value_serialization_schema(SimpleStringSchema())
    made = KafkaSink.builder().set_bootstrap_servers(address)
    made.set_record_serializer(schema.build()).set_transactional_id_prefix(topic)
    made.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    for key, value in properties.items():
        made.set_property(key, value)
    return made.build()


def source(address: str, topic: str, properties: Mapping[str, str]) -> KafkaSource:
    made = KafkaSource.builder().set_bootstrap_servers(address).set_topics(topic)
    made.set_value_only_deserializer(SimpleStringSchema()).set_properties(properties)
    made.set_property("isolation.level", "read_committed").set_group_id(topic)
    return made.set_bounded(KafkaOffsetsInitializer.latest()).build()


def context() -> WriterContext:
    return WriterContext("0a" * 16, "ab" * 16, attempt=0, subtask=0, parallelism=1)


def read(made: KafkaSource, folder: Path) -> list[str]:
    """Read a bounded source as an engine does, in other processes than the one that opened it."""
    stream = made.open(Opening("kafka", folder))
    planner = pickle.loads(pickle.dumps(stream.planner))
    rows = pickle.loads(pickle.dumps(SplitRows(stream.reader, stream.decoder)))
    start = planner.begin()
    end = json.loads(json.dumps(planner.advance(start)))
    splits = [split for task in planner.plan(start, end, 1) for split in task]
    pieces = rows.decode(pa.record_batch({"split": pa.array(splits, pa.string())}))
    return [value for piece in pieces for value in records_of(piece)]


@pytest.mark.parametrize("way", WAYS)
def test_records_are_written_exactly_once_and_read_by_whoever_is_let_in(
    broker: brokers.SecureBroker, tmp_path: Path, way: str
) -> None:
    listener, properties = ways(broker)[way]
    address, topic = broker.listeners[listener], Topics(broker.address).new()
    writer = sink(address, topic, properties).create_writer(context())
    writer.write_batch(["one", "two"], None)
    writer.commit(writer.prepare(1))
    writer.close()
    found = until(lambda: read(source(address, topic, properties), tmp_path), 1)
    assert found == ["one", "two"]


@pytest.mark.parametrize("kind", ["plain", "scram"])
def test_a_wrong_password_is_said_at_once_and_not_shown(
    broker: brokers.SecureBroker, tmp_path: Path, kind: str
) -> None:
    topic = Topics(broker.address).new()
    mechanism = {"plain": "PLAIN", "scram": "SCRAM-SHA-256"}[kind]
    wrong = {**SASL, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas(kind, "wrong-canary")}
    address = broker.listeners["SASL"]
    with pytest.raises(UsageError, match="refuses the user or the password") as refused:
        source(address, topic, wrong).open(Opening("kafka", tmp_path))
    assert "wrong-canary" not in str(refused.value)
    with pytest.raises(UsageError, match=r"check 'sasl.username'") as refused:
        sink(address, topic, wrong).create_writer(context())
    assert "wrong-canary" not in str(refused.value)


def test_a_broker_that_nobody_vouches_for_is_refused(
    broker: brokers.SecureBroker, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 2.0)
    other = make_files(tmp_path / "other")
    _, properties = ways(broker)["SCRAM over TLS"]
    wrong = {**properties, "ssl.ca.location": other.ca}
    with pytest.raises(StorageError, match=r"certificate.*check the 'security.protocol', 'ssl.ca"):
        source(broker.listeners["SECURE"], "t", wrong).open(Opening("kafka", tmp_path))


def test_who_has_no_certificate_or_no_password_is_not_let_in(
    broker: brokers.SecureBroker, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 2.0)
    nothing = {"security.protocol": "SSL", "ssl.ca.location": broker.tls.ca}
    for listener, given in (("CERTIFIED", nothing), ("SASL", {})):
        with pytest.raises(StorageError, match="did not answer while connecting"):
            source(broker.listeners[listener], "t", given).open(Opening("kafka", tmp_path))


def test_the_rights_of_the_guide_are_enough_and_a_missing_one_is_named(
    broker: brokers.SecureBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rights are given one after the other, and each is asked for before."""
    topic, address = Topics(broker.address).new(), broker.listeners["SASL"]
    narrow = {**SASL, **USER, "sasl.username": "narrow"}

    def written() -> None:
        writer = sink(address, topic, narrow).create_writer(context())
        try:
            writer.write_batch(["row"], None)
            writer.commit(writer.prepare(1))
        finally:
            writer.close()

    def refused(what: str) -> None:
        with pytest.raises(UsageError, match=what) as found:
            written()
        assert PASSWORD not in str(found.value)

    refused("topic")
    broker.allow("TOPIC", topic, "WRITE")
    refused(r"fencing.*Transactional Id authorization failed.*transactional ids")
    broker.allow("TRANSACTIONAL_ID", topic, "WRITE")
    refused(r"Group authorization failed.*consumer groups")
    broker.allow("GROUP", topic, "READ")
    refused(r"writing checkpoint 1.*Topic authorization failed.*writes and reads its topics")
    broker.allow("TOPIC", topic, "READ")
    assert "does not let this user see its settings" in caplog.text
    written()
    found = until(lambda: read(source(address, topic, narrow), tmp_path), 1)
    assert found == ["row"]
