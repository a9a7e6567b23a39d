"""A job in this process that runs by itself: what browsers and servers are tested against.

The supervisor, slots, checkpoints and control are those of every job; a thread brings records,
lets time pass ten times as fast, and takes turns. Operations of the control are answered by it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weir.backend.factory import BackendSettings
from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.common import Duration, Types, WatermarkStrategy
from weir.common.watermark_strategy import TimestampAssigner
from weir.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from weir.datastream.state import MapStateDescriptor, ValueStateDescriptor
from weir.errors import WeirError
from weir.jobmanager.job_states import Over, Restarting, Running
from weir.jobmanager.recovery import RestorePoint
from weir.queryable.queries import StateQueries
from weir.queryable.settings import QueryLimits
from weir.storage.local import LocalStorage
from weir.testing.clock import ManualClock
from weir.testing.harness import HarnessOptions, JobHarness, collect
from weir.testing.harness_slots import Hooks

START = 1_790_000_000_000
PAUSE_S = 0.02
STEP_MS = 200


class Count(KeyedProcessFunction):
    """Counts words, and remembers the last number of each."""

    def open(self, context):
        self.total = context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.last = context.get_map_state(MapStateDescriptor("last", Types.STRING(), Types.LONG()))

    def process_element(self, value, ctx):
        word, number = value
        if word == "broken":
            msg = f"no word: {number}"
            raise ValueError(msg)
        total = (self.total.value() or 0) + 1
        self.total.update(total)
        self.last.put("number", number)
        yield word, total


class OfNumber(TimestampAssigner):
    """Event times that follow the clock: numbers come forty in a step of it."""

    def extract_timestamp(self, value, record_timestamp):
        return START + value[1] * STEP_MS // 40


def counting(
    name: str = "words", operator: str = "Count words", *, timed: bool = False
) -> StreamExecutionEnvironment:
    """A program with a source, a key, keyed state and a sink; names are the test's.

    With `timed` records have event times, and operators watermarks.
    """
    env = StreamExecutionEnvironment()
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    words = env.from_collection([], pair).name("Words").uid("words")
    if timed:
        late = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
        words = words.assign_timestamps_and_watermarks(late.with_timestamp_assigner(OfNumber()))
    counted = words.key_by(lambda row: row[0], Types.STRING()).process(Count(), pair)
    collect(counted.uid("count").name(operator))
    return env


class Slowly(Hooks):
    """Lets time pass between the steps of a job, now more, now less."""

    def __init__(self, clock: ManualClock, step_ms: int) -> None:
        self._clock = clock
        self._step_ms = step_ms
        self._steps = 0

    def step(self, name: str) -> None:
        """Let time pass."""
        self._steps += 1
        if self._step_ms:
            self._clock.advance(self._step_ms + self._steps * 7 % 5)


class LiveJob:
    """Runs a program until it is closed; `harness` may be used under `lock`.

    With `step_ms` every step of it takes about so long, by its own clock.
    """

    def __init__(
        self,
        folder: Path,
        env: StreamExecutionEnvironment,
        records: Callable[[int], list[Any]],
        *,
        name: str = "words",
        parallelism: int = 2,
        restore: RestorePoint | None = None,
        backend: BackendSettings | None = None,
        savepoints: str = "savepoints",
        step_ms: int = 0,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = threading.Lock()
        self.clock = ManualClock(START)
        options = HarnessOptions(
            storage=LocalStorage(str(folder / "checkpoints")),
            clock=self.clock,
            checkpoints=CheckpointSettings(
                interval_ms=5_000, num_retained=50, retention=Retention.RETAIN_ON_CANCELLATION
            ),
            savepoint_dir=(folder / savepoints).as_uri(),
            backend=backend or BackendSettings(),
            hooks=Slowly(self.clock, step_ms),
        )
        self.harness = JobHarness(env.build_graph(name), parallelism, options, restore)
        self.over = threading.Event()
        self.control = self.harness.control
        self._records = records
        self._rounds = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-job", daemon=True)

    def start(self) -> LiveJob:
        self.harness.start()
        self._thread.start()
        return self

    def close(self) -> None:
        self._ending.set()
        self._thread.join(10)

    def take_queries(self) -> None:
        """Let every state be asked for, live and committed."""
        limits = QueryLimits(states="all")
        self.control.queries = StateQueries(self.harness.supervisor, limits)

    def kill_slot(self, subtask: int) -> None:
        with self.lock:
            self.harness.kill_slot(subtask)

    def _run(self) -> None:
        while not self._ending.wait(PAUSE_S):
            with self.lock:
                self.clock.advance(STEP_MS)
                try:
                    self._step()
                except WeirError:
                    # The job has noted it, and decides what becomes of it.
                    continue
                finally:
                    self.control.observe()

    def _step(self) -> None:
        job = self.harness.supervisor.job
        if isinstance(job.state, Over):
            self.over.set()
            return
        if isinstance(job.state, Restarting):
            self.harness.fail_over()
        elif isinstance(job.state, Running) and job.wish is None:
            self._rounds += 1
            self.harness.run_epoch(self._records(self._rounds))
        self.harness.supervisor.turn()


def some_words(round_number: int) -> list[Any]:
    """Forty records of eight words, one of which comes most of the time."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "often"]
    return [(words[n % 7] if n % 2 else "often", round_number * 40 + n) for n in range(40)]
