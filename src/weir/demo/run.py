"""Runs the demonstration: generate, stream, kill a slot, recover, recount.

Shows nothing itself; whoever calls it brings a `Screen`.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from weir.clock import Clock
from weir.common.configuration import Configuration
from weir.datastream import StreamExecutionEnvironment
from weir.demo.payments import Shape, write_input
from weir.demo.program import declare
from weir.demo.recount import Comparison, compare, expected_output, read_output
from weir.demo.tracking import Figures, Tracker

CHECKPOINT_INTERVAL = "2 s"
_KILL_AFTER = 0.4  # of all rows
_KILL_AFTER_CHECKPOINTS = 2
_POLL_S = 0.1


class Screen(Protocol):
    """Where the demonstration is watched."""

    def say(self, text: str) -> None:
        """Tell what happens next, or what happened."""

    def show(self, figures: Figures) -> None:
        """Show the running job."""


@dataclass(frozen=True)
class DemoOptions:
    """What to run and where; the folder exists and is empty."""

    shape: Shape
    folder: Path
    kill: bool = True

    @property
    def output(self) -> Path:
        """The folder of the output."""
        return self.folder / "output"

    @property
    def logs(self) -> Path:
        """The folder of all logs."""
        return self.folder / "logs"


@dataclass
class Kill:
    """A slot that was killed, and how long it took until its successor had handled an epoch."""

    pid: int
    subtask: int
    attempt: int
    at_ms: int
    recovery_ms: int | None = None


@dataclass(frozen=True)
class DemoResult:
    """How it went."""

    comparison: Comparison
    kill: Kill | None
    seconds: float
    figures: Figures


def shape_of(rows: int, seed: int) -> Shape:
    """Cut the rows into 12 to 60 files, one an epoch."""
    return Shape(rows, max(12, min(60, rows // 50_000)), seed)


def run_demo(options: DemoOptions, screen: Screen, clock: Clock) -> DemoResult:
    """Run everything; raises the job's error if it fails for good."""
    options.logs.mkdir()
    with _logging_to(options.logs / "driver.log"):
        shape, source = options.shape, options.folder / "input"
        screen.say(f"Writing {shape.rows:,} payments in {shape.files} files (seed {shape.seed}) …")
        write_input(shape, source)
        screen.say("Starting Spark …")
        env = _environment(options)
        with _errors_to(options.logs / "spark.log"):
            spark = env.get_spark()
        try:
            declare(env, source, options.output)
            return _run(env, options, screen, clock)
        finally:
            spark.stop()


def _environment(options: DemoOptions) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set("weir.trigger", "available-now")
    configuration.set("weir.log.dir", str(options.logs))
    configuration.set("execution.checkpointing.interval", CHECKPOINT_INTERVAL)
    configuration.set("execution.checkpointing.dir", (options.folder / "checkpoints").as_uri())
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def _run(
    env: StreamExecutionEnvironment, options: DemoOptions, screen: Screen, clock: Clock
) -> DemoResult:
    started = clock.monotonic_ms()
    job: Any = env.execute_async("Card payments")
    try:
        figures, kill = _watch(job, options, screen, clock)
        job.get_job_execution_result().result()
    finally:
        job.cancel()
    seconds = (clock.monotonic_ms() - started) / 1000
    screen.say("The job has ended; recounting everything from the input, without Weir …")
    comparison = compare(expected_output(options.folder / "input"), read_output(options.output))
    return DemoResult(comparison, kill, seconds, figures)


def _watch(
    job: Any, options: DemoOptions, screen: Screen, clock: Clock
) -> tuple[Figures, Kill | None]:
    tracker = Tracker(options.shape.rows, clock.monotonic_ms())
    kill: Kill | None = None
    pause = threading.Event()
    while True:
        progress = job.progress()
        figures = tracker.update(progress, clock.monotonic_ms())
        screen.show(figures)
        if kill is None and options.kill and _time_to_kill(figures):
            kill = _kill(progress, clock)
            screen.say(f"Killed slot {kill.subtask} (process {kill.pid}) with SIGKILL")
        elif kill is not None and kill.recovery_ms is None and _recovered(progress, kill):
            kill.recovery_ms = clock.monotonic_ms() - kill.at_ms
            screen.say(
                f"Recovered {kill.recovery_ms / 1000:.1f} s after the kill: attempt "
                f"{progress['attempt']} goes on behind epoch {progress['restored_epoch']}"
            )
        if progress["status"] in ("FINISHED", "FAILED", "CANCELED"):
            return figures, kill
        pause.wait(_POLL_S)


def _time_to_kill(figures: Figures) -> bool:
    far = figures.rows >= _KILL_AFTER * figures.rows_total
    return far and figures.checkpoints >= _KILL_AFTER_CHECKPOINTS and figures.slots > 0


def _kill(progress: dict[str, Any], clock: Clock) -> Kill:
    slot = progress["slots"][-1]
    os.kill(slot["pid"], signal.SIGKILL)
    return Kill(slot["pid"], slot["subtask"], progress["attempt"], clock.monotonic_ms())


def _recovered(progress: dict[str, Any], kill: Kill) -> bool:
    return progress["attempt"] > kill.attempt and progress["epoch"] is not None


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Send the driver's own log to a file, so that the screen stays readable."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("weir")
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.propagate, logger.level = before
        logger.removeHandler(handler)
        handler.close()


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Let a JVM that starts meanwhile inherit a file as its standard error."""
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
