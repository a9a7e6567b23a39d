"""`weir run -d`: a job in a process of its own, which outlives the command and its terminal.

The command returns when the job has announced itself. What the program prints goes to a log file
in the user's private directory of jobs; of programs that have ended the newest logs are kept.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from weir.cli.waiting import Pause, interruptible, progress
from weir.ids import unique_suffix
from weir.jobmanager import directory
from weir.storage.private_files import open_private, private_directory

LOGS_KEPT = 20
_TAIL_BYTES = 4_000


@dataclass(frozen=True)
class Started:
    """A job that runs by itself."""

    entry: directory.JobEntry
    log: Path


def start_detached(
    job: Path, args: tuple[str, ...], settings: Mapping[str, str], master: str | None
) -> Started:
    """Start a program and wait until its job has announced itself.

    Ends the command with the exit code of the program if that ends first.

    Raises:
        StorageError: the log file cannot be written.
    """
    command = [sys.executable, "-m", "weir.cli.main", "run"]
    command += [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
    command += [] if master is None else ["--master", master]
    command += [str(job), *args]
    log = _log_file(job)
    with os.fdopen(open_private(log), "ab") as out:
        fcntl.flock(out, fcntl.LOCK_SH)
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    # Also one whose process has just ended counts: a short job may be over before it is seen.
    pause, waiting_for = Pause(), f"The program, process {process.pid},"
    with interruptible(waiting_for, f"weir list, or its log {log}"), progress() as shown:
        while True:
            code = process.poll()
            entry = _announced(process.pid)
            if entry is not None:
                # Nobody waits for it any more; without this Python would warn about it.
                process.returncode = 0 if process.returncode is None else process.returncode
                return Started(entry, log)
            if code is not None:
                raise SystemExit(_say_dead(code, log))
            shown.show(lambda: f"Waiting for the job of process {process.pid} to start")
            pause.wait()


def say_started(started: Started, as_json: bool) -> None:
    """Tell what runs now, and where its output goes."""
    entry = started.entry
    if as_json:
        told = {
            "job_id": entry.job_id,
            "name": entry.name,
            "pid": entry.pid,
            "url": entry.url,
            "log": str(started.log),
        }
        click.echo(json.dumps(told))
    else:
        click.echo(f"Job has been submitted with JobID {entry.job_id}")
        click.echo(f"Its output goes to {started.log}", err=True)


def _announced(pid: int) -> directory.JobEntry | None:
    return next((entry for entry in directory.entries() if entry.pid == pid), None)


def _log_file(job: Path) -> Path:
    instead = "set WEIR_RUN_DIR to a directory of yours"
    folder = private_directory(directory.private_run_directory() / "logs", instead)
    remove_old_logs(folder)
    return folder / f"{job.stem}-{unique_suffix()}.log"


def remove_old_logs(folder: Path) -> None:
    """Remove all but the newest logs of programs that have ended."""
    ended = [path for path in folder.glob("*.log") if not path.is_symlink() and not _in_use(path)]
    ended.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in ended[LOGS_KEPT:]:
        path.unlink(missing_ok=True)


def _in_use(log: Path) -> bool:
    """Tell whether a program still writes to a log: it has the lock that its starter took."""
    with log.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _say_dead(code: int, log: Path) -> int:
    """Show the end of the log of a program that started no job; returns the command's exit code."""
    with log.open("rb") as text:
        text.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        tail = text.read().decode("utf-8", "replace").strip()
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    said = f"\n{tail}" if tail else ""
    click.echo(f"weir: the program ended with {how} and started no job; log {log}{said}", err=True)
    return 128 - code if code < 0 else (code or 1)
