"""Who uses which shared file, and which files nobody needs any more: facts in, deletions out.

Invariants: a file that a completed checkpoint uses is never given up, and neither is one that a
checkpoint under way may come to use. Checkpoints under way may refer to everything that was in use
since they began, so a file that falls out of use waits for all of them to end. Files of others,
which are protected, are never given up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from weir.checkpoint import paths
from weir.checkpoint.metadata import CheckpointMetadata

_REMEMBERED: Final = 10_000


def shared_files(directory: str, metadata: CheckpointMetadata) -> frozenset[str]:
    """Return the storage paths of the files of a checkpoint that lie outside its directory."""
    return frozenset(
        paths.resolve(directory, file.path)
        for file in metadata.files
        if file.data is None and file.path.startswith("../")
    )


class SharedRegistry:
    """Bookkeeping of the shared files of one job, by storage path.

    Not thread-safe. What a method returns is to be deleted by the caller, and never comes back.
    """

    def __init__(self, protected: Iterable[str] = ()) -> None:
        """Start with nothing in use; `protected` files belong to somebody else."""
        self._protected = frozenset(protected)
        self._files: dict[int, frozenset[str]] = {}
        self._users: dict[str, set[int]] = {}
        self._pending: set[int] = set()
        self._waiting: dict[str, set[int]] = {}
        self._given_up: OrderedDict[str, None] = OrderedDict()

    def begin(self, checkpoint_id: int) -> None:
        """A checkpoint is under way: it may refer to every file that is in use."""
        self._pending.add(checkpoint_id)

    def lost(self, files: Iterable[str]) -> tuple[str, ...]:
        """Return which of these files were given up: a checkpoint must not be made of them."""
        return tuple(sorted(file for file in files if file in self._given_up))

    def complete(self, checkpoint_id: int, files: Iterable[str]) -> tuple[str, ...]:
        """A checkpoint exists and uses these files; returns what waited for it in vain."""
        used = frozenset(files)
        self._files[checkpoint_id] = used
        for file in used:
            self._users.setdefault(file, set()).add(checkpoint_id)
            self._waiting.pop(file, None)
        return self._settle(checkpoint_id)

    def abort(self, checkpoint_id: int, created: Iterable[str] = ()) -> tuple[str, ...]:
        """A checkpoint will never exist; the files that it created go unless somebody uses them."""
        return (*self.discard(created), *self._settle(checkpoint_id))

    def release(self, checkpoint_id: int) -> tuple[str, ...]:
        """A completed checkpoint is gone; returns the files that nobody needs any more."""
        free = []
        for file in sorted(self._files.pop(checkpoint_id, ())):
            users = self._users[file]
            users.discard(checkpoint_id)
            if users:
                continue
            del self._users[file]
            if self._pending:
                self._waiting[file] = set(self._pending)
            else:
                free.append(file)
        return self._give_up(free)

    def discard(self, files: Iterable[str]) -> tuple[str, ...]:
        """Return which of these files can go at once: nobody uses them or may come to."""
        return self._give_up(f for f in files if f not in self._users and f not in self._waiting)

    def in_use(self) -> frozenset[str]:
        """Return all files that must stay: used, protected, or waiting."""
        return self._protected | self._users.keys() | self._waiting.keys()

    def _settle(self, checkpoint_id: int) -> tuple[str, ...]:
        self._pending.discard(checkpoint_id)
        free = []
        for file, pending in list(self._waiting.items()):
            pending.discard(checkpoint_id)
            if not pending:
                del self._waiting[file]
                free.append(file)
        return self._give_up(free)

    def _give_up(self, files: Iterable[str]) -> tuple[str, ...]:
        chosen = tuple(file for file in files if file not in self._protected)
        for file in chosen:
            self._given_up[file] = None
        while len(self._given_up) > _REMEMBERED:
            self._given_up.popitem(last=False)
        return chosen
