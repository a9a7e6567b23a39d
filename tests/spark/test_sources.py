"""Sources on real Spark: splits give what Spark's rows give, functions keep event time."""

from __future__ import annotations

import threading

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from weir.common import Types, WatermarkStrategy
from weir.connector.decoder import TypedColumns
from weir.datastream import KeyedCoProcessFunction, KeyedProcessFunction, SourceFunction
from weir.datastream.connectors.base import DEAD_LETTERS
from weir.datastream.connectors.file_system import FileSink, FileSource
from weir.datastream.formats.csv import CsvReaderFormat, CsvSchema
from weir.datastream.formats.orc import OrcBulkWriters, OrcColumnarRowInputFormat
from weir.datastream.formats.parquet import ParquetColumnarRowInputFormat
from weir.errors import UserFunctionError, WeirError
from weir.spark import kept_rows, sources
from weir.spark.kept_rows import reads_alike
from weir.table import DataTypes

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def collect(stream):
    with stream.execute_and_collect() as records:
        return list(records)


COLUMNS = """
    id, cast(id as tinyint) as byte, cast(id as smallint) as short, cast(id as int) as int,
    cast(id as float) / 3 as float, cast(id as double) / 3 as double, id % 2 = 0 as bool,
    concat('text ', id) as string, cast(concat('bytes ', id) as binary) as binary,
    date_add(date'1970-01-01', cast(id as int)) as day,
    timestamp_micros(id * 1234567) as at, to_timestamp_ntz('1999-12-31 23:59:59.123456') as local,
    array(id, null, id + 1) as list, array(array(concat('a', id))) as lists,
    named_struct('a', id, 'b', concat('b', id)) as pair,
    if(id % 3 = 0, null, id) as gap, cast(null as string) as nothing
"""


def test_workers_read_from_files_what_spark_would_have_handed_them(env, spark, monkeypatch):
    frame = spark.range(20).selectExpr(*_split(COLUMNS))
    assert reads_alike(frame.schema, calendar=True)
    by_workers = sorted(map(tuple, collect(env.from_dataframe(frame))))
    monkeypatch.setattr(sources, "kept_splits", lambda *args, **named: None)
    by_spark = sorted(map(tuple, collect(env.from_dataframe(frame))))
    assert by_workers == by_spark
    assert [[type(v) for v in row] for row in by_workers] == [
        [type(v) for v in row] for row in by_spark
    ]


def _split(columns):
    parts, depth, start = [], 0, 0
    for position, character in enumerate(columns):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append(columns[start:position])
            start = position + 1
    return [*parts, columns[start:]]


def test_columns_that_arrow_may_read_otherwise_are_left_to_spark(env, spark):
    frame = spark.range(3).selectExpr("id", "map(id, concat('x', id)) as m")
    assert not reads_alike(frame.schema, calendar=True)
    days = spark.range(3).selectExpr("date'2020-01-01' as day")
    assert reads_alike(days.schema, calendar=True)
    assert not reads_alike(days.schema, calendar=False)
    rows = collect(env.from_dataframe(frame).map(lambda row: (row.id, row.m)))
    assert sorted(rows) == [(i, {i: f"x{i}"}) for i in range(3)]


def test_kept_files_that_lack_a_column_or_are_large_are_left_to_spark(spark, tmp_path, monkeypatch):
    spark.range(3).coalesce(1).write.parquet(str(tmp_path / "kept"))
    old, new = spark.range(0).schema, spark.range(0).selectExpr("id", "1 as more").schema

    def splits(schema):
        return kept_rows.kept_splits(spark, tmp_path / "kept", schema, TypedColumns(None), 8)

    assert splits(new) is None
    assert len(list(splits(old).folder.iterdir())) == 1
    monkeypatch.setattr(kept_rows, "SPLIT_BYTES_MAX", 10)
    assert splits(old) is None


