"""The peers' virtual environments, made once from pinned requirements by the running Python.

An environment is complete if and only if it holds the text of its requirements; when they change,
it is made anew. A peer whose environment cannot be made is reported with the reason, not skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENVS = HERE / ".venvs"
OWN = "weir"
STAMP = "requirements.done"
# No wheels of these exist for newer ones.
NEWEST_PYTHON = {"pyflink": (3, 12), "bytewax": (3, 12)}


class Unavailable(Exception):
    """An environment cannot be made; the message is the reason."""


def python_of(name: str) -> Path:
    """Return the interpreter of an environment that was made; the running one for Weir."""
    if name == OWN:
        return Path(sys.executable)
    return VENVS / name / "bin" / "python"


def make(name: str) -> Path:
    """Return the interpreter of an environment, making the environment if it is not there.

    Raises:
        Unavailable: it cannot be made here.
    """
    if name == OWN:
        return python_of(name)
    wanted = (HERE / "requirements" / f"{name}.txt").read_text()
    directory = VENVS / name
    stamp = directory / STAMP
    if stamp.exists() and stamp.read_text() == wanted:
        return python_of(name)
    newest = NEWEST_PYTHON.get(name)
    if newest is not None and sys.version_info[:2] > newest:
        found = ".".join(map(str, sys.version_info[:2]))
        msg = f"no release of {name} for Python {found}: run with {newest[0]}.{newest[1]} or older"
        raise Unavailable(msg)
    shutil.rmtree(directory, ignore_errors=True)
    requirements = str(HERE / "requirements" / f"{name}.txt")
    _run([sys.executable, "-m", "venv", str(directory)])
    _run([str(python_of(name)), "-m", "pip", "install", "-q", "-r", requirements])
    stamp.write_text(wanted)
    return python_of(name)


def try_to_make(name: str) -> str | None:
    """Make an environment; return why that cannot be done, None when it is there."""
    try:
        make(name)
    except Unavailable as error:
        return str(error)
    return None


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        msg = f"{' '.join(command[1:4])} failed: {lines[-1]}"
        raise Unavailable(msg)


def java_home() -> str:
    """Return the home of the Java to use, by the project's own rule.

    Raises:
        Unavailable: there is none.
    """
    done = subprocess.run(
        ["sh", str(ROOT / "scripts" / "java_home.sh")], capture_output=True, text=True, check=False
    )
    if done.returncode:
        msg = "no Java 17 or newer: run 'make setup'"
        raise Unavailable(msg)
    return done.stdout.strip()


def variables(name: str) -> dict[str, str]:
    """Return the environment variables for a process of an environment."""
    paths = [str(ROOT)]
    if name == "pyflink":
        # Thread mode embeds an interpreter that knows nothing of the virtual environment.
        paths += [str(p) for p in sorted((VENVS / name).glob("lib/python*/site-packages"))]
    chosen = {
        "PYTHONPATH": os.pathsep.join(paths),
        "JAVA_HOME": java_home(),
        "JVM_ARGS": "-Xmx4g",
        "PATH": os.pathsep.join([str(python_of(name).parent), os.environ.get("PATH", "")]),
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    return kept | chosen
