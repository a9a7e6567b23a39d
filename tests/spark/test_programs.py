"""PyFlink programs on real Spark: examples from Flink's pages, every source, every way out."""

from __future__ import annotations

import json
import threading
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.scenario import processes, python_without_weir, wait_until

from weir.common import Duration, Row, Types, WatermarkStrategy
from weir.common.job_status import JobStatus
from weir.common.watermark_strategy import TimestampAssigner
from weir.datastream import (
    CoProcessFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    SinkFunction,
    SourceFunction,
)
from weir.datastream.connectors.file_system import FileSink
from weir.datastream.connectors.number_seq import NumberSequenceSource
from weir.datastream.state import MapStateDescriptor, ValueStateDescriptor
from weir.errors import JobCancellationError, UsageError, UserFunctionError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def collect(stream):
    with stream.execute_and_collect() as records:
        return list(records)


class CountWindowAverage(FlatMapFunction):
    """The example of Flink's documentation, as printed there."""

    def __init__(self):
        self.sum = None

    def open(self, runtime_context: RuntimeContext):
        descriptor = ValueStateDescriptor("average", Types.PICKLED_BYTE_ARRAY())
        self.sum = runtime_context.get_state(descriptor)

    def flat_map(self, value):
        current_sum = self.sum.value()
        if current_sum is None:
            current_sum = (0, 0)
        current_sum = (current_sum[0] + 1, current_sum[1] + value[1])
        self.sum.update(current_sum)
        if current_sum[0] >= 2:
            self.sum.clear()
            yield value[0], int(current_sum[1] / current_sum[0])


def test_the_count_window_average_prints_its_averages(env, capfd):
    env.from_collection([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)]).key_by(
        lambda row: row[0]
    ).flat_map(CountWindowAverage()).print()
    env.execute()
    lines = capfd.readouterr().out.splitlines()
    assert [line.split("> ")[-1] for line in lines] == ["(1, 4)", "(1, 5)"]


def test_batch_mode_gives_one_result_per_key(env, spark):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.enable_checkpointing(100)
    rows = spark.range(1000).selectExpr("id % 7 as key", "id as n")
    by_columns = env.from_dataframe(rows).key_by(lambda row: row["key"]).sum("n")
    by_records = env.from_sequence(0, 999).map(lambda n: (n % 7, n)).key_by(lambda r: r[0])
    by_records = by_records.reduce(lambda a, b: (a[0], a[1] + b[1]))
    found = collect(by_columns.map(tuple).union(by_records))
    assert sorted(found) == sorted((k, sum(range(k, 1000, 7))) for k in (*range(7), *range(7)))
    unbounded = env.from_dataframe(spark.readStream.format("rate").load())
    with pytest.raises(UsageError, match="Detected an UNBOUNDED source"):
        collect(unbounded.key_by(lambda row: 0).reduce(lambda a, b: a))


def test_a_program_without_a_sink_runs(env, tmp_path):
    path = tmp_path / "seen"

    def note(value):
        with path.open("a") as file:
            file.write(f"{value}\n")

    env.from_collection([1, 2]).map(note)
    env.execute()
    assert sorted(path.read_text().split()) == ["1", "2"]


def test_workers_of_another_python_are_refused_before_the_first_epoch(
    env, spark, monkeypatch, tmp_path
):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python_without_weir(tmp_path))
    with pytest.raises(UsageError, match=r"PYSPARK_PYTHON, or spark\.pyspark\.python"):
        collect(env.from_collection([1]))
    assert not (tmp_path / "logs").exists()


def test_archives_are_unpacked_where_functions_run(env, tmp_path):
    with zipfile.ZipFile(tmp_path / "words.zip", "w") as archive:
        archive.writestr("word.txt", "unpacked")
    env.add_python_archive(str(tmp_path / "words.zip"), "words")

    class InSlot(MapFunction):
        def open(self, runtime_context):
            self.word = Path("words/word.txt").read_text()

        def map(self, value):
            return value, self.word

    numbers = env.from_collection([1, 2]).map(lambda n: (n, Path("words/word.txt").read_text()))
    found = collect(numbers.key_by(lambda r: r[0]).map(InSlot()))
    assert sorted(found) == [((n, "unpacked"), "unpacked") for n in (1, 2)]


