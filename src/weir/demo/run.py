"""Runs the demonstration: generate, stream, kill a slot, recover, stop, resume wider, recount.

Shows nothing itself; whoever calls it brings a `Screen`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weir.clock import Clock
from weir.common.configuration import Configuration
from weir.datastream import StreamExecutionEnvironment
from weir.demo.following import follow
from weir.demo.logs import errors_to, logging_to
from weir.demo.payments import InputShape, write_input
from weir.demo.program import declare
from weir.demo.recount import Comparison, compare, expected_output, read_output
from weir.demo.steps import Kill, Killed, Moved, Resumed, Screen, Step, StopStep
from weir.demo.tracking import Figures, Tracker

CHECKPOINT_INTERVAL = "2 s"


@dataclass(frozen=True)
class DemoOptions:
    """What to run and where; the folder exists and is empty."""

    shape: InputShape
    folder: Path
    kill: bool = True
    rescale: bool = True
    kafka: bool = False
    """Whether it runs between topics of a broker, which is then killed like a slot."""

    @property
    def input(self) -> Path:
        """The folder of the input."""
        return self.folder / "input"

    @property
    def output(self) -> Path:
        """The folder of the output; a broker keeps topics in its own."""
        return self.folder / ("kafka/data" if self.kafka else "output")

    @property
    def logs(self) -> Path:
        """The folder of all logs."""
        return self.folder / "logs"


@dataclass(frozen=True)
class DemoResult:
    """How it went; `kill`, `move` and `broker` are None if not wanted, or when they came too late.

    `broker` is a broker that was killed and started again.
    """

    comparison: Comparison
    kill: Killed | None
    move: Moved | None
    seconds: float
    figures: Figures
    broker: Killed | None = None


def shape_of(rows: int, seed: int) -> InputShape:
    """Cut the rows into 20 to 60 files, one an epoch."""
    return InputShape(rows, max(20, min(60, rows // 50_000)), seed)


def run_demo(options: DemoOptions, screen: Screen, clock: Clock) -> DemoResult:
    """Run everything; raises the job's error if it fails for good."""
    options.logs.mkdir()
    with logging_to(options.logs / "driver.log"):
        shape = options.shape
        screen.say(f"Writing {shape.rows:,} payments in {shape.files} files (seed {shape.seed}) …")
        write_input(shape, options.input)
        screen.say("Starting Spark …")
        env = _environment(options)
        with errors_to(options.logs / "spark.log"):
            spark = env.get_spark()
        try:
            return _Demo(options, screen, clock).run(env)
        finally:
            spark.stop()


def _environment(options: DemoOptions) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set("weir.trigger", "available-now")
    configuration.set("weir.log.dir", str(options.logs))
    configuration.set("execution.checkpointing.interval", CHECKPOINT_INTERVAL)
    configuration.set("execution.checkpointing.dir", (options.folder / "checkpoints").as_uri())
    return StreamExecutionEnvironment.get_execution_environment(configuration)


class _Demo:
    """One run: one job, or one that is stopped and one that goes on."""

    def __init__(self, options: DemoOptions, screen: Screen, clock: Clock) -> None:
        self._options, self._screen, self._clock = options, screen, clock
        self._tracker = Tracker(options.shape.rows, clock.monotonic_ms())

    def run(self, env: StreamExecutionEnvironment) -> DemoResult:
        options, screen, clock = self._options, self._screen, self._clock
        started = clock.monotonic_ms()
        kill = Kill(screen, clock) if options.kill else None
        folder = options.folder / "savepoints"
        stop = StopStep(folder, kill, screen, clock) if options.rescale else None
        figures = self._follow(env, [step for step in (kill, stop) if step is not None])
        move = stop.outcome() if stop is not None else None
        if move is not None:
            figures, move = self._go_on(move)
        seconds = (clock.monotonic_ms() - started) / 1000
        screen.say("The job has ended; recounting everything from the input, without Weir …")
        comparison = compare(expected_output(options.input), read_output(options.output))
        killed = kill.outcome() if kill is not None else None
        return DemoResult(
            comparison=comparison, kill=killed, move=move, seconds=seconds, figures=figures
        )

    def _go_on(self, move: Moved) -> tuple[Figures, Moved]:
        """Start a job from the savepoint, with another parallelism, and follow it to its end."""
        self._screen.say(
            f"Starting a new job from it with parallelism {move.parallelism} instead of "
            f"{move.parallelism_before} …"
        )
        env = _environment(self._options)
        env.configure(Configuration().set("execution.state-recovery.path", move.savepoint))
        env.set_parallelism(move.parallelism)
        self._tracker.next_job()
        resumed = Resumed(self._screen, self._clock)
        figures = self._follow(env, [resumed])
        return figures, replace(move, resume_ms=resumed.resume_ms)

    def _follow(self, env: StreamExecutionEnvironment, steps: Sequence[Step]) -> Figures:
        """Run the program to its end, and let the steps look at it all the time."""
        declare(env, self._options.input, self._options.output)
        job = env.execute_async("Card payments")
        return follow(job, steps, self._tracker, screen=self._screen, clock=self._clock)
