"""Starting a slot process from wherever a pipe runs: detached, logged, without zombies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weir.slot.main import TOKEN_VARIABLE


@dataclass(frozen=True)
class Contact:
    """Where the JobManager is and how to prove belonging to the job."""

    location: str
    token: bytes
    driver_host: str
    driver_pid: int
    log_dir: str
    socket_dir: str
    tcp: bool


def start_slot(contact: Contact, attempt: int, subtask: int, host: str) -> None:
    """Start the process of a slot on this host."""
    spec = {
        "driver": contact.location,
        "attempt": attempt,
        "subtask": subtask,
        "host": host,
        "log": os.path.join(contact.log_dir, f"slot-{subtask}-attempt-{attempt}.log"),
        "socket": os.path.join(contact.socket_dir, f"s{subtask}a{attempt}"),
        "tcp": contact.tcp,
        "watch_pid": contact.driver_pid if host == contact.driver_host else None,
    }
    spawn_slot(spec, contact.token)


def spawn_slot(spec: dict[str, Any], token: bytes) -> None:
    """Start a slot in the background; its output goes to `spec["log"]`.

    A shell stands in between and exits at once, so that the slot belongs to init and never
    becomes a zombie of a Spark worker.
    """
    Path(spec["log"]).parent.mkdir(parents=True, exist_ok=True)
    Path(spec["socket"]).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    environment = {
        **os.environ,
        TOKEN_VARIABLE: token.hex(),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "WEIR_SLOT_LOG": spec["log"],
    }
    script = '"$@" </dev/null >>"$WEIR_SLOT_LOG" 2>&1 &'
    command = [sys.executable, "-m", "weir.slot.main", json.dumps(spec)]
    subprocess.run(["/bin/sh", "-c", script, "sh", *command], env=environment, check=True)
