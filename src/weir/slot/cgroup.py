"""Where the kernel says what memory this process may have: its control group and those above."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def memory_folders(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> list[Path]:
    """Return the directories of the memory controller, the process's own first.

    In a container the own one may not be visible; the last one is then the container's.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    found: list[Path] = []
    for line in lines:
        controllers, _, group = line.partition(":")[2].partition(":")
        if not controllers:
            found += _upwards(root, group)
        elif "memory" in controllers.split(","):
            found += _upwards(root / "memory", group)
    return found


def _upwards(top: Path, group: str) -> list[Path]:
    parts = [part for part in group.split("/") if part not in ("", "..")]
    return [top.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
