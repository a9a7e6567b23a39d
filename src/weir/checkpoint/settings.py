"""The settings of checkpointing, validated and normalised as Flink does it.

Values that contradict each other are either refused with a `UsageError` or brought in line, and
what is brought in line is said at the field. Nothing else in the package repeats these rules.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from weir.errors import UsageError

MIN_INTERVAL_MS: Final = 10
MAX_PAUSE_MS: Final = 365 * 24 * 60 * 60 * 1000
DEFAULT_TIMEOUT_MS: Final = 10 * 60 * 1000


class CheckpointingMode(enum.Enum):
    """What a restore promises about the state."""

    EXACTLY_ONCE = "EXACTLY_ONCE"
    AT_LEAST_ONCE = "AT_LEAST_ONCE"


class Retention(enum.Enum):
    """What happens to the last checkpoints when the job ends."""

    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """Settings of the checkpoint coordinator; without an interval nothing is periodic.

    Behaviour: `interval_ms` is raised to `min_pause_ms` when it is shorter; `min_pause_ms` is cut
    to a year; `unaligned` is switched off in at-least-once mode. `aligned_timeout_ms` of 0 lets
    every unaligned checkpoint overtake at once.
    """

    interval_ms: int | None = None
    mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    unaligned: bool = False
    aligned_timeout_ms: int = 0
    retention: Retention = Retention.NO_EXTERNALIZED_CHECKPOINTS
    num_retained: int = 1

    def __post_init__(self) -> None:
        """Check each value, then bring them in line with each other."""
        if self.interval_ms is not None:
            _require("checkpoint interval (ms)", self.interval_ms, MIN_INTERVAL_MS)
        _require("checkpoint timeout (ms)", self.timeout_ms, MIN_INTERVAL_MS)
        _require("min pause between checkpoints (ms)", self.min_pause_ms, 0)
        _require("max concurrent checkpoints", self.max_concurrent, 1)
        _require("tolerable failed checkpoints", self.tolerable_failures, 0)
        _require("aligned checkpoint timeout (ms)", self.aligned_timeout_ms, 0)
        _require("number of retained checkpoints", self.num_retained, 1)
        self._set("min_pause_ms", min(self.min_pause_ms, MAX_PAUSE_MS))
        if self.interval_ms is not None:
            self._set("interval_ms", max(self.interval_ms, self.min_pause_ms))
        if self.mode is CheckpointingMode.AT_LEAST_ONCE:
            self._set("unaligned", False)
        if self.unaligned and self.max_concurrent > 1:
            msg = (
                "unaligned checkpoints allow one checkpoint at a time, but max concurrent "
                f"checkpoints is {self.max_concurrent!r}: set it to 1 or use aligned checkpoints"
            )
            raise UsageError(msg)

    @property
    def overtakes(self) -> bool:
        """Tell whether barriers may overtake rows."""
        return self.unaligned or self.mode is CheckpointingMode.AT_LEAST_ONCE

    def _set(self, name: str, value: int) -> None:
        object.__setattr__(self, name, value)


def _require(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        msg = f"{name} is {value!r}, expected at least {minimum!r}"
        raise UsageError(msg)