class Item:
    def __init__(self, color, shape):
        self.color, self.shape = color, shape

    def get_shape(self):
        return self.shape

    def __repr__(self):
        return f"{self.color} {self.shape}"


class Rule:
    def __init__(self, name, first, second):
        self.name, self.first, self.second = name, first, second


class MyKeyedBroadcastProcessFunction(KeyedBroadcastProcessFunction):
    """The rule matcher of Flink's pages; its descriptors differ in one letter there, too."""

    def __init__(self):
        self._map_state_desc = MapStateDescriptor(
            "item", Types.STRING(), Types.LIST(Types.PICKLED_BYTE_ARRAY())
        )
        self._rule_state_desc = MapStateDescriptor(
            "RulesBroadcastState", Types.STRING(), Types.PICKLED_BYTE_ARRAY()
        )
        self._map_state = None

    def open(self, ctx: RuntimeContext):
        self._map_state = ctx.get_map_state(self._map_state_desc)

    def process_broadcast_element(self, value, ctx: KeyedBroadcastProcessFunction.Context):
        ctx.get_broadcast_state(self._rule_state_desc).put(value.name, value)

    def process_element(self, value, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext):
        shape = value.get_shape()
        for rule_name, rule in ctx.get_broadcast_state(self._rule_state_desc).items():
            stored = self._map_state.get(rule_name)
            if stored is None:
                stored = []
            if shape == rule.second and len(stored) > 0:
                for i in stored:
                    yield f"MATCH: {i} - {value}"
                stored = []
            if shape == rule.first:
                stored.append(value)
            if len(stored) == 0:
                self._map_state.remove(rule_name)
            else:
                self._map_state.put(rule_name, stored)


def test_the_broadcast_rule_matcher_finds_its_matches(env):
    items = [
        Item("red", "triangle"),
        Item("blue", "triangle"),
        Item("red", "square"),
        Item("blue", "circle"),
        Item("blue", "square"),
    ]
    color_partitioned_stream = env.from_collection(items).key_by(lambda item: item.color)
    rule_state_descriptor = MapStateDescriptor(
        "RuleBroadcastState", Types.STRING(), Types.PICKLED_BYTE_ARRAY()
    )
    rules = env.from_collection([Rule("r", "triangle", "square")])
    rule_broadcast_stream = rules.broadcast(rule_state_descriptor)
    output = color_partitioned_stream.connect(rule_broadcast_stream).process(
        MyKeyedBroadcastProcessFunction()
    )
    assert sorted(collect(output)) == [
        "MATCH: blue triangle - blue square",
        "MATCH: red triangle - red square",
    ]


def test_two_keyed_stages_a_union_and_a_side_output_in_one_job(env):
    late = OutputTag("odd", Types.LONG())

    class Split(ProcessFunction):
        def process_element(self, value, ctx):
            if value % 2:
                yield late, value
            else:
                yield value

    numbers = env.from_source(
        NumberSequenceSource(1, 100), WatermarkStrategy.no_watermarks(), "numbers"
    )
    even = numbers.process(Split(), Types.LONG())
    odd = even.get_side_output(late)
    first = even.union(odd).map(lambda v: (v % 10, v)).key_by(lambda r: r[0]).sum(1)
    second = first.map(lambda r: ("all", 1)).key_by(lambda r: r[0]).sum(1)
    assert max(r[1] for r in collect(second)) == 100


