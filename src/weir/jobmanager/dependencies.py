"""What a program says it needs of Python on the workers: looked at before Spark starts.

Files are shipped (`python.files`). What only Spark can bring, or what has to be there before it
starts, is refused with the setting that does it, unless it is there already.
"""

from __future__ import annotations

import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from weir.config import execution as e
from weir.config.effective import Settings
from weir.errors import UsageError

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
    archives = settings.get(e.PYTHON_ARCHIVES)
    if archives:
        msg = (
            f"{e.PYTHON_ARCHIVES.key} ({', '.join(archives)}) is not unpacked by Weir: set "
            "spark.archives before Spark starts, and find the contents with SparkFiles.get()"
        )
        raise UsageError(msg)
    executable = settings.get(e.PYTHON_EXECUTABLE)
    if executable and not _is_this_python(executable):
        msg = (
            f"{e.PYTHON_EXECUTABLE.key} is {executable!r}, but this is {sys.executable!r}: start "
            "the program with that Python, and on a cluster set spark.pyspark.python to it"
        )
        raise UsageError(msg)
    requirements = settings.get(e.PYTHON_REQUIREMENTS)
    if requirements:
        _check_requirements(requirements.partition("#")[0])


def _is_this_python(executable: str) -> bool:
    """Tell whether a name leads to the running Python; links are not followed, a venv is one."""
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
    """Tell whether a line of a requirements file is satisfied here; options of pip are passed."""
    if requirement.startswith("-"):
        return True
    name = re.match(r"[A-Za-z0-9][\w.-]*", requirement)
    pinned = re.search(r"==\s*([\w.!+-]+)", requirement)
    try:
        found = version(name[0] if name else requirement)
    except (PackageNotFoundError, ValueError):
        return False
    return pinned is None or pinned[1] == found
