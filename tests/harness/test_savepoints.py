"""Savepoints: self-contained, movable, for every backend, and harmless when they fail."""

from __future__ import annotations

import shutil

import pytest
from tests.harness.programs import environment, started
from tests.harness.test_checkpoints_shared import Everything

from weir.checkpoint.decider import RequestKind
from weir.checkpoint.retention import JobEnd
from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.checkpoint.store import list_completed, load_checkpoint, verify_files
from weir.common.typeinfo import Types
from weir.errors import JobExecutionError, UsageError
from weir.jobmanager.recovery import RestorePoint, load_restore_point
from weir.jobmanager.settings import StateFileSettings
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import BACKENDS, settings_of
from weir.testing.harness import HarnessOptions, JobHarness, collect

NUMBERS = 40
SETTINGS = CheckpointSettings(retention=Retention.RETAIN_ON_CANCELLATION)
every_kind = pytest.mark.parametrize("kind", list(BACKENDS))


def program():
    env = environment()
    keyed = env.from_collection(list(range(NUMBERS)), Types.LONG()).uid("numbers")
    collect(keyed.key_by(lambda n: n % 7, Types.LONG()).process(Everything()).uid("all"))
    return env


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path))


def savepoint_of(job, storage, name="savepoint-1", **how):
    """Take a savepoint in an epoch of its own."""
    asked = job.runner.savepoint(f"{storage.uri}/sp/{name}", **how)
    job.run_epoch(take=0)
    return asked.result(0)


def resumed(job, storage, directory, kind, parallelism):
    metadata = load_checkpoint(storage, directory)
    assert verify_files(storage, directory, metadata) == []
    options = HarnessOptions(
        storage=storage, backend=settings_of(kind), checkpoints=job.options.checkpoints
    )
    point = RestorePoint(storage.uri, directory, metadata)
    return JobHarness(program().build_graph(), parallelism, options, point).start()


def undisturbed(kind="hashmap"):
    job = started(program(), backend=settings_of(kind))
    job.run_epoch(take=15)
    job.run()
    return sorted(job.collected(), key=repr)


@pytest.mark.matrix
@every_kind
@pytest.mark.parametrize("native", [False, True])
def test_a_moved_savepoint_goes_on_with_another_parallelism(storage, tmp_path, kind, native):
    job = started(program(), storage=storage, backend=settings_of(kind), checkpoints=SETTINGS)
    job.run_epoch(take=10)
    job.checkpoint()
    job.run_epoch(take=5)
    ref = savepoint_of(job, storage, native=native)
    job.run_epoch(take=5)
    before = job.collected()[:15]
    job.end(JobEnd.CANCELED)
    for left in list_completed(storage, job.job_id):
        shutil.rmtree(tmp_path / left.directory)
    shutil.rmtree(tmp_path / job.job_id)
    shutil.move(tmp_path / "sp/savepoint-1", tmp_path / "elsewhere")
    assert ref.kind == "savepoint"
    assert load_checkpoint(storage, "elsewhere").savepoint_format == (
        "NATIVE" if native else "CANONICAL"
    )
    later = resumed(job, storage, "elsewhere", kind, 3).run()
    assert sorted([*before, *later.collected()], key=repr) == undisturbed()


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("first", "second"),
    [(first, second) for first in BACKENDS for second in ("hashmap", "rocksdb") if first != second],
)
def test_a_canonical_savepoint_changes_the_backend(storage, first, second):
    job = started(program(), storage=storage, backend=settings_of(first), checkpoints=SETTINGS)
    job.run_epoch(take=15)
    savepoint_of(job, storage)
    first_part = list(job.collected())
    later = resumed(job, storage, "sp/savepoint-1", second, 1).run()
    assert sorted([*first_part, *later.collected()], key=repr) == undisturbed()


def test_a_savepoint_of_a_job_without_a_checkpoint_directory_lies_on_its_own_storage(
    storage, tmp_path
):
    job = started(program(), state_files=StateFileSettings(5 << 20, in_memory=True))
    job.run_epoch(take=15)
    savepoint_of(job, storage)
    assert load_checkpoint(storage, "sp/savepoint-1").kind == "savepoint"
    assert job.storage.list() == []


def test_a_savepoint_replaces_nothing_and_is_not_recovered_from(storage):
    job = started(program(), storage=storage, checkpoints=SETTINGS)
    job.run_epoch(take=10)
    number = job.checkpoint()
    job.run_epoch(take=5)
    savepoint_of(job, storage)
    assert [ref.checkpoint_id for ref in job.runner.coordinator.completed] == [number]
    view = job.runner.history.view()
    assert view.latest("COMPLETED", savepoint=True).path.endswith("sp/savepoint-1")
    assert view.latest("COMPLETED", savepoint=False).checkpoint_id == number
    job.fail_over()
    assert job.sources.take(1)
    job.end(JobEnd.CANCELED)
    assert load_checkpoint(storage, "sp/savepoint-1").kind == "savepoint"


