"""The life of a job as a state machine: every event in every state, without effects."""

from __future__ import annotations

import pytest

from weir.checkpoint.metadata import SourcePositions
from weir.checkpoint.retention import JobEnd
from weir.common.job_status import JobStatus
from weir.errors import JobExecutionError, UsageError
from weir.jobmanager.job import Failure, Job
from weir.jobmanager.job_actions import (
    Answer,
    BeginAttempt,
    Close,
    EndAttempt,
    Finish,
    Refuse,
    RunEpoch,
    StartInput,
    TakeLast,
    UsePlan,
)
from weir.jobmanager.job_states import (
    Awaiting,
    Closing,
    Ending,
    EndOfInput,
    Idle,
    LastEpoch,
    Over,
    Rescale,
    Restarting,
    Running,
    Serving,
    Shut,
    Starting,
    Stop,
)
from weir.jobmanager.restart import FixedDelayRestart, NoRestart

PLAN, WIDER = object(), object()


def at(n):
    return SourcePositions(batch_id=n)


def failure(text="it broke", *, now=0, final=False):
    return Failure(JobExecutionError(text), now, final=final)


def running(attempts=3):
    job = Job(PLAN, FixedDelayRestart(attempts=attempts, delay_ms=100))
    job.start()
    job.on_ready(0, 0, at(0), in_flight=False)
    return job


def kinds(actions):
    return [type(action) for action in actions]


def run_epoch(job, positions=None, checkpoint=None):
    attempt = job.attempt
    control = positions is None
    busy = job.begin_control(attempt) if control else job.begin_batch(attempt, positions)
    return job.on_epoch(attempt, busy.number, checkpoint)


def last_barrier(job, checkpoint=7):
    """Carry a wish or the end of input to the point where its checkpoint is under way."""
    job.on_quiet()
    actions = job.on_quiet() if isinstance(job.state.step, Serving) else []
    run_epoch(job, checkpoint=checkpoint)
    return actions


# ---- attempts -----------------------------------------------------------------------------------


def test_a_job_begins_with_attempt_zero_and_lets_input_flow_when_it_is_ready():
    job = Job(PLAN, NoRestart())
    assert job.start() == [BeginAttempt(0)]
    assert job.on_ready(0, 4, at(4), in_flight=False) == [StartInput()]
    assert (job.state, job.epochs) == (Running(0), Idle(4, at(4)))


def test_a_job_starts_once():
    with pytest.raises(UsageError, match="started before"):
        running().start()


def test_rows_in_flight_come_before_all_input():
    job = Job(PLAN, NoRestart())
    job.start()
    assert job.on_ready(0, 4, at(4), in_flight=True) == [RunEpoch()]
    with pytest.raises(JobExecutionError):
        job.begin_batch(0, at(5))
    assert run_epoch(job) == [StartInput()]
    assert job.epochs == Idle(5, at(4))


def test_a_failure_ends_the_attempt_and_the_next_begins_after_its_pause():
    job = running()
    assert job.on_failure(0, failure(now=1000)) == [EndAttempt(0)]
    assert job.status is JobStatus.RESTARTING
    assert job.on_time(1099) == []
    assert job.on_time(1100) == [BeginAttempt(1)]
    assert job.state == Starting(1)


def test_the_second_failure_of_an_attempt_is_a_consequence_of_the_first():
    job = running()
    job.on_failure(0, failure("first"))
    assert job.on_failure(0, failure("second")) == []
    assert str(job.state.error) == "first"


def test_a_failure_of_an_older_attempt_is_not_believed():
    job = running()
    job.on_failure(0, failure())
    job.on_time(1000)
    assert job.on_failure(0, failure()) == []
    assert job.state == Starting(1)


def test_an_attempt_that_cannot_be_prepared_goes_through_the_restart_strategy():
    job = Job(PLAN, FixedDelayRestart(attempts=1, delay_ms=0))
    job.start()
    job.on_failure(0, failure("read-only"))
    assert isinstance(job.state, Restarting)
    job.on_time(0)
    assert kinds(job.on_failure(1, failure("read-only"))) == [EndAttempt, Close, Finish]
    assert job.state.end is JobEnd.FAILED


def test_a_failure_that_no_restart_can_help_is_final():
    job = running(attempts=99)
    actions = job.on_failure(0, failure("damaged", final=True))
    assert kinds(actions) == [EndAttempt, Close, Finish]
    assert str(actions[-1].error) == "damaged"


# ---- epochs -------------------------------------------------------------------------------------


