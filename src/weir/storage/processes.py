"""Processes of this host: when they began, and notes in directories that say whose they are.

A number alone does not name a process, because numbers are used again: its start time does. Who
cannot tell whether a process has ended counts it as alive.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Final

OWNER_NAME: Final = "_owner"


def note_process(directory: Path, pid: int | None = None, name: str = "") -> None:
    """Note that a directory belongs to a process, this one by default."""
    pid = os.getpid() if pid is None else pid
    owner = {
        "host": socket.gethostname(),
        "namespace": _namespace(),
        "pid": pid,
        "started": process_started(pid),
        "name": name,
    }
    (directory / OWNER_NAME).write_text(json.dumps(owner))


def noted_process_ended(directory: Path) -> bool:
    """Tell for certain that the process is gone that a directory belongs to.

    Raises:
        FileNotFoundError: nobody noted whose it is.
    """
    try:
        owner = json.loads((directory / OWNER_NAME).read_text())
        pid, host, started = int(owner["pid"]), owner["host"], owner["started"]
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False
    # Containers may share a directory and a host name, but number their processes apart.
    if host != socket.gethostname() or owner.get("namespace", _namespace()) != _namespace():
        return False
    if process_started(os.getpid()) is None:
        return False  # a system that does not tell
    now = process_started(pid)
    return now is None or now != started


def process_started(pid: int) -> str | None:
    """Return when a process started, in clock ticks; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
