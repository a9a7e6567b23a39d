"""Small files are joined before they are seen: when, how, and whatever happens on the way."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from weir.common.serialization import Encoder
from weir.connector.bucket import BucketAssigner
from weir.connector.compaction import Compaction, Waiting
from weir.connector.file_format import TextFormat
from weir.connector.file_system import FileSystem, LocalFileSystem
from weir.connector.file_writer import decode_committable
from weir.connector.parquet_format import ParquetFormat
from weir.connector.sink import SinkWriter, WriterContext
from weir.datastream.connectors.file_system import (
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    OutputFileConfig,
)
from weir.errors import CorruptStateError, UsageError
from weir.testing.crashing_file_system import CrashingFileSystem
from weir.testing.faulty_storage import CrashMoment, SimulatedCrash

pytestmark = pytest.mark.matrix
CONCAT = FileCompactor.concat_file_compactor()


def strategy(size: int | None = None, checkpoints: int | None = None) -> FileCompactStrategy:
    builder = FileCompactStrategy.builder()
    if size is not None:
        builder.set_size_threshold(size)
    if checkpoints is not None:
        builder.enable_compaction_on_checkpoint(checkpoints)
    return builder.build()


def waiting(*sizes: int, bucket: str = "a", waits: int = 0) -> list[Waiting]:
    return [Waiting(f"/{bucket}/{i}", f"/{bucket}/f{i}", s, waits) for i, s in enumerate(sizes)]


def groups(files: list[Waiting], last: bool = False, **when: int) -> list[list[int]]:
    made = Compaction(strategy(**when), CONCAT, TextFormat())
    return [[each.size for each in group] for group in made.groups(files, last=last)]


def test_files_are_joined_when_there_is_enough_of_them() -> None:
    assert groups(waiting(4, 5), size=10) == []
    assert groups(waiting(4, 6, 3, 20, 1), size=10) == [[4, 6], [3, 20]]
    assert groups(waiting(4, 5), size=10, last=True) == [[4, 5]]


def test_files_are_joined_when_they_have_waited_long_enough() -> None:
    assert groups(waiting(4), checkpoints=1) == [[4]]
    assert groups(waiting(4), checkpoints=3) == []
    assert groups([*waiting(4, waits=2), *waiting(5)], checkpoints=3) == [[4, 5]]
    assert groups([*waiting(9, 4, waits=1), *waiting(5)], size=9, checkpoints=3) == [[9], [4, 5]]


def test_files_of_different_buckets_never_meet() -> None:
    assert groups([*waiting(4), *waiting(6, bucket="b")], size=10) == []
    assert groups([*waiting(4), *waiting(6, bucket="b")], last=True, size=10) == [[4], [6]]


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from("ab"), st.integers(0, 4)), max_size=9),
    st.integers(1, 20),
    st.integers(1, 5),
    st.booleans(),
)
def test_every_file_is_in_at_most_one_group(found: Any, size: int, number: int, last: bool) -> None:
    files = [Waiting(f"/{b}/{i}", "", s, w) for i, (s, b, w) in enumerate(found)]
    made = Compaction(strategy(size, number), CONCAT, TextFormat()).groups(files, last=last)
    flat = [each for group in made for each in group]
    assert len(set(flat)) == len(flat)
    assert all(len({each.bucket for each in group}) == 1 for group in made)
    left = [each for each in files if each not in flat]
    assert not (last and left)
    assert all(each.waits + 1 < number for each in left)
    for bucket in "ab":
        assert sum(each.size for each in left if each.bucket == bucket) < size


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: FileCompactStrategy.builder().build(), "set_size_threshold"),
        (lambda: FileCompactStrategy.builder().set_size_threshold(0), "positive number"),
        (lambda: strategy(checkpoints=-1), "positive number"),
        (lambda: Compaction.of(None, CONCAT, TextFormat()), "expected a FileCompactStrategy"),
        (lambda: Compaction.of(strategy(1), CONCAT, ParquetFormat()), "record_wise"),
        (
            lambda: Compaction.of(
                strategy(1), FileCompactor.record_wise_file_compactor(), TextFormat()
            ),
            "concat_file_compactor",
        ),
    ],
)
def test_what_cannot_be_is_refused(call: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        call()


# ---- the writer --------------------------------------------------------------------------------


class Job:
    """A sink of one subtask, with the checkpoints that a job would take."""

    def __init__(self, directory: Path, compactor: FileCompactor = CONCAT, **when: int) -> None:
        self.directory = directory
        sink = FileSink.for_row_format(str(directory), Encoder.simple_string_encoder())
        sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        sink.with_output_file_config(OutputFileConfig("part", ".txt"))
        self.sink = sink.enable_compact(strategy(**when), compactor).build()
        assert not self.sink.can_take_back()
        self.state: list[bytes] = []
        self.attempt = 0
        self.begin(LocalFileSystem())

    def begin(self, fs: FileSystem) -> None:
        """Start an attempt from the last checkpoint."""
        self.attempt += 1
        context = WriterContext("0a" * 16, "ab" * 16, self.attempt, subtask=0, parallelism=1)
        self.writer: SinkWriter = self.sink.with_file_system(fs).create_writer(context)
        if self.state:
            self.writer.restore(self.state)
        self.writer.discard_leftovers(self.state)

    def epoch(self, number: int, *values: str) -> None:
        self.writer.write_batch(list(values), None)
        state = self.writer.prepare(number)
        self.state = state
        self.writer.commit(state)

    def visible(self) -> list[str]:
        found = sorted(p for p in self.directory.glob("*") if not p.name.startswith("."))
        return [path.read_text() for path in found]

    def hidden(self) -> int:
        return len([p for p in self.directory.glob(".*") if p.is_file()])


def test_files_wait_hidden_until_they_are_one(tmp_path: Path) -> None:
    job = Job(tmp_path, checkpoints=3)
    job.epoch(1, "a")
    job.epoch(2, "b")
    assert (job.visible(), job.hidden()) == ([], 2)
    job.epoch(3, "c")
    assert (job.visible(), job.hidden()) == (["a\nb\nc\n"], 0)
    job.epoch(4, "d")
    job.writer.finish()
    job.epoch(5, "e")
    assert (sorted(job.visible()), job.hidden()) == (["a\nb\nc\n", "d\ne\n"], 0)


def test_small_files_are_joined_at_a_size_and_large_ones_stay(tmp_path: Path) -> None:
    job = Job(tmp_path, size=6)
    job.epoch(1, "1")
    job.epoch(2, "2")
    assert job.visible() == []
    job.epoch(3, "3")
    job.epoch(4, "a long one")
    assert sorted(job.visible()) == ["1\n2\n3\n", "a long one\n"]


def test_a_delimiter_stands_behind_each_file(tmp_path: Path) -> None:
    job = Job(tmp_path, FileCompactor.concat_file_compactor(b"--\n"), checkpoints=2)
    job.epoch(1, "a")
    job.epoch(2, "b")
    assert job.visible() == ["a\n--\nb\n--\n"]


def test_identical_files_only_wait(tmp_path: Path) -> None:
    job = Job(tmp_path, FileCompactor.identical_file_compactor(), checkpoints=2)
    job.epoch(1, "a")
    assert job.visible() == []
    job.epoch(2, "b")
    assert sorted(job.visible()) == ["a\n", "b\n"]


def test_a_checkpoint_that_fails_keeps_its_files_for_the_next(tmp_path: Path) -> None:
    job = Job(tmp_path, checkpoints=2)
    job.writer.write_batch(["a"], None)
    first = job.writer.prepare(1)
    job.writer.write_batch(["b"], None)
    both = [*first, *job.writer.prepare(2)]
    job.writer.commit(both)
    job.state = both
    assert job.visible() == []
    job.epoch(3, "c")
    assert job.visible() == ["a\nb\nc\n"]


def test_a_job_without_compaction_shows_what_waited(tmp_path: Path) -> None:
    job = Job(tmp_path, checkpoints=9)
    job.epoch(1, "a")
    job.epoch(2, "b")
    plain = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    plain.with_output_file_config(OutputFileConfig("part", ".txt"))
    job.sink = plain.build()
    job.begin(LocalFileSystem())
    assert sorted(job.visible()) == ["a\n", "b\n"]
    assert job.hidden() == 0


def test_a_waiting_file_that_changed_or_is_gone_is_noticed(tmp_path: Path) -> None:
    job = Job(tmp_path, checkpoints=9)
    job.epoch(1, "a")
    [hidden] = tmp_path.glob(".*")
    hidden.write_text("changed")
    with pytest.raises(CorruptStateError, match="has 7 bytes, its checkpoint recorded 2"):
        job.begin(LocalFileSystem())
    hidden.unlink()
    with pytest.raises(CorruptStateError, match="is missing"):
        job.writer.commit(job.state)
    with pytest.raises(UsageError, match="cannot take back"):
        job.writer.take_back([], 1)
    with pytest.raises(CorruptStateError, match="made of"):
        job.writer.commit([b'{"temp": "/x", "final": "/y", "size": 1, "parts": 7}'])


@pytest.mark.parametrize("part", ["relative", "{}/visible", "{}/../.other", "{}/b/.other"])
def test_no_file_is_removed_but_a_hidden_one_of_the_bucket(tmp_path: Path, part: str) -> None:
    job = Job(tmp_path, checkpoints=9)
    entry = {"temp": f"{tmp_path}/.x", "final": f"{tmp_path}/y", "size": 1}
    (tmp_path / "visible").write_text("of somebody else")
    (tmp_path / "y").write_text("y")
    job.begin(LocalFileSystem())
    with pytest.raises(CorruptStateError, match="made of"):
        job.writer.commit([json.dumps({**entry, "parts": [part.format(tmp_path)]}).encode()])
    assert (tmp_path / "visible").exists()


@pytest.mark.parametrize(
    ("moment", "power_loss"),
    [(CrashMoment.BEFORE, False), (CrashMoment.MIDDLE, True), (CrashMoment.AFTER, True)],
)
@pytest.mark.parametrize("when", [{"checkpoints": 2}, {"checkpoints": 3, "size": 5}])
def test_a_crash_anywhere_loses_and_repeats_nothing(
    tmp_path: Path, when: dict[str, int], moment: CrashMoment, power_loss: bool
) -> None:
    for point in range(1, 10_000):
        directory = tmp_path / str(point)
        job = Job(directory, **when)
        fs = CrashingFileSystem(point, moment, power_loss)
        durable, done = 0, False
        try:
            job.begin(fs)
            for number in range(1, 5):
                job.writer.write_batch([f"{number}"], None)
                state = job.writer.prepare(number)
                fs.point(lambda: None)
                job.state, durable = state, number
                job.writer.commit(state)
            done = True
        except SimulatedCrash:
            fs.die()
        if done:
            assert point > 30
            return
        # The records behind the last durable checkpoint come again.
        job.begin(LocalFileSystem())
        job.writer.write_batch([f"{number}" for number in range(durable + 1, 6)], None)
        job.writer.finish()
        job.epoch(6, "6")
        job.writer.close()
        assert Counter("".join(job.visible()).split()) == Counter(map(str, range(1, 7))), point
        assert job.hidden() == 0, f"after a crash at call {point}"


@pytest.mark.parametrize("name", ["\\ud800", "\\u0000"])
def test_what_cannot_name_a_file_is_damage(name: str) -> None:
    entry = f'{{"temp": "/out/{name}.a.inprogress", "final": "/out/a", "size": 4}}'
    with pytest.raises(CorruptStateError, match="names files that cannot be"):
        decode_committable(entry.encode())