def test_a_streaming_dataframe_in_and_any_spark_writer_out(env, spark, tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for n in range(3):
        table = pa.table({"card": ["a", "b", "a"], "amount": [n, n, n]})
        pq.write_table(table, source / f"{n}.parquet")
    frame = (
        spark.readStream.schema("card string, amount bigint")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
    )
    calls = []

    def write(df, checkpoint_id):
        calls.append(checkpoint_id)
        df.write.mode("append").json(str(target))

    env.configure(_settings({"weir.trigger": "available-now"}))
    env.from_dataframe(frame).key_by("card").map(
        Total(), Types.ROW_NAMED(["card", "total"], [Types.STRING(), Types.LONG()])
    ).foreach_batch(write)
    env.execute()
    rows = [
        json.loads(line)
        for p in target.rglob("*.json")
        for line in p.read_text().split("\n")
        if line
    ]
    totals = {}
    for row in rows:
        totals[row["card"]] = max(totals.get(row["card"], 0), row["total"])
    assert len(rows) == 9
    assert totals == {"a": 6, "b": 3}
    assert calls == sorted(set(calls))


class Total(MapFunction):
    def open(self, ctx):
        self.total = ctx.get_state(ValueStateDescriptor("total", Types.LONG()))

    def map(self, value):
        assert isinstance(value, Row)
        self.total.update((self.total.value() or 0) + value["amount"])
        return Row(value.card, self.total.value())


def _settings(values):
    from weir.common import Configuration

    configuration = Configuration()
    for key, value in values.items():
        configuration.set_string(key, value)
    return configuration


def test_text_files_and_static_dataframes_are_bounded_sources(env, spark, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("to be\nor not\nto be\n")
    words = env.read_text_file(str(path)).flat_map(lambda line: line.split())
    counted = words.map(lambda w: (w, 1)).key_by(lambda p: p[0]).sum(1)
    assert Counter(collect(counted))[("be", 2)] == 1
    static = spark.createDataFrame([(1, "x"), (2, "y")], "id bigint, name string")
    rows = collect(env.from_dataframe(static).map(lambda r: f"{r.id}{r.name}"))
    assert sorted(rows) == ["1x", "2y"]


def test_timestamps_of_a_dataframe_are_datetimes(env, spark):
    static = spark.range(2).selectExpr("id", "timestamp_seconds(id) as at", "date'2020-01-02' as d")
    rows = collect(env.from_dataframe(static).map(lambda r: (r.id, r.at.timestamp(), str(r.d))))
    assert sorted(rows) == [(0, 0.0, "2020-01-02"), (1, 1.0, "2020-01-02")]


def test_a_source_function_and_a_sink_function_of_the_user(env, tmp_path):
    class Numbers(SourceFunction):
        def run(self, ctx):
            for i in range(50):
                ctx.collect(i)

        def cancel(self):
            pass

    class Append(SinkFunction):
        def invoke(self, value, context):
            with (tmp_path / "out.txt").open("a") as out:
                out.write(f"{value}\n")

    env.set_parallelism(1)
    env.add_source(Numbers(), "numbers").map(lambda i: i * i).add_sink(Append())
    env.execute()
    assert sorted(map(int, (tmp_path / "out.txt").read_text().split())) == [
        i * i for i in range(50)
    ]


def test_event_time_timers_fire_with_the_watermark_and_at_the_end(env):
    class ByTime(TimestampAssigner):
        def extract_timestamp(self, value, record_timestamp):
            return value[1]

    class Remind(KeyedProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)

        def on_timer(self, timestamp, ctx):
            yield ctx.get_current_key(), timestamp

    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(5)
    ).with_timestamp_assigner(ByTime())
    stream = env.from_collection([("a", 1), ("b", 2), ("a", 100)])
    fired = (
        stream.assign_timestamps_and_watermarks(strategy).key_by(lambda v: v[0]).process(Remind())
    )
    assert sorted(collect(fired)) == [("a", 11), ("a", 110), ("b", 12)]


def test_an_unbounded_job_fires_processing_time_timers_while_idle_and_can_be_cancelled(
    env, spark, tmp_path
):
    class Later(KeyedProcessFunction):
        def process_element(self, value, ctx):
            now = ctx.timer_service().current_processing_time()
            ctx.timer_service().register_processing_time_timer(now + 300)

        def on_timer(self, timestamp, ctx):
            yield ctx.get_current_key()

    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"k": [1, 2]}), source / "a.parquet")
    frame = spark.readStream.schema("k bigint").parquet(str(source))
    env.enable_checkpointing(200)
    env.configure(_settings({"weir.trigger": "100 ms"}))
    out = tmp_path / "out"
    env.from_dataframe(frame).key_by("k").process(Later(), Types.LONG()).sink_to(
        FileSink.text(str(out))
    )
    job = env.execute_async("idle")

    def lines():
        return sorted(p.read_text() for p in out.rglob("part*") if not p.name.startswith("."))

    wait_until(lambda: "".join(lines()).split() in (["1", "2"], ["2", "1"]), 60, "timers")
    assert job.get_job_status().result() == JobStatus.RUNNING
    job.cancel().result()
    assert job.get_job_status().result() == JobStatus.CANCELED
    with pytest.raises(JobCancellationError, match=f"job {job.get_job_id()} was cancelled"):
        job.get_job_execution_result().result()
    assert processes(str(tmp_path / "logs")) == []


