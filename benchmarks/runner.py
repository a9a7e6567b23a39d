"""Runs contenders in processes of their own, in turns, and gathers what they print.

A contender whose result is wrong has no time: its verifying run comes first, and the measured runs
of a pair that failed it do not take place.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import environments, plan
from benchmarks.contenders.protocol import MARK, WORKLOAD_EPOCH, Outcome, Task
from benchmarks.workloads.catalogue import BY_NAME
from benchmarks.workloads.dataset import prepare, with_csv

LIMIT_SECONDS = 3_600
EXIT_SECONDS = 120


@dataclass
class Cell:
    """What is known of one contender in one workload.

    Attributes:
        checked: whether the verifying run gave the right result; None before it.
        why: what went wrong, if anything.
    """

    contender: str
    workload: str
    checked: bool | None = None
    why: str = ""
    runs: list[Outcome] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return a plain form."""
        return asdict(self)


def say(text: str) -> None:
    """Tell whoever waits."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Runner:
    """Runs pairs of contender and workload."""

    def __init__(self, mode: str, *, one_process: bool = False) -> None:
        """Take a mode; in one process, all tasks of an environment share its start."""
        self.mode = mode
        self._one_process = one_process
        self.cells: dict[tuple[str, str], Cell] = {}

    def run(self, pairs: list[tuple[plan.Contender, str]], rounds: int) -> None:
        """Verify every pair, then measure them in turns."""
        self._make_environments({contender.environment for contender, _ in pairs})
        for contender, workload in pairs:
            self.cells.setdefault((contender.name, workload), Cell(contender.name, workload))
        self._round([p for p in pairs if p[1] != WORKLOAD_EPOCH], verify=True)
        if self.mode == "smoke":
            self._round([p for p in pairs if p[1] == WORKLOAD_EPOCH], verify=False)
            return
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            again = [p for p in pairs if not number or p[0].tier in plan.EVERY_ROUND]
            self._round(again, verify=False)

    def _make_environments(self, names: set[str]) -> None:
        self._missing: dict[str, str] = {}
        for name in sorted(names):
            reason = environments.try_to_make(name)
            if reason is not None:
                self._missing[name] = reason

    def _round(self, pairs: list[tuple[plan.Contender, str]], *, verify: bool) -> None:
        ready = []
        for contender, workload in pairs:
            cell = self.cells[contender.name, workload]
            if contender.environment in self._missing:
                cell.why = self._missing[contender.environment]
            elif verify or workload == WORKLOAD_EPOCH or cell.checked:
                ready.append((contender, workload))
        for group in self._groups(ready):
            self._take(group, verify)

    def _groups(
        self, pairs: list[tuple[plan.Contender, str]]
    ) -> Iterable[list[tuple[plan.Contender, str]]]:
        if not self._one_process:
            return [[pair] for pair in pairs]
        groups: dict[str, list[tuple[plan.Contender, str]]] = {}
        for pair in pairs:
            groups.setdefault(pair[0].environment, []).append(pair)
        return groups.values()

    def _take(self, group: list[tuple[plan.Contender, str]], verify: bool) -> None:
        with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as work:
            tasks = [
                self._task(contender, workload, verify, Path(work, str(number)))
                for number, (contender, workload) in enumerate(group)
            ]
            waiting = {(task.contender, task.workload): task for task in tasks}
            for outcome in run_process(group[0][0], tasks):
                self._enter(outcome, waiting.pop((outcome.contender, outcome.workload)))
        for (contender, workload), task in waiting.items():
            error = "the process ended, or was ended, before its result"
            self._enter(Outcome(contender, workload, error=error), task)

    def _enter(self, outcome: Outcome, task: Task) -> None:
        cell = self.cells[outcome.contender, outcome.workload]
        judge(cell, outcome, task)
        say(describe(cell, outcome, task.verify))

    def _task(self, contender: plan.Contender, workload: str, verify: bool, work: Path) -> Task:
        if workload == WORKLOAD_EPOCH:
            epochs = plan.EPOCHS_OF_ONE_ROW[self.mode]
            dataset: dict[str, Any] = {"size": {"epochs": epochs, "epoch_rows": 1, "keys": 7}}
        else:
            choose = plan.verification_size if verify else plan.size_for
            known = BY_NAME[workload]
            prepared = prepare(known, choose(known, contender.tier, self.mode))
            if contender.environment == "pyflink":
                prepared = with_csv(prepared)
            dataset = prepared.to_json()
        return Task(contender.name, workload, dataset, str(work), verify, time.monotonic())


def judge(cell: Cell, outcome: Outcome, task: Task) -> None:
    """Enter an outcome into its cell: the verdict of a verifying run, or one more time."""
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
    if outcome.error is not None or (verify and not cell.checked):
        return f"{name} FAILED: {cell.why}"
    if verify:
        return f"{name} right result in {outcome.total:.0f} s"
    return f"{name} {outcome.rows / (outcome.seconds or 1):14,.0f} rows/s"


def run_process(contender: plan.Contender, tasks: list[Task]) -> Iterator[Outcome]:
    """Run tasks in one new process of the contender's environment; yield what it finds."""
    now = time.monotonic()
    forms = [asdict(task) | {"started": now} for task in tasks]
    python = environments.python_of(contender.environment)
    failed = 0
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [str(python), "-m", contender.module, json.dumps(forms)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=environments.ROOT,
            env=environments.variables(contender.environment),
            start_new_session=True,
        )
        limit = threading.Timer(LIMIT_SECONDS, kill, [process])
        limit.start()
        try:
            for line in process.stdout or ():
                if line.startswith(MARK):
                    outcome = Outcome(**json.loads(line.removeprefix(MARK)))
                    failed += outcome.error is not None
                    yield outcome
            process.wait(EXIT_SECONDS)
        finally:
            limit.cancel()
            kill(process)
        if process.wait() or failed:
            errors.seek(0)
            keep_log(f"{contender.name}-{tasks[0].workload}", errors.read())


def kill(process: subprocess.Popen[str]) -> None:
    """End a process and its children, which an engine may have left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def keep_log(name: str, text: str) -> None:
    """Keep what a failed process wrote, for whoever wants to know why."""
    folder = environments.HERE / ".data" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.log").write_text(text)


def forget_data() -> None:
    """Remove all input that was made."""
    shutil.rmtree(environments.HERE / ".data", ignore_errors=True)
