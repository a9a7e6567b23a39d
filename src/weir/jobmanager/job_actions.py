"""What the state machine of a job wants done: values that its supervisor carries out, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from weir.checkpoint.retention import JobEnd
from weir.errors import WeirError
from weir.graph.plan import JobPlan
from weir.jobmanager.job_states import Goal, Wish


@dataclass(frozen=True)
class BeginAttempt:
    """Fence the attempt before, restore, then call `on_ready`."""

    attempt: int


@dataclass(frozen=True)
class RunEpoch:
    """Run an epoch without input."""


@dataclass(frozen=True)
class StartInput:
    """Let batches come."""


@dataclass(frozen=True)
class TakeLast:
    """Ask for the last checkpoint or savepoint, then run the epoch that carries it."""

    goal: Goal


@dataclass(frozen=True)
class EndAttempt:
    """Let the engine end what runs of an attempt."""

    attempt: int


@dataclass(frozen=True)
class UsePlan:
    """The next attempt runs this plan."""

    plan: JobPlan


@dataclass(frozen=True)
class Answer:
    """Tell who asked that it is done."""

    wish: Wish


@dataclass(frozen=True)
class Refuse:
    """Tell who asked why it is not done."""

    wish: Wish
    error: WeirError


@dataclass(frozen=True)
class Close:
    """Free everything that the job holds."""

    end: JobEnd


@dataclass(frozen=True)
class Finish:
    """Everything is freed and everybody has an answer: call `on_finished`, tell who waits."""

    end: JobEnd
    error: WeirError | None = None


Action: TypeAlias = (
    BeginAttempt
    | RunEpoch
    | StartInput
    | TakeLast
    | EndAttempt
    | UsePlan
    | Answer
    | Refuse
    | Close
    | Finish
)
