"""Looks for a secret wherever others than its owner might find it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weir.rest.routes import ROUTES


def in_files(secret: str, *folders: Path) -> list[str]:
    """Return the files whose bytes or names hold it."""
    wanted, found = secret.encode(), []
    for path in (p for folder in folders for p in folder.rglob("*")):
        try:
            if secret in path.name or (path.is_file() and wanted in path.read_bytes()):
                found.append(str(path))
        except OSError:  # noqa: PERF203 - it was removed meanwhile, or is a socket
            continue
    return found


def in_processes(secret: str) -> list[str]:
    """Return the processes of this host whose command line or environment shows it."""
    wanted, found = secret.encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                if wanted in (process / name).read_bytes():
                    found.append(f"{process / name}")
            except OSError:  # noqa: PERF203 - it has ended meanwhile
                continue
    return found


def in_answers(secret: str, entry: Any) -> tuple[list[str], int]:
    """Return the addresses of REST whose answers show it, and how many have answered."""
    found, answered = [], 0
    for path, answer in _answers(entry):
        answered += 1
        if secret in answer:
            found.append(path)
    return found, answered


def _answers(entry: Any) -> Iterator[tuple[str, str]]:
    for route in ROUTES:
        path = route.path.replace(":jobid", entry.job_id)
        if route.method != "GET" or ":" in path:
            continue
        try:
            yield path, _get(entry, path)
        except urllib.error.HTTPError as error:
            yield path, error.read().decode()


def _get(entry: Any, path: str) -> str:
    request = urllib.request.Request(f"{entry.url}{path}")
    request.add_header("Authorization", f"Bearer {entry.token}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read().decode(errors="replace"))
