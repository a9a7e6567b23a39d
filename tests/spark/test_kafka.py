"""Kafka and databases in whole jobs on Spark; `tests/chaos/test_ends.py` kills their servers."""

from __future__ import annotations

import os
import signal
import traceback
import uuid
from collections import Counter
from types import SimpleNamespace

import psycopg
import pytest
from tests import brokers
from tests.kafka.topics import Topics
from tests.spark import canaries
from tests.spark.scenario import wait_until

from weir.common import Configuration, Types, WatermarkStrategy
from weir.common.serialization import ByteArraySchema, SimpleStringSchema
from weir.datastream.connectors.base import DeliveryGuarantee
from weir.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink, JdbcSource
from weir.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from weir.datastream.connectors.spark import SparkTarget
from weir.datastream.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from weir.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from weir.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from weir.datastream.functions import KeyedProcessFunction
from weir.datastream.state import ValueStateDescriptor
from weir.errors import UsageError
from weir.jobmanager import directory

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def source(topics, topic, **properties):
    made = KafkaSource.builder().set_bootstrap_servers(topics.address).set_topics(topic)
    made.set_value_only_deserializer(SimpleStringSchema()).set_group_id(topic)
    return made.set_properties({"isolation.level": "read_committed", **properties})


class Count(KeyedProcessFunction):
    def open(self, context):
        self.seen = context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def process_element(self, value, ctx):
        n = (self.seen.value() or 0) + 1
        self.seen.update(n)
        yield value, n


def test_a_bounded_topic_is_read_once(env, kafka):
    topics = Topics(kafka)
    topic = topics.new(3)
    for p in range(3):
        topics.send(topic, [f"{p}-{i % 5}" for i in range(100)], partition=p)
    made = source(topics, topic, **{"max.records.per.epoch": "120"})
    made.set_bounded(KafkaOffsetsInitializer.latest())
    env.enable_checkpointing(200)
    stream = env.from_source(made.build(), WatermarkStrategy.no_watermarks(), "kafka")
    counted = stream.key_by(lambda v: v).process(Count())
    got = Counter(counted.execute_and_collect())
    assert got == Counter((f"{p}-{k}", n) for p in range(3) for k in range(5) for n in range(1, 21))
    wait_until(
        lambda: sum(topics.committed(topic, topic, p) for p in range(3)) == 300, 20, "commit"
    )


def test_a_run_up_to_now_reads_partitions_that_were_added_since_its_savepoint(env, kafka, tmp_path):
    topics = Topics(kafka)
    topic = topics.new(1)
    topics.send(topic, ["a", "b"])

    def counted():
        made = source(topics, topic).build()
        stream = env.from_source(made, WatermarkStrategy.no_watermarks(), "kafka").uid("kafka")
        return stream.key_by(lambda v: v).process(Count()).uid("count")

    env.enable_checkpointing(200)
    counted().print()
    job = env.execute_async("before")
    try:
        wait_until(lambda: topics.committed(topic, topic) == 2, 180, "two records")
        saved = job.stop_with_savepoint(False, (tmp_path / "savepoints").as_uri()).result()
    finally:
        job.cancel()
    topics.grow(topic, 3)
    topics.send(topic, ["a"], partition=0)
    topics.send(topic, ["b", "c"], partition=1)
    topics.send(topic, ["a"], partition=2)
    configuration = Configuration()
    configuration.set_string("execution.state-recovery.path", saved)
    configuration.set_string("weir.trigger", "available-now")
    env.configure(configuration)
    got = Counter(counted().execute_and_collect())
    assert got == Counter([("a", 2), ("a", 3), ("b", 2), ("c", 1)])


