"""Checkpoints that share files: every kind of backend, through failures, claims and rescaling.

Wherever a test looks, `shared/` holds exactly what complete checkpoints refer to.
"""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, started

from weir.checkpoint.decider import savepoint_request
from weir.checkpoint.retention import JobEnd
from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.checkpoint.shared import shared_files
from weir.checkpoint.store import list_completed, load_checkpoint, verify_files
from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction
from weir.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from weir.errors import JobExecutionError, StorageError
from weir.jobmanager.claims import ClaimMode
from weir.jobmanager.recovery import BehindCommits
from weir.jobmanager.settings import JobSettings, StateFileSettings
from weir.storage.memory import MemoryStorage
from weir.testing.campaign_backends import BACKENDS, settings_of, sharing
from weir.testing.faulty_storage import FaultyStorage
from weir.testing.harness import collect

pytestmark = pytest.mark.matrix

NUMBERS = 60
KEYS = 7
END = 1 << 40
every_kind = pytest.mark.parametrize("kind", list(BACKENDS))
every_sharing_kind = pytest.mark.parametrize("kind", sharing())


class Everything(KeyedProcessFunction):
    """Touches every kind of state that can be stored as changes, and sets a timer each time."""

    def open(self, runtime_context):
        long = Types.LONG()
        self.total = runtime_context.get_state(ValueStateDescriptor("total", long))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", long, long))
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", long))

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value)
        self.seen.put(value % 5, value)
        if value % 11 == 0:
            self.seen.remove(value % 5)
        self.last.add(value)
        if value % 13 == 0:
            self.last.update([value])
        ctx.timer_service().register_event_time_timer(END + value)
        yield value, self.total.value(), sorted(self.seen.items()), list(self.last.get())

    def on_timer(self, timestamp, ctx):
        yield "end", ctx.get_current_key(), timestamp - END, self.total.value()


def expected(numbers=NUMBERS):
    total, seen, last, rows = {}, {}, {}, []
    for value in range(1, numbers + 1):
        key = value % KEYS
        total[key] = total.get(key, 0) + value
        entries, tail = seen.setdefault(key, {}), last.setdefault(key, [])
        entries[value % 5] = value
        if value % 11 == 0:
            del entries[value % 5]
        tail.append(value)
        if value % 13 == 0:
            tail[:] = [value]
        rows.append((value, total[key], sorted(entries.items()), list(tail)))
    timers = [("end", value % KEYS, value, total[value % KEYS]) for value in range(1, numbers + 1)]
    return sorted(rows + timers, key=repr)


def job(kind, parallelism=2, *, retained=1, tolerable=0, **options):
    env = environment()
    stream = env.from_sequence(1, NUMBERS).uid("source").key_by(lambda n: n % KEYS)
    collect(stream.process(Everything()).uid("everything"))
    settings = CheckpointSettings(
        retention=Retention.RETAIN_ON_CANCELLATION,
        num_retained=retained,
        tolerable_failures=tolerable,
        max_concurrent=3,
    )
    options.setdefault("wait_for_checkpoints", True)
    options.setdefault("storage", MemoryStorage())
    return started(env, parallelism, backend=settings_of(kind), checkpoints=settings, **options)


def output(*jobs):
    return sorted((record for job in jobs for record in job.collected()), key=repr)


def files(storage):
    """Return every file of a storage."""
    return sorted(path for top in storage.list() for path in below(storage, top))


def below(storage, path):
    names = storage.list(path)
    return [p for name in names for p in below(storage, f"{path}/{name}")] or [path]


def used(storage):
    """Return the shared files that complete checkpoints refer to; all of them are whole."""
    found = set()
    for top in storage.list():
        for stored in list_completed(storage, top):
            assert verify_files(storage, stored.directory, stored.metadata) == []
            found |= shared_files(stored.directory, stored.metadata)
    return sorted(found)


def assert_tidy(storage):
    assert [path for path in files(storage) if "/shared/" in path] == used(storage)


@every_kind
def test_chains_of_checkpoints_go_on_through_failovers(kind):
    harness = job(kind)
    storage = harness.options.storage
    for round_ in range(4):
        for _ in range(3):
            harness.run_epoch(take=3, checkpoint=True)
            assert_tidy(storage)
        harness.run_epoch(take=2)
        harness.kill_slot(round_ % 2)
        harness.fail_over()
        assert_tidy(storage)
    harness.run(take=5)
    assert output(harness) == expected()
    assert files(storage) == []


@every_sharing_kind
def test_checkpoints_really_share_files(kind):
    harness = job(kind)
    storage = harness.options.storage
    harness.run_epoch(take=40, checkpoint=True)
    before = set()
    shared = 0
    for _ in range(2):
        harness.run_epoch(take=2, checkpoint=True)
        now = set(used(storage))
        shared += len(now & before)
        before = now
    assert shared > 0
    harness.kill_slot(0)
    harness.fail_over()
    harness.run_epoch(take=1, checkpoint=True)
    assert set(used(storage)) & before, "the chain ended with the attempt"


