"""The job between servers that is attacked: Kafka, keyed state, Kafka and PostgreSQL, exactly once.

Usage: ends_program.py ROOT. Settings come from outside, addresses from `ROOT/ends.json`.
"""

import json
import sys
from pathlib import Path

from weir.common import Types, WatermarkStrategy
from weir.common.serialization import SimpleStringSchema
from weir.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from weir.datastream.connectors.base import DeliveryGuarantee
from weir.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from weir.datastream.connectors.kafka import (
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from weir.datastream.state import ValueStateDescriptor

NUMBERS = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
LINE = Types.ROW([Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()])
# A process that was stopped in the middle of a transaction keeps the next one waiting so long.
PATIENCE = "options=-c%20idle_in_transaction_session_timeout%3D4000"


class Totals(KeyedProcessFunction):
    """Sum and number of the rows of a key so far."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        seq, key, amount = value
        total, count = (self.total.value() or 0) + amount, (self.count.value() or 0) + 1
        self.total.update(total)
        self.count.update(count)
        yield seq, key, total, count


def kafka_sink(places):
    schema = KafkaRecordSerializationSchema.builder().set_topic(places["output"])
    schema.set_value_serialization_schema(SimpleStringSchema())
    sink = KafkaSink.builder().set_bootstrap_servers(places["kafka"])
    sink.set_record_serializer(schema.build()).set_transactional_id_prefix("chaos")
    return sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()


def database_sink(places):
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    options.with_url(f"{places['database']}?{PATIENCE}").with_user_name("test")
    insert = "insert into counted values (?, ?, ?, ?)"
    return JdbcSink.exactly_once_sink(insert, LINE, options.build())


def main(root):
    places = json.loads((Path(root) / "ends.json").read_text())
    env = StreamExecutionEnvironment.get_execution_environment()
    source = KafkaSource.builder().set_bootstrap_servers(places["kafka"])
    source.set_topics(places["input"]).set_group_id("chaos")
    source.set_value_only_deserializer(SimpleStringSchema())
    rows = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "kafka").uid("kafka")
    totals = (
        rows.map(lambda text: tuple(map(int, text.split())), output_type=NUMBERS)
        .key_by(lambda row: row[1])
        .process(Totals(), output_type=LINE)
        .uid("totals")
        .set_max_parallelism(12)
    )
    texts = totals.map(lambda line: " ".join(map(str, line)), output_type=Types.STRING())
    texts.sink_to(kafka_sink(places)).uid("to kafka")
    totals.sink_to(database_sink(places)).uid("to database")
    env.execute("chaos")


if __name__ == "__main__":
    main(*sys.argv[1:])
