"""Fails a test run that leaves processes behind, and says which file of tests started them.

Every process inherits the environment of who started it. So each has the name of the file of tests
that runs, and of the whole run. Whoever outlives its file is ended, and fails the last test of it;
who outlives the run fails the run. What a whole run shares is left until then: the JVM of the Spark
session in this process, and the guardians of servers.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

RUN = "WEIR_TEST_RUN"
FILE = "WEIR_TEST_FILE"
# They end by themselves, in a moment on an idle machine.
_PATIENCE_S = 30.0
_LOOK_S = 0.05
_TRACKER = b"multiprocessing.resource_tracker"
_GUARDIAN = b"tests.guardian"
_PROC = Path("/proc")


def with_variable(name: str, value: str) -> list[int]:
    """Return the processes that were started with this variable, but for the own one."""
    mark, own = f"{name}={value}".encode(), os.getpid()
    return [
        pid
        for pid in _pids()
        if pid != own and mark in _read(pid, "environ").split(b"\0") and not _is_over(pid)
    ]


def end(pids: Iterable[int]) -> None:
    """Kill processes, of which some may be gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def described(pid: int) -> str:
    """Return what a person needs to know a process."""
    words = _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")
    return f"{pid}: {words.strip()[:300]}"


class LeftBehind:
    """The plugin; `patience_s` is how long processes may take to end."""

    def __init__(self, *, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._of_run = ""
        self._problem = ""
        if RUN not in os.environ:
            self._of_run = os.environ[RUN] = f"{os.getpid()}-{time.time_ns()}"

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Let whatever is started from now on have the name of this file."""
        os.environ[FILE] = _mark(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, None, None]:
        """Look around after the last test of a file, whose fixtures are gone by then."""
        yield
        if nextitem is not None and nextitem.path == item.path:
            return
        left = self._await_end(FILE, _mark(item), _TRACKER, _GUARDIAN)
        if left:
            shown = "\n".join(map(described, left))
            end(left)
            pytest.fail(f"tests of {item.path.name} left processes behind:\n{shown}", False)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Look around once more when all processes that run tests are gone."""
        left = self._await_end(RUN, self._of_run, _TRACKER) if self._of_run else []
        if left:
            shown = [f"{_file_of(pid)}: {described(pid)}" for pid in left]
            end(left)
            self._problem = "\n".join(["this run left processes behind:", *shown])
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was left."""
        if self._problem:
            terminalreporter.write_line(self._problem, red=True)

    def _await_end(self, name: str, value: str, *shared: bytes) -> list[int]:
        deadline = time.monotonic() + self._patience_s
        while left := _but_shared(with_variable(name, value), shared):
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
        return left


def _mark(item: pytest.Item) -> str:
    # Two processes of one run may have the same file only one after the other.
    return f"{os.getpid()} {item.path}"


def _but_shared(pids: list[int], shared: tuple[bytes, ...]) -> list[int]:
    """Leave out what lives as long as this process or longer, and what such processes started."""
    roots = {pid for pid in pids if any(word in _read(pid, "cmdline") for word in shared)}
    roots |= _own_jvm()
    return [pid for pid in pids if roots.isdisjoint(_ancestry(pid))] if roots else pids


def _own_jvm() -> set[int]:
    """Return the JVM of the Spark session in this process: it ends with it."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    return set() if process is None else {process.pid}


def _ancestry(pid: int) -> list[int]:
    """Return a process, who started it, and so on."""
    found = []
    while pid > 1:
        found.append(pid)
        pid = _parent(pid)
    return found


def _parent(pid: int) -> int:
    # The name of the program is in parentheses and may hold anything.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _is_over(pid: int) -> bool:
    """Tell whether a process has ended and nobody has asked how."""
    return _read(pid, "stat").rpartition(b")")[2].split()[:1] in ([b"Z"], [])


def _file_of(pid: int) -> str:
    words = _read(pid, "environ").split(b"\0")
    found = next((word for word in words if word.startswith(f"{FILE}=".encode())), b"?")
    return found.decode("utf-8", "replace").rpartition(" ")[2]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()] if _PROC.exists() else []


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:  # it is gone, or somebody else's
        return b""