@pytest.mark.slow
@pytest.mark.parametrize("claim", list(ClaimMode), ids=lambda mode: mode.value)
@every_kind
def test_two_three_and_one_subtasks_give_the_right_answer_with_every_claim(kind, claim):
    jobs = [job(kind, 2, claim=claim)]
    storage = jobs[0].options.storage
    for parallelism in (3, 3, 1):
        for _ in range(3):
            jobs[-1].run_epoch(take=4, checkpoint=True)
        kept = {p: storage.read(p) for p in files(storage)}
        last = jobs[-1].job_id
        jobs.append(jobs[-1].restart(parallelism))
        jobs[-1].run_epoch(take=1, checkpoint=True)
        jobs[-1].kill_slot(0)
        jobs[-1].fail_over()
        assert used(storage) is not None
        stays = {p for p in kept if p.startswith(f"{last}/chk")} & set(files(storage))
        if claim is ClaimMode.CLAIM:
            assert stays == set(), "a claimed checkpoint goes when it is replaced"
            assert_tidy(storage)
        else:
            assert {p: storage.read(p) for p in kept} == kept, "somebody else's files"
    jobs[-1].run(take=7)
    assert output(*jobs) == expected()
    if claim is ClaimMode.CLAIM:
        assert files(storage) == []


@every_sharing_kind
def test_without_a_claim_the_first_checkpoint_stands_alone(kind):
    harness = job(kind)
    for _ in range(3):
        harness.run_epoch(take=4, checkpoint=True)
    second = harness.restart()
    second.run_epoch(take=4, checkpoint=True)
    storage = harness.options.storage
    storage.delete_tree(harness.job_id)
    assert used(storage), "the new job's files are its own"
    second.kill_slot(0)
    second.fail_over()
    assert output(harness, second.run()) == expected()


@every_sharing_kind
def test_with_a_claim_the_chain_goes_on_in_the_new_job(kind):
    harness = job(kind, claim=ClaimMode.CLAIM)
    harness.run_epoch(take=40, checkpoint=True)
    harness.run_epoch(take=2, checkpoint=True)
    second = harness.restart()
    second.run_epoch(take=2, checkpoint=True)
    storage = harness.options.storage
    theirs = [path for path in used(storage) if path.startswith(harness.job_id)]
    assert theirs, "nothing of the claimed checkpoint was used again"
    third = second.restart()
    third.run_epoch(take=2, checkpoint=True)
    third.kill_slot(1)
    third.fail_over()
    assert output(harness, second, third.run(take=5)) == expected()
    assert files(storage) == []


@every_sharing_kind
def test_files_that_another_retained_checkpoint_uses_survive_a_claim(kind):
    harness = job(kind, retained=2, claim=ClaimMode.CLAIM)
    for _ in range(4):
        harness.run_epoch(take=4, checkpoint=True)
    storage = harness.options.storage
    older = f"{harness.job_id}/chk-3"
    second = harness.restart()
    for _ in range(12):
        second.run_epoch(take=2, checkpoint=True)
    assert storage.list(f"{harness.job_id}/chk-4") == []
    assert verify_files(storage, older, load_checkpoint(storage, older)) == []


@every_kind
def test_every_retained_checkpoint_is_whole_and_nothing_else_is_kept(kind):
    harness = job(kind, retained=3)
    storage = harness.options.storage
    for number in range(1, 13):
        harness.run_epoch(take=3, checkpoint=True)
        assert len(list_completed(storage, harness.job_id)) == min(number, 3)
        assert_tidy(storage)
    harness.end(JobEnd.CANCELED)
    assert len(list_completed(storage, harness.job_id)) == 3
    assert_tidy(storage)


@every_kind
def test_an_aborted_checkpoint_between_two_others_leaves_nothing_and_loses_nothing(kind):
    storage = FaultyStorage(MemoryStorage())
    harness = job(kind, storage=storage, tolerable=5)
    harness.run_epoch(take=5, checkpoint=True)
    for _ in range(3):
        storage.fail_next("create")
        harness.run_epoch(take=5, checkpoint=True)
        if not settings_of(kind).changelog:  # a log goes on, whatever becomes of a checkpoint
            assert_tidy(storage)
        harness.run_epoch(take=5, checkpoint=True)
        assert_tidy(storage)
    harness.kill_slot(0)
    harness.fail_over()
    assert output(harness.run()) == expected()
    assert files(storage) == []


@every_kind
def test_a_failed_upload_between_two_others_leaves_nothing_and_loses_nothing(kind):
    storage = FaultyStorage(MemoryStorage())
    harness = job(kind, storage=storage, tolerable=5)
    harness.run_epoch(take=5, checkpoint=True)
    for _ in range(3):
        storage.fail_next("open_write")
        harness.run_epoch(take=5, checkpoint=True)
        harness.run_epoch(take=5, checkpoint=True)
        assert_tidy(storage)
    harness.kill_slot(1)
    harness.fail_over()
    assert output(harness.run()) == expected()
    assert files(storage) == []


