"""Who owns a job's directory, and whether that process can still be alive.

A job that resumes from another one's checkpoint may remove that job's remains only when it is
certain that the other one has ended. "Cannot tell" counts as alive.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

OWNER_NAME = "_owner"


def claim(job_dir: Path, job_name: str = "") -> None:
    """Note that this process runs the job."""
    pid = os.getpid()
    owner = {
        "host": socket.gethostname(),
        "pid": pid,
        "started": process_started(pid),
        "name": job_name,
    }
    (job_dir / OWNER_NAME).write_text(json.dumps(owner))


def release(job_dir: Path) -> None:
    """Note that the job has ended."""
    (job_dir / OWNER_NAME).unlink(missing_ok=True)


def has_ended(job_dir: Path) -> bool:
    """Tell for certain that no process runs the job any more."""
    try:
        owner = json.loads((job_dir / OWNER_NAME).read_text())
    except FileNotFoundError:
        return job_dir.is_dir()
    except (OSError, ValueError):
        return False
    if owner.get("host") != socket.gethostname():
        return False
    started = process_started(int(owner["pid"]))
    return started is None or started != owner.get("started")


def process_started(pid: int) -> str | None:
    """Return when a process started, in clock ticks; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]
