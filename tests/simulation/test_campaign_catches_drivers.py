"""The campaign's checker can fail: a driver broken on purpose is caught within a few crashes.

Each mutation breaks the state machine of a job, its supervisor, or how it recovers.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from weir.jobmanager import assignments, restoration
from weir.jobmanager.checkpoints import CheckpointRunner
from weir.jobmanager.job import Job
from weir.jobmanager.job_actions import Close
from weir.jobmanager.job_states import (
    Ending,
    EndOfInput,
    Idle,
    Running,
    Shut,
)
from weir.jobmanager.registry import SlotRegistry
from weir.jobmanager.restoration import Restoration
from weir.jobmanager.results import Results
from weir.jobmanager.supervisor import Supervisor
from weir.testing.campaign import Crash, Kind, Mode, run
from weir.testing.campaign_backends import BACKENDS
from weir.testing.campaign_scenario import ASKED
from weir.testing.harness_slots import Stuck

pytestmark = pytest.mark.campaign

PLAIN = 0
SEEDS = {name: -len(BACKENDS) - index for index, name in enumerate(ASKED)}


def an_epoch_of_the_engine_that_failed_counts(patch):
    """What a failed batch held is behind the positions of the next barrier."""
    run_epoch = Supervisor._run_epoch

    def broken(self, attempt, busy, batch):
        self.fail = lambda attempt, error: None
        try:
            run_epoch(self, attempt, busy, batch)
        except RuntimeError:
            self.job.epochs = Idle(busy.number, busy.after)
        finally:
            del self.fail

    patch.setattr(Supervisor, "_run_epoch", broken)


def the_driver_acknowledges_before_it_has_the_results(patch):
    begin = CheckpointRunner.begin_epoch

    def broken(self, epoch, positions):
        barrier = begin(self, epoch, positions)
        self.epoch_done(barrier)
        return barrier

    patch.setattr(CheckpointRunner, "begin_epoch", broken)


def the_next_attempt_goes_on_with_the_old_slots_positions(patch):
    """Sources are not rewound: the attempt believes that it is where the last one was."""
    ready = Job.on_ready

    def broken(self, attempt, epoch, positions, *, in_flight):
        return ready(self, attempt, epoch + 1, positions, in_flight=in_flight)

    patch.setattr(Job, "on_ready", broken)
    choose = Restoration.choose

    def newest_twice(self, plan, refs, commits_begun):
        return choose(self, plan, refs[:-1], 0)

    patch.setattr(Restoration, "choose", newest_twice)


def a_restart_begins_with_nothing(patch):
    def broken(self, plan, refs, commits_begun):
        self.point, self._slots = None, []

    patch.setattr(Restoration, "choose", broken)


def a_restart_goes_back_behind_commits(patch):
    """The newest checkpoint is never used, as if it were damaged, and nobody is asked."""
    choose = Restoration.choose

    def broken(self, plan, refs, commits_begun):
        ordered = sorted(refs, key=lambda ref: ref.checkpoint_id)
        return choose(self, plan, ordered[:-1], 0)

    patch.setattr(Restoration, "choose", broken)


def results_of_a_failed_attempt_stay(patch):
    patch.setattr(Results, "drop_unreleased", lambda self: None)


def the_job_ends_before_its_last_commit(patch):
    patch.setattr(CheckpointRunner, "is_completed", lambda self, number: True)
    commit = CheckpointRunner._commit

    def forgotten(self, checkpoint_id, attempt):
        if self._closed:
            return
        commit(self, checkpoint_id, attempt)

    patch.setattr(CheckpointRunner, "_commit", forgotten)


def the_last_epoch_is_not_final(patch):
    begin = Job.begin_control

    def broken(self, attempt):
        busy = begin(self, attempt)
        if busy is not None:
            self.epochs = busy = replace(busy, final=False)
        return busy

    patch.setattr(Job, "begin_control", broken)


def the_input_ends_without_a_checkpoint(patch):
    over = Job.on_input_over

    def broken(self, attempt):
        actions = over(self, attempt)
        if isinstance(self.state, Ending) and isinstance(self.state.goal, EndOfInput):
            self.state = replace(self.state, step=type(self.state.step)())
            self.epochs = Shut()
            return [*actions, *self.cancel()]
        return actions

    patch.setattr(Job, "on_input_over", broken)


def rows_in_flight_do_not_come_first(patch):
    ready = Job.on_ready

    def broken(self, attempt, epoch, positions, *, in_flight):
        return ready(self, attempt, epoch, positions, in_flight=False)

    patch.setattr(Job, "on_ready", broken)
    patch.setattr(restoration, "in_flight_sources", lambda point, without: [])


def a_rescaling_keeps_the_old_plan_for_its_state(patch):
    """State is dealt out for as many slots as there were before."""
    deal = assignments.assignments

    def broken(plan, point, allow):
        slots = deal(plan, point, allow)
        return [slots[0] for _ in slots]

    patch.setattr(restoration, "assignments", broken)


def a_rescaling_begins_from_an_older_checkpoint(patch):
    taken = Supervisor._take_last
    completed = []

    def broken(self, goal):
        completed[:] = list(self.checkpoints.coordinator.completed)
        taken(self, goal)
        if completed:
            self.checkpoints.coordinator.completed[:] = completed

    patch.setattr(Supervisor, "_take_last", broken)


def a_job_that_went_back_stays_where_it_is(patch):
    back = Job._go_back

    def broken(self, attempt, trial, error):
        return back(self, attempt, trial, error)[:-1]

    patch.setattr(Job, "_go_back", broken)


def a_wish_lets_batches_pass(patch):
    """A batch begins behind the last barrier, whose checkpoint is what the job goes on from."""
    begin = Job.begin_batch

    def broken(self, attempt, positions):
        state = self.state
        if isinstance(state, Ending):
            self.state = Running(attempt)
            try:
                return begin(self, attempt, positions)
            finally:
                self.state = state
        return begin(self, attempt, positions)

    patch.setattr(Job, "begin_batch", broken)
    committed = Job.on_last_committed

    def early(self):
        actions = committed(self)
        return [a for a in actions if not isinstance(a, Close)]

    patch.setattr(Job, "on_last_committed", early)


def slots_that_hang_are_waited_for(patch):
    patch.setattr(SlotRegistry, "_notice_lapsed", lambda self: None)
    patch.setattr(SlotRegistry, "fail", lambda self, failure: False)


def nobody_begins_the_next_attempt(patch):
    patch.setattr(Job, "on_time", lambda self, now_ms: [])


def an_error_of_the_disk_ends_the_job(patch):
    failed = Job.on_failure

    def broken(self, attempt, failure):
        return failed(self, attempt, replace(failure, final="OSError" in str(failure.error)))

    patch.setattr(Job, "on_failure", broken)


def a_write_whose_outcome_is_not_known_counts_as_failed(patch):
    def broken(self, number, error):
        del self._unknown[number]
        self._perform(self.coordinator.on_metadata_failed(number, str(error)))

    patch.setattr(CheckpointRunner, "_outcome_unknown", broken)
    patch.setattr("weir.jobmanager.cleanup.CheckpointFiles.abort", lambda self, ref, files: None)


def spread(seed, kinds, stride, **mode):
    steps = len(run(seed, **mode).steps)
    yield []
    for kind in kinds:
        for point in range(steps, 0, -stride):
            yield [Crash(point, kind, point)]


def is_caught(seed, crashes, **mode):
    try:
        return bool(run(seed, crashes, **mode).problems)
    except (Exception, Stuck):
        return True  # It never ended, or broke in another way.


PLAIN_KINDS = (Kind.SLOT, Kind.ENGINE, Kind.DRIVER)


@pytest.mark.parametrize(
    ("sabotage", "seed", "kinds"),
    [
        (an_epoch_of_the_engine_that_failed_counts, PLAIN, (Kind.ENGINE,)),
        (the_driver_acknowledges_before_it_has_the_results, PLAIN, PLAIN_KINDS),
        (the_next_attempt_goes_on_with_the_old_slots_positions, PLAIN, PLAIN_KINDS),
        (a_restart_begins_with_nothing, PLAIN, PLAIN_KINDS),
        (a_restart_goes_back_behind_commits, PLAIN, PLAIN_KINDS),
        (results_of_a_failed_attempt_stay, PLAIN, PLAIN_KINDS),
        (the_job_ends_before_its_last_commit, PLAIN, PLAIN_KINDS),
        (the_last_epoch_is_not_final, PLAIN, PLAIN_KINDS),
        (the_input_ends_without_a_checkpoint, PLAIN, PLAIN_KINDS),
        (slots_that_hang_are_waited_for, PLAIN, (Kind.HANG,)),
        (nobody_begins_the_next_attempt, PLAIN, PLAIN_KINDS),
        (an_error_of_the_disk_ends_the_job, PLAIN, (Kind.DISK,)),
        (a_rescaling_keeps_the_old_plan_for_its_state, SEEDS["rescale 2-3-1"], ()),
        (a_rescaling_begins_from_an_older_checkpoint, SEEDS["rescale 2-3-1"], PLAIN_KINDS),
        (a_job_that_went_back_stays_where_it_is, SEEDS["rescale that goes back"], ()),
        (a_wish_lets_batches_pass, SEEDS["stop and resume"], PLAIN_KINDS),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_broken_driver_is_caught(monkeypatch, sabotage, seed, kinds):
    crashes = list(spread(seed, kinds, 9))
    assert not is_caught(seed, [])
    sabotage(monkeypatch)
    # Where no job ends any more, some steps run into a guard of the harness: that is caught too.
    monkeypatch.setattr("weir.testing.harness._TURNS_MAX", 30)
    monkeypatch.setattr("weir.testing.campaign._STEPS_MAX", 60)
    assert any(is_caught(seed, found) for found in crashes)


def test_a_write_whose_outcome_is_not_known_and_counts_as_failed_is_caught(monkeypatch):
    """The checkpoint that exists all the same is what the next driver finds."""
    a_write_whose_outcome_is_not_known_counts_as_failed(monkeypatch)
    runs = [
        [Crash(point, Kind.UNKNOWN), Crash(point + later, Kind.DRIVER)]
        for point in range(150, 500, 5)
        for later in (60, 90)
    ]
    assert any(is_caught(PLAIN, crashes) for crashes in runs)


def test_rows_in_flight_that_do_not_come_first_are_caught(monkeypatch):
    rows_in_flight_do_not_come_first(monkeypatch)
    runs = [(seed, [Crash(n, Kind.SLOT, n)]) for seed in (8, 22) for n in range(200, 700, 12)]
    assert any(is_caught(*found, mode=Mode.UNALIGNED) for found in runs)
