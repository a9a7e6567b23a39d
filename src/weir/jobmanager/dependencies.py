"""What a program says it needs of Python on the workers: looked at before Spark starts.

Files are shipped (`python.files`), archives are shipped and unpacked (`python.archives`). What has
to be there before Spark starts is refused with the setting that does it, unless it is there.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath

from weir.config import execution as e
from weir.config.effective import Settings
from weir.errors import UsageError

_BOUND = re.compile(r"(===|==|!=|~=|<=|>=|<|>)\s*([\w.*+-]+)")
# What Spark's `addArchive` unpacks.
_UNPACKED = (".zip", ".jar", ".tar", ".tar.gz", ".tgz")
_PACKED = (
    "pack an environment with them (venv-pack, conda-pack) and set spark.archives and "
    "spark.pyspark.python, or install them on all hosts"
)


def check_dependencies(settings: Settings) -> None:
    """See that Python's executable, packages and archives are what the workers will have.

    Raises:
        UsageError: they are not; with the setting of Spark to use instead.
    """
    for path in settings.get(e.PYTHON_FILES) or ():
        if "://" not in path and not Path(path).exists():
            msg = f"{e.PYTHON_FILES.key} names {path!r}, where there is nothing"
            raise UsageError(msg)
    _check_archives(settings.get(e.PYTHON_ARCHIVES) or ())
    executable = settings.get(e.PYTHON_EXECUTABLE)
    if executable and not _is_chosen(executable):
        msg = (
            f"{e.PYTHON_EXECUTABLE.key} is {executable!r}, but this is {sys.executable!r}: start "
            "the program with that Python, and on a cluster set spark.pyspark.python to it; one "
            "in an archive needs spark.archives, too, before Spark starts"
        )
        raise UsageError(msg)
    requirements = settings.get(e.PYTHON_REQUIREMENTS)
    if requirements:
        _check_requirements(requirements.partition("#")[0])


def archive_and_target(archive: str) -> tuple[str, str]:
    """Return the path of an archive, and where it is unpacked, relative to where functions run.

    As in PyFlink that is what follows a `#`, or the name of the file.
    """
    path, _, target = archive.partition("#")
    return path, target or PurePosixPath(path).name


def _check_archives(archives: Iterable[str]) -> None:
    targets: dict[str, str] = {}
    for archive in archives:
        path, target = archive_and_target(archive)
        if not path.lower().endswith(_UNPACKED):
            reason = f"which Spark cannot unpack: expected {', '.join(_UNPACKED)}"
        elif "://" not in path and not Path(path).is_file():
            reason = "where there is no file"
        elif PurePosixPath(target).is_absolute() or ".." in PurePosixPath(target).parts:
            reason = f"to be unpacked at {target!r}: expected a relative path without '..'"
        elif target in targets:
            reason = f"to be unpacked at {target!r}, as {targets[target]!r} is: name another one"
        else:
            targets[target] = archive
            continue
        msg = f"{e.PYTHON_ARCHIVES.key} names {path!r}, {reason}"
        raise UsageError(msg)


def _is_chosen(executable: str) -> bool:
    """Tell whether the workers run a Python anyway: that of Spark's setting, or the running one.

    Links are not followed, a venv is one. `spark-submit` puts its setting into the environment.
    """
    if executable == os.environ.get("PYSPARK_PYTHON"):
        return True
    found = shutil.which(executable)
    folder = Path(sys.executable).parent
    return found is not None and Path(found).absolute().parent == folder


def _check_requirements(path: str) -> None:
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError as error:
        msg = f"{e.PYTHON_REQUIREMENTS.key} names {path!r}, which cannot be read: {error}"
        raise UsageError(msg) from error
    missing = [text for line in lines if (text := line.partition("#")[0].strip())]
    missing = [text for text in missing if not _is_there(text)]
    if missing:
        msg = (
            f"{e.PYTHON_REQUIREMENTS.key} ({path}) asks for {', '.join(missing)}, which this "
            f"Python has not, and Weir installs nothing: {_PACKED}"
        )
        raise UsageError(msg)


def _is_there(requirement: str) -> bool:
    """Tell whether a line of a requirements file is satisfied here; options of pip are passed.

    Versions are compared by their numbers; what is said behind a semicolon is not looked at.
    """
    if requirement.startswith("-"):
        return True
    wanted = requirement.partition(";")[0]
    name = re.match(r"[A-Za-z0-9][\w.-]*", wanted)
    try:
        found = version(name[0] if name else wanted)
    except (PackageNotFoundError, ValueError):
        return False
    if "@" in wanted:
        return True
    return all(_fits(found, sign, text) for sign, text in _BOUND.findall(wanted))


def _fits(found: str, sign: str, wanted: str) -> bool:
    """Tell whether a version is within one bound, such as `>=1.2` or `==1.*`."""
    if sign == "===":
        return found == wanted
    bound = wanted.removesuffix(".*")
    here, there = _numbers(found), _numbers(bound)
    length = max(len(here), len(there))
    a, b = (numbers + (0,) * (length - len(numbers)) for numbers in (here, there))
    if bound != wanted:
        same = here[: len(there)] == there
        return same if sign == "==" else not same
    if sign == "~=":
        return a >= b and here[: len(there) - 1] == there[:-1]
    return {
        "==": a == b,
        "!=": a != b,
        ">=": a >= b,
        "<=": a <= b,
        ">": a > b,
        "<": a < b,
    }[sign]


def _numbers(text: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(map(int, found[1].split("."))) if found else ()
