"""What a notebook shows while a program runs: one line that changes in its place.

IPython is never imported here: a kernel has done so itself, and elsewhere nothing is shown.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

from weir.jobmanager.job import ENDS
from weir.notices import signs_shown_by

Show: TypeAlias = Callable[[str], None]
_EVERY_S = 0.5


def kernel_line() -> Show | None:
    """Return what shows a line in the cell that runs and renews it; None without a kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    display: Any = sys.modules["IPython.display"]
    handle = display.display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)


class LiveLine:
    """One line about a program: that Spark starts, then how its job is."""

    def __init__(self, show: Show, every_s: float = _EVERY_S) -> None:
        """Show by this way, so often."""
        self._show = show
        self._every_s = every_s
        self._last = ""

    def say(self, text: str) -> None:
        """Show a text, unless it is there already."""
        if text != self._last:
            self._last = text
            self._show(text)

    @contextmanager
    def sign(self, text: str) -> Iterator[None]:
        """Show that something is under way."""
        self.say(f"{text} …")
        yield

    @contextmanager
    def following(self, job: Any) -> Iterator[None]:
        """Show how a job is while the block runs, and how it ended."""
        over = threading.Event()

        def follow() -> None:
            while not over.wait(self._every_s):
                self.say(summary(job))

        thread = threading.Thread(target=follow, name="weir-live-line", daemon=True)
        thread.start()
        log = logging.getLogger("weir.job")
        log.addFilter(_is_no_end)
        try:
            yield
        finally:
            log.removeFilter(_is_no_end)
            over.set()
            thread.join()
            self.say(summary(job))


def _is_no_end(record: logging.LogRecord) -> bool:
    """Leave out what ends the job: the cell raises it."""
    return ENDS not in record.getMessage()


@contextmanager
def live_line(show: Show | None) -> Iterator[LiveLine | None]:
    """Show signs of life in a line, where there is one."""
    line = None if show is None else LiveLine(show)
    with nullcontext() if line is None else signs_shown_by(line.sign):
        yield line


def summary(job: Any) -> str:
    """Return how a job is, in one line; for jobs that tell no figures their status."""
    progress = getattr(job, "progress", None)
    if progress is None:
        return f"job {job.get_job_id()}: {job.get_job_status().result().name}"
    now = progress()
    parts = [now["status"]]
    if now["epoch"] is not None:
        parts.append(f"epoch {now['epoch']}")
    if now["attempt"] > 0:
        parts.append(f"attempt {now['attempt']}")
    read = max(now["records_in"].values(), default=0)
    parts.append(f"{read:,} records")
    parts.append(f"{now['checkpoints']['completed']} checkpoints")
    return f"job {job.get_job_id()}: {', '.join(parts)}"
