"""What people see of a job that runs: watermarks, sizes by state, full or incremental, latency."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harness.programs import environment
from tests.live_job import Count, counting, some_words

from weir.backend.factory import BackendSettings
from weir.checkpoint.settings import CheckpointSettings
from weir.common import Duration, Types, WatermarkStrategy
from weir.common.watermark_strategy import TimestampAssigner
from weir.jobmanager.history import CheckpointEntry
from weir.storage.local import LocalStorage
from weir.testing.harness import HarnessOptions, JobHarness, collect

BACKENDS = {
    "hashmap": BackendSettings(),
    "incremental": BackendSettings(incremental=True),
    "rocksdb": BackendSettings("rocksdb"),
    "rocksdb-incremental": BackendSettings("rocksdb", incremental=True),
    "changelog": BackendSettings(changelog=True),
}


def options(tmp_path: Path, backend: str = "hashmap") -> HarnessOptions:
    return HarnessOptions(storage=LocalStorage(str(tmp_path / "c")), backend=BACKENDS[backend])


def many_words() -> list[tuple[str, int]]:
    return [(f"word {number}", number) for number in range(200)]


def newest(job: JobHarness) -> CheckpointEntry:
    entry = job.control.history().latest("COMPLETED")
    assert entry is not None
    return entry


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_full_checkpoints_tell_every_state_and_reuse_nothing(tmp_path: Path, backend: str) -> None:
    job = JobHarness(counting().build_graph(), 2, options(tmp_path, backend)).start()
    for number in (1, 2):
        job.run_epoch(some_words(number))
        job.checkpoint()
        sizes = {state: size for (_, state), size in newest(job).state_sizes().items()}
        assert set(sizes) == {"total", "last"}
        assert all(0 < size < newest(job).size for size in sizes.values())
        assert newest(job).reused == 0


def test_an_incremental_checkpoint_is_full_first_and_then_reuses(tmp_path: Path) -> None:
    job = JobHarness(counting().build_graph(), 2, options(tmp_path, "incremental")).start()
    found = []
    # Few of many words change, so that there is no reason to write all of them again.
    for words in (many_words(), [("word 1", 1)], [("word 2", 2)]):
        job.run_epoch(words)
        job.checkpoint()
        found.append(newest(job))
    assert [entry.reused > 0 for entry in found] == [False, True, True]
    totals = [sum(entry.state_sizes().values()) for entry in found]
    # Layers of the chain count by state, too.
    assert totals[0] < totals[1] < totals[2]
    assert {state for _, state in found[2].state_sizes()} == {"total", "last"}


@pytest.mark.parametrize("backend", ["rocksdb-incremental", "changelog"])
def test_files_that_others_made_are_reused(tmp_path: Path, backend: str) -> None:
    job = JobHarness(counting().build_graph(), 2, options(tmp_path, backend)).start()
    job.run_epoch(some_words(1))
    job.checkpoint()
    first = newest(job)
    job.checkpoint()
    second = newest(job)
    assert (first.reused, second.reused > 0) == (0, True)
    assert second.reused <= second.size


def test_after_a_failure_the_layers_of_before_are_old_and_known(tmp_path: Path) -> None:
    job = JobHarness(counting().build_graph(), 2, options(tmp_path, "incremental")).start()
    job.run_epoch(many_words())
    job.checkpoint()
    before = newest(job)
    job.fail_over()
    job.run_epoch([("word 1", 1)])
    job.checkpoint()
    after = newest(job)
    assert after.reused > 0
    assert {state for _, state in after.state_sizes()} == {"total", "last"}
    assert sum(after.state_sizes().values()) > sum(before.state_sizes().values())


def test_a_savepoint_is_full(tmp_path: Path) -> None:
    job = JobHarness(counting().build_graph(), 2, options(tmp_path, "incremental")).start()
    job.run_epoch(some_words(1))
    job.checkpoint()
    job.checkpoint()
    asked = job.control.savepoint((tmp_path / "s").as_uri())
    job.run_epoch(some_words(2))
    asked.result(0)
    entry = newest(job)
    assert (entry.is_savepoint, entry.reused) == (True, 0)


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def test_every_operator_tells_its_watermark(tmp_path: Path) -> None:
    env = environment()
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    words = env.from_collection([], pair).name("Words").uid("words")
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(100))
    timed = words.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Second()))
    counted = timed.key_by(lambda row: row[0], Types.STRING()).process(Count(), pair).name("Count")
    collect(counted)
    job = JobHarness(env.build_graph(), 2, options(tmp_path)).start()
    marks = {v.name: v.watermark for v in job.control.view().vertices}
    assert set(marks.values()) == {None}
    job.run_epoch([("a", 5_000), ("b", 7_000), ("c", 6_000)])
    views = {v.name: v for v in job.control.view().vertices}
    assert views["Words"].watermark is None  # in front of who makes them
    shown = {name: v.watermark for name, v in views.items() if name != "Words"}
    # Two tasks read: the one that is behind counts.
    expected = shown["Count"]
    assert expected is not None
    assert 5_000 - 101 <= expected <= 7_000 - 101
    assert set(shown.values()) == {expected}
    assert {s.watermark for s in views["Count"].subtasks} == {expected}


def test_latency_ends_with_the_commit_of_a_checkpoint(tmp_path: Path) -> None:
    chosen = options(tmp_path)
    chosen.checkpoints = CheckpointSettings(interval_ms=1_000)
    job = JobHarness(counting().build_graph(), 2, chosen).start()
    job.run_epoch(some_words(1))
    times = job.control.view().epochs
    assert (times.count, times.latency.count) == (1, 0)
    chosen.clock.advance(300)
    job.checkpoint()
    times = job.control.view().epochs
    assert (times.latency.count, times.latency_ms, times.commit_ms) == (1, 300, 0)
    assert {(a.level, a.subtask) for a in job.control.view().arrivals} == {(1, 0), (1, 1)}


def test_without_periodic_checkpoints_latency_ends_with_the_epoch(tmp_path: Path) -> None:
    job = JobHarness(counting().build_graph(), 2, options(tmp_path)).start()
    job.run_epoch(some_words(1))
    assert job.control.view().epochs.latency.count == 1