def test_positions_move_when_the_epoch_has_succeeded_and_not_before():
    job = running()
    busy = job.begin_batch(0, at(1))
    assert (busy.before, busy.after) == (at(0), at(1))
    job.on_epoch(0, busy.number, None)
    assert job.epochs == Idle(1, at(1))


def test_a_control_epoch_leaves_the_sources_where_they_are():
    job = running()
    run_epoch(job, at(1))
    busy = job.begin_control(0)
    assert (busy.before, busy.after, busy.number) == (at(1), at(1), 2)


def test_two_epochs_never_run_at_once():
    job = running()
    job.begin_batch(0, at(1))
    assert job.begin_batch(0, at(2)) is None
    assert job.begin_control(0) is None


def test_after_a_failed_epoch_none_begins_and_the_failed_one_never_counts():
    job = running()
    busy = job.begin_batch(0, at(1))
    job.on_failure(0, failure())
    assert not job.is_current(0, busy.number)
    assert job.on_epoch(0, busy.number, 3) == []
    assert job.epochs == Shut()
    for begin in (lambda: job.begin_control(0), lambda: job.begin_batch(0, at(2))):
        with pytest.raises(JobExecutionError, match="ended"):
            begin()


def test_an_epoch_of_an_older_attempt_changes_nothing():
    job = running()
    busy = job.begin_batch(0, at(1))
    job.on_failure(0, failure())
    job.on_time(1000)
    job.on_ready(1, 0, at(0), in_flight=False)
    second = job.begin_batch(1, at(1))
    assert second.number == busy.number
    assert job.on_epoch(0, busy.number, None) == []
    assert job.is_current(1, second.number)


# ---- stop, drain, rescale -----------------------------------------------------------------------


def test_a_stop_takes_its_savepoint_in_an_epoch_of_its_own_and_then_finishes():
    job = running()
    stop = Stop("file:/sp")
    job.ask(stop)
    assert job.begin_batch(0, at(1)) is None, "no batch begins behind the wish"
    assert last_barrier(job) == [TakeLast(stop)]
    assert job.state == Ending(0, stop, Awaiting(7))
    actions = job.on_last_committed()
    assert actions == [
        EndAttempt(0),
        Close(JobEnd.FINISHED),
        Answer(stop),
        Finish(JobEnd.FINISHED),
    ]


@pytest.mark.parametrize("drain", [False, True])
def test_only_the_last_epoch_of_a_drain_takes_time_to_its_end(drain):
    job = running()
    job.ask(Stop("file:/sp", drain=drain))
    job.on_quiet()
    serving = job.begin_control(0)
    assert not serving.final
    job.on_epoch(0, serving.number, None)
    job.on_quiet()
    assert job.begin_control(0).final is drain


def test_a_stop_whose_savepoint_fails_is_refused_and_the_job_goes_on():
    job = running()
    stop = Stop("file:/sp")
    job.ask(stop)
    last_barrier(job)
    error = JobExecutionError("disk full")
    assert job.on_last_refused(error) == [Refuse(stop, error)]
    assert job.begin_batch(0, at(1)) is not None


@pytest.mark.parametrize("goal", [Stop("file:/sp", drain=True), EndOfInput()])
def test_when_time_has_gone_to_its_end_the_job_cannot_go_on_without_its_checkpoint(goal):
    job = running()
    job.state = Ending(0, goal, Awaiting(7))
    with pytest.raises(JobExecutionError, match="cannot end"):
        job.on_last_refused(JobExecutionError("disk full"))


def test_a_wish_waits_for_the_epoch_that_is_running():
    job = running()
    busy = job.begin_batch(0, at(1))
    job.ask(Stop("file:/sp"))
    assert job.on_quiet() == []
    assert job.state == Running(0)
    job.on_epoch(0, busy.number, None)
    job.on_quiet()
    assert isinstance(job.state, Ending)


def test_a_second_wish_is_refused_until_the_first_is_done():
    job = running()
    job.ask(Rescale(WIDER, 3))
    with pytest.raises(UsageError, match="being rescaled"):
        job.ask(Stop("file:/sp"))
    last_barrier(job)
    with pytest.raises(UsageError, match="being rescaled"):
        job.ask(Stop("file:/sp"))


def rescaled(job, rescale):
    job.ask(rescale)
    last_barrier(job)
    return job.on_last_committed()


def test_a_rescaling_ends_the_attempt_and_proves_the_new_plan_before_it_is_answered():
    job = running()
    rescale = Rescale(WIDER, 3)
    assert rescaled(job, rescale) == [EndAttempt(0), UsePlan(WIDER), BeginAttempt(1)]
    assert job.on_ready(1, 2, at(2), in_flight=False) == [RunEpoch()]
    assert run_epoch(job) == [Answer(rescale), StartInput()]
    assert (job.state, job.plan) == (Running(1), WIDER)


