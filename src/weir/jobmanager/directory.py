"""The jobs of this user on this host, as files that commands in other processes find.

One JSON file per job in a private directory: who runs it, where its REST is, which token it wants,
what it is called. A file of a process that is gone is no running job; it stays for a while, for who
wants to see what became of the job. When the files of old jobs go, so do logs in the default place
that nobody has written to for a month. WEIR_RUN_DIR chooses another directory. What somebody else
could have written is not read: it would name a JobManager that gets what users type.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import msgspec

from weir.clock import SystemClock
from weir.errors import StorageError
from weir.ids import unique_suffix
from weir.slot.spawn import default_logs
from weir.storage.private_files import private_directory
from weir.storage.processes import process_started
from weir.tls import TlsFiles

ENDED_KEPT = 20
LOGS_KEPT_S = 30 * 24 * 3600
_ENDED = ("FINISHED", "CANCELED", "FAILED")


class JobEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One job; `uses` are the savepoints and checkpoints of others that it still needs.

    `program` is the file that was run, None in a notebook, with `arguments` in `work_dir`, by the
    Spark of `master`.
    Savepoints of the job lie directly below the directories `savepoint_dirs`.

    Queries of its state are taken at `query_url`, with `query_token`, where they are switched on.

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
    tls: TlsFiles | None = None
    program: str | None = None
    savepoint_dirs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    work_dir: str | None = None
    master: str | None = None
    query_url: str = ""
    query_token: str = ""

    @property
    def running(self) -> bool:
        """Tell whether its process is alive and the job has not ended in it."""
        if self.status in _ENDED:
            return False
        started = process_started(self.pid)
        return started is not None and started == self.process


_decode_entry = msgspec.json.Decoder(JobEntry).decode


def run_directory() -> Path:
    """Return where the files are, once `private_run_directory` has made it."""
    chosen = os.environ.get("WEIR_RUN_DIR")
    if chosen:
        return Path(chosen)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "weir"
    return Path(tempfile.gettempdir()) / f"weir-jobs-{os.getuid()}"


def private_run_directory() -> Path:
    """Return where the files are; nobody else can write there.

    Raises:
        StorageError: the directory cannot be used, or somebody else has a hand in it.
    """
    # A directory that somebody chose stays readable for whom it was: files in it are private.
    chosen = bool(os.environ.get("WEIR_RUN_DIR"))
    instead = "set WEIR_RUN_DIR to a directory of yours"
    return private_directory(run_directory(), instead, narrow=not chosen)


def publish(entry: JobEntry) -> None:
    """Write a job's file anew, whole.

    Raises:
        StorageError: the directory cannot be used, or somebody else has a hand in it.
    """
    folder = private_run_directory()
    try:
        temporary = folder / f".{entry.job_id}.{unique_suffix()}"
        fd = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as out:
            out.write(msgspec.json.encode(entry))
        temporary.replace(folder / f"{entry.job_id}.json")
    except OSError as error:
        msg = f"the job cannot be announced in {str(folder)!r}: {error}"
        raise StorageError(msg) from error


def past_file(folder: Path, job_id: str) -> Path:
    """Return where a job leaves what is to be known of it afterwards."""
    return folder / f"{job_id}.past"


def entries() -> list[JobEntry]:
    """Return the jobs that run or have said that they ended, newest first.

    Raises:
        StorageError: somebody else has a hand in the directory.
    """
    return [entry for entry in known() if entry.running or entry.status in _ENDED]


def known() -> list[JobEntry]:
    """Return all jobs, also those whose process is gone, newest first; files of old ones go.

    Raises:
        StorageError: somebody else has a hand in the directory.
    """
    found: list[JobEntry] = []
    if not run_directory().is_dir():
        return found
    folder = private_run_directory()
    for path in folder.glob("*.json"):
        try:
            entry = _decode_entry(path.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        found.append(entry)
    found.sort(key=lambda e: e.started_ms, reverse=True)
    ended = [entry for entry in found if not entry.running]
    for entry in ended[ENDED_KEPT:]:
        (folder / f"{entry.job_id}.json").unlink(missing_ok=True)
        past_file(folder, entry.job_id).unlink(missing_ok=True)
        found.remove(entry)
    if ended[ENDED_KEPT:]:
        _remove_old_logs({entry.job_id for entry in found})
    return found


def _remove_old_logs(known_jobs: set[str]) -> None:
    """Remove logs of slots, where nobody chose another place, of jobs that are long forgotten."""
    oldest = SystemClock().now_ms() / 1000 - LOGS_KEPT_S
    with contextlib.suppress(OSError), os.scandir(default_logs()) as folders:
        for folder in folders:
            if folder.name not in known_jobs and folder.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _remove_if_old(Path(folder.path), oldest)


def _remove_if_old(folder: Path, oldest: float) -> None:
    found = folder.lstat()
    written = [path.lstat().st_mtime for path in folder.iterdir()]
    if found.st_uid == os.geteuid() and max([found.st_mtime, *written]) < oldest:
        shutil.rmtree(folder)


def running() -> list[JobEntry]:
    """Return the jobs that run now, newest first."""
    return [entry for entry in entries() if entry.running]
