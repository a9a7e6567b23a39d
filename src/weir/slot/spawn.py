"""Starting a slot process from wherever a pipe runs: detached, logged, without zombies.

Logs hold records, and whoever exchanges a socket is asked instead of the slot: directories of both
are private to the user who runs the slot, who may be another one than the driver's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weir.errors import StorageError
from weir.slot.main import TOKEN_VARIABLE
from weir.storage.private_files import new_directory, open_private, private_directory
from weir.storage.processes import note_process
from weir.tls import TlsFiles

# A socket's path has 104 bytes at most, on some systems; those of slots have names like s12a345.
SOCKET_DIR_MAX = 104 - 20
# Its standard error is the slot's log. Until the slot's process is Python it has this command line,
# with what the slot is told as its name.
_SCRIPT = """
trap '' HUP
{
    "$WEIR_SLOT_PYTHON" -m weir.slot.main "$0" </dev/null >&2 &
    echo $!
    exec </dev/null >&2 2>/dev/null
    wait $!
    printf 'the process of the slot ended with status %s\\n' $?
} &
"""
_STATUS = re.compile(rb"the process of the slot ended with status (\d+)\n\Z")
_TAIL_BYTES = 4096


@dataclass(frozen=True)
class Contact:
    """Where the JobManager is and how to prove belonging to the job.

    With `default_logs` nobody chose a place for logs: a slot has them where its own user does. With
    `archives` the program has some, unpacked in a directory of this name, where functions run.
    """

    location: str
    token: bytes
    driver_host: str
    driver_pid: int
    log_dir: str
    socket_dir: str
    tcp: bool
    default_logs: bool = False
    tls: TlsFiles | None = None
    archives: str | None = None


def default_logs() -> Path:
    """Return where the logs of this user's jobs go on this host unless somebody chose."""
    return Path(tempfile.gettempdir()) / f"weir-logs-{os.getuid()}"


def start_slot(
    contact: Contact, attempt: int, subtask: int, host: str, *, directory: str | None = None
) -> int:
    """Start the process of a slot on this host; returns its id. It runs in a directory, or here.

    Raises:
        StorageError: its directories cannot be made or somebody else has a hand in them, or the
            system starts no process.
    """
    log = _log_dir(contact) / f"slot-{subtask}-attempt-{attempt}.log"
    sockets = Path(contact.socket_dir)
    if contact.tcp:
        sockets = new_directory("weir-slot-", longest=SOCKET_DIR_MAX)
    else:
        private_directory(sockets, "start the job again")
    spec = {
        "driver": contact.location,
        "attempt": attempt,
        "subtask": subtask,
        "host": host,
        "log": str(log),
        "socket": str(sockets / f"s{subtask}a{attempt}"),
        "owns_directory": contact.tcp,
        "tcp": contact.tcp,
        "tls": None if contact.tls is None else asdict(contact.tls),
        "watch_pid": contact.driver_pid if host == contact.driver_host else None,
    }
    try:
        pid = spawn_slot(spec, contact.token, directory)
    except (OSError, subprocess.SubprocessError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else error
        msg = (
            f"slot {subtask} cannot be started on {host}: {reason}; its log is to be "
            f"{spec['log']!r} (weir.log.dir), its socket {spec['socket']!r}"
        )
        raise StorageError(msg) from error
    if contact.tcp:
        # A slot that failed at once has removed it already.
        with contextlib.suppress(FileNotFoundError):
            note_process(sockets, pid)
    return pid


def _log_dir(contact: Contact) -> Path:
    """Return where logs of the job go; nobody else can look or write there."""
    instead = "remove it, or set weir.log.dir to another directory"
    chosen = Path(contact.log_dir)
    if contact.default_logs:
        chosen = private_directory(default_logs(), instead) / chosen.name
    return private_directory(chosen, instead)


def spawn_slot(spec: dict[str, Any], token: bytes, directory: str | None = None) -> int:
    """Start a slot in the background and return its id; its output goes to `spec["log"]`.

    A shell stands in between and belongs to init: it waits for the slot, so that no Spark worker
    gets a zombie, and notes in the log how the slot ended. It ends with the slot.
    """
    environment = {
        **os.environ,
        TOKEN_VARIABLE: token.hex(),
        "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path if p),
        "WEIR_SLOT_PYTHON": sys.executable,
    }
    shell = ["/bin/sh", "-c", _SCRIPT, json.dumps(spec)]
    log = open_private(Path(spec["log"]))
    try:
        started = subprocess.run(
            shell,
            env=environment,
            cwd=directory,
            check=True,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    finally:
        os.close(log)
    return int(started.stdout)


def log_tail(log_file: str) -> tuple[list[str], int | None]:
    """Return the last lines of a slot's log, and the status with which its process ended.

    The status is as a shell tells it, a signal plus 128; None while it is not known.
    """
    try:
        with open(log_file, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
            data = log.read()
    except OSError:
        return [], None
    found = _STATUS.search(data)
    if found is not None:
        data = data[: found.start()]
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return lines, None if found is None else int(found[1])