class Remind(KeyedProcessFunction):
    """Tells when event time has passed a record."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(int(value))

    def on_timer(self, timestamp, ctx):
        yield timestamp


def test_an_empty_bounded_topic_holds_a_stream_back_no_longer(env, kafka):
    topics = Topics(kafka)
    empty, going_on = topics.new(2), topics.new(1)
    topics.send(going_on, ["5", "1000"])
    bounded = source(topics, empty).set_bounded(KafkaOffsetsInitializer.latest()).build()
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda value, _: int(value))
    nothing = env.from_source(bounded, strategy, "empty")
    stream = env.from_source(source(topics, going_on).build(), strategy, "going on")
    fired = nothing.union(stream).key_by(lambda v: 0).process(Remind(), Types.LONG())
    with fired.execute_and_collect() as records:
        assert next(iter(records)) == 5


PAIR = Types.ROW([Types.INT(), Types.STRING()])
AVRO = """{"type": "record", "name": "Greeting",
  "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]}"""


def formats():
    """Return a pair of schemas for each format, as PyFlink's examples have them."""
    return {
        "json": (
            JsonRowSerializationSchema.builder().with_type_info(PAIR).build(),
            JsonRowDeserializationSchema.builder().type_info(PAIR).build(),
        ),
        "csv": (
            CsvRowSerializationSchema.Builder(PAIR).build(),
            CsvRowDeserializationSchema.Builder(PAIR).build(),
        ),
        "avro": (
            AvroRowSerializationSchema(avro_schema_string=AVRO),
            AvroRowDeserializationSchema(avro_schema_string=AVRO),
        ),
    }


def test_rows_of_all_formats_go_to_kafka_and_come_back(env, kafka):
    topics = Topics(kafka)
    rows = [(1, "hi"), (2, "hello"), (6, "hello"), (6, "hello")]
    greetings = env.from_collection(rows, type_info=PAIR)
    names = {name: topics.new() for name in [*formats(), "bytes"]}

    def write(stream, name, schema):
        serializer = KafkaRecordSerializationSchema.builder().set_topic(names[name])
        serializer.set_value_serialization_schema(schema)
        sink = KafkaSink.builder().set_record_serializer(serializer.build())
        stream.sink_to(sink.set_bootstrap_servers(topics.address).build())

    for name, (writing, _) in formats().items():
        write(greetings, name, writing)
    text = greetings.map(lambda row: row[1].encode(), Types.PRIMITIVE_ARRAY(Types.BYTE()))
    write(text, "bytes", ByteArraySchema())
    env.execute()
    topics.send(names["csv"], ["none", "7,seven"])
    streams = []
    for name, (_, reading) in formats().items():
        made = source(topics, names[name]).set_value_only_deserializer(reading)
        if name == "csv":
            made.set_property("on.deserialization.error", "skip")
        bounded = made.set_bounded(KafkaOffsetsInitializer.latest()).build()
        stream = env.from_source(bounded, WatermarkStrategy.no_watermarks(), f"read {name}")
        streams.append(stream.map(lambda row, name=name: (name, row[0], row[1])))
    made = source(topics, names["bytes"]).set_value_only_deserializer(ByteArraySchema())
    bounded = made.set_bounded(KafkaOffsetsInitializer.latest()).build()
    stream = env.from_source(bounded, WatermarkStrategy.no_watermarks(), "read bytes")
    streams.append(stream.map(lambda data: ("bytes", len(data), data.decode())))
    everything = streams[0].union(*streams[1:])
    expected = [(name, *row) for name in formats() for row in rows] + [("csv", 7, "seven")]
    expected += [("bytes", len(word), word) for _, word in rows]
    assert Counter(everything.execute_and_collect()) == Counter(expected)


CANARY = f"canary-{uuid.uuid4().hex}"
ROWS, SENT, KEYS = 2_000, 60, 7
NUMBERED = Types.ROW_NAMED(["origin", "id", "n"], [Types.STRING(), Types.LONG(), Types.LONG()])


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker and a database that ask for passwords, with input in both."""
    folder = tmp_path_factory.mktemp("secure")
    (folder / "database").mkdir()
    secure = brokers.running(lambda: brokers.SecureBroker(folder / "broker", CANARY))
    with secure as broker, brokers.own("postgres", folder / "database") as database:
        url = f"postgresql://test@{database.address}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"create role weir login superuser password '{CANARY}'")
            connection.execute("create table given (id int primary key)")
            connection.execute(f"insert into given select generate_series(1, {ROWS})")
            connection.execute("create table numbered (origin text, id bigint, n bigint)")
            connection.execute("create table handed (origin text, id bigint, n bigint)")
            connection.execute("create table marks (identity text primary key, checkpoint int)")
        database.require_passwords()
        topics = Topics(broker.address)
        yield SimpleNamespace(
            broker=broker,
            database=database,
            url=url,
            topics=topics,
            input=topics.new(),
            output=topics.new(),
        )


def lets_in(builder, password):
    """Give a Kafka source or sink what the broker asks for."""
    builder.set_property("security.protocol", "SASL_PLAINTEXT")
    builder.set_property("sasl.mechanism", "PLAIN").set_property("sasl.username", "weir")
    return builder.set_property("sasl.password", password)


def records(secured, password):
    made = KafkaSource.builder().set_bootstrap_servers(secured.broker.listeners["SASL"])
    made.set_topics(secured.input).set_group_id("canary")
    made.set_value_only_deserializer(SimpleStringSchema())
    return lets_in(made, password).build()


def rows_of_database(secured, password):
    made = JdbcSource.builder().set_db_url(f"jdbc:postgresql://{secured.database.address}")
    made.set_username("weir").set_password(password).set_split_column("id")
    made.set_sql("select id from given").set_rows_per_range(25)
    return made.set_type_information(Types.ROW_NAMED(["id"], [Types.LONG()])).build()


def sinks(secured):
    schema = KafkaRecordSerializationSchema.builder().set_topic(secured.output)
    schema.set_value_serialization_schema(SimpleStringSchema())
    made = KafkaSink.builder().set_bootstrap_servers(secured.broker.listeners["SASL"])
    made.set_record_serializer(schema.build()).set_transactional_id_prefix("canary")
    made.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    place = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_user_name("weir")
    place.with_url(f"jdbc:postgresql://{secured.database.address}").with_password(CANARY)
    insert = "insert into numbered values (?, ?, ?)"
    in_database = JdbcSink.exactly_once_sink(insert, NUMBERED, place.build())
    return lets_in(made, CANARY).build(), in_database


class Handed(SparkTarget):
    """A table that keeps a marker with its rows."""

    def __init__(self, address):
        self.url = f"postgresql://weir:{CANARY}@{address}"

    def committed(self, identity):
        with psycopg.connect(self.url) as connection:
            asked = "select checkpoint from marks where identity = %s"
            return (connection.execute(asked, (identity,)).fetchone() or [None])[0]

    def write(self, identity, checkpoint, rows):
        with psycopg.connect(self.url) as connection:
            connection.execute(
                "insert into marks values (%s, %s) on conflict (identity) do update "
                "set checkpoint = excluded.checkpoint",
                (identity, checkpoint),
            )
            given = [tuple(row) for row in rows.collect()]
            connection.cursor().executemany("insert into handed values (%s, %s, %s)", given)


class Number(KeyedProcessFunction):
    def open(self, context):
        self.seen = context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        n = (self.seen.value() or 0) + 1
        self.seen.update(n)
        yield *value, n


def declare_secured(env, secured):
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    no_time = WatermarkStrategy.no_watermarks()
    sent = env.from_source(records(secured, CANARY), no_time, "kafka").uid("kafka")
    given = env.from_source(rows_of_database(secured, CANARY), no_time, "database").uid("database")
    everything = given.map(lambda row: ("database", row[0]), pair).union(
        sent.map(lambda text: ("kafka", int(text)), pair)
    )
    numbered = everything.key_by(lambda row: row[1] % KEYS).process(Number(), NUMBERED)
    numbered = numbered.uid("numbered")
    to_kafka, to_database = sinks(secured)
    texts = numbered.map(lambda row: " ".join(map(str, row)), Types.STRING())
    texts.sink_to(to_kafka).uid("to kafka")
    numbered.sink_to(to_database).uid("to database")
    numbered.foreach_batch(Handed(secured.database.address)).uid("handed")


def visible(secured, table):
    with psycopg.connect(secured.url) as connection:
        return connection.execute(f"select origin, id, n from {table}").fetchall()


def in_topic(secured):
    lines = [value.decode().split() for _, value in secured.topics.read(secured.output)]
    return [(origin, int(i), int(n)) for origin, i, n in lines]


@pytest.fixture
def secured_env(env, tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    configuration = Configuration()
    for key, value in {
        "execution.checkpointing.interval": "300 ms",
        "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri(),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "5",
        "restart-strategy.fixed-delay.delay": "0 s",
    }.items():
        configuration.set_string(key, value)
    env.configure(configuration)
    return env


@pytest.mark.postgres
def test_secured_ends_get_every_row_once_though_a_slot_dies_and_passwords_show_nowhere(
    secured_env, secured, tmp_path, spark, capfd, caplog
):
    topics, savepoints = secured.topics, (tmp_path / "savepoints").as_uri()
    topics.send(secured.input, range(SENT // 2))
    declare_secured(secured_env, secured)
    plan = str(secured_env.get_execution_plan())
    job = secured_env.execute_async("secured")
    try:
        wait_until(lambda: visible(secured, "handed"), 90, "the first rows")
        taken = job.trigger_savepoint(savepoints).result()
        slot = job.progress()["slots"][-1]
        os.kill(slot["pid"], signal.SIGKILL)
        wait_until(lambda: job.progress()["attempt"] and job.progress()["epoch"], 60, "recovery")
        topics.send(secured.input, range(SENT // 2, SENT))
        for table in ("handed", "numbered"):
            wait_until(lambda t=table: len(visible(secured, t)) >= ROWS + SENT, 90, table)
        (entry,) = directory.entries()
        shown, answered = canaries.in_answers(CANARY, entry)
        processes = canaries.in_processes(CANARY)
        progress = job.progress()
        job.stop_with_savepoint(False, savepoints).result()
    finally:
        job.cancel()
    assert_once(secured)
    # The attempt after the kill began where its checkpoint was, not at the first row.
    assert progress["restored_epoch"] > 0
    assert 0 < progress["records_in"]["numbered"] < ROWS + SENT
    assert (shown, processes) == ([], [])
    assert answered > 15
    assert taken.startswith(savepoints)
    kept = [tmp_path, *map(os.path.realpath, [spark.sparkContext._temp_dir])]
    assert canaries.in_files(CANARY, *map(type(tmp_path), kept)) == []
    said = capfd.readouterr()
    made = [records(secured, CANARY), rows_of_database(secured, CANARY), *sinks(secured)]
    texts = [plan, said.out, said.err, caplog.text, *map(repr, made), job._repr_html_()]
    assert not [text for text in texts if CANARY in text]


def assert_once(secured):
    """All outputs hold every record once, and the numbers of a key are those of its records."""
    origins = [("database", i) for i in range(1, ROWS + 1)] + [("kafka", i) for i in range(SENT)]
    per_key = Counter(i % KEYS for _, i in origins)
    wait_until(lambda: len(in_topic(secured)) >= ROWS + SENT, 30, "the last transaction")
    for found in (visible(secured, "handed"), visible(secured, "numbered"), in_topic(secured)):
        assert Counter((origin, i) for origin, i, _ in found) == Counter(origins)
        for key, count in per_key.items():
            numbers = sorted(n for _, i, n in found if i % KEYS == key)
            assert numbers == list(range(1, count + 1))


@pytest.mark.postgres
@pytest.mark.parametrize("what", [records, rows_of_database])
def test_a_wrong_password_refuses_the_job_and_is_not_shown(
    secured_env, secured, tmp_path, what, capfd, caplog
):
    wrong = f"wrong-{CANARY}"
    made = what(secured, wrong)
    stream = secured_env.from_source(made, WatermarkStrategy.no_watermarks(), "refused")
    stream.print()
    with pytest.raises(UsageError, match="password") as refused:
        secured_env.execute("refused")
    said = capfd.readouterr()
    texts = [*traceback.format_exception(refused.value), said.out, said.err, caplog.text]
    assert not [text for text in texts if CANARY in text]
    assert canaries.in_files(CANARY, tmp_path) == []
