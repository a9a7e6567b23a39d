"""Formats in whole jobs: files read and written, and what becomes of lines that are no records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.harness.programs import environment, run, started

from weir.common import WatermarkStrategy
from weir.connector.bucket import BucketAssigner
from weir.datastream.connectors.base import DEAD_LETTERS
from weir.datastream.connectors.file_system import (
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
)
from weir.datastream.formats.csv import CsvReaderFormat, CsvSchema
from weir.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from weir.errors import UsageError
from weir.rest.user_metrics import texts_of
from weir.runtime.sinks import SinkOperator
from weir.testing.harness import collect
from weir.testing.harness_slots import HarnessSlot, Hooks

SCHEMA = CsvSchema.builder().add_number_column("n").add_string_column("s").build()
PAIR = SCHEMA.row_type


class ClosingFiles(Hooks):
    """A system that closes the files of a process that was killed, and writes nothing more."""

    def killed(self, slot: HarnessSlot) -> None:
        for operator in slot.operators.operators.values() if slot.operators else ():
            if isinstance(operator, SinkOperator):
                for part in operator.writer._open.values():
                    part.writer.abandon()
                    part.stream.close()


def csv_source(path: Path, how: str | None = None) -> Any:
    form = CsvReaderFormat.for_schema(SCHEMA)
    builder = FileSource.for_record_stream_format(form, str(path))
    return (builder if how is None else builder.set_on_deserialization_error(how)).build()


def lines(path: Path, *rows: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "a.csv").write_text("".join(f"{row}\n" for row in rows))
    return path


def parquet_sink(path: Path, **when: int) -> Any:
    sink = FileSink.for_bulk_format(str(path), ParquetBulkWriters.for_row_type(PAIR))
    sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    if when:
        strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(when["after"])
        sink.enable_compact(strategy.build(), FileCompactor.record_wise_file_compactor())
    return sink.build()


def visible(path: Path) -> list[Path]:
    return [p for p in path.rglob("*") if p.is_file() and not p.name.startswith(".")]


def numbers(path: Path) -> list[int]:
    return sorted(n for file in visible(path) for n in pq.read_table(file).column("n").to_pylist())


def from_source(env: Any, source: Any) -> Any:
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "files")


def test_columns_go_from_file_to_file(tmp_path: Path) -> None:
    env = environment()
    stream = from_source(env, csv_source(lines(tmp_path / "in", "1,a", "2,b", "3,c")))
    stream.sink_to(parquet_sink(tmp_path / "out"))
    harness = started(env, 2)
    harness.run_epoch()
    harness.finish()
    assert numbers(tmp_path / "out") == [1, 2, 3]
    back = FileSource.for_bulk_file_format(
        ParquetColumnarRowInputFormat(PAIR), str(tmp_path / "out")
    )
    again = environment()
    collect(from_source(again, back.build()).key_by(lambda row: row.n).map(lambda row: row.s))
    assert sorted(run(again, 2).collected()) == ["a", "b", "c"]


def test_parts_are_whole_after_any_slot_died(tmp_path: Path) -> None:
    env = environment()
    rows = [f"{n},x" for n in range(40)]
    stream = from_source(env, csv_source(lines(tmp_path / "in", *rows)))
    stream.key_by(lambda row: row.n).map(lambda row: row, PAIR.type_info()).sink_to(
        parquet_sink(tmp_path / "out")
    )
    harness = started(env, 2, hooks=ClosingFiles())
    for n in range(8):
        harness.run_epoch(take=5)
        if n % 2:
            harness.checkpoint()
        if n % 3 == 2:
            harness.kill_slot(n % 2)
            harness.fail_over()
    harness.run()
    harness.finish()
    assert numbers(tmp_path / "out") == list(range(40))
    assert [p for p in (tmp_path / "out").rglob(".*") if p.is_file()] == []


def test_joined_parts_survive_failures_and_another_parallelism(tmp_path: Path) -> None:
    env = environment()
    rows = [f"{n},x" for n in range(30)]
    stream = from_source(env, csv_source(lines(tmp_path / "in", *rows))).uid("files")
    typed = stream.key_by(lambda row: row.n).map(lambda row: row, PAIR.type_info()).uid("map")
    typed.sink_to(parquet_sink(tmp_path / "out", after=3)).uid("sink")
    harness = started(env, 2, hooks=ClosingFiles())
    for n in range(4):
        harness.run_epoch(take=2)
        harness.checkpoint()
        if n == 1:
            assert visible(tmp_path / "out") == []
            harness.kill_slot(0)
            harness.fail_over()
    assert 0 < len(visible(tmp_path / "out")) <= 2
    harness.checkpoint()
    wider = harness.restart(parallelism=3)
    wider.run(take=7)
    wider.finish()
    assert numbers(tmp_path / "out") == list(range(30))
    assert [p for p in (tmp_path / "out").rglob(".*") if p.is_file()] == []


BAD = ("1,a", "x,b", "2,c", "3")


def test_a_bad_line_fails_the_job_and_is_named(tmp_path: Path) -> None:
    env = environment()
    collect(from_source(env, csv_source(lines(tmp_path / "in", *BAD))))
    with pytest.raises(UsageError, match=r"line 2 of .*a\.csv' is no row.*'x' is no LONG"):
        started(env, 1)


def test_bad_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    env = environment()
    collect(from_source(env, csv_source(lines(tmp_path / "in", *BAD), "skip")).name("lines"))
    harness = started(env, 1)
    harness.run_epoch()
    assert harness.metrics("lines") == {"numRecordsInErrors": [2]}
    [source] = [v for v in harness.control.view().vertices if v.name == "lines"]
    assert texts_of(source) == {"0.lines.numRecordsInErrors": "2"}
    assert sorted(row.n for row in harness.collected()) == [1, 2]
    harness.fail_over()
    harness.run_epoch()
    assert harness.metrics("lines") == {"numRecordsInErrors": [2]}


def test_bad_lines_are_dead_letters_of_a_side_output(tmp_path: Path) -> None:
    env = environment()
    path = lines(tmp_path / "in", *BAD)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_source(csv_source(path), strategy, "files")
    good = collect(stream.map(lambda row: row.n))
    bad = collect(
        stream.get_side_output(DEAD_LETTERS).map(lambda letter: (letter.offset, letter.value))
    )
    harness = run(env, 2)
    assert sorted(harness.collected(good)) == [1, 2]
    assert sorted(harness.collected(bad)) == [(2, b"x,b"), (4, b"3")]
    assert sum(harness.metrics("Source: files")["numRecordsInErrors"]) == 2


def test_dead_letters_and_the_setting_have_to_agree(tmp_path: Path) -> None:
    path = lines(tmp_path / "in", *BAD)
    unread = environment()
    collect(from_source(unread, csv_source(path, "dead-letter")))
    with pytest.raises(UsageError, match="nobody reads them"):
        started(unread, 1)
    contrary = environment()
    stream = from_source(contrary, csv_source(path, "skip"))
    collect(stream)
    collect(stream.get_side_output(DEAD_LETTERS))
    with pytest.raises(UsageError, match="nothing would ever come"):
        started(contrary, 1)
    with pytest.raises(UsageError, match=r"on the stream that env\.from_source"):
        from_source(environment(), csv_source(path)).map(lambda row: row).get_side_output(
            DEAD_LETTERS
        )
