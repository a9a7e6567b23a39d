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

from weir.errors import UsageError
from weir.storage.private_files import temporary_directory

_MAX_FILES = 500
_MAX_BYTES = 20 << 20
_SKIPPED = frozenset({"__pycache__", "site-packages", "node_modules", "venv"})
_archives: dict[tuple[int, str], Path] = {}


def ship_code(spark: SparkSession, extra: Iterable[str] = ()) -> None:
    """Send the Python files beside the program, and extra ones, to every worker."""
    for path in extra:
        spark.sparkContext.addPyFile(shippable(path))
    main = sys.modules.get("__main__")
    found = importable_beside(getattr(main, "__file__", None), getattr(main, "__package__", None))
    if found is not None:
        spark.sparkContext.addPyFile(str(_archive(*found)))


def shippable(path: str) -> str:
    """Return what Spark takes for a file of `python.files`: a directory becomes a zip.

    What lies in the directory can be imported then, as if it were on the path of Python.

    Raises:
        UsageError: there is nothing at the path, or no Python file in the directory.
    """
    if "://" in path and not path.startswith("file://"):
        return path
    local = Path(path.removeprefix("file://")).absolute()
    files = _modules(local) if local.is_dir() else [local]
    if not files or not local.exists():
        msg = f"python.files names {path!r}, expected a Python file, a zip or a directory with some"
        raise UsageError(msg)
    return str(_archive(local, files) if local.is_dir() else local)


def importable_beside(file: str | None, package: str | None) -> tuple[Path, list[Path]] | None:
    """Return the directory that a program's own modules are imported from, and their files.

    That is where the program's file lies. With `python -m` it is where its top-level package lies:
    the modules of a package are never importable without its name, or one of them could take the
    place of a module of Python. None in a notebook, a REPL or an installed tool, such as `weir`.
    """
    path = Path(file).resolve() if file else None
    if path is None or not path.is_file() or "site-packages" in path.parts:
        return None
    if package:
        names = package.split(".")
        base = path.parents[len(names)]
        files = _modules(base / names[0]) + [p for p in base.glob("*.py") if p.is_file()]
        return None if names[0] == "weir" else (base, files)
    if path.parent.name in ("bin", "Scripts"):
        return None
    files = _modules(path.parent)
    return (path.parent, files) if files else None


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
