"""File sinks: what a reader of the directory sees, and when."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from weir.common.typeinfo import Types
from weir.common.types import Row
from weir.connector.bucket import BucketAssigner, BucketContext
from weir.connector.file_sink import FileSink
from weir.connector.file_system import LocalFileSystem
from weir.connector.file_writer import MISSING_FILES, FileSinkWriter, owner_digits
from weir.connector.rolling import OutputFileConfig, RollingPolicy
from weir.connector.sink import SinkWriter, WriterContext
from weir.connector.staged_batch import StagedBatchSink
from weir.datastream.formats.parquet import ParquetBulkWriters
from weir.errors import CorruptStateError, StorageError, UsageError

JOB = "0123456789abcdef0123456789abcdef"
OPERATOR = "feedbeeffeedbeeffeedbeeffeedbeef"
PERSON = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


class FixedClock:
    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


def context(attempt=1, subtask=0, job=JOB, lineage=(), type_info=None, clock=None) -> WriterContext:
    return WriterContext(
        job, OPERATOR, attempt, subtask, 2, lineage, type_info, clock or FixedClock()
    )


def visible(directory: Path) -> list[Path]:
    return sorted(p for p in directory.rglob("*") if p.is_file() and not p.name.startswith("."))


def hidden(directory: Path) -> list[Path]:
    return sorted(p for p in directory.rglob(".*") if p.is_file())


def write(sink: FileSink, *batches: list, **kwargs) -> tuple[FileSinkWriter, list[bytes]]:
    writer = sink.create_writer(context(**kwargs))
    for batch in batches:
        writer.write_batch(batch, None)
    return writer, writer.prepare(1)


def crash(writer: FileSinkWriter) -> None:
    """Do what the operating system does for a process that dies: close its files."""
    for part in writer._open.values():
        part.stream.close()


def text_of(directory: Path) -> str:
    return "".join(p.read_bytes().decode() for p in visible(directory))


def test_nothing_is_visible_until_commit_and_everything_after_it(tmp_path):
    writer, prepared = write(FileSink.json_lines(str(tmp_path)), [{"a": 1}], [{"a": 2}])
    assert visible(tmp_path) == []
    assert len(hidden(tmp_path)) == 1
    writer.commit(prepared)
    assert [json.loads(line) for line in text_of(tmp_path).splitlines()] == [{"a": 1}, {"a": 2}]
    assert hidden(tmp_path) == []


def test_names_follow_prefix_uid_subtask_checkpoint_counter_and_suffix(tmp_path):
    config = OutputFileConfig.builder().with_part_prefix("out").with_part_suffix(".x").build()
    sink = FileSink.text(str(tmp_path), output_file_config=config)
    writer, prepared = write(sink, ["a"], attempt=3, subtask=7)
    assert hidden(tmp_path)[0].name == f".out-feedbeef-{JOB}-a3-s7-0.inprogress"
    writer.commit(prepared)
    name = visible(tmp_path)[0].name
    assert name.startswith("out-")
    assert name.endswith("-s7-c1-0.x")
    assert name.split("-")[1].startswith(owner_digits(JOB, OPERATOR))


def test_two_attempts_never_choose_the_same_visible_name(tmp_path):
    sink = FileSink.text(str(tmp_path))
    for attempt in range(3):
        writer, prepared = write(sink, [str(attempt)], attempt=attempt)
        writer.commit(prepared)
    assert len(visible(tmp_path)) == 3


def test_a_checkpoint_without_records_has_no_committables_and_no_directory(tmp_path):
    writer = FileSink.text(str(tmp_path / "out")).create_writer(context())
    writer.write_batch([], None)
    assert writer.prepare(1) == []
    assert not (tmp_path / "out").exists()


def test_commit_twice_is_harmless(tmp_path):
    writer, prepared = write(FileSink.text(str(tmp_path)), ["a"])
    writer.commit(prepared)
    writer.commit(prepared)
    assert text_of(tmp_path) == "a\n"


def test_commit_names_the_file_when_both_names_are_gone(tmp_path):
    writer, prepared = write(FileSink.text(str(tmp_path)), ["a"])
    os.unlink(hidden(tmp_path)[0])
    with pytest.raises(CorruptStateError, match=r"part-.*is missing"):
        writer.commit(prepared)


def test_a_restore_goes_on_without_files_that_a_reader_took_away(tmp_path, caplog):
    writer, prepared = write(FileSink.text(str(tmp_path), bucket_assigner=FirstLetter()), ["a"])
    writer.commit(prepared)
    taken = visible(tmp_path)[0]
    taken.unlink()
    taken.parent.rmdir()
    again = FileSink.text(str(tmp_path)).create_writer(heir := context(attempt=2))
    again.restore(prepared)
    assert str(taken) in caplog.text
    assert heir.metrics.counter(MISSING_FILES).get_count() == 1
    assert visible(tmp_path) == []


def test_a_restore_does_not_believe_that_a_whole_directory_was_taken_away(tmp_path):
    out = tmp_path / "out"
    _, prepared = write(FileSink.text(str(out)), ["a"])
    out.rename(tmp_path / "elsewhere")
    again = FileSink.text(str(out)).create_writer(context(attempt=2))
    with pytest.raises(StorageError, match="is not there"):
        again.restore(prepared)
    (tmp_path / "elsewhere").rename(out)
    again.restore(prepared)
    assert text_of(out) == "a\n"


@pytest.mark.parametrize("commits", [False, True])
def test_a_restore_refuses_a_file_of_another_size(tmp_path, commits):
    writer, prepared = write(FileSink.text(str(tmp_path)), ["a"])
    if commits:
        writer.commit(prepared)
    next(p for p in tmp_path.iterdir()).write_bytes(b"torn and longer")
    with pytest.raises(CorruptStateError, match="15 bytes"):
        FileSink.text(str(tmp_path)).create_writer(context(attempt=2)).restore(prepared)


def test_files_of_newer_checkpoints_are_taken_back_and_no_others(tmp_path):
    sink = FileSink.text(str(tmp_path), bucket_assigner=FirstLetter())
    parent, child = "a" * 32, JOB
    kept = []
    for job, attempt, number in [(parent, 0, 3), (parent, 0, 5), (child, 0, 4), (child, 1, 6)]:
        writer = sink.create_writer(context(attempt, job=job))
        writer.write_batch([f"{job[0]}{number}"], None)
        prepared = writer.prepare(number)
        writer.commit(prepared)
        kept += prepared if number <= 4 else []
    others = [("b" * 32, OPERATOR), (JOB, "0" * 32)]
    for job, operator in others:
        writer = sink.create_writer(WriterContext(job, operator, 0, 0, 1, clock=FixedClock()))
        writer.write_batch(["other"], None)
        writer.commit(writer.prepare(9))
    (tmp_path / "part-user-s0-c9-0").write_text("a user's own file\n")
    heir = sink.create_writer(context(attempt=2, lineage=(parent,)))
    heir.take_back(kept, 4)
    lines = text_of(tmp_path).splitlines()
    assert sorted(lines) == ["04", "a user's own file", "a3", "other", "other"]


def test_a_file_of_an_aborted_checkpoint_is_newer_than_those_before_it(tmp_path):
    sink = FileSink.text(str(tmp_path))
    writer, early = write(sink, ["one"])
    writer.commit(early)
    writer.write_batch(["two"], None)
    aborted = writer.prepare(2)
    writer.write_batch(["three"], None)
    writer.commit([*aborted, *writer.prepare(3)])
    sink.create_writer(context(attempt=2)).take_back(early, 2)
    assert sorted(text_of(tmp_path).split()) == ["one", "two"]
    sink.create_writer(context(attempt=2)).take_back(early, 1)
    assert text_of(tmp_path) == "one\n"


def test_commit_refuses_a_hidden_file_of_another_size(tmp_path):
    writer, prepared = write(FileSink.text(str(tmp_path)), ["a"])
    hidden(tmp_path)[0].write_bytes(b"torn and longer")
    with pytest.raises(CorruptStateError, match="15 bytes"):
        writer.commit(prepared)
    assert visible(tmp_path) == []


def test_commit_refuses_a_visible_file_of_another_size(tmp_path):
    writer, prepared = write(FileSink.text(str(tmp_path)), ["a"])
    writer.commit(prepared)
    visible(tmp_path)[0].write_bytes(b"")
    with pytest.raises(CorruptStateError, match="0 bytes"):
        writer.commit(prepared)


@pytest.mark.parametrize(
    "garbage",
    [
        *(b"", b"nonsense", b"[]", b'{"temp": 1}', b"[" * 100_000),
        b'{"temp": 1, "final": "x", "size": 1}',
        b'{"temp": "x", "final": "x", "size": "1"}',
    ],
)
def test_a_damaged_committable_is_corrupt_state(tmp_path, garbage):
    writer = FileSink.text(str(tmp_path)).create_writer(context())
    with pytest.raises(CorruptStateError):
        writer.restore([garbage])


def test_abort_drops_what_was_not_prepared_and_keeps_what_was(tmp_path):
    writer, prepared = write(FileSink.text(str(tmp_path)), ["kept"])
    writer.write_batch(["dropped"], None)
    writer.abort()
    writer.commit(prepared)
    assert text_of(tmp_path) == "kept\n"
    assert hidden(tmp_path) == []


def test_another_subtask_of_a_later_job_can_restore(tmp_path):
    sink = FileSink.text(str(tmp_path))
    _, prepared = write(sink, ["a"])
    heir = sink.create_writer(context(job="f" * 32, subtask=1, lineage=(JOB,)))
    heir.restore(prepared)
    assert text_of(tmp_path) == "a\n"


def test_leftovers_of_earlier_attempts_and_of_the_lineage_go(tmp_path):
    sink = FileSink.text(str(tmp_path), bucket_assigner=FirstLetter())
    old, kept = write(sink, ["kept"], attempt=1)
    old.write_batch(["stale"], None)
    write(sink, ["parent"], job="a" * 32)
    crash(old)
    newer = sink.create_writer(context(attempt=2, lineage=("a" * 32,)))
    newer.discard_leftovers(kept)
    assert [str(p) for p in hidden(tmp_path)] == [json.loads(kept[0])["temp"]]


def test_leftovers_of_others_stay(tmp_path):
    sink = FileSink.text(str(tmp_path))
    write(sink, ["another job"], job="b" * 32)
    write(sink, ["same attempt"], attempt=2)
    other = WriterContext(JOB, "0" * 32, 1, 0, 1, clock=FixedClock())
    other_writer = sink.create_writer(other)
    other_writer.write_batch(["another operator"], None)
    crash(other_writer)
    (tmp_path / ".part-user.inprogress").write_text("a user's own file")
    sink.create_writer(context(attempt=2)).discard_leftovers([])
    assert len(hidden(tmp_path)) == 4


def test_a_writer_steps_over_names_that_exist(tmp_path):
    sink = FileSink.text(str(tmp_path))
    first, one = write(sink, ["one"])
    second, two = write(sink, ["two"])
    first.commit(one)
    second.commit(two)
    assert sorted(text_of(tmp_path).split()) == ["one", "two"]


def test_sinks_are_picklable(tmp_path):
    sink = pickle.loads(pickle.dumps(FileSink.csv(str(tmp_path), header=False)))
    writer, prepared = write(sink, [(1, "x")])
    writer.commit(prepared)
    assert text_of(tmp_path) == "1,x\n"


def test_file_uris_are_local_paths_and_other_schemes_are_refused(tmp_path):
    assert FileSink.text(f"file://{tmp_path}/a%20b").path == str(tmp_path / "a b")
    assert FileSink.text("relative").path == os.path.abspath("relative")
    with pytest.raises(UsageError, match="s3://bucket"):
        FileSink.text("s3://bucket/out")


def test_a_base_path_that_is_a_file_is_the_users_mistake(tmp_path):
    (tmp_path / "out").write_text("")
    writer = FileSink.text(str(tmp_path / "out")).create_writer(context())
    with pytest.raises(UsageError, match="it is a file"):
        writer.write_batch(["a"], None)


class FullDisk(LocalFileSystem):
    def __init__(self, buffering: int) -> None:
        self.buffering = buffering

    def create(self, path):
        super().create(path).close()
        return open("/dev/full", "wb", buffering=self.buffering)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("buffering", [0, 4096])
@pytest.mark.parametrize("form", ["text", "parquet", "staged"])
def test_a_full_disk_is_a_storage_error_and_leaves_no_file(tmp_path, form, buffering):
    disk = FullDisk(buffering)
    sinks = {
        "text": lambda path: FileSink.text(path).with_file_system(disk),
        "parquet": lambda path: FileSink.parquet(path, PERSON).with_file_system(disk),
        "staged": lambda path: StagedBatchSink(path, PERSON, disk),
    }
    writer = sinks[form](str(tmp_path)).create_writer(context())
    with pytest.raises(StorageError, match="No space left"):
        write_and_prepare(writer)
    writer.close()
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def write_and_prepare(writer: SinkWriter) -> None:
    writer.write_batch([(1, "a")], None)
    writer.prepare(1)


class FirstLetter(BucketAssigner):
    def get_bucket_id(self, element, context):
        return f"letter={element[0]}"


def test_a_users_bucket_assigner_chooses_directories(tmp_path):
    writer, prepared = write(
        FileSink.text(str(tmp_path), bucket_assigner=FirstLetter()), ["ab", "b", "ac"]
    )
    writer.commit(prepared)
    found = {p.parent.name: p.read_text() for p in visible(tmp_path)}
    assert found == {"letter=a": "ab\nac\n", "letter=b": "b\n"}


class ByTime(BucketAssigner):
    def get_bucket_id(self, element, context):
        return f"{context.timestamp()}/{context.current_watermark()}"


def test_the_bucket_context_knows_timestamp_and_watermark(tmp_path):
    sink = FileSink.text(str(tmp_path), bucket_assigner=ByTime())
    writer = sink.create_writer(context())
    writer.current_watermark = 5
    writer.write_batch(["a", "b"], [7, None])
    writer.commit(writer.prepare(1))
    assert [str(p.parent.relative_to(tmp_path)) for p in visible(tmp_path)] == ["7/5", "None/5"]


@pytest.mark.parametrize("bad", ["/abs", "../up", "a//b", "a/./b", 7, None])
def test_a_bucket_outside_the_base_path_is_refused(tmp_path, bad):
    class Bad(BucketAssigner):
        def get_bucket_id(self, element, context):
            return bad

    writer = FileSink.text(str(tmp_path), bucket_assigner=Bad()).create_writer(context())
    with pytest.raises(UsageError, match="bucket assigner returned"):
        writer.write_batch(["a"], None)


@pytest.mark.parametrize(
    ("pattern", "zone", "expected"),
    [
        ("yyyy-MM-dd--HH", "UTC", "2023-11-14--22"),
        ("yyyy-MM-dd--HH", "GMT-08:00", "2023-11-14--14"),
        ("yyyy-MM-dd--HH", "Asia/Tokyo", "2023-11-15--07"),
        ("'day='yy/D/H:m:ss.SSS", "UTC", "day=23/318/22:13:20.123"),
        ("uuuu''M", "UTC", "2023'11"),
    ],
)
def test_date_buckets_follow_java_patterns(pattern, zone, expected):
    assigner = BucketAssigner.date_time_bucket_assigner(pattern, zone)
    assert assigner.get_bucket_id("x", BucketContext(1_700_000_000_123)) == expected


def test_wrong_patterns_and_zones_are_refused_at_once():
    with pytest.raises(UsageError, match="'Q' is not supported"):
        BucketAssigner.date_time_bucket_assigner("yyyyQ")
    with pytest.raises(UsageError, match="Nowhere"):
        BucketAssigner.date_time_bucket_assigner("yyyy", "Nowhere/Land")


def test_the_builder_defaults_to_hourly_buckets_as_flink_does(tmp_path):
    sink = FileSink.for_row_format(str(tmp_path), lambda value: value.encode()).build()
    writer, prepared = write(sink, ["ab", "c"])
    writer.commit(prepared)
    (part,) = visible(tmp_path)
    assert len(part.parent.name) == len("2023-11-14--22")
    assert part.read_text() == "abc"


def test_size_rolling_closes_files_before_the_checkpoint(tmp_path):
    policy = RollingPolicy.default_rolling_policy(part_size=10_000)
    writer, prepared = write(
        FileSink.text(str(tmp_path), rolling_policy=policy), ["0123456789"] * 9000
    )
    assert len(prepared) == 3
    writer.commit(prepared)
    assert text_of(tmp_path).split() == ["0123456789"] * 9000


def test_old_and_idle_files_roll_at_the_next_check(tmp_path):
    clock = FixedClock()
    policy = RollingPolicy.default_rolling_policy(rollover_interval=10_000)
    sink = (
        FileSink.for_row_format(str(tmp_path), str.encode)
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(policy)
        .with_bucket_check_interval(1000)
        .build()
    )
    writer = sink.create_writer(context(clock=clock))
    for step in (0, 9_999, 1):
        clock.now += step
        writer.write_batch(["x"], None)
    assert len(writer.prepare(1)) == 1
    clock.now += 1000
    writer.write_batch(["x"], None)
    clock.now += 10_000
    writer.write_batch(["x"], None)
    assert len(writer.prepare(2)) == 2


def test_wrong_names_and_policies_are_refused():
    with pytest.raises(UsageError, match="prefix"):
        OutputFileConfig(".hidden")
    with pytest.raises(UsageError, match="'a/b'"):
        OutputFileConfig("a/b")
    with pytest.raises(UsageError, match="part_size_bytes is 0"):
        RollingPolicy.default_rolling_policy(part_size=0)


def test_parquet_through_a_schema_is_read_as_a_dataset(tmp_path):
    sink = FileSink.parquet(str(tmp_path), SCHEMA)
    writer, prepared = write(sink, [(1, "a"), (2, None)], [{"id": 3, "name": "c"}])
    assert pyarrow.dataset.dataset(str(tmp_path)).files == []
    writer.commit(prepared)
    writer.write_batch([(4, "unseen")], None)
    table = pyarrow.dataset.dataset(str(tmp_path)).to_table()
    writer.close()
    assert table.schema.equals(SCHEMA)
    assert table.to_pylist() == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": None},
        {"id": 3, "name": "c"},
    ]


def test_parquet_gathers_rows_into_row_groups(tmp_path):
    sink = FileSink.parquet(str(tmp_path), SCHEMA)
    writer, prepared = write(sink, *([[(i, "x") for i in range(10_000)]] * 7))
    writer.commit(prepared)
    metadata = pq.read_metadata(visible(tmp_path)[0])
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [
        65_536,
        4_464,
    ]


def test_parquet_names_the_field_and_the_value_that_does_not_fit(tmp_path):
    writer = FileSink.parquet(str(tmp_path), SCHEMA).create_writer(context())
    writer.write_batch([(1, "a"), ("two", "b")], None)
    with pytest.raises(UsageError, match=r"field 'id': 'two'"):
        writer.prepare(1)
    writer.close()
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("declared_at", ["sink", "stream"])
def test_parquet_columns_follow_the_row_type_of_the_sink_or_the_stream(tmp_path, declared_at):
    sink = FileSink.parquet(str(tmp_path), PERSON if declared_at == "sink" else None)
    stream_type = PERSON if declared_at == "stream" else None
    rows = [Row(1, "a"), Row(id=2, name="b"), (3, None), {"name": "d"}]
    writer, prepared = write(sink, rows, type_info=stream_type)
    writer.commit(prepared)
    table = pyarrow.dataset.dataset(str(tmp_path)).to_table()
    assert table.schema.equals(pa.schema([("id", pa.int32()), ("name", pa.string())]))
    assert table.column("id").to_pylist() == [1, 2, 3, None]
    assert table.column("name").to_pylist() == ["a", "b", None, "d"]


def test_parquet_writes_tuples_and_plain_values_too(tmp_path):
    for name, type_info, values in (
        ("pair", Types.TUPLE([Types.LONG(), Types.STRING()]), [(1, "a")]),
        ("plain", Types.LONG(), [5, 6]),
    ):
        sink = FileSink.parquet(str(tmp_path / name))
        writer, prepared = write(sink, values, type_info=type_info)
        writer.commit(prepared)
    pairs = pyarrow.dataset.dataset(str(tmp_path / "pair")).to_table().to_pylist()
    plain = pyarrow.dataset.dataset(str(tmp_path / "plain")).to_table().to_pylist()
    assert pairs == [{"f0": 1, "f1": "a"}]
    assert plain == [{"f0": 5}, {"f0": 6}]


def test_parquet_without_a_columnar_type_is_refused_when_the_writer_is_created(tmp_path):
    for type_info in (None, Types.PICKLED_BYTE_ARRAY()):
        with pytest.raises(UsageError, match="needs columns"):
            FileSink.parquet(str(tmp_path)).create_writer(context(type_info=type_info))


def test_parquet_names_the_typed_field_that_a_value_does_not_fit(tmp_path):
    writer = FileSink.parquet(str(tmp_path), PERSON).create_writer(context())
    writer.write_batch([(1, "a"), (2**40, "b")], None)
    with pytest.raises(UsageError, match=r"id.*1099511627776"):
        writer.prepare(1)
    writer.close()
    assert hidden(tmp_path) == []


def test_parquet_by_pyflinks_factory(tmp_path):
    factory = ParquetBulkWriters.for_row_type(PERSON)
    builder = FileSink.for_bulk_format(str(tmp_path), factory)
    writer, prepared = write(builder.build(), [(1, "a")])
    writer.commit(prepared)
    assert pq.read_table(visible(tmp_path)[0]).num_rows == 1
    with pytest.raises(UsageError, match="writer factory"):
        FileSink.for_bulk_format(str(tmp_path), "parquet")


def test_parquet_refuses_a_record_of_another_shape(tmp_path):
    writer = FileSink.parquet(str(tmp_path), SCHEMA).create_writer(context())
    writer.write_batch([(1, "a", "extra")], None)
    with pytest.raises(UsageError, match="extra"):
        writer.prepare(1)
    writer.close()