def test_a_rescaling_whose_attempt_fails_goes_back_to_the_old_plan_without_a_pause():
    job = running(attempts=0)
    rescale = Rescale(WIDER, 3)
    rescaled(job, rescale)
    actions = job.on_failure(1, failure("slot 2 was lost"))
    assert kinds(actions) == [EndAttempt, Refuse, UsePlan, BeginAttempt]
    assert "parallelism 3" in str(actions[1].error)
    assert (job.plan, job.state) == (PLAN, Starting(2))
    assert job.on_ready(2, 2, at(2), in_flight=False) == [StartInput()]


def test_a_failure_refuses_what_was_asked_for_and_not_begun():
    job = running()
    stop = Stop("file:/sp")
    job.ask(stop)
    assert kinds(job.on_failure(0, failure())) == [EndAttempt, Refuse]
    job.ask(Stop("file:/sp"))


# ---- the end ------------------------------------------------------------------------------------


def test_the_end_of_input_takes_a_final_epoch_and_a_last_checkpoint():
    job = running()
    job.on_input_over(0)
    assert job.state == Ending(0, job.state.goal, Serving())
    assert isinstance(job.on_quiet()[0], TakeLast)
    assert job.begin_control(0).final
    job.on_epoch(0, 1, 9)
    assert kinds(job.on_last_committed()) == [EndAttempt, Close, Finish]
    assert job.state == Closing(JobEnd.FINISHED)


def test_input_is_not_over_while_an_epoch_runs():
    job = running()
    job.begin_batch(0, at(1))
    assert job.on_input_over(0) == []
    assert job.state == Running(0)


def test_a_wish_that_comes_with_the_end_of_input_is_refused():
    job = running()
    job.ask(Stop("file:/sp"))
    assert kinds(job.on_input_over(0)) == [Refuse]
    with pytest.raises(UsageError, match="finishing"):
        job.ask(Stop("file:/sp"))


def test_a_last_epoch_without_a_checkpoint_does_not_end_the_job():
    job = running()
    job.on_input_over(0)
    job.on_quiet()
    run_epoch(job, checkpoint=None)
    assert isinstance(job.state.step, LastEpoch)
    assert job.on_last_committed() == []


@pytest.mark.parametrize("end", [JobEnd.CANCELED, JobEnd.SUSPENDED])
def test_a_job_can_be_ended_in_every_state(end):
    waiting = Job(PLAN, NoRestart())
    assert kinds(waiting.cancel(end)) == [Close, Finish]
    job = running()
    assert kinds(job.cancel(end)) == [EndAttempt, Close, Finish]
    assert job.cancel(end) == []
    restarting = running()
    restarting.on_failure(0, failure())
    assert kinds(restarting.cancel(end)) == [Close, Finish]
    assert restarting.on_time(10_000) == []


def test_a_cancelled_job_answers_who_waits_and_is_over_when_all_is_freed():
    job = running()
    stop = Stop("file:/sp")
    job.ask(stop)
    actions = job.cancel()
    assert kinds(actions) == [EndAttempt, Close, Refuse, Finish]
    assert job.status is JobStatus.CANCELLING
    job.on_finished()
    assert (job.state, job.status) == (Over(JobEnd.CANCELED), JobStatus.CANCELED)
    with pytest.raises(UsageError, match="CANCELED"):
        job.ask(stop)


def test_nothing_of_a_job_that_is_over_can_begin():
    job = running()
    job.cancel()
    job.on_finished()
    assert job.on_ready(0, 0, at(0), in_flight=False) == []
    assert job.on_failure(0, failure()) == []
    with pytest.raises(JobExecutionError):
        job.begin_batch(0, at(1))


def test_a_close_that_fails_fails_a_job_that_was_about_to_finish_and_no_other():
    job = running()
    first, second = JobExecutionError("close failed"), JobExecutionError("another too")
    assert not job.on_close_failed(first)
    job.on_input_over(0)
    last_barrier(job)
    job.on_last_committed()
    assert job.outcome(JobEnd.FINISHED, None) == (JobEnd.FINISHED, None)
    assert job.on_close_failed(first)
    assert not job.on_close_failed(second)
    assert job.outcome(JobEnd.FINISHED, None) == (JobEnd.FAILED, first)
    job.on_finished()
    assert job.state == Over(JobEnd.FAILED, first)
    cancelled = running()
    cancelled.cancel()
    assert not cancelled.on_close_failed(first)
    assert cancelled.outcome(JobEnd.CANCELED, None) == (JobEnd.CANCELED, None)
