"""Starting a slot process from wherever a pipe runs: detached, logged, without zombies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from weir.slot.main import TOKEN_VARIABLE


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