@pytest.mark.slow
@every_kind
def test_a_damaged_newest_checkpoint_falls_back_to_an_older_one(kind):
    harness = job(kind, retained=3, behind_commits=BehindCommits.REPEAT)
    storage = harness.options.storage
    for _ in range(4):
        harness.run_epoch(take=5, checkpoint=True)
    newest, older = (
        {f.path for f in load_checkpoint(storage, f"{harness.job_id}/chk-{n}").files}
        for n in (4, 3)
    )
    damaged = sorted(newest - older)[0]
    storage.delete(f"{harness.job_id}/chk-4/{damaged}".replace("chk-4/../", ""))
    with pytest.raises(StorageError, match="is missing"):
        harness.fail_over()
    harness.clock.advance(JobSettings().missing_files_ms)
    harness.fail_over()
    assert harness.epoch == 3
    for _ in range(4):
        harness.run_epoch(take=5, checkpoint=True)
    harness.kill_slot(0)
    harness.fail_over()
    records = [r for r in output(harness.run()) if r[0] == "end"]
    assert records == [r for r in expected() if r[0] == "end"]
    assert files(storage) == []


@every_kind
def test_checkpoints_that_are_written_late_and_together_are_right(kind):
    harness = job(kind, deferred=True, retained=2)
    storage = harness.options.storage
    for _ in range(4):
        for _ in range(3):
            harness.run_epoch(take=2, checkpoint=True)
        harness.run_epoch(take=1)
        harness.run_async()
        harness.kill_slot(1)
        harness.fail_over()
        assert_tidy(storage)
    assert output(harness.run(take=9)) == expected()
    assert files(storage) == []


@every_sharing_kind
def test_what_a_dead_slot_had_written_goes_with_the_next_attempt(kind):
    harness = job(kind, deferred=True)
    storage = harness.options.storage
    harness.run_epoch(take=5, checkpoint=True)
    harness.run_async()
    orphan = f"{harness.job_id}/shared/state-s0-a0-0123456789ab"
    storage.create(orphan, b"written, never acknowledged")
    foreign = f"{harness.job_id}/shared/readme"
    storage.create(foreign, b"not ours")
    harness.run_epoch(take=5)
    assert storage.exists(orphan)
    harness.fail_over()
    assert not storage.exists(orphan)
    storage.create(orphan, b"from a slot that lived on")
    harness.run()
    assert files(storage) == [foreign]


@every_sharing_kind
def test_a_savepoint_refers_to_nothing_and_the_chain_goes_on_behind_it(kind):
    harness = job(kind)
    storage = harness.options.storage
    for _ in range(3):
        harness.run_epoch(take=4, checkpoint=True)
    runner = harness.runner
    request = savepoint_request(runner.coordinator.settings, "savepoint-1", timestamp_ms=0)
    runner.coordinator.submit(request)
    barrier = harness.run_epoch(take=4)
    assert barrier.full
    savepoint = load_checkpoint(storage, "savepoint-1")
    assert shared_files("savepoint-1", savepoint) == frozenset()
    assert not any(s.layers or s.attachments for op in savepoint.operators for s in op.subtasks)
    for _ in range(3):
        harness.run_epoch(take=4, checkpoint=True)
        assert_tidy(storage)
    harness.kill_slot(0)
    harness.fail_over()
    assert output(harness.run()) == expected()


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
@every_kind
def test_small_state_is_kept_in_the_metadata(kind, compress):
    harness = job(kind, state_files=StateFileSettings(1 << 20, compress))
    storage = harness.options.storage
    for _ in range(3):
        harness.run_epoch(take=5, checkpoint=True)
    assert files(storage) == [f"{harness.job_id}/chk-3/_metadata"]
    harness.kill_slot(1)
    harness.fail_over()
    second = harness.restart(3)
    assert output(harness, second.run(take=9)) == expected()


@every_kind
def test_compressed_state_is_restored(kind):
    harness = job(kind, state_files=StateFileSettings(0, compress=True))
    for _ in range(3):
        harness.run_epoch(take=5, checkpoint=True)
    harness.kill_slot(1)
    harness.fail_over()
    assert output(harness.run(take=9)) == expected()


@every_kind
def test_state_in_the_drivers_memory_survives_slots_and_ends_with_the_job(kind):
    harness = job(kind, state_files=StateFileSettings(5 << 20, in_memory=True))
    storage = harness.options.storage
    for _ in range(3):
        harness.run_epoch(take=5, checkpoint=True)
        assert files(storage) == [f"{harness.job_id}/chk-{harness.epoch}/_metadata"]
    harness.kill_slot(1)
    harness.fail_over()
    assert output(harness.run(take=9)) == expected()
    assert files(storage) == []


@every_kind
def test_state_that_is_too_big_for_the_drivers_memory_is_refused_with_both_sizes(kind):
    harness = job(kind, state_files=StateFileSettings(100, in_memory=True))
    with pytest.raises(JobExecutionError, match=r"at most 100 .*set execution\.checkpointing\.dir"):
        harness.run_epoch(checkpoint=True)
