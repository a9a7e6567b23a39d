"""Slots are started by a shell that waits for them and notes how they ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from weir.clock import SystemClock
from weir.jobmanager.postmortem import HostProcesses, is_slot
from weir.jobmanager.registry import SlotEntry
from weir.slot.spawn import log_tail, spawn_slot

FAKE = """
import json, os, sys
spec = json.loads(sys.argv[1])
print("the slot says", spec["word"], flush=True)
exec(spec["program"])
"""


@pytest.fixture
def spawned(tmp_path, monkeypatch):
    """Start a stand-in for the slot's program; waits until it has spoken."""
    package = tmp_path / "path" / "weir" / "slot"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "main.py").write_text(FAKE)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "path"), *sys.path])
    log = tmp_path / "slot.log"

    def start(program):
        spec = {"log": str(log), "socket": str(tmp_path / "sockets" / "s0a0")}
        pid = spawn_slot({**spec, "word": "hello", "program": program}, bytes(32))
        await_fact(lambda: "hello" in log.read_text())
        return pid, str(log)

    return start


def await_fact(fact):
    deadline = time.monotonic() + 20
    while not fact():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def status_of(log):
    await_fact(lambda: log_tail(log)[1] is not None)
    return log_tail(log)[1]


def test_the_exit_code_of_a_slot_is_known(spawned):
    _, log = spawned("os._exit(3)")
    assert status_of(log) == 3
    assert log_tail(log)[0] == ["the slot says hello"]


def test_the_signal_that_ended_a_slot_is_known(spawned):
    pid, log = spawned("import signal; signal.pause()")
    os.kill(pid, signal.SIGKILL)
    assert status_of(log) == 128 + signal.SIGKILL
    assert log_tail(log)[0] == ["the slot says hello"]


def test_a_slot_that_lives_has_no_status_and_is_found_by_its_socket(spawned, tmp_path):
    pid, log = spawned("import signal; signal.pause()")
    assert log_tail(log)[1] is None
    assert is_slot(pid, str(tmp_path / "sockets"))
    assert not is_slot(pid, str(tmp_path / "others"))
    os.kill(pid, signal.SIGTERM)
    assert status_of(log) == 128 + signal.SIGTERM
    assert not is_slot(pid, str(tmp_path / "sockets"))


def test_a_slot_that_is_killed_is_waited_for_and_seen_to_be_gone(spawned, tmp_path):
    pid, _ = spawned("import signal; signal.pause()")
    processes = HostProcesses("localhost", tmp_path, SystemClock())
    slot = SlotEntry(0, process=pid)
    assert not processes.has_ended(slot)
    assert not processes.has_ended(slot, 0.1)
    os.kill(pid, signal.SIGKILL)
    assert processes.has_ended(slot, 20.0)


def test_nothing_is_left_when_a_slot_has_ended(spawned):
    pid, log = spawned("import signal; signal.pause()")
    shell = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert "weir.slot.main" in Path(f"/proc/{shell}/cmdline").read_text()
    os.kill(pid, signal.SIGKILL)
    assert status_of(log) == 128 + signal.SIGKILL
    await_fact(lambda: not Path(f"/proc/{pid}").exists())
    await_fact(lambda: _is_over(shell))


def test_the_end_of_its_starters_group_ends_neither_the_shell_nor_its_note(spawned):
    pid, log = spawned("import signal; signal.pause()")
    shell = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(shell, signal.SIGHUP)
    os.kill(shell, signal.SIGINT)
    os.kill(pid, signal.SIGKILL)
    assert status_of(log) == 128 + signal.SIGKILL


def test_a_log_that_is_not_there_says_nothing(tmp_path):
    assert log_tail(str(tmp_path / "none")) == ([], None)


def _is_over(pid):
    """The shell belongs to init, which may be slow to take note of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
