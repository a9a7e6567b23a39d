"""What `foreach_batch` hands over: whole checkpoints, in order, and again after any crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from weir.common import Types
from weir.connector.sink import WriterContext
from weir.connector.spark_target import DirectoryTarget, SparkTarget
from weir.connector.staged_batch import StagedBatchSink, finish_staged
from weir.errors import StorageError, UserFunctionError
from weir.spark.driver_sinks import DriverSinks

ROW = Types.ROW_NAMED(["n"], [Types.INT()])
JOB, OPERATOR = "0a" * 16, "ab" * 16
NOTE = f"handed-over-{JOB}.{OPERATOR[:16]}"


class Session:
    """As much of a session as is asked for: what Spark would make rows of stays as it is."""

    def createDataFrame(self, table: pa.Table) -> list[int]:
        return table.column("n").to_pylist()


def writer(folder: Path, subtask: int = 0, attempt: int = 0) -> Any:
    who = WriterContext(JOB, OPERATOR, attempt, subtask, parallelism=2, type_info=ROW)
    return StagedBatchSink(str(folder)).create_writer(who)


def staged(writer: Any, checkpoint: int, *numbers: int) -> list[bytes]:
    writer.write_batch([(n,) for n in numbers], None)
    return writer.prepare(checkpoint)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(errors="replace") for path in folder.iterdir()}


def sinks(folder: Path, given: Any) -> DriverSinks:
    made = DriverSinks(Session(), folder)  # type: ignore[arg-type]
    made.keep("op", "Foreach Batch", given)
    return made


class Table(SparkTarget):
    """Keeps rows by identity and checkpoint, as a table does that is written idempotently."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], list[int]] = {}
        self.writes = 0
        self.fail: Exception | None = None

    def committed(self, identity: str) -> int | None:
        return max((n for who, n in self.rows if who == identity), default=None)

    def write(self, identity: str, checkpoint: int, rows: Any) -> None:
        self.writes += 1
        self.rows[identity, checkpoint] = rows
        if self.fail is not None:
            error, self.fail = self.fail, None
            raise error


def test_all_rows_of_a_checkpoint_come_in_one_call_whoever_staged_them(tmp_path: Path) -> None:
    calls: list[Any] = []
    made = sinks(tmp_path, lambda rows, checkpoint: calls.append((sorted(rows), checkpoint)))
    one, two = writer(tmp_path), writer(tmp_path, 1)
    made.commit(5, [("op", staged(one, 5, 1, 2)), ("op", staged(two, 5, 3))])
    assert calls == [([1, 2, 3], 5)]
    assert contents(tmp_path) == {NOTE: "5"}


def test_a_restored_checkpoint_is_handed_over_by_one_slot_and_checkpoint_by_checkpoint(
    tmp_path: Path,
) -> None:
    one, two = writer(tmp_path), writer(tmp_path, 1)
    pending = [*staged(one, 5, 1), *staged(two, 5, 2), *staged(one, 6, 3)]
    heirs = [writer(tmp_path, n, attempt=1).share(pending, n, 2) for n in range(2)]
    assert heirs == [pending, []]
    calls: list[Any] = []
    made = sinks(tmp_path, lambda rows, checkpoint: calls.append((sorted(rows), checkpoint)))
    made.commit(6, [("op", heirs[0])])
    assert calls == [([1, 2], 5), ([3], 6)]


def test_a_crash_behind_the_call_calls_again_with_the_same_rows(tmp_path: Path) -> None:
    pending = [*staged(writer(tmp_path), 5, 1), *staged(writer(tmp_path, 1), 5, 2)]
    calls: list[Any] = []

    def function(rows: Any, checkpoint: int) -> None:
        calls.append((sorted(rows), checkpoint))
        if len(calls) == 1:
            raise SystemExit

    with pytest.raises(UserFunctionError, match="Foreach Batch"):
        sinks(tmp_path, function).commit(5, [("op", pending)])
    sinks(tmp_path, function).commit(5, [("op", pending)])
    assert calls == [([1, 2], 5), ([1, 2], 5)]


