"""Shipping the user's own modules: what lies next to the program is importable in slots too.

What is shipped is executed, so it is only ever read from where this process itself wrote it. It
stays there as long as the process lives: executors that start later fetch it, also for other jobs
of the same Spark session.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from weir.storage.private_files import temporary_directory

_MAX_FILES = 500
_MAX_BYTES = 20 << 20
_SKIPPED = frozenset({"__pycache__", "site-packages", "node_modules", "venv"})
_archives: dict[tuple[int, str], Path] = {}


def ship_code(spark: SparkSession, extra: Iterable[str] = ()) -> None:
    """Send the Python files beside the program, and extra ones, to every worker."""
    for path in extra:
        spark.sparkContext.addPyFile(path)
    script = _script()
    if script is None:
        return
    files = _modules(script.parent)
    if not files:
        return
    spark.sparkContext.addPyFile(str(_archive(script.parent, files)))


def _script() -> Path | None:
    """Return the program's file; None in a notebook, a REPL or an installed tool."""
    main = sys.modules.get("__main__")
    name = getattr(main, "__file__", None)
    if not name:
        return None
    path = Path(name).resolve()
    installed = "site-packages" in path.parts or path.parent.name in ("bin", "Scripts")
    return None if installed or not path.is_file() else path


def _modules(directory: Path) -> list[Path]:
    """Return the .py files below the program's directory, unless there are too many to mean it."""
    found: list[Path] = []
    size = 0
    for root, dirs, names in os.walk(directory):
        dirs[:] = [d for d in dirs if not d.startswith(".") and d not in _SKIPPED]
        for name in names:
            if name.endswith(".py"):
                path = Path(root) / name
                size += path.stat().st_size
                found.append(path)
        if len(found) > _MAX_FILES or size > _MAX_BYTES:
            return [p for p in directory.glob("*.py") if p.is_file()]
    return found


def _archive(base: Path, files: list[Path]) -> Path:
    """Zip the files in a new private directory, once for the same contents in this process."""
    # Read once: what is packed is what the name stands for.
    contents = {str(path.relative_to(base)): path.read_bytes() for path in sorted(files)}
    digest = hashlib.sha256()
    for name, data in contents.items():
        digest.update(f"{len(name)} {len(data)} {name}".encode() + data)
    # By process, because a forked child does not own what its parent made.
    key = (os.getpid(), digest.hexdigest()[:16])
    if key not in _archives or not _archives[key].exists():
        target = temporary_directory("weir-code-") / f"weir-code-{key[1]}.zip"
        with zipfile.ZipFile(target, "x") as out:
            for name, data in contents.items():
                out.writestr(name, data)
        _archives[key] = target
    return _archives[key]
