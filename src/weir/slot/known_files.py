"""What a slot knows of the files that its checkpoints refer to: the bytes of each state, and age.

Only for people who watch: sizes by state, and which files a checkpoint did not have to write. What
is not known here is told as such, and nothing is read to find it out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from weir.backend.base import NATIVE_PREFIX
from weir.snapshot import FileHandle
from weir.state.raw import RAW_KEYED

FILES_MAX: Final = 20_000
_OLD: Final = -1


@dataclass(frozen=True)
class FileUse:
    """Files that a checkpoint refers to: bytes by state, bytes of unknown ones, bytes of old files.

    `other` are files of a database, and files of attempts that this slot has not read.
    """

    states: Mapping[str, int] = field(default_factory=dict)
    other: int = 0
    reused: int = 0


@dataclass
class _Known:
    states: dict[str, int] | None
    since: int | None = None


class KnownFiles:
    """The files of one slot, by their paths as checkpoints have them; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, _Known] = {}

    def made(self, path: str, keyed: Mapping[str, Any] | None = None) -> None:
        """A file was written; `keyed` is its description of keyed state, None for a database's."""
        self._add(path, _Known(None if keyed is None else keyed_sizes(keyed)))

    def restored(self, path: str, keyed: Mapping[str, Any]) -> None:
        """A file of an earlier attempt or job was read."""
        self._add(path, _Known(keyed_sizes(keyed), _OLD))

    def _add(self, path: str, known: _Known) -> None:
        with self._lock:
            self._files[path] = known
            while len(self._files) > FILES_MAX:
                del self._files[next(iter(self._files))]

    def use(self, checkpoint_id: int, handles: Iterable[FileHandle]) -> FileUse:
        """Tell what files amount to that a checkpoint refers to; from then on they are old."""
        states: dict[str, int] = {}
        other = reused = 0
        with self._lock:
            for handle in {handle.path: handle for handle in handles}.values():
                known = self._files.get(handle.path, _Known(None, _OLD))
                if known.since is None:
                    known.since = checkpoint_id
                if known.since != checkpoint_id:
                    reused += handle.size
                if known.states is None:
                    other += handle.size
                else:
                    add_sizes(states, known.states)
        return FileUse(states, other, reused)


def add_sizes(sums: dict[str, int], sizes: Mapping[str, int]) -> None:
    """Add sizes by state to others."""
    for name, size in sizes.items():
        sums[name] = sums.get(name, 0) + size


def keyed_sizes(keyed: Mapping[str, Any]) -> dict[str, int]:
    """Return the bytes of each keyed state that a file holds, by what its footer says."""
    return {
        name: sum(length for parts in entry["groups"].values() for _, length, *_ in parts)
        for name, entry in keyed.items()
        if not name.startswith(NATIVE_PREFIX)
    }


def own_sizes(footer: Mapping[str, Any]) -> dict[str, int]:
    """Return the bytes of each state of an operator in the checkpoint's own file."""
    sizes = keyed_sizes(footer["keyed"])
    for name, state in footer["operator"].items():
        add_sizes(sizes, {name: sum(length for _, length, *_ in state["elements"])})
    groups = footer.get("raw_keyed", {}).get("groups", {})
    if groups:
        add_sizes(sizes, {RAW_KEYED: sum(length for _, length, *_ in groups.values())})
    return sizes
