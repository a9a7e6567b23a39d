"""Kafka read by Spark's own connector, where the property `reader` of a source asks for it.

Rows then pass through the JVM, which costs about twice as much. What is gained are the Java client
and whatever it alone can: stores of Java, Kerberos by JAAS, logins by plug-ins of a company's own.
Positions are Spark's, `{"topic": {"0": 173}}`; the own reader goes on from them, not the other way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weir.connector.decoder import Decoder, Partition, Piece
from weir.connector.kafka.client import DECIDED
from weir.connector.kafka.cluster import Subscription
from weir.connector.kafka.offsets import KafkaOffsetsInitializer
from weir.connector.kafka.reader import PARTITION, SCHEMA, TOPIC
from weir.connector.source import StreamRows
from weir.errors import IncompatibleStateError, UsageError

READER = "reader"
_PLACE = ("topic", "partition")
_GROUP = "group.id"


@dataclass(frozen=True)
class KafkaRows(Decoder):
    """Rows of Spark's connector, as the batches that the own reader gives a decoder."""

    decoder: Decoder

    def decode(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """Decode one partition after the other, the records of each in their order."""
        places = pa.Table.from_batches([batch.select(_PLACE)])
        for place in places.group_by(_PLACE, use_threads=False).aggregate([]).to_pylist():
            topic, partition = place["topic"], place["partition"]
            rows = batch.filter(
                pc.and_(
                    pc.equal(batch.column("topic"), topic),
                    pc.equal(batch.column("partition"), partition),
                )
            )
            yield Partition(f"{topic}-{partition}")
            yield from self.decoder.decode(_as_read(rows, topic, partition))


def _as_read(rows: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
    found = dict(zip(rows.schema.names, rows.columns, strict=True))
    stamps = pc.cast(found["timestamp"], pa.timestamp("ms", found["timestamp"].type.tz), safe=False)
    found["timestamp"] = stamps.cast(pa.int64())
    absent = pa.nulls(rows.num_rows, SCHEMA.field("headers").type)
    arrays = [found.get(field.name, absent).cast(field.type) for field in SCHEMA]
    told = {TOPIC: topic.encode(), PARTITION: str(partition).encode()}
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.with_metadata(told))


def reads_by_spark(properties: Mapping[str, str]) -> bool:
    """Tell whether Spark's connector is asked for.

    Raises:
        UsageError: it is neither that nor the own reader.
    """
    chosen = properties.get(READER, "own")
    if chosen not in ("own", "spark"):
        msg = f"the property {READER!r} of the Kafka source is {chosen!r}: expected own or spark"
        raise UsageError(msg)
    return chosen == "spark"


def options_of(
    wanted: Subscription,
    starting: KafkaOffsetsInitializer,
    properties: Mapping[str, str],
    records_per_epoch: int | None,
) -> dict[str, str]:
    """Return what Spark's connector is told; properties are the Java client's.

    Raises:
        UsageError: its connector has no such beginning.
    """
    options = {
        f"kafka.{key}": value
        for key, value in properties.items()
        if key not in DECIDED and key != _GROUP
    }
    options |= _subscribed(wanted) | _beginning(wanted, starting)
    if records_per_epoch is not None:
        options["maxOffsetsPerTrigger"] = str(records_per_epoch)
    options["failOnDataLoss"] = "true"
    return options


def _subscribed(wanted: Subscription) -> dict[str, str]:
    if wanted.pattern is not None:
        # Java's pattern has to fit the whole name, too.
        return {"subscribePattern": wanted.pattern}
    if wanted.topics:
        return {"subscribe": ",".join(wanted.topics)}
    chosen: dict[str, list[int]] = {}
    for topic, partition in wanted.partitions:
        chosen.setdefault(topic, []).append(partition)
    return {"assign": json.dumps(chosen)}


def _beginning(wanted: Subscription, starting: KafkaOffsetsInitializer) -> dict[str, str]:
    if starting.kind in ("earliest", "latest"):
        return {"startingOffsets": starting.kind}
    if starting.kind == "timestamp":
        return {
            "startingTimestamp": str(starting.timestamp_ms),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    given = dict(starting.given)
    if starting.kind == "offsets" and set(given) == set(wanted.partitions):
        offsets: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in given.items():
            offsets.setdefault(topic, {})[str(partition)] = offset
        return {"startingOffsets": json.dumps(offsets)}
    msg = (
        f"Spark's Kafka connector cannot begin at {starting.kind} offsets, but at earliest, latest "
        "and timestamps, and at given offsets of all partitions of set_partitions: choose one of "
        f"these, or leave the property {READER!r} out"
    )
    raise UsageError(msg)


def refuse_other_positions(position: str | None) -> None:
    """Refuse a position that the own reader has written: Spark would take it for something else.

    Raises:
        IncompatibleStateError: it is one.
    """
    found: Any = None if position is None else json.loads(position)
    if isinstance(found, dict) and isinstance(found.get("topics"), dict) and "offsets" in found:
        msg = (
            "the state was written by a job that read Kafka itself, and Spark's connector cannot "
            f"go on from there: leave the property {READER!r} of the source out, or give the "
            "source another uid and the offsets to begin at"
        )
        raise IncompatibleStateError(msg)


def stream_rows(options: Mapping[str, str], decoder: Decoder, *, with_headers: bool) -> StreamRows:
    """Return the form in which the engine reads it."""
    headers = {"includeHeaders": "true"} if with_headers else {}
    return StreamRows("kafka", KafkaRows(decoder), {**options, **headers}, _package)


def _package(version: str) -> str:
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
