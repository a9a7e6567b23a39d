"""Counts the records of a topic that Spark's own connector reads, and is attacked on the way.

In the end the own reader goes on from its savepoint.

Usage: kafka_by_spark.py ADDRESS TOPIC FOLDER; prints one line of JSON.
"""

import json
import os
import signal
import sys
from pathlib import Path

from tests.kafka.topics import Topics
from tests.spark.scenario import wait_until

from weir.common import Configuration, Types, WatermarkStrategy
from weir.common.serialization import Encoder
from weir.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from weir.datastream.connectors.file_system import FileSink
from weir.datastream.connectors.kafka import KafkaRecordDeserializationSchema, KafkaSource
from weir.datastream.state import ValueStateDescriptor

address, topic, folder = sys.argv[1:]
topics, output = Topics(address), Path(folder, "output")


class Keyed(KafkaRecordDeserializationSchema):
    """Value, key, a header, place and time of a record."""

    def deserialize(self, record):
        header = dict(record.headers)["from"].decode()
        place = f"{record.topic == topic}-{record.partition}-{record.offset}"
        return record.value.decode(), record.key.decode(), header, place, record.timestamp

    def get_produced_type(self):
        return Types.TUPLE([Types.STRING()] * 4 + [Types.LONG()])


class Count(KeyedProcessFunction):
    def open(self, context):
        self.seen = context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        n = (self.seen.value() or 0) + 1
        self.seen.update(n)
        yield json.dumps([*value[:4], value[4] == ctx.timestamp() == 1_000 + n, n])


def started(savepoint=None, reader="spark"):
    configuration = Configuration()
    configuration.set_string("weir.log.dir", f"{folder}/logs")
    configuration.set_string("execution.checkpointing.dir", Path(folder, "chk").as_uri())
    if savepoint is not None:
        configuration.set_string("execution.state-recovery.path", savepoint)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    env.enable_checkpointing(300)
    made = KafkaSource.builder().set_bootstrap_servers(address).set_topics(topic)
    made.set_deserializer(Keyed()).set_property("reader", reader)
    stream = env.from_source(made.build(), WatermarkStrategy.no_watermarks(), "in").uid("in")
    counted = stream.key_by(lambda v: v[0], Types.STRING()).process(Count(), Types.STRING())
    sink = FileSink.for_row_format(str(output), Encoder.simple_string_encoder()).build()
    counted.uid("count").sink_to(sink).uid("out")
    return env.execute_async("by Spark")


def send(times):
    for n in times:
        for partition in range(2):
            values = [f"{partition}{key}" for key in range(5)]
            topics.send(
                topic,
                values,
                partition,
                key="k",
                headers=[("from", b"test")],
                timestamp=1_000 + n,
            )


def lines():
    files = [p for p in output.rglob("*") if p.is_file() and not p.name.startswith(".")]
    return [json.loads(line) for p in files for line in p.read_text().splitlines()]


def await_lines(count):
    wait_until(lambda: len(lines()) >= count, 90, f"{count} lines")


send(range(1, 11))
job = started()
await_lines(100)
os.kill(job.progress()["slots"][0]["pid"], signal.SIGKILL)
send(range(11, 21))
await_lines(200)
savepoint = job.stop_with_savepoint(False, Path(folder, "sp").as_uri()).result()
send(range(21, 31))
job = started(savepoint)
await_lines(300)
savepoint = job.stop_with_savepoint(False, Path(folder, "sp").as_uri()).result()
send(range(31, 41))
job = started(savepoint, "own")
await_lines(400)
job.cancel().result()
print(json.dumps(lines()))
