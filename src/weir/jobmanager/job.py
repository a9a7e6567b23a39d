"""The life of a job as a state machine: events in, actions out, no effects.

One thread, the supervisor's, carries the actions out in order; any thread may report an event, one
at a time. The epochs of an attempt are part of the machine, because whether one may begin depends
on everything else.

Invariants. Positions are those behind the last epoch that succeeded; a checkpoint stores no others,
unless it holds the rows in flight of the epoch that its barrier overtook. When an attempt has
failed, no epoch of it begins and none counts. An event of an attempt that is not the current one
changes nothing. Whoever asked for something gets exactly one answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weir.checkpoint.metadata import SourcePositions
from weir.checkpoint.retention import JobEnd
from weir.common.job_status import JobStatus
from weir.errors import JobExecutionError, UsageError, WeirError, as_job_failure
from weir.graph.plan import JobPlan
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
    Epochs,
    Idle,
    LastEpoch,
    Over,
    Rescale,
    Restarting,
    Running,
    Serving,
    Shut,
    Starting,
    State,
    Stop,
    Trial,
    Wish,
)
from weir.jobmanager.restart import RestartAfter, RestartStrategy

_OVER = "the attempt has ended"
_TEXT_MAX = 2000

ENDS = "and so does the job"
"""What is said of an attempt that fails, and that no other follows."""


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed, when, and a random number from 0 to 1 for the restart strategy.

    With `final` starting again cannot help.
    """

    error: WeirError
    now_ms: int
    chance: float = 0.5
    final: bool = False


