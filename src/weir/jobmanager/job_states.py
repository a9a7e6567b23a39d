"""Where a job can be in its life, and what can be asked of it: values without behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from weir.checkpoint.metadata import SourcePositions
from weir.checkpoint.retention import JobEnd
from weir.errors import WeirError
from weir.graph.plan import JobPlan

# ---- what people ask for ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stop:
    """Finish with a savepoint at this URI; with `drain`, after all timers have fired."""

    savepoint: str
    native: bool = False
    drain: bool = False


@dataclass(frozen=True, eq=False)
class Rescale:
    """Go on with another plan of the same program; if that fails, go on as before."""

    plan: JobPlan
    parallelism: int


@dataclass(frozen=True, eq=False)
class EndOfInput:
    """All input is handled: fire the timers, and commit everything with a last checkpoint."""


Wish: TypeAlias = Stop | Rescale
Goal: TypeAlias = Stop | Rescale | EndOfInput
"""Why an attempt takes a last barrier."""


# ---- states -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Created:
    """Nothing has begun."""


@dataclass(frozen=True)
class Trial:
    """A rescaling that is not proven yet: `before` comes back if the attempt fails."""

    rescale: Rescale
    before: JobPlan


@dataclass(frozen=True)
class Starting:
    """An attempt restores its state; input does not flow yet."""

    attempt: int
    trial: Trial | None = None


@dataclass(frozen=True)
class Running:
    """Batches and control epochs take turns."""

    attempt: int


@dataclass(frozen=True)
class Serving:
    """Those who wait for a checkpoint get theirs before the last one."""


@dataclass(frozen=True)
class LastEpoch:
    """The epoch with the last barrier is about to run or running."""


@dataclass(frozen=True)
class Awaiting:
    """The last checkpoint is under way, or its commits are."""

    checkpoint_id: int


Step: TypeAlias = Serving | LastEpoch | Awaiting


@dataclass(frozen=True)
class Ending:
    """The attempt ends on purpose, with one last barrier; no batch begins behind it."""

    attempt: int
    goal: Goal
    step: Step = field(default_factory=Serving)


@dataclass(frozen=True)
class Restarting:
    """The attempt failed; the next one begins when its time has come."""

    attempt: int
    due_ms: int
    error: WeirError


@dataclass(frozen=True)
class Closing:
    """The job has ended; what it held is being freed."""

    end: JobEnd
    error: WeirError | None = None


@dataclass(frozen=True)
class Over:
    """The job has ended and holds nothing any more."""

    end: JobEnd
    error: WeirError | None = None


State: TypeAlias = Created | Starting | Running | Ending | Restarting | Closing | Over


# ---- epochs of the current attempt --------------------------------------------------------------


@dataclass(frozen=True)
class Idle:
    """No epoch runs; `number` is the last one that succeeded, and sources are at `positions`."""

    number: int
    positions: SourcePositions


@dataclass(frozen=True)
class Busy:
    """An epoch runs; sources are at `before` until it succeeds, and at `after` from then on."""

    number: int
    before: SourcePositions
    after: SourcePositions
    final: bool = False


@dataclass(frozen=True)
class Shut:
    """No epoch may begin."""


Epochs: TypeAlias = Idle | Busy | Shut
