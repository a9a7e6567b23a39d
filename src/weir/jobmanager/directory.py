"""The jobs of this user on this host, as files that commands in other processes find.

One JSON file per job in a private directory: who runs it, where its REST is, what it is called. A
file of a process that is gone is no running job. WEIR_RUN_DIR chooses another directory.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from weir.errors import StorageError
from weir.jobmanager.owner import process_started

ENDED_KEPT = 20
_ENDED = ("FINISHED", "CANCELED", "FAILED")


class JobEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One job; `uses` are the savepoints and checkpoints of others that it still needs.

    `process` is the start time of the process `pid`, so that a reused number is not taken for it.
    """

    job_id: str
    name: str
    pid: int
    process: str | None
    url: str
    started_ms: int
    token: str = ""
    status: str = "RUNNING"
    ended_ms: int | None = None
    checkpoint_dir: str | None = None
    uses: tuple[str, ...] = ()
    savepoint: str | None = None

    @property
    def running(self) -> bool:
        """Tell whether its process is alive and the job has not ended in it."""
        if self.status in _ENDED:
            return False
        started = process_started(self.pid)
        return started is not None and started == self.process


def run_directory() -> Path:
    """Return where the files are; nobody else can read or write there."""
    chosen = os.environ.get("WEIR_RUN_DIR")
    if chosen:
        return Path(chosen)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "weir"
    return Path(tempfile.gettempdir()) / f"weir-jobs-{os.getuid()}"


def publish(entry: JobEntry) -> None:
    """Write a job's file anew, whole.

    Raises:
        StorageError: the directory cannot be used, or belongs to somebody else.
    """
    folder = run_directory()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            msg = (
                f"{str(folder)!r} belongs to another user: set WEIR_RUN_DIR to a directory of yours"
            )
            raise StorageError(msg)
        temporary = folder / f".{entry.job_id}.{os.getpid()}"
        fd = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as out:
            out.write(msgspec.json.encode(entry))
        temporary.replace(folder / f"{entry.job_id}.json")
    except OSError as error:
        msg = f"the job cannot be announced in {str(folder)!r}: {error}"
        raise StorageError(msg) from error


def entries() -> list[JobEntry]:
    """Return all known jobs, newest first; files of dead processes and old ones are removed."""
    found: list[JobEntry] = []
    folder = run_directory()
    if not folder.is_dir() or folder.stat().st_uid != os.getuid():
        return found
    for path in folder.glob("*.json"):
        try:
            entry = msgspec.json.decode(path.read_bytes(), type=JobEntry)
        except (OSError, msgspec.MsgspecError):
            continue
        if entry.running or entry.status in _ENDED:
            found.append(entry)
        else:
            path.unlink(missing_ok=True)
    found.sort(key=lambda e: e.started_ms, reverse=True)
    ended = [entry for entry in found if not entry.running]
    for entry in ended[ENDED_KEPT:]:
        (folder / f"{entry.job_id}.json").unlink(missing_ok=True)
        found.remove(entry)
    return found


def running() -> list[JobEntry]:
    """Return the jobs that run now, newest first."""
    return [entry for entry in entries() if entry.running]
