"""A contender's process: it gets one task after another, and none outlives its limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TextIO

from benchmarks import environments, plan
from benchmarks.contenders.protocol import MARK, Outcome, Task

# For one task, the start of its process included.
LIMIT_SECONDS = 900
EXIT_SECONDS = 120


class ContenderProcess:
    """A new process in the environment of a contender, which idles between tasks."""

    def __init__(self, contender: plan.Contender) -> None:
        """Start it."""
        self._contender = contender
        self._started: float | None = time.monotonic()
        self._failed = 0
        self._log = ""
        self._errors: TextIO = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            [str(environments.python_of(contender.environment)), "-m", contender.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=environments.ROOT,
            env=environments.variables(contender.environment),
            start_new_session=True,
        )

    def run(self, task: Task) -> Outcome | None:
        """Return what a task found; None when the process ended, or took too long and was ended."""
        self._log = self._log or f"{self._contender.environment}-{task.workload}"
        task = replace(task, started=self._started or task.started)
        self._started = None
        tasks, answers = self._process.stdin, self._process.stdout
        if tasks is None or answers is None:
            return None
        limit = threading.Timer(LIMIT_SECONDS, self._kill)
        limit.daemon = True
        limit.start()
        try:
            tasks.write(json.dumps(asdict(task)) + "\n")
            tasks.flush()
            for line in answers:
                if line.startswith(MARK):
                    outcome = Outcome(**json.loads(line.removeprefix(MARK)))
                    self._failed += outcome.error is not None
                    return outcome
        except BrokenPipeError:
            pass
        finally:
            limit.cancel()
        return None

    def close(self) -> None:
        """Let it end, and end what is left of it; what it wrote is kept if anything failed."""
        process = self._process
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(EXIT_SECONDS)
        self._kill()
        if process.wait() or self._failed:
            self._errors.seek(0)
            _keep_log(self._log, self._errors.read())
        self._errors.close()
        if process.stdout is not None:
            process.stdout.close()

    def _kill(self) -> None:
        """End the process and its children, which an engine may have left behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _keep_log(name: str, text: str) -> None:
    """Keep what a failed process wrote, for whoever wants to know why."""
    folder: Path = environments.HERE / ".data" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.log").write_text(text)
