"""The job of `weir demo --kafka`: payments of a topic, keyed state, totals to another topic.

Written as any user would write it. Records are JSON; the sink is exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weir.common import Types, WatermarkStrategy
from weir.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from weir.datastream.connectors.base import DeliveryGuarantee
from weir.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from weir.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from weir.datastream.state import ValueStateDescriptor
from weir.demo.topics import INPUT, OUTPUT

PAYMENT = Types.ROW_NAMED(
    ["seq", "card", "amount_cents"], [Types.LONG(), Types.LONG(), Types.LONG()]
)
TOTAL = Types.ROW_NAMED(
    ["seq", "card", "total_cents", "payments"],
    [Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()],
)


class RunningTotals(KeyedProcessFunction[Any, Any, Any]):
    """Keeps the sum and the number of a card's payments."""

    def open(self, runtime_context: Any) -> None:
        """Get the states of the card."""
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """Account for a payment."""
        seq, card, amount = value
        total, count = (self._total.value() or 0) + amount, (self._count.value() or 0) + 1
        self._total.update(total)
        self._count.update(count)
        yield seq, card, total, count


def declare(env: StreamExecutionEnvironment, address: str, records_per_epoch: int) -> None:
    """Declare the job on the topics of a broker; it ends where the input ends now."""
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(address)
        .set_topics(INPUT)
        .set_group_id("weir-demo")
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(
            JsonRowDeserializationSchema.builder().type_info(PAYMENT).build()
        )
        .set_property("isolation.level", "read_committed")
        .set_property("max.records.per.epoch", str(records_per_epoch))
        .build()
    )
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(OUTPUT)
        .set_value_serialization_schema(
            JsonRowSerializationSchema.builder().with_type_info(TOTAL).build()
        )
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(address)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("weir-demo")
        # A commit that the broker's death interrupts can take as long as this.
        .set_property("transaction.timeout.ms", "10000")
        .build()
    )
    payments = env.from_source(source, WatermarkStrategy.no_watermarks(), "Payments")
    totals = (
        payments.uid("payments")
        .key_by("card")
        .process(RunningTotals(), TOTAL)
        .uid("totals")
        .name("Running totals")
    )
    totals.sink_to(sink).uid("output")
