"""Shipping what a program brings: what lies next to it is importable, archives are unpacked.

What is shipped is executed, so it is only ever read from where this process itself wrote it. It
stays there as long as the process lives: executors that start later fetch it, also for other jobs
of the same Spark session.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from weir.errors import UsageError
from weir.jobmanager.dependencies import archive_and_target
from weir.slot.spawn import Contact
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


def directory_of(archives: Sequence[str]) -> str | None:
    """Return the name of the directory for a program's archives as they are now; None without any.

    Other archives have another directory: Spark never forgets one, nor the place it goes to.
    """
    if not archives:
        return None
    digest = hashlib.sha256()
    for archive in archives:
        path, _ = archive_and_target(archive)
        local = None if "://" in path else os.stat(path)
        now = None if local is None else (os.path.abspath(path), local.st_size, local.st_mtime_ns)
        digest.update(repr((archive, now)).encode())
    return f"weir-archives-{digest.hexdigest()[:16]}"


def ship_archives(spark: SparkSession, archives: Sequence[str], directory: str) -> None:
    """Let Spark unpack archives on every host, in a directory below that of its files."""
    for number, (path, target) in enumerate(map(archive_and_target, archives)):
        uri = path if "://" in path else _renamed(Path(path), f"{directory}-{number}").as_uri()
        spark.sparkContext.addArchive(f"{uri}#{directory}/{quote(target)}")
    # A local executor has the driver's directory, and unpacks anew before its next task: now, when
    # no slot looks.
    spark.range(1).count()


def _renamed(archive: Path, name: str) -> Path:
    """Return the archive under a name of its own: Spark serves one file of each name."""
    key = (os.getpid(), name)
    if key not in _archives:
        kind = ".tar.gz" if archive.name.lower().endswith(".tar.gz") else archive.suffix
        link = temporary_directory("weir-archive-") / f"{name}{kind}"
        link.symlink_to(archive.absolute())
        _archives[key] = link
    return _archives[key]


def unpacked_at(contact: Contact) -> str | None:
    """Return where this host has the program's archives; None if it has none."""
    if contact.archives is None:
        return None
    return os.path.join(os.path.abspath(SparkFiles.getRootDirectory()), contact.archives)


@contextmanager
def working_in(directory: str | None) -> Iterator[None]:
    """Have a working directory for a while; None changes nothing."""
    if directory is None:
        yield
        return
    before = os.getcwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


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