class Job:
    """One job; not thread-safe. Times are the caller's, all of one monotonic clock."""

    def __init__(self, plan: JobPlan, restart: RestartStrategy) -> None:
        self.plan = plan
        self.state: State = Created()
        self.epochs: Epochs = Shut()
        self.wish: Wish | None = None
        self._restart = restart
        self._failures_ms: list[int] = []

    @property
    def attempt(self) -> int:
        """The number of the current attempt; -1 before the first and after the last."""
        return getattr(self.state, "attempt", -1)

    @property
    def status(self) -> JobStatus:
        """The state in Flink's words."""
        match self.state:
            case Created():
                return JobStatus.CREATED
            case Starting(attempt=attempt):
                return JobStatus.RESTARTING if attempt else JobStatus.RUNNING
            case Restarting():
                return JobStatus.RESTARTING
            case Closing(end=end):
                closing = {JobEnd.CANCELED: "CANCELLING", JobEnd.FAILED: "FAILING"}
                return JobStatus[closing.get(end, "RUNNING")]
            case Over(end=end):
                return JobStatus[end.name]
            case _:
                return JobStatus.RUNNING

    # ---- requests -------------------------------------------------------------------------------

    def start(self) -> list[Action]:
        """Begin the first attempt."""
        if not isinstance(self.state, Created):
            msg = "the job was started before"
            raise UsageError(msg)
        self.state = Starting(0)
        return [BeginAttempt(0)]

    def ask(self, wish: Wish) -> None:
        """Take a wish; it is carried out between two epochs, when the job runs.

        Raises:
            UsageError: another one is being carried out, or the job has ended.
        """
        current = self._current_wish()
        if isinstance(self.state, Closing | Over):
            msg = f"the job has ended ({self.status.name})"
            raise UsageError(msg)
        if isinstance(self.state, Ending) and isinstance(self.state.goal, EndOfInput):
            msg = "the job is finishing: too late"
            raise UsageError(msg)
        if current is not None:
            what = "being rescaled" if isinstance(current, Rescale) else "stopping"
            msg = f"the job is {what} already: wait until that is done"
            raise UsageError(msg)
        self.wish = wish

    def cancel(self, end: JobEnd = JobEnd.CANCELED) -> list[Action]:
        """End the job as soon as possible; SUSPENDED leaves it for another driver to go on with."""
        return self._close(end, None)

    def _current_wish(self) -> Wish | None:
        match self.state:
            case Ending(goal=goal) if not isinstance(goal, EndOfInput):
                return goal
            case Starting(trial=Trial(rescale=rescale)):
                return rescale
            case _:
                return self.wish

    # ---- attempts -------------------------------------------------------------------------------

    def on_ready(
        self, attempt: int, epoch: int, positions: SourcePositions, *, in_flight: bool
    ) -> list[Action]:
        """The attempt is prepared: sources begin at `positions`, behind epoch `epoch`.

        Rows in flight come first, in an epoch of their own; and an epoch shows that slots work.
        """
        state = self.state
        if not isinstance(state, Starting) or state.attempt != attempt:
            return []
        self.epochs = Idle(epoch, positions)
        if in_flight or state.trial is not None:
            return [RunEpoch()]
        self.state = Running(attempt)
        return [StartInput()]

    def on_failure(self, attempt: int, failure: Failure) -> list[Action]:
        """The attempt failed; later failures of it are consequences."""
        state = self.state
        running = isinstance(state, Starting | Running | Ending) and state.attempt == attempt
        if not running:
            return []
        self.epochs = Shut()
        ended: list[Action] = [EndAttempt(attempt)]
        if isinstance(state, Starting) and state.trial is not None:
            return [*ended, *self._go_back(attempt, state.trial, failure.error)]
        refused = self._refuse_wish(failure.error)
        delay_ms = self._delay_ms(failure)
        if delay_ms is None:
            self.state = Closing(JobEnd.FAILED, failure.error)
            over = Finish(JobEnd.FAILED, failure.error)
            return [*ended, Close(JobEnd.FAILED), *refused, over]
        self.state = Restarting(attempt, failure.now_ms + delay_ms, failure.error)
        return [*ended, *refused]

    def _go_back(self, attempt: int, trial: Trial, error: WeirError) -> list[Action]:
        """The new plan has never run: the old one comes back, with the same checkpoint."""
        msg = (
            f"the job could not go on with parallelism {trial.rescale.parallelism} and goes on as "
            f"it was: {brief(error)}"
        )
        self.plan = trial.before
        self.state = Starting(attempt + 1)
        return [
            Refuse(trial.rescale, JobExecutionError(msg)),
            UsePlan(trial.before),
            BeginAttempt(attempt + 1),
        ]

    def _delay_ms(self, failure: Failure) -> int | None:
        if failure.final:
            return None
        self._failures_ms.append(failure.now_ms)
        decision = self._restart.next_delay(self._failures_ms, failure.chance)
        return decision.delay_ms if isinstance(decision, RestartAfter) else None

    def on_time(self, now_ms: int) -> list[Action]:
        """Begin the next attempt if its time has come."""
        state = self.state
        if not isinstance(state, Restarting) or now_ms < state.due_ms:
            return []
        self.state = Starting(state.attempt + 1)
        return [BeginAttempt(state.attempt + 1)]

    # ---- epochs ---------------------------------------------------------------------------------

    def begin_batch(self, attempt: int, positions: SourcePositions) -> Busy | None:
        """Begin the epoch of a batch, which ends at these positions; None: not yet, ask again.

        Raises:
            JobExecutionError: the attempt handles no more batches.
        """
        if self.attempt != attempt or not isinstance(self.state, Running | Ending):
            raise JobExecutionError(_OVER)
        if isinstance(self.state, Ending) or self.wish is not None:
            return None  # The attempt may go on if its last checkpoint fails.
        return self._begin(positions, final=False)

    def begin_control(self, attempt: int) -> Busy | None:
        """Begin an epoch without input; None while another epoch runs.

        Raises:
            JobExecutionError: the attempt is over.
        """
        if self.attempt != attempt or not isinstance(self.state, Starting | Running | Ending):
            raise JobExecutionError(_OVER)
        final = False
        if isinstance(self.state, Ending) and isinstance(self.state.step, LastEpoch):
            goal = self.state.goal
            final = isinstance(goal, EndOfInput) or (isinstance(goal, Stop) and goal.drain)
        positions = self.epochs.positions if isinstance(self.epochs, Idle) else None
        return None if positions is None else self._begin(positions, final=final)

    def _begin(self, positions: SourcePositions, *, final: bool) -> Busy | None:
        match self.epochs:
            case Idle(number=number, positions=before):
                self.epochs = busy = Busy(number + 1, before, positions, final)
                return busy
            case Busy():
                return None
            case Shut():
                raise JobExecutionError(_OVER)

    def is_current(self, attempt: int, epoch: int) -> bool:
        """Tell whether an epoch that was begun still counts."""
        running = isinstance(self.epochs, Busy) and self.epochs.number == epoch
        return running and self.attempt == attempt

    def on_epoch(self, attempt: int, epoch: int, checkpoint_id: int | None) -> list[Action]:
        """The epoch succeeded, carried the barrier of this checkpoint, and its results are kept."""
        if not self.is_current(attempt, epoch) or not isinstance(self.epochs, Busy):
            return []
        self.epochs = Idle(epoch, self.epochs.after)
        match self.state:
            case Starting(trial=trial):
                self.state = Running(attempt)
                proven: list[Action] = [] if trial is None else [Answer(trial.rescale)]
                return [*proven, StartInput()]
            case Ending(step=LastEpoch()) as ending if checkpoint_id is not None:
                self.state = replace(ending, step=Awaiting(checkpoint_id))
                return []
            case _:
                return []

    # ---- the end --------------------------------------------------------------------------------

    def on_input_over(self, attempt: int) -> list[Action]:
        """All batches of bounded input were handled."""
        if self.state != Running(attempt) or isinstance(self.epochs, Busy):
            return []
        refused = self._refuse_wish(JobExecutionError("the job is finishing: too late"))
        self.state = Ending(attempt, EndOfInput())
        return refused

    def on_quiet(self) -> list[Action]:
        """No epoch runs: go on with what somebody asked for, or with the end of the attempt.

        Call it again and again while nobody waits for a checkpoint that has not begun.
        """
        if not isinstance(self.epochs, Idle):
            return []
        match self.state:
            case Running(attempt=attempt) if self.wish is not None:
                wish, self.wish = self.wish, None
                self.state = Ending(attempt, wish)
                return []
            case Ending(step=Serving()) as ending:
                self.state = replace(ending, step=LastEpoch())
                return [TakeLast(ending.goal)]
            case _:
                return []

    def on_last_refused(self, error: WeirError) -> list[Action]:
        """The last checkpoint failed: who asked is told, and the job goes on if it can.

        It cannot when time has gone to its end.
        """
        match self.state:
            case Ending(attempt=attempt, goal=Stop(drain=False) | Rescale() as goal):
                self.state = Running(attempt)
                return [Refuse(goal, error)]
            case _:
                msg = f"the job cannot end: {error}"
                raise JobExecutionError(msg) from error

    def on_last_committed(self) -> list[Action]:
        """The last checkpoint is complete and committed."""
        match self.state:
            case Ending(attempt=attempt, goal=Rescale() as rescale, step=Awaiting()):
                trial = Trial(rescale, self.plan)
                self.epochs, self.plan = Shut(), rescale.plan
                self.state = Starting(attempt + 1, trial)
                return [EndAttempt(attempt), UsePlan(rescale.plan), BeginAttempt(attempt + 1)]
            case Ending(attempt=attempt, goal=goal, step=Awaiting()):
                answered: list[Action] = [] if isinstance(goal, EndOfInput) else [Answer(goal)]
                self.epochs, self.state = Shut(), Closing(JobEnd.FINISHED)
                over: list[Action] = [EndAttempt(attempt), Close(JobEnd.FINISHED)]
                return [*over, *answered, Finish(JobEnd.FINISHED)]
            case _:
                return []

    def _close(self, end: JobEnd, error: WeirError | None) -> list[Action]:
        state = self.state
        if isinstance(state, Closing | Over):
            return []
        over = JobExecutionError(f"the job ended before that ({end.name})")
        refused = self._refuse_wish(error or over)
        ended: list[Action] = []
        if isinstance(state, Starting | Running | Ending):
            ended = [EndAttempt(state.attempt)]
        self.epochs = Shut()
        self.state = Closing(end, error)
        return [*ended, Close(end), *refused, Finish(end, error)]

    def on_close_failed(self, error: WeirError) -> bool:
        """A user's `close` raised: True if that is why the job, which was to finish, fails.

        Everything is committed by then, so that another attempt could only close again.
        """
        if self.state != Closing(JobEnd.FINISHED):
            return False
        self.state = Closing(JobEnd.FAILED, error)
        return True

    def outcome(self, end: JobEnd, error: WeirError | None) -> tuple[JobEnd, WeirError | None]:
        """Return how a job that is closing ends; otherwise, what is given.

        An error is a `JobExecutionError` besides what it is.
        """
        if isinstance(self.state, Closing):
            end, error = self.state.end, self.state.error
        return end, None if error is None else as_job_failure(error)

    def prospect(self, now_ms: int) -> str:
        """Say what becomes of a job whose attempt has failed."""
        match self.state:
            case Restarting(due_ms=due):
                return f"restarting in {due - now_ms} ms"
            case Starting():
                return "going back"
            case _:
                return ENDS

    def _refuse_wish(self, error: WeirError) -> list[Action]:
        current, self.wish = self._current_wish(), None
        return [] if current is None else [Refuse(current, error)]

    def on_finished(self) -> None:
        """Everything is freed, and everybody has an answer."""
        if isinstance(self.state, Closing):
            self.state = Over(self.state.end, self.state.error)


def brief(error: BaseException) -> str:
    """Return the beginning of an error's text."""
    text = str(error)
    return text if len(text) < _TEXT_MAX else text[:_TEXT_MAX] + "..."