def test_a_crash_among_the_removals_hands_nothing_over_again(tmp_path: Path) -> None:
    pending = [*staged(writer(tmp_path), 5, 1), *staged(writer(tmp_path, 1), 5, 2)]
    calls: list[Any] = []
    made = sinks(tmp_path, lambda rows, checkpoint: calls.append(rows))
    finish_staged(pending[:1])
    made.commit(5, [("op", pending)])
    assert calls == []
    assert contents(tmp_path) == {NOTE: "5"}


def test_a_directory_that_is_away_is_not_taken_for_rows_that_were_handed_over(
    tmp_path: Path,
) -> None:
    mount, calls = tmp_path / "mount", list[Any]()
    pending = staged(writer(mount), 5, 1)
    made = sinks(mount, lambda rows, checkpoint: calls.append(rows))
    mount.rename(tmp_path / "away")
    for empty in (False, True):
        if empty:
            mount.mkdir()
        with pytest.raises(StorageError, match=r"nobody can tell whether 1 rows.*handed-over-"):
            made.commit(5, [("op", pending)])
    mount.rmdir()
    (tmp_path / "away").rename(mount)
    made.commit(5, [("op", pending)])
    made.commit(5, [("op", pending)])
    assert calls == [[1]]


def test_hosts_that_do_not_share_the_directory_are_found_out(tmp_path: Path) -> None:
    """A file that another host has, and this one has not, was not handed over."""
    calls = list[Any]()
    pending = [*staged(writer(tmp_path), 5, 1), *staged(writer(tmp_path, 1), 5, 2)]
    elsewhere = next(tmp_path.glob("staged-*-s1-*"))
    elsewhere.unlink()
    with pytest.raises(StorageError, match=r"1 rows that checkpoint 5 staged.*is missing"):
        sinks(tmp_path, lambda rows, checkpoint: calls.append(rows)).commit(5, [("op", pending)])
    assert calls == []
    assert len(list(tmp_path.glob("staged-*-s0-*"))) == 1


def test_what_an_earlier_version_staged_is_handed_over_while_it_is_there(tmp_path: Path) -> None:
    calls = list[Any]()
    entry = json.loads(staged(writer(tmp_path), 5, 1)[0])
    del entry["noted"]
    (tmp_path / NOTE).unlink()
    made = sinks(tmp_path, lambda rows, checkpoint: calls.append(rows))
    for _ in range(2):
        made.commit(5, [("op", [json.dumps(entry).encode()])])
    assert calls == [[1]]
    assert contents(tmp_path) == {}


def test_a_target_that_knows_its_markers_is_not_written_twice(tmp_path: Path) -> None:
    table = Table()
    pending = staged(writer(tmp_path), 5, 1)
    table.fail = StorageError("the answer was lost")
    with pytest.raises(StorageError):
        sinks(tmp_path, table).commit(5, [("op", pending)])
    made = sinks(tmp_path, table)
    made.commit(5, [("op", pending)])
    made.commit(6, [("op", staged(writer(tmp_path), 6, 2))])
    assert table.rows == {(f"{JOB}.{OPERATOR[:16]}", 5): [1], (f"{JOB}.{OPERATOR[:16]}", 6): [2]}
    assert table.writes == 2


def test_a_directory_is_that_of_job_and_checkpoint() -> None:
    saved: list[Any] = []

    class Writer:
        """Spark's writer, as far as it is called."""

        def __getattr__(self, name: str) -> Any:
            def call(*given: Any, **named: Any) -> Writer:
                saved.append((name, *given, *named.items()))
                return self

            return call

    class Rows:
        write = Writer()

    DirectoryTarget("/data/", "orc", {"compression": "zstd"}).write("me", 7, Rows())
    assert saved == [
        ("format", "orc"),
        ("options", ("compression", "zstd")),
        ("mode", "overwrite"),
        ("save", "/data/job=me/checkpoint=7"),
    ]
