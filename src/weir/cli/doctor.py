"""`weir doctor`: is this machine fit for Weir, and if not, what to do about it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.notice import notice
from weir.config.state_backends import STATE_BACKENDS

PYTHON_MIN = (3, 10)
JAVA_MIN = 17
# Package, first version that works, first version that does not (None: none is known).
PACKAGES: tuple[tuple[str, tuple[int, ...], tuple[int, ...] | None], ...] = (
    ("pyspark", (4, 1), (4, 4)),
    ("pyarrow", (18,), None),
    ("pandas", (2, 2), (3,)),
)
EXTRAS = (
    *(
        (*facts.needs, f"jobs with the {facts.name} state backend")
        for facts in STATE_BACKENDS
        if facts.needs is not None
    ),
    ("obstore", "objectstore", "checkpoints in object stores"),
)
FREE_BYTES_MIN = 1 << 30
SOCKET_PATH_MAX = 107
_SOCKET_NAME = "weir-1234567890-123456789abc/s9999a9999"
_START_A_SLOT = """
import sys
import weir.slot.main
from pyarrow import flight
flight.FlightServerBase("grpc+unix://" + sys.argv[1]).shutdown()
"""


@dataclass(frozen=True)
class Finding:
    """One line of the report; `advice` says what to do when it is not ok."""

    name: str
    ok: bool
    found: str
    advice: str = ""


@click.command(context_settings=HELP_OPTIONS)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(as_json: bool) -> None:
    """Look whether this machine can run Weir; exits with 1 if something is missing."""
    findings = []
    with notice("Examining this machine"):
        for finding in examine():
            findings.append(finding)
            if not as_json:
                click.echo(line(finding))
    if as_json:
        click.echo(json.dumps([asdict(f) for f in findings], indent=2))
    if not all(f.ok for f in findings):
        raise SystemExit(1)


def line(finding: Finding) -> str:
    """Return a finding as text."""
    mark = "ok     " if finding.ok else "problem"
    advice = "" if finding.ok else f"\n         → {finding.advice}"
    return f"{mark}  {finding.name}: {finding.found}{advice}"


def examine() -> Iterator[Finding]:
    """Return all findings, cheap ones first."""
    yield check_python(sys.version_info[:3])
    yield from check_java(java_binary())
    for name, first, beyond in PACKAGES:
        yield check_package(name, first, beyond)
    for name, extra, purpose in EXTRAS:
        yield check_extra(name, extra, purpose)
    folder = Path(tempfile.gettempdir())
    yield check_temporary(folder)
    yield check_disk(folder, shutil.disk_usage(folder).free)
    yield check_slot()


def check_python(version: tuple[int, ...]) -> Finding:
    """Judge the version of Python."""
    wanted = ".".join(map(str, PYTHON_MIN))
    found = ".".join(map(str, version))
    return Finding("Python", version >= PYTHON_MIN, found, f"use Python {wanted} or newer")


def java_binary() -> str | None:
    """Return the java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def check_java(java: str | None) -> Iterator[Finding]:
    """Judge the version and the modules of Java."""
    advice = f"install a Java {JAVA_MIN} or newer and put it on the PATH, or set JAVA_HOME to it"
    about = _output([java, "-XshowSettings:properties", "-version"]) if java else None
    if java is None or about is None:
        where = "not found on the PATH" if java is None else f"{java} does not start"
        yield Finding("Java", False, where, advice)
        return
    found = re.search(r"java\.specification\.version = ([\d.]+)", about)
    version = found.group(1) if found else "unknown"
    major = int(version.split(".")[0]) if found else 0
    yield Finding("Java", major >= JAVA_MIN, f"{version} ({java})", advice)
    modules = _output([java, "--list-modules"]) or ""
    vector = "jdk.incubator.vector" in modules
    yield Finding(
        "Java module jdk.incubator.vector",
        vector,
        "present" if vector else "missing",
        "use a complete Java runtime: Spark does not start without this module",
    )


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return None if done.returncode else done.stdout + done.stderr


def check_package(name: str, first: tuple[int, ...], beyond: tuple[int, ...] | None) -> Finding:
    """Judge the version of an installed package."""
    wanted = f"{name}>={'.'.join(map(str, first))}"
    if beyond is not None:
        wanted += f",<{'.'.join(map(str, beyond))}"
    advice = f"pip install '{wanted}'"
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", advice)
    version = tuple(int(part) for part in re.findall(r"\d+", found)[:3])
    fits = version >= first and (beyond is None or version < beyond)
    return Finding(name, fits, found, advice)


def check_extra(name: str, extra: str, purpose: str) -> Finding:
    """Tell whether a package is there that only some jobs need; its absence is no problem."""
    try:
        return Finding(name, True, metadata.version(name))
    except metadata.PackageNotFoundError:
        missing = f"not installed; {purpose} need it: pip install 'weir-spark[{extra}]'"
        return Finding(name, True, missing)


def check_temporary(folder: Path) -> Finding:
    """Judge whether slots can keep sockets and files in the temporary directory."""
    name, advice = "temporary directory", "set TMPDIR to a short path that you can write to"
    try:
        with tempfile.TemporaryDirectory(prefix="weir-doctor-", dir=folder):
            pass
    except OSError as error:
        return Finding(name, False, f"{folder}: {error.strerror}", advice)
    if len(str(folder / _SOCKET_NAME)) > SOCKET_PATH_MAX:
        return Finding(name, False, f"{folder} is too long a path for sockets", advice)
    return Finding(name, True, str(folder))


def check_disk(folder: Path, free_bytes: int) -> Finding:
    """Judge the free space of the temporary directory."""
    found = f"{free_bytes / (1 << 30):.1f} GB free in {folder}"
    advice = "free at least 1 GB, or set TMPDIR to a disk that has it"
    return Finding("disk space", free_bytes >= FREE_BYTES_MIN, found, advice)


def check_slot() -> Finding:
    """Start the Python of the workers, import a slot in it and let it listen on a socket."""
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    advice = "let PYSPARK_PYTHON be unset, or name a Python that has Weir and its dependencies"
    with tempfile.TemporaryDirectory(prefix="weir-doctor-") as folder:
        command = [python, "-c", _START_A_SLOT, str(Path(folder) / "socket")]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=60, env=environment, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            return Finding("slot process", False, f"{python}: {error}", advice)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Finding("slot process", False, f"{python}: {last}", advice)
    return Finding("slot process", True, f"starts with {python}")
