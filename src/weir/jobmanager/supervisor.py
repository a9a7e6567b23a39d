"""Supervises one job: tells the state machine what happens, and carries out what it decides.

One thread takes turns (`turn`): it carries actions out, looks around, and runs epochs without
input. Threads of the engine bring batches (`handle`), those of the network bring what slots say,
and any other may ask for something. All of them change the machine under one lock; nobody but the
thread that takes turns carries actions out.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from weir.checkpoint.retention import CheckpointRef, JobEnd
from weir.errors import JobCancellationError, JobExecutionError, WeirError, assert_never
from weir.graph.plan import JobPlan
from weir.graph.uids import warn_of_missing_uids
from weir.jobmanager.assembly import EpochFacts
from weir.jobmanager.background import carry_out
from weir.jobmanager.checkpoints import CheckpointEvents
from weir.jobmanager.driver_commits import DriverCommits
from weir.jobmanager.engine import AttemptStart, Batch, Engine
from weir.jobmanager.epoch_times import EpochTimes
from weir.jobmanager.failures import from_failure, is_recoverable, known_error, to_error
from weir.jobmanager.job import Failure, Job, brief
from weir.jobmanager.job_actions import (
    Action,
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
    Busy,
    Closing,
    Created,
    Ending,
    EndOfInput,
    LastEpoch,
    Over,
    Rescale,
    Restarting,
    Running,
    Serving,
    Starting,
    Stop,
    Wish,
)
from weir.jobmanager.network import Reception, SlotNetwork, Staged
from weir.jobmanager.operations import ExceptionView, exception_view
from weir.jobmanager.overtake import BarrierEpoch
from weir.jobmanager.reports import Reports
from weir.jobmanager.restoration import JobSpec, Restoration, restored_entry
from weir.jobmanager.results import Results
from weir.jobmanager.surroundings import Surroundings
from weir.runtime.epoch import Epoch
from weir.runtime.program import dump_program
from weir.runtime.report import SubtaskReport
from weir.slot.messages import FINISHED, NEXT_ATTEMPT, Assignment, SlotFailure

log = logging.getLogger("weir.job")
TICK_S = 0.02
_EXCEPTIONS_KEPT = 20
_CLOSING = "closing the job"
_ENDED = "the attempt has ended"


class Supervisor:
    """One job from start to end; fulfils the engine's `JobSide`.

    `ended` completes with the way in which the job ended, or with its error.
    """

    def __init__(
        self,
        spec: JobSpec,
        engine: Engine,
        network: SlotNetwork,
        results: Results,
        surroundings: Surroundings,
    ) -> None:
        self.spec = spec
        self.settings = spec.settings
        self.results = results
        self.network = network
        self.job = Job(spec.plan, spec.settings.restart)
        self.clock = surroundings.clock
        self.started_ms = self.clock.now_ms()
        self.ended_ms: int | None = None
        self.last_savepoint: str | None = None
        self.exceptions: deque[ExceptionView] = deque(maxlen=_EXCEPTIONS_KEPT)
        self.reports = Reports()
        self.epoch_times = EpochTimes(self.clock, spec.settings.checkpoint.interval_ms is None)
        self.ended: Future[JobEnd] = Future()
        committed, failed = self.epoch_times.committed, self._checkpoints_failed
        self._commits = DriverCommits(surroundings, network.registry, committed, failed)
        events = CheckpointEvents(self._completed, failed, self._commits.completed)
        self.restoration = Restoration(spec, self.clock)
        self.checkpoints = self.restoration.runner(network, events, surroundings.background)
        self.reception = Reception(
            network.registry,
            self.checkpoints,
            assignment=self._assignment,
            failed=self._slot_failed,
            staged=self._staged,
        )
        self._engine = engine
        self._surroundings = surroundings
        self._plan_bytes = dump_program(self.adopt(spec.plan))
        self._asked: dict[Wish, Future[Any]] = {}
        self._last: Future[CheckpointRef] = Future()
        self._todo: deque[Action] = deque()
        self._changed = threading.Condition(threading.RLock())

    @property
    def plan(self) -> JobPlan:
        """The plan that runs, or will run when the next attempt begins."""
        return self.job.plan

    def adopt(self, plan: JobPlan) -> JobPlan:
        """Make another plan of the same program ready for the slots."""
        self._engine.adopt(plan)
        return plan

    def open(self) -> None:
        """Open the sources, and let slots reach the job.

        Raises:
            WeirError: a source cannot be read.
        """
        self._engine.open()
        self.network.open(self.reception)

    def start(self) -> None:
        """Let the first attempt begin with the next turn."""
        self._feed(self.job.start)

    def ask(self, wish: Wish) -> Future[Any]:
        """Ask for a stop or a rescaling: gives the savepoint's path, or the new parallelism.

        Raises:
            UsageError: another one is being carried out, or the job has ended.
        """
        with self._changed:
            self.job.ask(wish)
            asked = self._asked[wish] = Future[Any]()
        return asked

    def cancel(self, end: JobEnd = JobEnd.CANCELED) -> None:
        """End the job as soon as possible; returns at once."""
        self._feed(partial(self.job.cancel, end))

    def handle(self, batch: Batch) -> None:
        """Run the epoch of a batch.

        Raises:
            WeirError: the epoch failed, or the attempt is over.
        """
        with self._changed:
            while (busy := self.job.begin_batch(batch.attempt, batch.positions)) is None:
                self._surroundings.wait(self._changed)
        self._run_epoch(batch.attempt, busy, batch)

    def refuse_unwanted(self, attempt: int) -> None:
        """Return if the attempt is still wanted.

        Raises:
            WeirError: it failed, or the job is ending.
        """
        self._watch(attempt)
        if self.job.attempt != attempt or isinstance(self.job.state, Restarting):
            raise JobExecutionError(_ENDED)

    def fail(self, attempt: int, error: BaseException) -> None:
        """End an attempt that failed; a lost slot, and what slots say, are causes of the rest."""
        self.network.registry.look_now()
        lost, known = self._engine.lost(), self.network.registry.known_failure(attempt)
        shown = known_error(error, lost, known)
        self.restoration.failed(shown)
        failure = Failure(
            shown,
            self.clock.monotonic_ms(),
            self._surroundings.chance(),
            final=lost is not None or not is_recoverable(shown),
        )
        with self._changed:
            actions = self.job.on_failure(attempt, failure)
            if actions:
                self._note_failure(attempt, shown)
            self._todo.extend(actions)
            self._changed.notify_all()

    def _note_failure(self, attempt: int, error: WeirError) -> None:
        self.exceptions.append(exception_view(error, self.clock.now_ms(), attempt))
        then = self.job.prospect(self.clock.monotonic_ms())
        log.warning("attempt %s failed, %s: %s", attempt, then, brief(error))

    def _feed(self, event: Callable[..., list[Action]], *facts: Any) -> None:
        with self._changed:
            self._todo.extend(event(*facts))
            self._changed.notify_all()

    def run(self) -> None:
        """Take turns until the job is over."""
        try:
            while not isinstance(self.job.state, Over):
                self.turn()
                with self._changed:
                    if not self._todo:
                        self._changed.wait(TICK_S)
        except BaseException as error:
            # Nobody may wait for ever for a job that nobody supervises any more.
            self._close(JobEnd.FAILED)
            self._finish(JobEnd.FAILED, to_error(error))
            raise

    def turn(self) -> None:
        """Carry out what was decided, look around once, and carry out what follows from that."""
        self._carry_out()
        attempt = self.job.attempt
        try:
            self._look()
        except Exception as error:
            self.fail(attempt, error)
        self._carry_out()

    def _look(self) -> None:
        state = self.job.state
        match state:
            case Created() | Closing() | Over():
                return
            case Restarting():
                self._feed(self.job.on_time, self.clock.monotonic_ms())
                return
            case Starting() | Running() | Ending():
                self._watch(state.attempt)
                # The epoch that carries the barrier may take longer than the checkpoint may.
                self.checkpoints.expire()
            case _:
                assert_never(state)
        if isinstance(state, Running):
            self._look_at_input(state.attempt)
        elif isinstance(state, Ending):
            self._go_on_ending(state)

    def _watch(self, attempt: int) -> None:
        """Raise when a slot is known to have failed."""
        self.network.watch()
        if (lapsed := self.network.registry.notice_lapsed()) and lapsed.attempt == attempt:
            raise from_failure(lapsed, "")

    def _look_at_input(self, attempt: int) -> None:
        if self._engine.input_is_over():
            self._feed(self.job.on_input_over, attempt)
        elif self.job.wish is not None:
            self._feed(self.job.on_quiet)
        elif self._is_due():
            self._run_control(attempt)

    def _is_due(self) -> bool:
        """Tell whether slots want an epoch, or a checkpoint that no batch is going to carry."""
        if self.reports.are_due(self.clock, self._engine.found_nothing_ms):
            return True
        return self.checkpoints.due() and self._engine.is_quiet()

    def _go_on_ending(self, ending: Ending) -> None:
        if isinstance(ending.goal, EndOfInput):
            self.checkpoints.close()
        match ending.step:
            case Serving():
                if self.checkpoints.waiting():
                    self._run_control(ending.attempt)
                else:
                    self._feed(self.job.on_quiet)
            case LastEpoch():
                return
            case Awaiting(checkpoint_id=number):
                self._look_at_last(number)
            case _:
                assert_never(ending.step)

    def _look_at_last(self, number: int) -> None:
        if self._last.done() and (error := self._last.exception()) is not None:
            self._feed(self.job.on_last_refused, to_error(error))
        elif self.checkpoints.is_given_up(number):
            msg = f"the last checkpoint, {number}, was not completed"
            self._feed(self.job.on_last_refused, JobExecutionError(msg))
        elif self._last.done() and self.checkpoints.is_completed(number):
            self._feed(self.job.on_last_committed)

    def _carry_out(self) -> None:
        while True:
            with self._changed:
                if not self._todo:
                    return
                action = self._todo.popleft()
            attempt = self.job.attempt
            self._surroundings.reach(f"before {type(action).__name__}")
            try:
                self._perform(action)
            except Exception as error:
                # Whatever it is: the restart strategy decides what becomes of the job.
                self.fail(attempt, error)
            self._surroundings.reach(f"behind {type(action).__name__}")

    def _perform(self, action: Action) -> None:
        match action:
            case BeginAttempt(attempt=attempt):
                self._begin_attempt(attempt)
            case RunEpoch():
                self._run_control(self.job.attempt)
            case StartInput():
                self._engine.start_input()
            case TakeLast(goal=goal):
                self._take_last(goal)
            case EndAttempt(attempt=attempt):
                self._end_attempt(attempt)
            case UsePlan(plan=plan):
                self._plan_bytes = dump_program(plan)
            case Answer(wish=wish):
                self._answer(wish)
            case Refuse(wish=wish, error=error):
                self._asked.pop(wish).set_exception(error)
            case Close(end=end):
                self._close(end)
            case Finish(end=end, error=error):
                self._finish(end, error)
            case _:
                assert_never(action)

    def _begin_attempt(self, attempt: int) -> None:
        self.reports.clear()
        self.epoch_times.restart()
        old = self.network.registry.begin_attempt(attempt)
        # Gone before the new ones start: what they still write would escape the clean-up.
        self._tell_closing(self.network.dismiss(old, NEXT_ATTEMPT))
        self.checkpoints.failover(attempt, self.plan)
        # What is not covered by a checkpoint by now comes again.
        self.results.drop_unreleased()
        refs, begun = self.checkpoints.coordinator.completed, self.checkpoints.commits_begun
        point = self.restoration.choose(self.plan, refs, begun)
        if point is not None:
            self.checkpoints.history.restored(restored_entry(point, self.clock.now_ms()))
        start = AttemptStart(
            attempt,
            self.plan,
            self._plan_bytes,
            positions=None if point is None else point.metadata.sources,
            foreign=point is not None and point.metadata.job_id != self.spec.job_id,
        )
        self.checkpoints.start_periodic()
        positions = self._engine.begin(start, self)
        epoch, in_flight = self.restoration.epoch, self.restoration.has_rows_in_flight
        self._feed(partial(self.job.on_ready, attempt, epoch, positions, in_flight=in_flight))

    def _take_last(self, goal: Stop | Rescale | EndOfInput) -> None:
        if isinstance(goal, Stop):
            self._last = self.checkpoints.savepoint(
                goal.savepoint, native=goal.native, synchronous=True
            )
        else:
            self._last = self.checkpoints.last()
        self._run_control(self.job.attempt)
        if isinstance(self.job.state, Ending) and isinstance(self.job.state.step, LastEpoch):
            error = self._last.exception() if self._last.done() else None
            without = JobExecutionError("its last epoch carried no checkpoint")
            self._feed(self.job.on_last_refused, to_error(error or without))

    def _end_attempt(self, attempt: int) -> None:
        try:
            self._engine.end()
        except Exception as error:
            # The attempt is over all the same, and its number is never used again.
            log.warning("attempt %s could not be ended in order: %s", attempt, error)

    def _answer(self, wish: Wish) -> None:
        value = wish.parallelism if isinstance(wish, Rescale) else self._last.result().directory
        self._asked.pop(wish).set_result(value)

    def _close(self, end: JobEnd) -> None:
        carry_out(self._engine.close, _CLOSING)
        reason = FINISHED if end is JobEnd.FINISHED else "the job ended"
        carry_out(partial(self.end_slots, reason), _CLOSING)
        end, _ = self.job.outcome(end, None)
        for step in (
            partial(self.checkpoints.end, end),
            self._surroundings.background.close,
            self.network.close,
            self.restoration.stand_ins.remove,
            partial(self._surroundings.leave, end),
        ):
            carry_out(step, _CLOSING)

    def _finish(self, end: JobEnd, error: WeirError | None) -> None:
        with self._changed:
            end, error = self.job.outcome(end, error)
            self.ended_ms = self.clock.now_ms()
            self.job.on_finished()
        carry_out(partial(self._surroundings.changed, self), _CLOSING)
        cancelled = JobCancellationError(f"job {self.spec.job_id} was cancelled")
        self.results.end(cancelled if end is JobEnd.CANCELED else error)
        if error is None:
            self.ended.set_result(end)
        else:
            self.ended.set_exception(error)

    def end_slots(self, reason: str) -> None:
        """Let all slots leave, for good."""
        self._tell_closing(self.network.dismiss(self.network.registry.close(), reason))

    def _tell_closing(self, failures: list[SlotFailure]) -> None:
        """Tell what `close` of users' functions raised; a job that was about to finish fails."""
        for failure in failures:
            error = from_failure(failure, "")
            log.error("slot %s was not closed in order: %s", failure.subtask, brief(error))
            if self.job.on_close_failed(error):
                self.exceptions.append(exception_view(error, self.clock.now_ms(), failure.attempt))

    def _run_control(self, attempt: int) -> None:
        """Run an epoch without input, unless another one is running."""
        with self._changed:
            busy = self.job.begin_control(attempt)
        if busy is not None:
            self._run_epoch(attempt, busy, None)

    def _run_epoch(self, attempt: int, busy: Busy, batch: Batch | None) -> None:
        """Run an epoch that was begun; its results are kept if it still counts then."""
        reach = self._surroundings.reach
        try:
            reach("epoch begins")
            describe = partial(self._engine.describe, busy.after)
            barrier = self.checkpoints.begin_epoch(busy.number, describe)
            given = batch or Batch(attempt, busy.after, None, looked_ms=self.reports.looked_ms)
            times = (self.clock.now_ms(), given.looked_ms, self.clock.monotonic_ms())
            epoch = Epoch(busy.number, barrier, busy.final, *times)
            reach("epoch is decided")
            sent = BarrierEpoch.of(epoch, partial(self._engine.describe, busy.before, None))
            overtaking = self._surroundings.overtaking(self.network, self.checkpoints, sent)
            with self.epoch_times.timing(busy.number, given.read_ms) as reports, overtaking:
                reports += self._engine.run_epoch(epoch, batch)
            reach("epoch's results are here")
            self._keep(attempt, epoch, reports)
            self.checkpoints.epoch_done(barrier)
            reach("epoch is done")
            self._feed(self.job.on_epoch, attempt, epoch.number, epoch.checkpoint_id)
        except Exception as error:
            self.fail(attempt, error)
            raise

    def _keep(self, attempt: int, epoch: Epoch, reports: list[SubtaskReport]) -> None:
        """Keep what the subtasks reported, unless the attempt has failed in the meantime."""
        with self._changed:
            if not self.job.is_current(attempt, epoch.number):
                raise JobExecutionError(_ENDED)
            self.reports.keep(reports)
        for report in reports:
            for index, kind, values in report.rows:
                to_stderr = bool(self.plan.operators[index].options.get("stderr"))
                self.results.take(epoch.number, index, kind, values, to_stderr=to_stderr)

    def _assignment(self, subtask: int) -> Assignment:
        return self.restoration.assignment(subtask, self.plan, self._plan_bytes)

    def _slot_failed(self, attempt: int) -> None:
        # What the registry knows about it is shown instead.
        self.fail(attempt, JobExecutionError("a slot failed"))

    def _checkpoints_failed(self, message: str) -> None:
        self.fail(self.checkpoints.coordinator.attempt, JobExecutionError(message))

    def _completed(self, ref: CheckpointRef, facts: EpochFacts) -> None:
        # A failover does not go back to a savepoint, so what it covers may come again.
        if ref in self.checkpoints.coordinator.completed:
            self.results.release_up_to(facts.shown_epoch)
            self.epoch_times.covered(ref.checkpoint_id, facts.shown_epoch)
        work = partial(self._engine.committed, facts.positions)
        self._surroundings.background.run(work, "telling the sources what is covered")
        if ref.kind == "savepoint":
            self.last_savepoint = ref.directory
            warn_of_missing_uids(self.spec.graph)
        self._surroundings.changed(self)

    def _staged(self, attempt: int, staged: Staged) -> None:
        """Commit what a restored slot hands over, under the id of the restored checkpoint."""
        if (point := self.restoration.point) is not None:
            self._commits.restored(attempt, point.metadata.checkpoint_id, staged)
