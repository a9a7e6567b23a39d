"""Follows a running job to its end: figures to the screen, and every step looks at it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from weir.clock import Clock
from weir.demo.steps import Screen, Step
from weir.demo.tracking import Figures, Tracker

_POLL_S = 0.1


def follow(
    job: Any, steps: Sequence[Step], tracker: Tracker, *, screen: Screen, clock: Clock
) -> Figures:
    """Return the last figures; raises the job's error if it fails for good."""
    pause = threading.Event()
    try:
        while True:
            progress = job.progress()
            figures = tracker.update(progress, clock.monotonic_ms())
            screen.show(figures)
            for step in steps:
                step.look(job, progress, figures)
            if progress["status"] in ("FINISHED", "FAILED", "CANCELED"):
                job.get_job_execution_result().result()
                return figures
            pause.wait(_POLL_S)
    finally:
        job.cancel()
