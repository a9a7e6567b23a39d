"""Shipping the user's own modules: what lies next to the program is importable in slots too."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

_MAX_FILES = 500
_MAX_BYTES = 20 << 20
_SKIPPED = frozenset({"__pycache__", "site-packages", "node_modules", "venv"})


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
    """Zip the files under a name that depends on their contents."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(str(path.relative_to(base)).encode() + b"\0" + path.read_bytes())
    target = Path(tempfile.gettempdir()) / f"weir-code-{os.getuid()}-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        temporary = target.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(temporary, "w") as out:
            for path in sorted(files):
                out.write(path, path.relative_to(base))
        temporary.replace(target)
    return target
