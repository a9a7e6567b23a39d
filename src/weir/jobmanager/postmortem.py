"""How a slot's process on this host ended: what /proc, the kernel and the slot's log say.

The driver is not the parent of its slots, so the shell that started a slot notes its exit status in
the slot's log (`weir.slot.spawn`). Nothing here fails: what cannot be read is not said.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from weir.clock import Clock
from weir.jobmanager.registry import SlotEntry
from weir.slot.cgroup import memory_folders
from weir.slot.spawn import log_tail

_LOG_LINES = 5
_LINE_CHARS = 400
_SIGNALS = 128


def is_slot(pid: int, mark: str) -> bool:
    """Tell whether a pid is alive and a slot of this job, not a process that reused the number."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return False
    return "weir.slot.main" in command and mark in command


def is_stopped(pid: int) -> bool:
    """Tell whether a process is frozen by a signal or a debugger."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] in (["T"], ["t"])


def how_it_ended(status: int | None, *, starved: bool) -> str:
    """Return a status as a shell tells it in words; `starved`: the kernel killed for memory."""
    if status is None:
        return "ended"
    if status <= _SIGNALS:
        return f"ended with exit code {status}"
    number = status - _SIGNALS
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    text = f"was killed by {name}"
    if number == signal.SIGKILL and starved:
        text += (
            ", probably by the kernel because memory was out: give the host or its container more, "
            "or let an epoch be smaller with the options of the source"
        )
    return text


def log_end(lines: list[str]) -> str:
    """Return the end of a slot's log, as part of a message."""
    shown = [line[:_LINE_CHARS] for line in lines[-_LOG_LINES:]]
    return "; its log ends with:\n" + "\n".join(shown) if shown else ""


class OomKills:
    """Counts how often the kernel has ended processes for lack of memory, as far as it says so.

    The narrowest counter that can be read counts: that of this process's cgroup, which is also that
    of slots on this host, else that of the host.
    """

    def __init__(self, read: Callable[[], int | None] | None = None) -> None:
        self._read = read or _kernel_count
        self._seen = self._read()

    def happened(self) -> bool:
        """Tell whether it has happened since the last look."""
        before, self._seen = self._seen, self._read()
        return before is not None and self._seen is not None and self._seen > before


def _kernel_count() -> int | None:
    for path in _counters():
        try:
            text = path.read_text()
        except OSError:
            continue
        found = count_in(text)
        if found is not None:
            return found
    return None


def count_in(text: str) -> int | None:
    """Return what a file of the kernel says about `oom_kill`."""
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill" and number.strip().isdigit():
            return int(number)
    return None


def _counters() -> Iterator[Path]:
    for folder in memory_folders():
        yield folder / "memory.events"
        yield folder / "memory.oom_control"  # of the first version of cgroups
    yield Path("/proc/vmstat")


def describe(pid: int, log_file: str, oom: OomKills) -> str:
    """Return what is known about the end of a slot's process."""
    lines, status = log_tail(log_file)
    killed = status == _SIGNALS + signal.SIGKILL
    ended = how_it_ended(status, starved=killed and oom.happened())
    return f"; its process {pid} {ended}{log_end(lines)}"


def process_on(host: str, slot: SlotEntry) -> int | None:
    """Return the process of a slot if it is on a host."""
    if slot.pid is None:
        return slot.process
    return slot.pid if slot.host == host else None


class HostProcesses:
    """The slots on this host, whose logs name the job by their directory."""

    def __init__(self, host: str, log_dir: Path, clock: Clock) -> None:
        self._host = host
        self._log_dir = log_dir
        self._clock = clock
        self._oom = OomKills()

    def has_ended(self, slot: SlotEntry, patience_s: float = 0.0) -> bool:
        """Tell whether the process of a slot is seen to be gone, after a while to end in."""
        pid = process_on(self._host, slot)
        if pid is None:
            return False
        deadline = self._clock.monotonic_ms() + int(patience_s * 1000)
        waiter = threading.Event()
        while is_slot(pid, self._log_dir.name):
            if self._clock.monotonic_ms() >= deadline:
                return False
            waiter.wait(0.02)
        return True

    def explain(self, slot: SlotEntry, attempt: int, patience_s: float) -> str:
        """Return what this host knows about a lost slot; waits a while for it to end."""
        pid, mark = process_on(self._host, slot), self._log_dir.name
        if pid is None:
            return ""
        log_file = slot.log_file or str(
            self._log_dir / f"slot-{slot.subtask}-attempt-{attempt}.log"
        )
        deadline = self._clock.monotonic_ms() + int(patience_s * 1000)
        waiter = threading.Event()
        # The shell above the slot notes the status a moment after the slot has ended.
        while is_slot(pid, mark) or log_tail(log_file)[1] is None:
            if is_stopped(pid):
                return f"; its process {pid} is stopped (SIGSTOP, or a debugger)"
            if self._clock.monotonic_ms() >= deadline:
                break
            waiter.wait(0.02)
        return "" if is_slot(pid, mark) else describe(pid, log_file, self._oom)
