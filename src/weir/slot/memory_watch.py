"""Watches the memory of a slot, so that it fails with a reason before the kernel kills it.

Memory is what the process alone occupies: pages of files, such as what an epoch has spilled, the
system takes back when it needs them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from weir.slot.cgroup import memory_folders

INTERVAL_S = 0.1
# Without a limit a slot gives up when this much is left, and it has at least half of the whole.
LEFT_PART = 32
LEFT_BYTES_MIN = 128 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MEMINFO = Path("/proc/meminfo")
# Limit, use, and what of the use can be taken back: of both versions of cgroups.
_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


@dataclass(frozen=True)
class Space:
    """Memory of a host or a container: all of it, and what is available."""

    name: str
    total: int
    available: int


def decide(own: int, limit: int | None, spaces: list[Space]) -> str | None:
    """Return why a slot that uses so much memory has to end, None while it may go on."""
    if limit is not None:
        if own <= limit:
            return None
        return f"it uses {_mb(own)}, and taskmanager.memory.process.size is {_mb(limit)}"
    for space in spaces:
        left = max(space.total // LEFT_PART, min(LEFT_BYTES_MIN, space.total // 8))
        if own >= space.total // 2 and space.available < left:
            return (
                f"it uses {_mb(own)}, and of the {_mb(space.total)} of {space.name} only "
                f"{_mb(space.available)} are left"
            )
    return None


def _mb(size: int) -> str:
    return f"{size / (1 << 20):.0f} MB"


def own_bytes() -> int | None:
    """Return the memory that this process alone occupies, None where the system does not say."""
    try:
        _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    except OSError:
        return None
    return (int(resident) - int(shared)) * _PAGE


def spaces(folders: Sequence[Path], meminfo: Path = _MEMINFO) -> list[Space]:
    """Return the memory of control groups that have a limit, and of the host."""
    return [*_containers(folders), *_host(meminfo)]


def _containers(folders: Sequence[Path]) -> Iterator[Space]:
    for folder in folders:
        for limit_file, used_file, cache in _FILES:
            try:
                limit = int((folder / limit_file).read_text())
                used = int((folder / used_file).read_text())
                stat = _table((folder / "memory.stat").read_text())
            except (OSError, ValueError):
                continue  # no such file, or no limit
            yield Space("its container", limit, limit - used + stat.get(cache, 0))


def _host(meminfo: Path) -> Iterator[Space]:
    try:
        table = _table(meminfo.read_text())
    except OSError:
        return
    if "MemTotal:" in table and "MemAvailable:" in table:
        yield Space("its host", table["MemTotal:"] << 10, table["MemAvailable:"] << 10)


def _table(text: str) -> dict[str, int]:
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def watch_memory(limit: int | None, leaving: threading.Event, fail: Callable[[str], None]) -> None:
    """Look at the memory until the slot leaves; `fail` gets the reason why it has to end."""
    folders = memory_folders()
    whole = min((space.total for space in spaces(folders)), default=0)
    while not leaving.wait(INTERVAL_S):
        own = own_bytes()
        if own is None:
            return
        near = limit is None and own >= whole // 2
        reason = decide(own, limit, spaces(folders) if near else [])
        if reason is not None:
            fail(reason)
            return
