"""Damaged checkpoints and committed output: refused, written again, or taken back first."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, started
from tests.harness.test_checkpoints import damage, hidden, lines, totals

from weir.checkpoint.retention import JobEnd
from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.checkpoint.store import list_completed, load_checkpoint
from weir.common.job_status import JobStatus
from weir.connector.file_sink import FileSink
from weir.connector.file_writer import MISSING_FILES
from weir.errors import CorruptStateError, StorageError, UsageError
from weir.jobmanager.recovery import BehindCommits, RestorePoint
from weir.jobmanager.settings import JobSettings
from weir.storage.local import LocalStorage
from weir.testing.faulty_storage import FaultyStorage
from weir.testing.harness import HarnessOptions, JobHarness, collect
from weir.testing.sink_conformance import ReferenceTwoPhaseSink

NUMBERS = 12
RETAINED = CheckpointSettings(num_retained=3, retention=Retention.RETAIN_ON_CANCELLATION)


def expected():
    sums, found = {}, []
    for n in range(1, NUMBERS + 1):
        sums[n % 3] = sums.get(n % 3, 0) + n
        found.append(str((n % 3, sums[n % 3])))
    return sorted(found)


class World:
    """A job with files in a directory and three committed checkpoints; `damage` hits the newest."""

    def __init__(self, tmp_path, parallelism=2, sink=None, **options):
        self.out = tmp_path / "out"
        self.storage = LocalStorage(str(tmp_path / "checkpoints"))
        self.env = environment()
        totals(self.env, NUMBERS).sink_to(sink or FileSink.text(str(self.out))).uid("files")
        self.options = {"storage": self.storage, "checkpoints": RETAINED, **options}
        self.job = started(self.env, parallelism, **self.options)
        for _ in range(3):
            self.job.run_epoch(take=2, checkpoint=True)
        self.before = lines(self.out) if self.out.exists() else []

    def files(self, number):
        directory = f"{self.job.job_id}/chk-{number}"
        return [f"{directory}/{n}" for n in self.storage.list(directory) if n.startswith("state")]

    def damage(self, *numbers):
        for number in numbers:
            damage(self.storage, self.files(number)[0])
        return self

    def savepoint(self, **epoch):
        self.job.runner.savepoint(f"{self.storage.uri}/sp/savepoint-1")
        self.job.run_epoch(**epoch)

    def restarted(self, number, **options):
        return self.started_from(f"{self.job.job_id}/chk-{number}", **options)

    def started_from(self, directory, **options):
        self.job.end(JobEnd.CANCELED)
        metadata = load_checkpoint(self.storage, directory)
        point = RestorePoint(self.storage.uri, directory, metadata)
        graph = self.env.build_graph()
        job = JobHarness(graph, 2, HarnessOptions(**{**self.options, **options}), point)
        job.sources.inherit(self.job.sources)
        return job.start()


def test_by_default_a_restart_goes_behind_no_commit_and_names_the_choices(tmp_path):
    world = World(tmp_path).damage(3)
    choices = r"checkpoint 3 cannot .*exactly once with 'weir run -s \S*/chk-2 -D " + (
        r"weir.recovery.behind-commits=take-back .*at least once with 'weir run -s \S*/chk-2 "
    )
    with pytest.raises(CorruptStateError, match=choices):
        world.job.fail_over()
    assert world.job.supervisor.job.status is JobStatus.FAILED
    assert lines(world.out) == world.before


def test_nobody_goes_behind_a_commit_because_the_newest_checkpoint_was_not_committed(tmp_path):
    world = World(tmp_path).damage(2, 3)
    world.job.runner.commits_begun = 2
    with pytest.raises(CorruptStateError, match="Output up to checkpoint 2 was committed"):
        world.job.fail_over()


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("damaged", [(3,), (2, 3)])
def test_output_that_is_taken_back_comes_exactly_once(tmp_path, parallelism, damaged):
    world = World(tmp_path, parallelism, behind_commits=BehindCommits.TAKE_BACK).damage(*damaged)
    job = world.job
    job.fail_over()
    assert len(lines(world.out)) == 2 * (3 - len(damaged))
    assert [s.metadata.checkpoint_id for s in list_completed(world.storage, job.job_id)] == [
        n for n in (3, 2, 1) if n not in damaged
    ]
    job.run_epoch(take=1)
    job.fail_over()
    job.run_epoch(take=2, checkpoint=True)
    job.kill_slot(parallelism - 1)
    job.fail_over()
    job.run()
    assert lines(world.out) == expected()
    assert hidden(world.out) == []


def test_a_checkpoint_whose_output_was_taken_back_is_never_used_again(tmp_path):
    world = World(tmp_path, behind_commits=BehindCommits.TAKE_BACK)
    path = world.files(3)[0]
    whole = world.storage.read(path)
    world.damage(3).job.fail_over()
    world.storage.delete(path)
    world.storage.create(path, whole)
    world.job.run_epoch(take=1)
    world.job.fail_over()
    assert world.job.epoch == 2
    world.job.run()
    assert lines(world.out) == expected()


def test_output_that_is_written_again_comes_at_least_once(tmp_path):
    world = World(tmp_path, behind_commits=BehindCommits.REPEAT).damage(3)
    world.job.fail_over()
    world.job.run()
    found = lines(world.out)
    assert set(found) == set(expected())
    assert len(found) == NUMBERS + 2


def test_a_sink_that_cannot_take_back_is_named_and_nothing_is_touched(tmp_path):
    env = environment()
    collect(totals(env, NUMBERS).name("sums"))
    storage = LocalStorage(str(tmp_path))
    job = started(
        env, storage=storage, checkpoints=RETAINED, behind_commits=BehindCommits.TAKE_BACK
    )
    for _ in range(2):
        job.run_epoch(take=2, checkpoint=True)
    directory = f"{job.job_id}/chk-2"
    damage(storage, f"{directory}/{storage.list(directory)[-1]}")
    with pytest.raises(CorruptStateError, match="'Sink: Collect' cannot take back"):
        job.fail_over()
    assert len(list_completed(storage, job.job_id)) == 2


def test_a_new_job_takes_back_what_the_failed_one_committed_since_then(tmp_path):
    world = World(tmp_path).damage(3)
    with pytest.raises(CorruptStateError):
        world.job.fail_over()
    job = world.restarted(2, behind_commits=BehindCommits.TAKE_BACK)
    assert len(lines(world.out)) == 4
    job.run_epoch(take=2)
    job.fail_over()
    job.run()
    assert lines(world.out) == expected()


def test_a_new_job_that_goes_back_says_that_output_comes_again(tmp_path, caplog):
    world = World(tmp_path).damage(3)
    world.restarted(2).run()
    assert "went on to checkpoint 3: output that it committed since then is written" in caplog.text
    assert set(lines(world.out)) == set(expected())


def test_a_new_job_takes_nothing_back_while_a_newer_checkpoint_is_whole(tmp_path):
    world = World(tmp_path)
    with pytest.raises(UsageError, match=r"checkpoint 3 in .* is newer than checkpoint 2"):
        world.restarted(2, behind_commits=BehindCommits.TAKE_BACK)
    assert lines(world.out) == world.before


def test_a_new_job_from_a_savepoint_takes_nothing_back(tmp_path):
    world = World(tmp_path)
    world.savepoint(take=0)
    world.job.run_epoch(take=2, checkpoint=True)
    committed = lines(world.out)
    world.started_from("sp/savepoint-1", behind_commits=BehindCommits.TAKE_BACK)
    assert lines(world.out) == committed


class Strict(ReferenceTwoPhaseSink):
    """Refuses to abort what it committed."""

    def abort(self, transaction):
        assert self._fs.size(f"{self._done_path}/{transaction}") is None, "it was committed"
        super().abort(transaction)


@pytest.mark.parametrize("new_job", [False, True])
def test_no_transaction_that_a_newer_checkpoint_committed_is_aborted(tmp_path, caplog, new_job):
    options = {} if new_job else {"behind_commits": BehindCommits.REPEAT}
    world = World(tmp_path, sink=Strict(str(tmp_path / "out")), **options).damage(3)
    if new_job:
        job = world.restarted(2)
    else:
        job = world.job
        job.fail_over()
    assert "a newer checkpoint may have committed it" in caplog.text
    job.run()
    assert set(lines(world.out / "done")) == set(expected())


@pytest.mark.parametrize("gone", ["a file", "the metadata", "the whole storage"])
def test_what_is_missing_for_a_moment_is_looked_for_again(tmp_path, gone):
    world = World(tmp_path)
    checkpoints, away = tmp_path / "checkpoints", tmp_path / "away"
    newest = checkpoints / world.job.job_id / "chk-3"
    place = {
        "a file": checkpoints / world.files(3)[0],
        "the metadata": newest / "_metadata",
        "the whole storage": checkpoints,
    }[gone]
    place.rename(away)
    for _ in range(2):
        with pytest.raises(
            StorageError, match=r"checkpoint 3 cannot be used.*is the storage mount"
        ):
            world.job.fail_over()
        world.job.clock.advance(1_000)
    away.rename(place)
    world.job.fail_over()
    assert world.job.epoch == 3
    world.job.run()
    assert lines(world.out) == expected()


def test_what_stays_missing_is_lost(tmp_path):
    world = World(tmp_path)
    world.storage.delete(world.files(3)[0])
    with pytest.raises(StorageError, match="is missing"):
        world.job.fail_over()
    world.job.clock.advance(JobSettings().missing_files_ms)
    with pytest.raises(CorruptStateError, match=r"checkpoint 3 cannot be used.* is missing"):
        world.job.fail_over()


def test_a_storage_that_does_not_answer_for_a_moment_is_asked_again(tmp_path):
    storage = FaultyStorage(LocalStorage(str(tmp_path / "checkpoints")))
    world = World(tmp_path, storage=storage)
    storage.fail_next("size")
    with pytest.raises(StorageError):
        world.job.fail_over()
    world.job.fail_over()
    assert world.job.epoch == 3
    world.job.run()
    assert lines(world.out) == expected()


def visible(directory):
    return [p for p in directory.rglob("*") if p.is_file() and not p.name.startswith(".")]


def take_away(world, archive):
    archive.mkdir()
    for file in visible(world.out):
        file.rename(archive / file.name)


def test_readers_may_take_committed_files_away(tmp_path, caplog):
    world = World(tmp_path)
    take_away(world, tmp_path / "archive")
    world.job.kill_slot(0)
    world.job.fail_over()
    assert "is not there any more" in caplog.text
    world.job.run_epoch(take=1, checkpoint=True)
    assert sum(world.job.metrics("files")[MISSING_FILES]) >= 1
    world.job.run()
    assert sorted(lines(world.out) + lines(tmp_path / "archive")) == expected()


def test_a_savepoint_is_of_use_after_its_files_were_committed_and_taken_away(tmp_path):
    world = World(tmp_path)
    world.job.run_epoch(take=1)
    world.savepoint(take=1)
    world.job.checkpoint()
    take_away(world, tmp_path / "archive")
    world.started_from("sp/savepoint-1").run()
    assert sorted(lines(world.out) + lines(tmp_path / "archive")) == expected()
