"""What the demonstration does to the running job: a kill, a stop with a savepoint, a new start.

A step looks at the job again and again, acts once when its moment has come, and keeps the figures
of what happened. Moments are chosen by rows, so that they do not depend on the machine.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from weir.clock import Clock
from weir.demo.tracking import Figures
from weir.errors import JobExecutionError

KILL_AFTER = 0.3  # of all rows
KILL_AFTER_CHECKPOINTS = 2
STOP_AFTER = 0.6  # of all rows


class Screen(Protocol):
    """Where the demonstration is watched."""

    def say(self, text: str) -> None:
        """Tell what happens next, or what happened."""

    def show(self, figures: Figures) -> None:
        """Show the running job."""


class Step(Protocol):
    """One thing to do while a job runs."""

    def look(self, job: Any, progress: dict[str, Any], figures: Figures) -> None:
        """Act if it is time."""


@dataclass(frozen=True)
class Killed:
    """A process that was killed, and how long it took until an epoch was handled after that."""

    pid: int
    recovery_ms: int | None


@dataclass(frozen=True)
class Moved:
    """A job that was stopped with a savepoint, and the one that was started from it.

    `stop_ms` is the time from the wish to the end of the job, `resume_ms` that from the start of
    the new job to its first epoch.
    """

    savepoint: str
    savepoint_bytes: int
    stop_ms: int
    parallelism_before: int
    parallelism: int
    resume_ms: int | None


class Kill:
    """Kills a slot and watches the recovery."""

    def __init__(self, screen: Screen, clock: Clock) -> None:
        self._screen, self._clock = screen, clock
        self._pid: int | None = None
        self._attempt = 0
        self._at_ms = 0
        self._recovery_ms: int | None = None

    @property
    def done(self) -> bool:
        """Whether the job has recovered."""
        return self._recovery_ms is not None

    def outcome(self) -> Killed | None:
        """Return what happened; None if the job ended first."""
        return None if self._pid is None else Killed(self._pid, self._recovery_ms)

    def look(self, job: Any, progress: dict[str, Any], figures: Figures) -> None:
        """Kill once the job is on its way and has something to go back to."""
        if self._pid is None:
            far = figures.rows >= KILL_AFTER * figures.rows_total
            if far and figures.checkpoints >= KILL_AFTER_CHECKPOINTS and figures.slots > 0:
                self._kill(progress)
        elif not self.done and progress["attempt"] > self._attempt and progress["epoch"]:
            self._recovery_ms = self._clock.monotonic_ms() - self._at_ms
            self._screen.say(
                f"Recovered {self._recovery_ms / 1000:.1f} s after the kill: attempt "
                f"{progress['attempt']} goes on behind epoch {progress['restored_epoch']}"
            )

    def _kill(self, progress: dict[str, Any]) -> None:
        slot = progress["slots"][-1]
        self._pid, self._attempt = slot["pid"], progress["attempt"]
        os.kill(slot["pid"], signal.SIGKILL)
        self._at_ms = self._clock.monotonic_ms()
        self._screen.say(f"Killed slot {slot['subtask']} (process {self._pid}) with SIGKILL")


class StopStep:
    """Stops a job with a savepoint, after the recovery if there is a kill."""

    def __init__(self, folder: Path, after: Kill | None, screen: Screen, clock: Clock) -> None:
        """Ask for nothing yet; the savepoint goes below the folder."""
        self._folder, self._after = folder, after
        self._screen, self._clock = screen, clock
        self._asked: Any = None
        self._asked_ms = 0
        self._parallelism = 0

    def look(self, job: Any, progress: dict[str, Any], figures: Figures) -> None:
        """Stop the job when enough rows are done and enough are left."""
        ready = self._after is None or self._after.done
        far = figures.rows >= STOP_AFTER * figures.rows_total
        if self._asked is None and ready and far and figures.slots > 0:
            self._parallelism = job.control.view().parallelism
            self._asked_ms = self._clock.monotonic_ms()
            self._asked = job.stop_with_savepoint(False, self._folder.as_uri())
            self._screen.say("Stopping the job with a savepoint …")

    def outcome(self) -> Moved | None:
        """Return where the savepoint of the ended job is; None if the job was faster."""
        if self._asked is None:
            return None
        try:
            path = str(self._asked.result())
        except JobExecutionError as error:
            self._screen.say(f"There is no savepoint: {error}")
            return None
        stop_ms = self._clock.monotonic_ms() - self._asked_ms
        size = sum(p.stat().st_size for p in self._folder.rglob("*") if p.is_file())
        self._screen.say(
            f"Stopped after {stop_ms / 1000:.1f} s with a savepoint of {size / 1e6:.1f} MB: {path}"
        )
        before = self._parallelism
        return Moved(
            path,
            savepoint_bytes=size,
            stop_ms=stop_ms,
            parallelism_before=before,
            parallelism=before + 1,
            resume_ms=None,
        )


class Resumed:
    """Watches a job that was started from a savepoint until it has handled an epoch."""

    def __init__(self, screen: Screen, clock: Clock) -> None:
        self._screen, self._clock = screen, clock
        self._started_ms = clock.monotonic_ms()
        self.resume_ms: int | None = None

    def look(self, job: Any, progress: dict[str, Any], figures: Figures) -> None:
        """Tell once that the job goes on."""
        if self.resume_ms is not None or not progress["epoch"]:
            return
        self.resume_ms = self._clock.monotonic_ms() - self._started_ms
        self._screen.say(
            f"Job {job.get_job_id()} goes on with {figures.slots} slots behind epoch "
            f"{progress['restored_epoch']}, {self.resume_ms / 1000:.1f} s after its start"
        )
