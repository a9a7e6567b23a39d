"""Event time on Spark: partitions of a source that lag behind others lose nothing."""

from __future__ import annotations

import gzip
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.scenario import wait_until

from weir.common import Configuration, Duration, Types
from weir.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from weir.datastream import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
)
from weir.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from weir.datastream.formats.csv import CsvReaderFormat, CsvSchema
from weir.datastream.window import TumblingEventTimeWindows, TumblingProcessingTimeWindows
from weir.errors import UsageError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
REBASE = "spark.sql.parquet.datetimeRebaseModeInWrite"
JUDGED = Types.TUPLE([Types.STRING(), Types.LONG(), Types.BOOLEAN()])


class Judge(KeyedProcessFunction):
    """Says of every record whether it is late, as a window would."""

    def process_element(self, value, ctx):
        yield value[0], value[1], value[1] <= ctx.timer_service().current_watermark()


class Greatest(WatermarkGenerator):
    """The rule of monotonous timestamps, with state."""

    def __init__(self):
        self.greatest = 0

    def on_event(self, event, event_timestamp, output):
        self.greatest = max(self.greatest, event_timestamp)

    def on_periodic_emit(self, output):
        output.emit_watermark(self.greatest - 1)


class Remind(KeyedProcessFunction):
    """Tells when event time has passed a record."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp, ctx):
        yield timestamp


MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps
GENERATED = lambda: WatermarkStrategy.for_generator(Greatest)  # noqa: E731


def judged(stream, make):
    """Return the records with whether they were late."""
    strategy = make().with_timestamp_assigner(lambda value, _: value[1])
    stream = stream.assign_timestamps_and_watermarks(strategy)
    with stream.key_by(lambda v: 0).process(Judge(), JUDGED).execute_and_collect() as records:
        return list(records)


@pytest.fixture
def stream(env, spark, tmp_path):
    """Three files, an epoch each; in all of them one site is far behind the other."""
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(3):
        sites = {"site": ["fast", "slow"] * 2, "ts": [1000 * n, n, 1000 * n + 999, n + 1]}
        pq.write_table(pa.table(sites), folder / f"{n}.parquet")
        os.utime(folder / f"{n}.parquet", (1_000_000 + n, 1_000_000 + n))
    settings = Configuration()
    settings.set_string("weir.trigger", "available-now")
    env.configure(settings)
    reader = spark.readStream.schema("site string, ts bigint").option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


@pytest.mark.parametrize("make", [MONOTONOUS, GENERATED])
def test_a_partition_that_lags_loses_nothing(env, stream, make):
    found = judged(env.from_dataframe(stream, partition_by=["site"]), make)
    assert len(found) == 12
    assert [record for record in found if record[2]] == []


def test_without_named_partitions_the_furthest_row_counts(env, stream):
    found = judged(env.from_dataframe(stream), MONOTONOUS)
    assert sorted(record[1] for record in found if record[2]) == [1, 2, 2, 3]


@pytest.fixture
def drifting(env, tmp_path):
    """Two files an epoch, three times; one of the two is always far behind the other."""
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(3):
        for site, times in (("fast", [1000 * n, 1000 * n + 999]), ("slow", [n, n + 1])):
            pq.write_table(pa.table({"site": [site] * 2, "ts": times}), folder / f"{n}{site}.pq")
            os.utime(folder / f"{n}{site}.pq", (1_000_000 + n, 1_000_000 + n))
    settings = Configuration()
    settings.set_string("weir.trigger", "available-now")
    env.configure(settings)
    return folder


@pytest.mark.parametrize("make", [MONOTONOUS, GENERATED])
def test_a_file_that_lags_behind_others_loses_nothing(env, spark, drifting, make):
    reader = spark.readStream.schema("site string, ts bigint").option("maxFilesPerTrigger", 2)
    rows = reader.option("pathGlobFilter", "*.pq").parquet(str(drifting))
    found = judged(env.from_dataframe(rows.where("ts >= 0").selectExpr("site", "ts")), make)
    assert len(found) == 12
    assert [record for record in found if record[2]] == []


def test_where_spark_groups_rows_of_files_the_furthest_row_counts(env, spark, drifting):
    reader = spark.readStream.schema("site string, ts bigint").option("maxFilesPerTrigger", 2)
    rows = reader.option("pathGlobFilter", "*.pq").parquet(str(drifting)).dropDuplicates()
    assert [record for record in judged(env.from_dataframe(rows), MONOTONOUS) if record[2]] != []


class Stumble(Judge):
    """Fails at the first line that says so, once."""

    def __init__(self, fell):
        self.fell = fell

    def process_element(self, value, ctx):
        if value[0] == "stone" and not self.fell.exists():
            self.fell.touch()
            raise OSError
        yield from super().process_element(value, ctx)


def add_lines(folder, *, n, site, times):
    """Let a file appear, all of it at once."""
    hidden = folder / ".next"
    hidden.write_text("".join(f"{site},{t}\n" for t in times))
    hidden.rename(folder / f"{n}{site}")


def judged_lines(env, folder, function):
    """Watch a directory for files with lines such as "fast,1000"."""
    lines = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(lines, str(folder))
    source = source.monitor_continuously(Duration.of_seconds(1)).build()
    strategy = MONOTONOUS().with_timestamp_assigner(lambda line, _: int(line.split(",")[1]))
    stream = env.from_source(source, strategy, "lines").uid("lines")
    parted = stream.map(lambda line: (line.split(",")[0], int(line.split(",")[1])))
    return parted.key_by(lambda v: 0).process(function, JUDGED).uid("judge")


def test_a_watched_directory_goes_on_after_a_failure_and_a_savepoint(env, tmp_path):
    """Every file is read once, and those that lag lose nothing."""
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    add_lines(folder, n=0, site="fast", times=[1000, 1999])
    add_lines(folder, n=0, site="slow", times=[0, 1])
    settings = env.get_configuration()
    settings.set_string("execution.checkpointing.interval", "200 ms")
    settings.set_string("execution.checkpointing.dir", str(tmp_path / "checkpoints"))
    settings.set_string("restart-strategy.type", "fixed-delay")
    stream = judged_lines(env, folder, Stumble(tmp_path / "fell"))
    stream.sink_to(FileSink.csv(str(out))).uid("sink")
    job = env.execute_async("watching")

    def rows():
        files = [p for p in out.rglob("*") if p.is_file() and not p.name.startswith(".")]
        return sorted(line for path in files for line in path.read_text().split())

    first = ["fast,1000", "fast,1999", "slow,0", "slow,1"]
    wait_until(lambda: len(rows()) >= len(first), 60, "rows of the first two files")
    add_lines(folder, n=1, site="stone", times=[1, 1])
    wait_until(lambda: len(rows()) >= len(first) + 2, 60, "rows behind the failure")
    savepoint = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    assert (tmp_path / "fell").exists()
    assert rows() == sorted(f"{line},False" for line in [*first, "stone,1", "stone,1"])
    add_lines(folder, n=2, site="fast", times=[2000, 2999])
    add_lines(folder, n=2, site="slow", times=[1, 2])
    later = Configuration()
    later.set_string("weir.log.dir", str(tmp_path / "logs"))
    later.set_string("weir.trigger", "available-now")
    later.set_string("execution.state-recovery.path", savepoint)
    env = StreamExecutionEnvironment.get_execution_environment(later)
    stream = judged_lines(env, folder, Judge())
    stream.sink_to(FileSink.csv(str(out))).uid("sink")
    env.execute("watching")
    second = ["stone,1", "stone,1", "fast,2000", "fast,2999", "slow,1", "slow,2"]
    assert rows() == sorted(f"{line},False" for line in [*first, *second])


def add_rows(folder, n, ts):
    """Let a file of one row appear, all of it at once."""
    hidden = folder / ".next"
    pq.write_table(pa.table({"site": ["a"], "ts": [ts]}), hidden)
    hidden.rename(folder / f"{n}.parquet")


def without_records(env, spark, folder):
    """Bounded sources whose rows Spark reads, and has none of: files and a static DataFrame."""
    packed, nothing = folder / "0.txt.gz", folder / "0.csv"
    packed.write_bytes(gzip.compress(b""))
    lines = env.read_text_file(str(packed))
    nothing.touch()
    csv = CsvReaderFormat.for_schema(CsvSchema.builder().add_string_column("site").build())
    source = FileSource.for_record_stream_format(csv, str(nothing)).build()
    words = env.from_source(source, WatermarkStrategy.no_watermarks(), "csv")
    # Dates of the old calendar are left to Spark.
    table = env.from_dataframe(spark.createDataFrame([], "site string, day date"))
    return [stream.map(lambda value: ("none", 0)) for stream in (lines, words, table)]


@pytest.fixture
def old_calendar(spark):
    spark.conf.set(REBASE, "LEGACY")
    yield
    spark.conf.unset(REBASE)


@pytest.mark.usefixtures("old_calendar")
def test_text_files_that_are_read_hold_nobody_back_and_later_ones_are_not_read(
    env, spark, tmp_path
):
    text, empty, rows, packed = (tmp_path / name for name in ("text", "empty", "rows", "packed"))
    for folder in (text, empty, rows, packed):
        folder.mkdir()
    (text / "0.txt").write_text("5\n")
    (text / "a{1},[b]*.txt").write_text("6\n")
    (empty / "0.txt").write_text("")
    add_rows(rows, 0, 1000)
    read = spark.readStream.schema("site string, ts bigint").parquet(str(rows))
    strategy = MONOTONOUS().with_timestamp_assigner(lambda value, _: value[1])
    lines = [env.read_text_file(str(path)).map(lambda n: ("t", int(n))) for path in (text, empty)]
    streams = [*lines, env.from_dataframe(read).map(lambda row: (row[0], row[1]))]
    streams += without_records(env, spark, packed)
    first, *others = [stream.assign_timestamps_and_watermarks(strategy) for stream in streams]
    fired = first.union(*others).key_by(lambda v: 0).process(Remind(), Types.LONG())
    with fired.execute_and_collect() as records:
        found = iter(records)
        assert [next(found), next(found)] == [5, 6]
        (text / ".next").write_text("1500\n")
        (text / ".next").rename(text / "1.txt")
        add_rows(rows, 1, 3000)
        assert next(found) == 1000
        add_rows(rows, 2, 5000)
        assert next(found) == 3000


def test_a_partition_column_that_is_not_there_is_refused(env, stream):
    with pytest.raises(UsageError, match=r"partition_by names \['sight'\].*'site', 'ts'"):
        env.from_dataframe(stream, partition_by="sight")


@pytest.mark.parametrize("read_by", ["workers", "Spark"])
def test_files_of_a_static_dataframe_that_lag_lose_nothing(env, spark, read_by):
    # Files are written in the order of partitions, and read eight an epoch: the last of every
    # eight lags, and goes on where it was eight files later.
    rows = [(f"p{n}", n // 8 if n % 8 == 7 else 1000 * (1 + n)) for n in range(24)]
    data = spark.sparkContext.parallelize(rows, 24)
    frame = spark.createDataFrame(data, "site string, ts bigint")
    frame = frame.selectExpr("*", "date'2020-01-01' as day")
    # Dates of the old calendar are left to Spark.
    spark.conf.set(REBASE, "LEGACY" if read_by == "Spark" else "CORRECTED")
    try:
        found = judged(env.from_dataframe(frame), MONOTONOUS)
    finally:
        spark.conf.unset(REBASE)
    assert sorted(record[:2] for record in found) == sorted(rows)
    lost = [record[:2] for record in found if record[2] and record[1] < 8]
    # Spark takes files in the order of their times, which says nothing here.
    assert lost == [] or read_by == "Spark"


def test_event_time_goes_on_without_input_when_all_partitions_are_idle(env, spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"site": ["fast", "slow"], "ts": [1000, 10]}), folder / "0.parquet")
    rows = spark.readStream.schema("site string, ts bigint").parquet(str(folder))
    strategy = MONOTONOUS().with_timestamp_assigner(lambda value, _: value[1])
    stream = env.from_dataframe(rows, partition_by=["site"]).assign_timestamps_and_watermarks(
        strategy.with_idleness(Duration.of_millis(300))
    )
    fired = stream.key_by(lambda v: 0).process(Remind(), Types.LONG())
    with fired.execute_and_collect() as records:
        assert next(iter(records)) == 10


def test_rows_that_wait_for_the_next_trigger_are_no_silence(env, spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()

    def add(n, fast, slow):
        pq.write_table(pa.table({"site": ["fast", "slow"], "ts": [fast, slow]}), folder / ".next")
        (folder / ".next").rename(folder / f"{n}.parquet")

    settings = Configuration()
    settings.set_string("weir.trigger", "4s")
    env.configure(settings)
    rows = spark.readStream.schema("site string, ts bigint").parquet(str(folder))
    strategy = MONOTONOUS().with_timestamp_assigner(lambda value, _: value[1])
    stream = env.from_dataframe(rows, partition_by=["site"]).assign_timestamps_and_watermarks(
        strategy.with_idleness(Duration.of_millis(500))
    )
    add(0, 1000, 10)
    judged = stream.key_by(lambda v: 0).process(Judge(), JUDGED)
    with judged.execute_and_collect() as records:
        found = []
        for n in range(1, 3):
            found += [next(records), next(records)]
            # They are there long before the timeout has passed, and are read long after.
            add(n, 1000 + n, 10 + n)
        found += [next(records), next(records)]
    assert sorted(found) == [
        (site, ts + n, False) for site, ts in (("fast", 1000), ("slow", 10)) for n in range(3)
    ]


def test_windows_by_the_clock_fire_without_further_input(env, spark, tmp_path):
    for n in range(3):
        add_rows(tmp_path, n, n)
    rows = spark.readStream.schema("site string, ts bigint").parquet(str(tmp_path))
    windows = env.from_dataframe(rows).window_all(TumblingProcessingTimeWindows.of(300))
    with windows.sum("ts").execute_and_collect() as records:
        assert next(iter(records)).ts == 3


class Both(KeyedCoProcessFunction):
    """Sets a timer for records of the first input."""

    def process_element1(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])

    def process_element2(self, value, ctx):
        """Nothing."""

    def on_timer(self, timestamp, ctx):
        yield timestamp


def test_bounded_input_that_was_read_does_not_hold_a_stream_back(env, spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"site": ["a", "a"], "ts": [10, 1000]}), folder / "0.parquet")
    rows = spark.readStream.schema("site string, ts bigint").parquet(str(folder))
    strategy = MONOTONOUS().with_timestamp_assigner(lambda value, _: value[1])
    stream = env.from_dataframe(rows).assign_timestamps_and_watermarks(strategy)
    table = env.from_dataframe(spark.range(20).repartition(10))
    both = stream.key_by(lambda v: 0).connect(table.key_by(lambda v: 0))
    with both.process(Both(), Types.LONG()).execute_and_collect() as records:
        assert next(iter(records)) == 10


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_of_a_dataframe_are_summed_by_window_with_their_times_in_a_column(
    env, spark, tmp_path, streaming
):
    columns = ("id % 7 AS key", "id AS n", "timestamp_millis(id * 10) AS at")
    frame = spark.range(600).selectExpr(*columns)
    if streaming:
        settings = Configuration()
        settings.set_string("weir.trigger", "available-now")
        env.configure(settings)
        frame.repartition(3).write.parquet(str(tmp_path / "rows"))
        frame = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "rows"))
    bound = Duration.of_millis(6_000)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner("at")
    rows = env.from_dataframe(frame).assign_timestamps_and_watermarks(strategy)
    sums = rows.key_by(lambda row: row.key).window(TumblingEventTimeWindows.of(1000)).sum("n")
    with sums.execute_and_collect() as found:
        totals = sorted((row.key, row.n) for row in found)
    expected = {}
    for n in range(600):
        expected[n % 7, n // 100] = expected.get((n % 7, n // 100), 0) + n
    assert totals == sorted((key, total) for (key, _), total in expected.items())


@pytest.mark.parametrize(("files", "late"), [(0, []), (2, [150])])
def test_bounded_files_come_in_epochs_of_so_many(env, tmp_path, files, late):
    inputs = tmp_path / "in"
    inputs.mkdir()
    for number, times in enumerate(([100, 200], [400, 500], [150, 600], [700], [800])):
        path = inputs / f"{number}.csv"
        path.write_text("".join(f"a,{time}\n" for time in times))
        os.utime(path, (1_000_000 + number, 1_000_000 + number))  # Spark reads the oldest first
    schema = CsvSchema.builder().add_string_column("who").add_number_column("at").build()
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(inputs))
    configuration = Configuration()
    configuration.set_integer("weir.source.batch-files", files)
    env.configure(configuration)
    strategy = MONOTONOUS().with_timestamp_assigner(1)
    stream = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "files")
    keyed = stream.assign_timestamps_and_watermarks(strategy).key_by(lambda row: row[0])
    with keyed.process(Judge(), JUDGED).execute_and_collect() as found:
        judged = [(time, is_late) for _, time, is_late in found]
    assert sorted(time for time, _ in judged) == [100, 150, 200, 400, 500, 600, 700, 800]
    assert [time for time, is_late in judged if is_late] == late