def test_connected_streams_share_keyed_state(env):
    class Join(CoProcessFunction):
        def open(self, ctx):
            self.left = ctx.get_state(ValueStateDescriptor("left", Types.STRING()))

        def process_element1(self, value, ctx):
            self.left.update(value[1])

        def process_element2(self, value, ctx):
            yield value[0], self.left.value(), value[1]

    left = env.from_collection([(1, "a"), (2, "b")])
    right = env.from_collection([(1, "x"), (2, "y")])
    joined = left.connect(right).key_by(lambda v: v[0], lambda v: v[0]).process(Join())
    assert sorted(collect(joined)) == [(1, "a", "x"), (2, "b", "y")]


def test_a_failing_function_surfaces_with_operator_record_and_user_traceback(env):
    def divide(value):
        return 10 // value

    env.from_collection([5, 2, 0, 1]).key_by(lambda v: v % 2).map(divide).name("divider").print()
    with pytest.raises(UserFunctionError) as caught:
        env.execute()
    text = str(caught.value)
    assert "'divider'" in text
    assert "record 0" in text
    assert "return 10 // value" in text
    assert "ZeroDivisionError" in text
    assert "py4j" not in text.lower()
    assert "weir/runtime" not in text


@pytest.mark.parametrize(
    ("elements", "selector", "message"),
    [
        ([1, 2], lambda v: None, "must not be null"),
        ([1, 2], lambda v: [v], "unhashable"),
    ],
    ids=["null key", "unhashable key"],
)
def test_bad_keys_are_refused_at_the_first_record(env, elements, selector, message):
    env.from_collection(elements).key_by(selector).map(lambda v: v).print()
    with pytest.raises(UsageError, match=message):
        env.execute()


def test_a_closure_that_cannot_be_pickled_is_refused_before_anything_runs(env):
    lock = threading.Lock()
    env.from_collection([1]).map(lambda v: (v, lock)).name("locked").print()
    with pytest.raises(UsageError, match="'locked' cannot be sent"):
        env.execute()


def test_keyed_state_on_a_stream_without_keys_is_refused(env):
    env.from_collection([(1, 1)]).flat_map(CountWindowAverage()).print()
    with pytest.raises(UsageError, match="can only be used on a 'keyed stream'"):
        env.execute()


def test_a_state_value_that_its_type_cannot_hold_is_refused(env):
    class Wrong(MapFunction):
        def open(self, ctx):
            self.state = ctx.get_state(ValueStateDescriptor("count", Types.LONG()))

        def map(self, value):
            self.state.update("many")

    env.from_collection([1]).key_by(lambda v: v).map(Wrong()).print()
    with pytest.raises(UsageError, match="count"):
        env.execute()
