"""What the runner and a contender's process say to each other.

The runner writes a task as a line of JSON and waits; the process prints one line for it, which
begins with `MARK` so that an engine's own chatter does not matter. It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from benchmarks.contenders.progress import steady_part
from benchmarks.workloads.checksum import Checksum
from benchmarks.workloads.dataset import Dataset

MARK = "BENCHMARK-RESULT "
WORKLOAD_EPOCH = "epoch"


@dataclass(frozen=True)
class Task:
    """One run of one contender.

    Attributes:
        dataset: the input; for epochs of one row their size only.
        verify: compute the checksum of all output instead of dropping it; the time is void.
        started: monotonic time when the runner started the process.
    """

    contender: str
    workload: str
    dataset: dict[str, Any]
    work: str
    verify: bool
    started: float

    @property
    def input(self) -> Dataset:
        """The dataset as an object."""
        return Dataset.from_json(self.dataset)

    def folder(self, name: str) -> Path:
        """Return a new folder of this run."""
        path = Path(self.work, name)
        path.mkdir(parents=True, exist_ok=True)
        return path


BURST = 0.01
"""Results that take a smaller share of a run are a burst, as behind a window of windows."""


@dataclass
class Outcome:
    """What one run found.

    Attributes:
        seconds: of the steady part.
        rows: input rows of the steady part.
        startup: seconds until the warm-up part was through, from the start of the process if the
            task was its first one.
        checksum: of all output, in a verifying run.
        verified: the result of a check of another kind than the checksum, in a verifying run.
        outputs: output rows, where they were counted.
        epochs: seconds of each epoch, for the workload of one-row epochs.
    """

    contender: str
    workload: str
    rows: int = 0
    keys: int = 0
    seconds: float | None = None
    startup: float | None = None
    total: float | None = None
    checksum: list[Any] | None = None
    verified: bool | None = None
    outputs: int | None = None
    checkpoints: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    epochs: list[float] = field(default_factory=list)
    error: str | None = None


def serve(run: Callable[[Task], Outcome], versions: Callable[[], dict[str, str]]) -> None:
    """Run the tasks that are asked for and print their outcomes; a failed one stops no other."""
    for number, line in enumerate(_own_input()):
        task = Task(**json.loads(line))
        if number:
            task = replace(task, started=time.monotonic())
        try:
            outcome = run(task)
        except Exception as error:
            traceback.print_exc()
            brief = str(error).strip().splitlines() or [""]
            outcome = Outcome(task.contender, task.workload)
            outcome.error = f"{type(error).__name__}: {brief[0]}"[:300]
        outcome.keys = task.dataset["size"]["keys"]
        outcome.total = time.monotonic() - task.started
        outcome.versions = versions()
        sys.stdout.write(MARK + json.dumps(asdict(outcome)) + "\n")
        sys.stdout.flush()


def _own_input() -> TextIO:
    """Return the standard input, out of reach of processes that an engine starts."""
    own = os.fdopen(os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    return own


def of_epoch_ends(task: Task, ends: list[float], warm: int) -> Outcome:
    """Return the outcome of an engine that works in epochs, from the times when they ended.

    It is called when the job is over: where results are files, all of them are committed only now.
    """
    outcome = Outcome(task.contender, task.workload)
    outcome.rows = task.input.size.rows
    last = time.monotonic() if task.input.workload.files else ends[-1]
    outcome.seconds = last - ends[warm - 1]
    outcome.startup = ends[warm - 1] - task.started
    return outcome


def of_marks(task: Task, marks: list[tuple[float, int]], checksum: Checksum) -> Outcome:
    """Return the outcome of an engine that notes its progress: a checksum, or else times.

    Where all results came at the end, the time between them is not that of the rows: such a run has
    a start-up, and an error instead of a time.
    """
    dataset = task.input
    outcome = Outcome(task.contender, task.workload, dataset.size.rows)
    if task.verify:
        outcome.checksum = checksum.to_json()
        return outcome
    start, end, outcome.outputs = steady_part(marks, dataset.warm_outputs)
    outcome.startup = start - task.started
    if end - start < BURST * (end - task.started):
        outcome.error = (
            f"{outcome.outputs} results came within {end - start:.3f} s at the end of "
            f"{end - task.started:.1f} s: they do not tell how long the rows took"
        )
    else:
        outcome.seconds = end - start
    return outcome
