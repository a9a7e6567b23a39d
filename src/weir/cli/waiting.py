"""Waiting for what a job does on request, so that people see that something happens.

Whatever lasts longer than two seconds shows itself on standard error: a live line in a terminal, a
line every few seconds elsewhere. Waiting can be interrupted; the job goes on with the operation.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import click
from rich.console import Console
from rich.status import Status

from weir.cli.client import UnreachableError, operation_error
from weir.cli.lookup import ENDED, JobInfo
from weir.clock import Clock, SystemClock
from weir.errors import JobExecutionError, WeirError
from weir.jobmanager import directory

SILENT_MS = 2_000
LINE_EVERY_MS = 5_000
_POLL_FIRST_S = 0.05
_POLL_MOST_S = 0.5
_POLL_LAST_S = 0.1
_INTERRUPTED = 130
_LAST_WORD_MS = 30_000


class Progress(Protocol):
    """Where signs of life go."""

    def show(self, text: Callable[[], str]) -> None:
        """Something is still under way; called often, asks for the text only when it is shown."""

    def close(self) -> None:
        """It is over."""


class LineProgress:
    """A line on standard error every few seconds, none before the first two are over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_ms = clock.monotonic_ms()
        self._next_ms = self._started_ms + SILENT_MS

    def show(self, text: Callable[[], str]) -> None:
        """Print the text with the seconds so far, if it is time again."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + LINE_EVERY_MS
            click.echo(f"{text()} ({(now_ms - self._started_ms) // 1000} s)", err=True)

    def close(self) -> None:
        """Leave the lines where they are."""


class LiveProgress:
    """One line of a terminal that changes in its place and vanishes at the end."""

    def __init__(self, clock: Clock, console: Console) -> None:
        self._clock = clock
        self._started_ms = clock.monotonic_ms()
        self._status = Status("", console=console)
        self._shown = False

    def show(self, text: Callable[[], str]) -> None:
        """Renew the line, once the first two seconds are over."""
        passed_ms = self._clock.monotonic_ms() - self._started_ms
        if passed_ms >= SILENT_MS:
            self._status.update(f"{text()} ({passed_ms // 1000} s)")
            if not self._shown:
                self._status.start()
                self._shown = True

    def close(self) -> None:
        """Remove the line."""
        if self._shown:
            self._status.stop()


@contextmanager
def progress(clock: Clock | None = None) -> Iterator[Progress]:
    """Return what fits where standard error goes."""
    clock = clock or SystemClock()
    shown: Progress
    if sys.stderr.isatty():
        shown = LiveProgress(clock, Console(stderr=True, highlight=False, markup=False))
    else:
        shown = LineProgress(clock)
    try:
        yield shown
    finally:
        shown.close()


class Pause:
    """The time between two looks; longer each time, half a second at most, or as told."""

    def __init__(self, most_s: float = _POLL_MOST_S) -> None:
        self._next_s = _POLL_FIRST_S
        self._most_s = most_s
        self._never = threading.Event()

    def wait(self) -> None:
        """Let time pass; Ctrl-C ends it."""
        self._never.wait(self._next_s)
        self._next_s = min(self._most_s, self._next_s * 1.5)


@contextmanager
def interruptible(what: str, how_to_look: str) -> Iterator[None]:
    """Let Ctrl-C end the waiting with a word about what goes on, and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"\nNo longer waiting. {what} goes on; look with: {how_to_look}", err=True)
        raise SystemExit(_INTERRUPTED) from None


@dataclass(frozen=True)
class Operation:
    """Something that a job was asked for; `path` is where its result will be.

    `what` begins a sentence, such as "The savepoint of job …". With `ends_job` the job's process
    may be gone before it could answer; then the announcement that it left tells the result.
    """

    job: JobInfo
    path: str
    what: str
    ends_job: bool = False

    @property
    def url(self) -> str:
        """Return where the result can be asked for."""
        return self.job.url + self.path

    def wait(self) -> dict[str, Any]:
        """Return the result when it is there.

        Raises:
            WeirError: the operation failed; the class is the one that the job gave.
        """
        client = self.job.client
        # A process that is about to end answers only for a moment.
        pause = Pause(_POLL_LAST_S if self.ends_job else _POLL_MOST_S)
        with interruptible(self.what, f"weir list, or {self.url}"), progress() as shown:
            click.echo(f"{self.what} was requested.", err=True)
            while True:
                try:
                    answer = client.get(self.path)
                except UnreachableError:
                    if not self.ends_job:
                        raise
                    return _left_behind(self)
                if answer["status"]["id"] == "COMPLETED":
                    break
                shown.show(lambda: f"{self.what} is under way{_acknowledged(self.job)}")
                pause.wait()
        found: dict[str, Any] = answer.get("operation") or {}
        cause = found.get("failure-cause") or found.get("failureCause")
        if cause:
            raise operation_error(cause)
        return found


def request_id(job: JobInfo, answer: Any) -> str:
    """Return by which id the result of a request can be asked for."""
    if not isinstance(answer, dict) or "request-id" not in answer:
        msg = f"the JobManager at {job.url} took the request, but gave no request-id to ask with"
        raise UnreachableError(msg)
    return str(answer["request-id"])


def wait_for_end(job: JobInfo) -> str:
    """Return the status in which a job ends, when it has.

    Raises:
        UnreachableError: its process is gone, and nobody can tell.
    """
    client, pause = job.client, Pause()
    with interruptible(f"The end of job {job.job_id}", "weir list -a"), progress() as shown:
        click.echo(f"The end of job {job.job_id} was requested.", err=True)
        while True:
            try:
                status = str(client.get(f"/jobs/{job.job_id}/status")["status"])
            except UnreachableError:
                return _last_entry(job).status
            if status in ENDED:
                return status
            shown.show(lambda status=status: f"Job {job.job_id} is {status}")  # type: ignore[misc]
            pause.wait()


def _left_behind(operation: Operation) -> dict[str, Any]:
    entry = _last_entry(operation.job)
    if entry.savepoint is not None:
        return {"location": entry.savepoint}
    if entry.status == "FAILED":
        msg = f"{operation.what} failed: the job ended (FAILED) without one"
    else:
        msg = (
            f"{operation.what} was not found: the job ended ({entry.status}) before it told where "
            "it is; 'weir state ls DIRECTORY' shows what is there"
        )
    raise JobExecutionError(msg)


def _last_entry(job: JobInfo) -> directory.JobEntry:
    """Return what a job left behind; one whose process still lives is given time to write it."""
    clock, pause = SystemClock(), Pause()
    deadline_ms = clock.monotonic_ms() + _LAST_WORD_MS
    while True:
        found = [entry for entry in directory.entries() if entry.job_id == job.job_id]
        if found and not found[0].running:
            return found[0]
        if not found or clock.monotonic_ms() >= deadline_ms:
            msg = (
                f"the JobManager of job {job.job_id} at {job.url} no longer answers, and left no "
                "word about its end: look into its log, and for a savepoint into the directory"
            )
            raise UnreachableError(msg)
        pause.wait()


def _acknowledged(job: JobInfo) -> str:
    """Return how far the newest checkpoint under way is; nothing when that is not known."""
    try:
        history = job.client.get(f"/jobs/{job.job_id}/checkpoints")["history"]
        newest = next(c for c in history if c["status"] == "IN_PROGRESS")
        done, of = newest["num_acknowledged_subtasks"], newest["num_subtasks"]
    except (WeirError, LookupError, TypeError, StopIteration):
        return ""
    return f": {done} of {of} subtasks are done"