class Seen(KeyedProcessFunction):
    """Shows records with their timestamps, and event-time timers."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(15)
        yield value, ctx.timestamp()

    def on_timer(self, timestamp, ctx):
        yield "timer", timestamp, ctx.timer_service().current_watermark()


class Timed(SourceFunction):
    """Gives times; goes on when a timer shows that its watermark has arrived."""

    def open(self, runtime_context):
        self.name = runtime_context.get_task_name()

    def run(self, ctx):
        with ctx.get_checkpoint_lock():
            ctx.collect_with_timestamp(self.name, 10)
            ctx.collect("plain")
            ctx.emit_watermark(20)

    def cancel(self):
        """Nothing to cancel."""


def test_timestamps_and_watermarks_of_a_source_function_reach_the_operators(env):
    env.set_parallelism(1)
    stream = env.add_source(Timed(), "timed", Types.STRING())
    found = collect(stream.key_by(lambda value: 0).process(Seen()))
    assert found[:2] == [("Source: timed", 10), ("plain", None)]
    assert found[2][:2] == ("timer", 15)


class Until(SourceFunction):
    """Gives one record and a watermark; then waits, idle, until somebody cancels it."""

    def __init__(self, *calls):
        self.calls = calls

    def run(self, ctx):
        waiting = self.waiting = threading.Event()
        for name, *arguments in self.calls:
            getattr(ctx, name)(*arguments)
        waiting.wait()

    def cancel(self):
        self.waiting.set()


class Both(KeyedCoProcessFunction):
    """Sets a timer for records of the first input, and shows it."""

    def process_element1(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1)

    def process_element2(self, value, ctx):
        yield "second", value

    def on_timer(self, timestamp, ctx):
        yield "timer", timestamp


def test_an_idle_source_function_holds_no_other_input_back(env):
    env.set_parallelism(1)
    busy = Until(("collect_with_timestamp", "a", 5), ("emit_watermark", 9))
    quiet = Until(("mark_as_temporarily_idle",))
    first = env.add_source(busy, "busy", Types.STRING()).key_by(lambda value: 0)
    second = env.add_source(quiet, "quiet", Types.STRING()).key_by(lambda value: 0)
    with first.connect(second).process(Both()).execute_and_collect() as records:
        assert next(iter(records)) == ("timer", 6)


class Fails(SourceFunction):
    """Asks for what a source does not have."""

    def run(self, ctx):
        ctx.emit_watermark("soon")

    def cancel(self):
        """Nothing to cancel."""


def test_a_wrong_time_fails_the_job_with_the_users_line(env):
    with pytest.raises(UserFunctionError, match=r"emit_watermark.*'soon'.*milliseconds"):
        collect(env.add_source(Fails(), "fails"))


@pytest.mark.parametrize("restored", [True, False])
def test_a_job_that_is_refused_leaves_nothing_behind(env, spark, tmp_path, restored):
    """Whether there is no such savepoint, or its source cannot be read."""
    folder = tmp_path / "checkpoints"
    env.get_configuration().set_string("execution.checkpointing.dir", folder.as_uri())
    if restored:
        env.get_configuration().set_string(
            "execution.state-recovery.path", (tmp_path / "nowhere").as_uri()
        )
        stream = env.from_collection([1, 2, 3])
    else:
        stream = env.from_collection([object.__new__(threading.Thread)])
    stream.print()
    with pytest.raises(WeirError):
        env.execute()
    assert not folder.exists() or list(folder.iterdir()) == []


def test_files_of_formats_are_read_by_workers_and_bad_lines_counted(env, tmp_path):
    rows = DataTypes.ROW([DataTypes.FIELD("n", DataTypes.BIGINT())])
    inputs = tmp_path / "in dir"
    (inputs / "csv" / "below").mkdir(parents=True)
    (inputs / "csv" / "a.csv").write_text("1\nx\n2\n")
    (inputs / "csv" / "below" / "b.csv").write_text("3\n")
    (inputs / "csv" / ".hidden").write_text("nothing\n")
    pq.write_table(pa.table({"n": [4, 5]}), inputs / "one.parquet")
    orc.write_table(pa.table({"n": [6]}), inputs / "one.orc")
    (inputs / "other").mkdir()
    (inputs / "other" / "one.parquet").write_text("of the same name, and nobody asks for it")
    lines = CsvReaderFormat.for_schema(CsvSchema.builder().add_number_column("n").build())
    no_marks = WatermarkStrategy.no_watermarks()
    csv = FileSource.for_record_stream_format(lines, str(inputs / "csv")).build()
    parquet = FileSource.for_bulk_file_format(
        ParquetColumnarRowInputFormat(rows), str(inputs / "one.parquet")
    )
    stripes = FileSource.for_bulk_file_format(
        OrcColumnarRowInputFormat(rows), str(inputs / "one.orc")
    )
    first = env.from_source(csv, no_marks, "csv")
    letters = first.get_side_output(DEAD_LETTERS).map(lambda letter: letter.value.decode())
    others = (("parquet", parquet.build()), ("orc", stripes.build()))
    all_of_them = first.union(*(env.from_source(form, no_marks, name) for name, form in others))
    all_of_them.key_by(lambda row: row.n % 2).sink_to(
        FileSink.for_bulk_format(str(tmp_path / "out"), OrcBulkWriters.for_row_type(rows)).build()
    )
    with letters.execute_and_collect() as found:
        assert list(found) == ["x"]
    written = [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
    found = sorted(n for p in written for n in orc.read_table(p).column("n").to_pylist())
    assert found == list(range(1, 7))
