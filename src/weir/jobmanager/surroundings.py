"""What a supervisor takes from outside: time, chance, threads, and those who want to know.

The harness of tests gives others than production does; everything else of a job is the same.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from weir.checkpoint.retention import JobEnd
from weir.clock import Clock, SystemClock
from weir.jobmanager.background import Background, Inline
from weir.jobmanager.checkpoints import CheckpointRunner
from weir.jobmanager.network import Staged
from weir.jobmanager.overtake import BarrierEpoch, CutSlots, overtaking

_WAIT_S = 0.5
Overtaking: TypeAlias = Callable[
    [CutSlots, CheckpointRunner, BarrierEpoch | None], AbstractContextManager[None]
]


def chance() -> float:
    """Return a random number from 0 to 1."""
    return int.from_bytes(os.urandom(4), "little") / 0xFFFFFFFF


def wait(changed: threading.Condition) -> None:
    """Wait until something has changed, or for a while."""
    changed.wait(_WAIT_S)


def _nothing(*facts: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Surroundings:
    """Where a job is supervised.

    `commit` hands what slots prepared for sinks of the driver to them; `changed` is told the
    supervisor when people may want to look at the job again; `leave` is the last thing that is
    done. `reach` is told each step, for tests that let the driver die there.
    """

    clock: Clock = field(default_factory=SystemClock)
    background: Background = field(default_factory=Inline)
    overtaking: Overtaking = overtaking
    chance: Callable[[], float] = chance
    wait: Callable[[threading.Condition], None] = wait
    commit: Callable[[int, Staged], None] = _nothing
    changed: Callable[[Any], None] = _nothing
    leave: Callable[[JobEnd], None] = _nothing
    reach: Callable[[str], None] = _nothing
