"""Runs contenders in processes of their environments and gathers what they print.

A contender whose result is wrong has no time: its verifying run comes first, and the measured runs
of a pair that failed it do not count.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import environments, plan
from benchmarks.contenders.protocol import WORKLOAD_EPOCH, Outcome, Task
from benchmarks.processes import ContenderProcess
from benchmarks.schedule import Pair, Run, parts
from benchmarks.workloads.catalogue import BY_NAME
from benchmarks.workloads.dataset import prepare, with_csv

ENDED = "the process ended, or was ended, before its result"


@dataclass
class Cell:
    """What is known of one contender in one workload.

    Attributes:
        checked: whether the verifying run gave the right result; None before it.
        why: what went wrong, if anything.
        exempt: there is no verifying run, as for most pairs of a quick run.
    """

    contender: str
    workload: str
    checked: bool | None = None
    why: str = ""
    runs: list[Outcome] = field(default_factory=list)
    exempt: bool = False

    @property
    def counts(self) -> bool:
        """Whether the times are those of a right result, as far as this run looks at results."""
        return self.exempt if self.checked is None else self.checked

    def to_json(self) -> dict[str, Any]:
        """Return a plain form."""
        return asdict(self)


def say(text: str) -> None:
    """Tell whoever waits."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Runner:
    """Runs pairs of contender and workload.

    Attributes:
        pairs: what is to run.
        startups: seconds until the first rows were through, by contender.
    """

    def __init__(self, mode: str, pairs: list[Pair], rounds: int | None = None) -> None:
        """Take what is to run; `rounds` replaces the planned number of rounds."""
        self.mode = mode
        self.cells: dict[tuple[str, str], Cell] = {}
        self.startups: dict[str, float] = {}
        self.pairs = pairs
        self._rounds = rounds
        self._missing: dict[str, str] = {}

    def run(self, finished: Callable[[], None]) -> None:
        """Run everything; call `finished` after every part."""
        for name in sorted({contender.environment for contender, _ in self.pairs}):
            reason = environments.try_to_make(name)
            if reason is not None:
                self._missing[name] = reason
        if self.mode == "full":
            self._time_starts()
        planned = parts(self.mode, self.pairs, self._rounds)
        for number, runs in enumerate(planned, 1):
            say(f"part {number} of {len(planned)}: {runs[0].contender.environment}")
            self._take(runs)
            finished()

    def _time_starts(self) -> None:
        chosen = {contender.name: contender for contender, _ in self.pairs}
        for name in plan.STARTERS:
            contender = chosen.get(name)
            if contender is None or contender.environment in self._missing:
                continue
            if name in self.startups:
                continue
            with _work() as work:
                # The input is made before the clock starts.
                task = task_of(Run(contender, plan.STARTER_WORKLOAD, False), "smoke", work)
                with contextlib.closing(ContenderProcess(contender)) as process:
                    outcome = process.run(task)
                if outcome is not None and outcome.startup is not None:
                    self.startups[name] = outcome.startup
                    say(f"start-up of {name}: {outcome.startup:.1f} s")

    def _take(self, runs: list[Run]) -> None:
        for run in runs:
            key = run.contender.name, run.workload
            exempt = not plan.is_checked(self.mode, *key)
            cell = self.cells.setdefault(key, Cell(*key, exempt=exempt))
            cell.why = self._missing.get(run.contender.environment, "")
        if runs[0].contender.environment in self._missing:
            return
        processes: dict[str, ContenderProcess] = {}
        with _work() as work:
            try:
                for number, run in enumerate(runs):
                    if not self._is_lost(run):
                        self._run(run, processes, task_of(run, self.mode, work / str(number)))
            finally:
                for process in processes.values():
                    process.close()

    def _run(self, run: Run, processes: dict[str, ContenderProcess], task: Task) -> None:
        """Run one task in the process of its family, which is started when it is not there."""
        contender = run.contender
        family = contender.family if self.mode == "full" else contender.environment
        if family not in processes:
            processes[family] = ContenderProcess(contender)
        outcome = processes[family].run(task)
        if outcome is None:
            processes.pop(family).close()
            outcome = Outcome(task.contender, task.workload, error=ENDED)
        self._enter(run, outcome, task)

    def _is_lost(self, run: Run) -> bool:
        """Tell whether a run is of a wrong result, or of a pair that ended its process."""
        cell = self.cells[run.contender.name, run.workload]
        return not run.verify and (cell.checked is False or cell.why == ENDED)

    def _enter(self, run: Run, outcome: Outcome, task: Task) -> None:
        cell = self.cells[outcome.contender, outcome.workload]
        judge(cell, outcome, task)
        if run.warms_up:
            cell.runs = [kept for kept in cell.runs if kept is not outcome]
        say(describe(cell, outcome, task.verify) + (", warming up" if run.warms_up else ""))
        shutil.rmtree(task.work, ignore_errors=True)


@contextlib.contextmanager
def _work() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as work:
        yield Path(work)


def task_of(run: Run, mode: str, work: Path) -> Task:
    """Return the task of a run, making its input if it is not there."""
    if run.workload == WORKLOAD_EPOCH:
        warm, epochs = plan.ONE_ROW[mode]
        rows = {"epochs": warm + epochs, "epoch_rows": 1, "keys": 7, "warm": warm}
        dataset: dict[str, Any] = {"size": rows}
    else:
        known = BY_NAME[run.workload]
        size = plan.size_for(known, run.contender.tier, mode)
        if run.verify:
            size = plan.verification_size(known, run.contender, mode)
        prepared = prepare(known, size)
        if run.contender.environment == "pyflink":
            prepared = with_csv(prepared)
        dataset = prepared.to_json()
    name = run.contender.name
    return Task(name, run.workload, dataset, str(work), run.verify, time.monotonic())


def judge(cell: Cell, outcome: Outcome, task: Task) -> None:
    """Enter an outcome into its cell: the verdict of a verifying run, or one more time."""
    if not task.verify and cell.checked is False:
        return  # The reason that is known stays; a time would be that of a wrong result.
    if outcome.error is not None:
        cell.why = outcome.error
        cell.checked = False if task.verify else cell.checked
    elif not task.verify:
        expected = task.dataset.get("expected", [None])[0]
        if outcome.outputs not in (None, expected):
            cell.checked = False
            cell.why = f"{outcome.outputs} output rows in a measured run, expected {expected}"
        cell.runs.append(outcome)
    elif outcome.verified is not None:
        cell.checked = outcome.verified
        cell.why = "" if outcome.verified else "wrong result"
    else:
        expected = task.dataset["expected"]
        cell.checked = outcome.checksum == expected
        if not cell.checked:
            cell.why = f"wrong result: checksum {outcome.checksum}, expected {expected}"


def describe(cell: Cell, outcome: Outcome, verify: bool) -> str:
    """Return a line about a run."""
    name = f"{cell.workload:9} {cell.contender:26}"
    if outcome.error is not None or cell.checked is False:
        return f"{name} FAILED: {cell.why}"
    if verify:
        return f"{name} right result in {outcome.total:.0f} s"
    return f"{name} {outcome.rows / (outcome.seconds or 1):14,.0f} rows/s"


def forget_data() -> None:
    """Remove all input that was made."""
    shutil.rmtree(environments.HERE / ".data", ignore_errors=True)