def test_records_that_only_a_savepoint_covers_are_not_handed_out(storage):
    job = started(program(), storage=storage, checkpoints=SETTINGS, wait_for_checkpoints=True)
    job.run_epoch(take=10, checkpoint=True)
    job.run_epoch(take=5)
    savepoint_of(job, storage)
    assert len(job.collected()) == 10
    job.kill_slot(0)
    job.fail_over()
    job.run()
    assert sorted(job.collected(), key=repr) == undisturbed()


def test_the_savepoint_of_a_stop_commits_and_is_recovered_from(storage):
    job = started(program(), storage=storage, checkpoints=SETTINGS, wait_for_checkpoints=True)
    job.run_epoch(take=10)
    assert job.collected() == []
    savepoint_of(job, storage, synchronous=True)
    assert len(job.collected()) == 10
    point = load_restore_point(f"{storage.uri}/sp/savepoint-1")
    assert point.metadata.checkpoint_id == job.runner.coordinator.completed[-1].checkpoint_id


def test_a_savepoint_that_cannot_be_written_leaves_nothing_and_the_job_goes_on(storage, tmp_path):
    (tmp_path / "file").write_text("in the way")
    job = started(program(), storage=storage, checkpoints=CheckpointSettings(tolerable_failures=9))
    job.run_epoch(take=10)
    asked = job.runner.savepoint(f"{storage.uri}/file/savepoint-1")
    job.run_epoch(take=5)
    with pytest.raises(JobExecutionError, match=r"the savepoint was not taken.*file"):
        asked.result(0)
    assert (tmp_path / "file").read_text() == "in the way"
    assert job.runner.history.view().latest("FAILED").is_savepoint
    job.run()
    assert sorted(job.collected(), key=repr) == undisturbed()


def test_what_was_not_taken_leaves_no_empty_directory(storage, tmp_path):
    job = started(program(), storage=storage, checkpoints=CheckpointSettings(tolerable_failures=9))
    job.run_epoch(take=10)
    asked = [job.control.stop(f"{tmp_path}/sp"), job.control.stop(f"{tmp_path}/sp")]
    with pytest.raises(UsageError):
        asked[1].result(0)
    assert len(list((tmp_path / "sp").iterdir())) == 1
    job.turn_until(asked[0].done)
    taken = asked[0].result(0)
    assert storage.exists(f"sp/{taken.rpartition('/')[2]}/_metadata")
    with pytest.raises(UsageError, match="has ended"):
        job.control.savepoint(f"{tmp_path}/sp").result(0)
    assert len(list((tmp_path / "sp").iterdir())) == 1


def test_a_savepoint_that_is_refused_later_leaves_no_empty_directory(storage, tmp_path):
    job = started(program(), storage=storage)
    job.run_epoch(take=10)
    job.runner.close()
    asked = job.control.savepoint(f"{tmp_path}/sp")
    with pytest.raises(JobExecutionError, match="the job is finishing"):
        asked.result(0)
    assert list((tmp_path / "sp").iterdir()) == []


def test_nobody_gets_a_checkpoint_of_a_job_that_takes_its_last_one(storage):
    job = started(program(), storage=storage)
    job.runner.close()
    with pytest.raises(JobExecutionError, match="the job is finishing"):
        job.runner.checkpoint().result(0)
    job.fail_over()
    asked = job.runner.checkpoint()
    job.run_epoch(take=1)
    assert asked.result(0).checkpoint_id == 1


def test_a_checkpoint_that_is_asked_for_before_the_first_attempt_is_taken_in_it(storage):
    job = JobHarness(program().build_graph(), 2, HarnessOptions(storage=storage))
    asked = job.runner.checkpoint()
    job.start()
    job.run_epoch(take=1)
    assert asked.result(0).checkpoint_id == 1


def test_a_failover_answers_those_who_wait(storage):
    job = started(program(), storage=storage, deferred=True, checkpoints=SETTINGS)
    running = job.runner.savepoint(f"{storage.uri}/sp/a")
    job.run_epoch(take=1)
    waiting = job.runner.checkpoint()
    job.fail_over()
    for asked in (running, waiting):
        with pytest.raises(JobExecutionError, match="the job restarted"):
            asked.result(0)
    assert storage.list("sp") == []


def test_a_checkpoint_whose_positions_cannot_be_read_is_not_taken(storage):
    job = started(program(), storage=storage, checkpoints=CheckpointSettings(tolerable_failures=9))
    asked = job.runner.checkpoint()

    def broken(savepoint):
        msg = "the log is gone"
        raise OSError(msg)

    assert job.runner.begin_epoch(1, broken) is None
    with pytest.raises(JobExecutionError, match="the storage failed before"):
        asked.result(0)
    job.runner.request(RequestKind.MANUAL)
    assert job.run_epoch(take=1) is not None


def test_the_history_tells_how_long_the_synchronous_part_took(storage):
    job = started(program(), storage=storage, checkpoints=SETTINGS)
    operator = next(iter(job.operators("all")))
    snapshot = operator.snapshot

    def slow(*args):
        job.clock.advance(70)
        return snapshot(*args)

    operator.snapshot = slow
    job.run_epoch(take=5, checkpoint=True)
    acks = job.runner.history.view().find(1).acks
    assert sorted(ack.sync_ms for ack in acks.values()) == [0, 70]
