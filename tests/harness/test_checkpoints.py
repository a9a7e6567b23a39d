"""Checkpoints of whole jobs: what fails, what is repeated, what is cleaned up, what is visible."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, started

from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.checkpoint.store import list_completed, load_checkpoint
from weir.common.job_status import JobStatus
from weir.common.typeinfo import Types
from weir.connector.file_sink import FileSink
from weir.datastream import KeyedProcessFunction
from weir.datastream.state import ValueStateDescriptor
from weir.errors import CorruptStateError, JobExecutionError, StorageError, WeirError
from weir.jobmanager.background import Inline, carry_out
from weir.jobmanager.recovery import BehindCommits
from weir.jobmanager.settings import JobSettings
from weir.runtime.epoch import Epoch
from weir.slot.messages import EpochCall
from weir.slot.service import SlotFailedError
from weir.storage.local import LocalStorage
from weir.storage.memory import MemoryStorage
from weir.testing.faulty_storage import FaultyStorage
from weir.testing.harness import collect


class Total(KeyedProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value)
        yield value % 3, self.total.value()


def totals(env, numbers=12):
    return env.from_sequence(1, numbers).key_by(lambda n: n % 3).process(Total()).uid("totals")


EXPECTED = sorted([(1, 1), (2, 2), (0, 3), (1, 5), (2, 7), (0, 9)])


def lines(directory):
    files = [p for p in directory.rglob("*") if p.is_file() and not p.name.startswith(".")]
    return sorted(line for p in files for line in p.read_text().splitlines())


def hidden(directory):
    return [p for p in directory.rglob(".*") if p.is_file()]


def test_files_hold_every_record_once_through_failovers_and_a_restart(tmp_path):
    env = environment()
    totals(env, 6).sink_to(FileSink.text(str(tmp_path / "out"))).uid("files")
    harness = started(env, 2, storage=LocalStorage(str(tmp_path / "checkpoints")))
    harness.run_epoch(take=2, checkpoint=True)
    harness.run_epoch(take=2)
    harness.kill_slot(0)
    harness.fail_over()
    harness.run_epoch(take=2, checkpoint=True)
    harness.run_epoch(take=1)
    second = harness.restart(3)
    second.run()
    assert lines(tmp_path / "out") == sorted(map(str, EXPECTED))
    assert hidden(tmp_path / "out") == []


def test_nothing_is_visible_before_its_checkpoint(tmp_path):
    env = environment()
    totals(env).sink_to(FileSink.text(str(tmp_path)))
    harness = started(env)
    harness.run_epoch()
    assert lines(tmp_path) == []
    harness.checkpoint()
    assert len(lines(tmp_path)) == 12


def test_collected_records_wait_for_their_checkpoint_and_come_once():
    env = environment()
    collect(totals(env, 6))
    harness = started(env, wait_for_checkpoints=True)
    harness.run_epoch(take=3, checkpoint=True)
    harness.run_epoch(take=2)
    assert len(harness.collected()) == 3
    harness.kill_slot(1)
    harness.fail_over()
    harness.run()
    assert sorted(harness.collected()) == EXPECTED


def test_without_a_checkpoint_a_failover_starts_over():
    env = environment()
    collect(totals(env, 6))
    harness = started(env, wait_for_checkpoints=True)
    harness.run_epoch(take=4)
    harness.kill_slot(0)
    with pytest.raises(WeirError, match="slot 0"):
        harness.run_epoch()
    harness.fail_over()
    assert sorted(harness.run().collected()) == EXPECTED


def test_a_checkpoint_holds_nothing_of_the_epochs_behind_its_barrier():
    env = environment()
    collect(totals(env, 6))
    harness = started(env, deferred=True, wait_for_checkpoints=True)
    harness.run_epoch(take=3, checkpoint=True)
    harness.run_epoch(take=2)
    harness.run_async()
    assert len(harness.collected()) == 3
    harness.kill_slot(0)
    harness.fail_over()
    assert sorted(harness.run().collected()) == EXPECTED


def damage(storage, path):
    data = storage.read(path)
    storage.delete(path)
    storage.create(path, data[:-1] + bytes([data[-1] ^ 1]))


def with_damaged_newest(env, **options):
    storage = MemoryStorage()
    settings = CheckpointSettings(num_retained=2, retention=Retention.RETAIN_ON_CANCELLATION)
    harness = started(env, storage=storage, checkpoints=settings, **options)
    harness.run_epoch(take=2, checkpoint=True)
    harness.run_epoch(take=2, checkpoint=True)
    newest = f"{harness.job_id}/chk-2"
    state = next(n for n in storage.list(newest) if n.startswith("state"))
    damage(storage, f"{newest}/{state}")
    return harness


def test_a_damaged_checkpoint_whose_output_was_committed_ends_the_job_with_the_choices_named():
    env = environment()
    collect(totals(env, 6))
    harness = with_damaged_newest(env)
    shown = len(harness.collected())
    with pytest.raises(CorruptStateError, match=r"chk-1 .*weir.recovery.behind-commits"):
        harness.fail_over()
    assert len(harness.collected()) == shown
    assert harness.supervisor.job.status is JobStatus.FAILED
    assert len(list_completed(harness.storage, harness.job_id)) == 2


def test_a_damaged_checkpoint_is_passed_over_where_committed_output_may_come_again():
    env = environment()
    collect(totals(env, 6))
    harness = with_damaged_newest(env, behind_commits=BehindCommits.REPEAT)
    harness.fail_over()
    assert harness.epoch == 1
    harness.run()
    assert sorted(harness.collected())[-1] == EXPECTED[-1]


def test_a_damaged_checkpoint_is_passed_over_where_nothing_was_committed():
    env = environment()
    totals(env, 6).print()
    harness = with_damaged_newest(env)
    harness.fail_over()
    assert harness.epoch == 1


def test_when_every_checkpoint_is_damaged_the_job_refuses_to_start_from_nothing():
    storage = MemoryStorage()
    env = environment()
    collect(totals(env, 6))
    harness = started(env, storage=storage)
    harness.run_epoch(take=2, checkpoint=True)
    storage.delete_tree(f"{harness.job_id}/chk-1")
    with pytest.raises(StorageError, match="checkpoint 1 cannot be used"):
        harness.fail_over()
    harness.clock.advance(JobSettings().missing_files_ms)
    with pytest.raises(CorruptStateError, match="checkpoint 1 cannot be used"):
        harness.fail_over()


def test_a_failed_upload_is_tolerated_and_its_records_come_with_the_next_checkpoint(tmp_path):
    storage = FaultyStorage(MemoryStorage())
    settings = CheckpointSettings(tolerable_failures=1)
    env = environment()
    totals(env, 6).sink_to(FileSink.text(str(tmp_path)))
    harness = started(env, storage=storage, checkpoints=settings)
    storage.fail_next("open_write")
    harness.run_epoch(take=3, checkpoint=True)
    assert lines(tmp_path) == []
    harness.run_epoch(take=1, checkpoint=True)
    assert lines(tmp_path) == sorted(map(str, [(1, 1), (2, 2), (0, 3), (1, 5)]))


def test_a_failed_upload_beyond_what_is_tolerated_fails_the_attempt():
    storage = FaultyStorage(MemoryStorage())
    env = environment()
    collect(totals(env, 6))
    harness = started(env, storage=storage)
    storage.fail_next("open_write")
    with pytest.raises(JobExecutionError, match="0 failed checkpoints are tolerated"):
        harness.run_epoch(checkpoint=True)


def test_a_failed_metadata_write_aborts_the_checkpoint_and_leaves_nothing(tmp_path):
    storage = FaultyStorage(MemoryStorage())
    settings = CheckpointSettings(tolerable_failures=1)
    env = environment()
    totals(env, 6).sink_to(FileSink.text(str(tmp_path)))
    harness = started(env, storage=storage, checkpoints=settings)
    storage.fail_next("create")
    harness.run_epoch(checkpoint=True)
    assert storage.list(harness.job_id) == []
    assert lines(tmp_path) == []
    harness.finish()
    assert len(lines(tmp_path)) == 6


def test_the_file_of_an_acknowledgement_that_comes_too_late_is_deleted():
    storage = FaultyStorage(MemoryStorage())
    settings = CheckpointSettings(tolerable_failures=1)
    env = environment()
    collect(totals(env, 6))
    harness = started(env, storage=storage, checkpoints=settings)
    storage.fail_next("open_write")  # slot 0 declines, slot 1 has yet to write
    harness.run_epoch(checkpoint=True)
    assert storage.list(harness.job_id) == []


def test_what_could_not_be_deleted_at_its_time_is_deleted_at_the_end():
    storage = FaultyStorage(MemoryStorage())
    env = environment()
    collect(totals(env, 6))
    harness = started(env, storage=storage)
    harness.run_epoch(take=2, checkpoint=True)
    storage.fail_next("delete_tree")
    harness.run_epoch(take=2, checkpoint=True)
    assert storage.list(harness.job_id) == ["chk-1", "chk-2"]
    harness.run()
    assert storage.list(harness.job_id) == []


def test_a_job_whose_last_commit_failed_has_not_ended(tmp_path):
    env = environment()
    totals(env, 6).sink_to(FileSink.text(str(tmp_path)))
    harness = started(env)
    harness.run_epoch()
    complete = harness.slots.complete

    def dies(checkpoint_id):
        harness.slots.complete = complete
        harness.kill_slot(1)
        return complete(checkpoint_id)

    harness.slots.complete = dies
    with pytest.raises(JobExecutionError, match="committing checkpoint 1 failed"):
        harness.finish()
    assert not harness.runner.is_completed(1)
    harness.fail_over()
    harness.finish()
    assert len(lines(tmp_path)) == 6


class Logged(Inline):
    """Carries out work at once, and logs what it raises, as the thread of a real job does."""

    def run(self, work, what):
        carry_out(work, what)


def test_whatever_a_last_commit_raises_fails_the_attempt_instead_of_being_waited_for(tmp_path):
    env = environment()
    totals(env, 6).sink_to(FileSink.text(str(tmp_path)))
    harness = started(env)
    harness.runner._background = Logged()
    harness.run_epoch()
    complete = harness.slots.complete

    def dies(checkpoint_id):
        harness.slots.complete = complete
        msg = "can't start new thread"
        raise RuntimeError(msg)

    harness.slots.complete = dies
    with pytest.raises(JobExecutionError, match="committing checkpoint 1 failed: can't start"):
        harness.finish()
    assert not harness.runner.is_completed(1)
    harness.fail_over()
    harness.finish()
    assert len(lines(tmp_path)) == 6


def test_the_barrier_of_an_epoch_without_input_makes_a_checkpoint():
    env = environment()
    collect(totals(env))
    harness = started(env)
    assert [harness.checkpoint(), harness.checkpoint()] == [1, 2]
    assert harness.runner.is_completed(2)


def test_a_periodic_checkpoint_comes_with_the_epoch_behind_its_interval():
    env = environment()
    collect(totals(env))
    harness = started(env, checkpoints=CheckpointSettings(interval_ms=100))
    assert harness.run_epoch(take=1) is None
    harness.clock.advance(100)
    assert harness.run_epoch(take=1).checkpoint_id == 1
    assert harness.run_epoch(take=1) is None


def test_a_repeated_call_gets_the_same_answer_and_changes_nothing():
    env = environment()
    collect(totals(env, 6))
    harness = started(env, repeated=True)
    assert sorted(harness.run(take=2).collected()) == EXPECTED


def test_a_slot_refuses_epochs_of_another_attempt_and_epochs_that_are_over():
    env = environment()
    collect(totals(env, 6))
    harness = started(env, 1)
    harness.run_epoch(take=1)
    harness.run_epoch(take=1)
    service = harness.slots.slots[0].service
    with pytest.raises(SlotFailedError, match="belongs to execution attempt 0, not 1"):
        service.run(EpochCall(1, 1, Epoch(3)), [])
    with pytest.raises(SlotFailedError, match="epoch 1 of level 1 is over"):
        service.run(EpochCall(0, 1, Epoch(1)), [])


def test_a_slot_of_an_older_attempt_cannot_disturb_the_new_one(tmp_path):
    env = environment()
    totals(env, 6).sink_to(FileSink.text(str(tmp_path / "out")))
    harness = started(env, deferred=True)
    harness.run_epoch(take=3, checkpoint=True)
    old, zombie = harness.slots, harness.slots.slots[0]
    zombie.lost = True
    harness.fail_over()
    old.run_deferred([zombie])
    assert harness.failure is None
    assert harness.options.storage.list(harness.job_id) == []
    old.end(zombie)
    harness.run()
    assert lines(tmp_path / "out") == sorted(map(str, EXPECTED))
    assert hidden(tmp_path / "out") == []


class Keyless(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


def test_only_timers_that_exist_make_a_keyed_operator_one_with_state():
    storage = MemoryStorage()
    env = environment()
    collect(totals(env, 6).key_by(lambda pair: pair[0]).process(Keyless()).uid("plain"))
    harness = started(env, storage=storage)
    harness.run_epoch(take=3, checkpoint=True)
    metadata = load_checkpoint(storage, f"{harness.job_id}/chk-1")
    stateful = {operator.uid: operator.has_state for operator in metadata.operators}
    assert (stateful["totals"], stateful["plain"]) == (True, False)
