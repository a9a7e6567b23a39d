"""Local recovery: second copies of state files, on the host of the slot that wrote them.

A job has one private directory on each host, below every configured place::

    <place>/weir-copies-<32 hex>/s<subtask>a<attempt>/state-s…   made, in no checkpoint so far
    <place>/weir-copies-<32 hex>/chk-<n>/state-s…                files that checkpoint n refers to

A copy has the name of the file that it copies, which no other subtask, attempt or call can
produce. A file that several checkpoints use has a name (a hard link) in the directory of each, so
a directory goes as a whole when its checkpoint is aborted, or replaced by a newer one.

Invariant: a copy is used only after all its bytes had the size and the checksum of the handle in
the checkpoint's metadata. Whatever goes wrong with copies costs speed, never a checkpoint.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import logging
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from weir.checkpoint.paths import checkpoint_id_of
from weir.errors import StorageError
from weir.ids import unique_suffix
from weir.notices import warn_once
from weir.slot.messages import CopyPlace
from weir.snapshot import FileHandle
from weir.storage.private_files import private_directory, remove_directory, remove_leftovers
from weir.storage.processes import note_process, process_started

log = logging.getLogger("weir.slot")
PREFIX: Final = "weir-copies-"
_INSTEAD: Final = "set execution.checkpointing.local-backup.dirs to directories of this user"
_FRESH = re.compile(r"s[0-9]+a([0-9]+)\Z")
_CHUNK = 4 << 20
_NOT_LINKED = frozenset({errno.ENOENT, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})


class MissingCopyError(StorageError):
    """A file of the checkpoint cannot be used, and this host has no whole copy of it."""


def new_copy_place(dirs: Sequence[str], *, restore: bool) -> CopyPlace:
    """Return where a new job's slots keep copies; nobody can guess the name."""
    return CopyPlace(PREFIX + unique_suffix(32), list(dirs), restore)


def copy_name(path: str) -> str:
    """Return the name of the copies of a state file, given its path in the metadata."""
    return path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class FoundCopy:
    """A copy that was read from beginning to end."""

    path: Path
    size: int
    crc32: int


class Source(enum.Enum):
    """Where a state file is read."""

    CHECKPOINT = "the checkpoint's own file"
    COPY = "a copy on this host"
    NOWHERE = "neither can be used"


@dataclass(frozen=True)
class Choice:
    """Where to read a file: `copy` if that is the source. `ignored` copies are not what it was."""

    source: Source
    copy: FoundCopy | None = None
    ignored: tuple[FoundCopy, ...] = ()


def choose_source(handle: FileHandle, found: Iterable[FoundCopy], *, damaged: bool) -> Choice:
    """Decide where to read a file, given the copies of it and whether its own is `damaged`.

    A copy counts if it is what the handle describes, byte for byte; it comes first because it is
    near.
    """
    expected = (handle.size, handle.crc32)
    copies = list(found)
    ignored = tuple(copy for copy in copies if (copy.size, copy.crc32) != expected)
    for copy in copies:
        if (copy.size, copy.crc32) == expected:
            return Choice(Source.COPY, copy, ignored)
    return Choice(Source.NOWHERE if damaged else Source.CHECKPOINT, None, ignored)


def of_no_use(names: Iterable[str], completed: int, attempt: int) -> list[str]:
    """Return which directories of copies go when a checkpoint of an attempt is completed.

    Older checkpoints go, and what older attempts made and no checkpoint refers to.
    """
    gone = []
    for name in names:
        checkpoint, fresh = checkpoint_id_of(name), _FRESH.match(name)
        old = checkpoint is not None and checkpoint < completed
        if old or (fresh is not None and int(fresh.group(1)) < attempt):
            gone.append(name)
    return gone


def roots_of(place: CopyPlace) -> list[Path]:
    """Return the job's directories on this host, whether they are there or not."""
    return [Path(base) / place.name for base in place.dirs or [tempfile.gettempdir()]]


def remove_copies(place: CopyPlace) -> None:
    """Remove all copies of a job on this host."""
    for root in roots_of(place):
        remove_directory(root)


class HostCopies:
    """The copies of one job that are on this host, to be read."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots

    @classmethod
    def there(cls, place: CopyPlace) -> HostCopies:
        """Look at the job's directories on this host; those that are not safe do not count."""
        return cls([root for root in roots_of(place) if root.is_dir() and _is_safe(root)])

    def find(self, checkpoint_id: int, name: str) -> list[FoundCopy]:
        """Read all copies of a file of a checkpoint."""
        places = [root / f"chk-{checkpoint_id}" / name for root in self._roots]
        return [found for found in map(_look, places) if found is not None]


@dataclass(frozen=True)
class RestoreCopies:
    """Copies for one restore; the checkpoint's own files of the names in `damaged` are not read."""

    host: HostCopies
    checkpoint_id: int
    damaged: frozenset[str] = frozenset()

    def of(self, handle: FileHandle, own: str) -> Path | None:
        """Return the copy to read instead of a file, None for the file itself, named `own`.

        Raises:
            MissingCopyError: the file is damaged, and there is no whole copy.
        """
        name = copy_name(handle.path)
        damaged = name in self.damaged
        choice = choose_source(handle, self.host.find(self.checkpoint_id, name), damaged=damaged)
        for copy in choice.ignored:
            log.warning(
                "the copy %r is not used: it has %s bytes with checksum %08x, expected %s with "
                "%08x",
                str(copy.path),
                copy.size,
                copy.crc32,
                handle.size,
                handle.crc32,
            )
        if choice.source is Source.NOWHERE:
            msg = (
                f"state file {own!r} of checkpoint {self.checkpoint_id} is damaged or missing, and "
                "this host has no whole copy of it; the next restart does without copies"
            )
            raise MissingCopyError(msg)
        if choice.copy is None:
            return None
        if damaged:
            log.warning(
                "state file %r is damaged or missing: its copy %r is used instead",
                own,
                str(choice.copy.path),
            )
        return choice.copy.path


@dataclass(frozen=True)
class _Share:
    """What a checkpoint of this slot refers to, and which of that it made."""

    names: frozenset[str]
    made: frozenset[str]


class SlotCopies:
    """The copies that one slot makes, in one of the roots; files may come from several threads."""

    def __init__(self, roots: Sequence[Path], *, subtask: int, attempt: int) -> None:
        self._roots = roots
        self._root = roots[subtask % len(roots)]
        self._attempt = attempt
        self._fresh = self._root / f"s{subtask}a{attempt}"
        self._shares: dict[int, _Share] = {}
        self._aborted: set[int] = set()

    @contextlib.contextmanager
    def beside(self, name: str, local: Path | None = None) -> Iterator[CopyStream]:
        """Make a copy of a file while it is written; there is none if the block raises.

        A copy of an immutable `local` file is another name of it where that is possible: what is
        written to the stream then goes nowhere.
        """
        stream = CopyStream(self._fresh / name)
        stream.begin(local)
        try:
            yield stream
        except BaseException:
            stream.discard()
            raise
        stream.close()

    def drop(self, name: str) -> None:
        """Remove the copy of a file that was deleted."""
        with contextlib.suppress(OSError):
            (self._fresh / name).unlink()

    def keep(
        self, checkpoint_id: int, handles: Iterable[FileHandle], made: Iterable[FileHandle]
    ) -> None:
        """Put the copies of all files that this slot's share of a checkpoint refers to together.

        `made` are those that belong to nobody else if the checkpoint is aborted.
        """
        share = _Share(_names(handles), _names(made))
        if checkpoint_id in self._aborted:
            self._forget(share.made)
            return
        self._shares[checkpoint_id] = share
        target = self._root / f"chk-{checkpoint_id}"
        try:
            target.mkdir(mode=0o700, exist_ok=True)
            places = [self._fresh, *self._checkpoints(before=checkpoint_id)]
            for name in share.names:
                _link_first([place / name for place in places], target / name)
        except OSError as error:
            _warn(target, error)

    def _checkpoints(self, before: int) -> list[Path]:
        """Return the directories of older checkpoints, newest first."""
        found = [
            (number, root / name)
            for root in self._roots
            for name in os.listdir(root)
            if (number := checkpoint_id_of(name)) is not None and number < before
        ]
        return [path for _, path in sorted(found, reverse=True)]

    def completed(self, checkpoint_id: int) -> None:
        """Let go what a completed checkpoint replaces; one that has no copies replaces none."""
        kept = self._shares.get(checkpoint_id)
        if kept is None:
            return
        for number in [n for n in list(self._shares) if n <= checkpoint_id]:
            self._forget(self._shares.pop(number).made - kept.names)
        # From here on the names in the checkpoint's directory hold them.
        self._forget(kept.names)
        self._aborted = {number for number in self._aborted if number > checkpoint_id}
        for root in self._roots:
            with contextlib.suppress(OSError):
                for name in of_no_use(os.listdir(root), checkpoint_id, self._attempt):
                    shutil.rmtree(root / name, ignore_errors=True)

    def aborted(self, checkpoint_id: int) -> None:
        """Drop the copies of a checkpoint that was given up, also those that are still made."""
        self._aborted.add(checkpoint_id)
        share = self._shares.pop(checkpoint_id, None)
        if share is not None:
            self._forget(share.made)
        for root in self._roots:
            shutil.rmtree(root / f"chk-{checkpoint_id}", ignore_errors=True)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.drop(name)


class CopyStream:
    """Bytes on their way into a copy; the first failure ends the copy and is logged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def begin(self, local: Path | None) -> None:
        """Make the file, or another name for a local one."""
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            if local is not None and _link(local, self._path):
                return
            self._file = self._path.open("xb")
        except OSError as error:
            self._give_up(error)

    def write(self, data: Any) -> int:
        """Take bytes that were written to the file itself."""
        if self._file is not None:
            try:
                self._file.write(data)
            except OSError as error:
                self._give_up(error)
        return len(data)

    def close(self) -> None:
        """Finish the copy."""
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            self._give_up(error)

    def discard(self) -> None:
        """Remove the copy."""
        file, self._file = self._file, None
        with contextlib.suppress(OSError):
            if file is not None:
                file.close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _give_up(self, error: OSError) -> None:
        _warn(self._path, error)
        self.discard()


def open_copies(
    place: CopyPlace, *, subtask: int, attempt: int, driver_pid: int | None = None
) -> tuple[SlotCopies | None, HostCopies]:
    """Open a job's directories on this host for a slot.

    They belong to the driver's process if that is on this host, else to this one: once it is gone,
    the next slot of any job with copies removes them. There is nothing to write to if they cannot
    be made or are not safe to use; that is logged.
    """
    roots = []
    for root in roots_of(place):
        try:
            private_directory(root, _INSTEAD)
            seen = driver_pid is not None and process_started(driver_pid) is not None
            note_process(root, driver_pid if seen else None)
            roots.append(root)
        except (OSError, StorageError) as error:
            _warn(root, error)
        remove_leftovers(root.parent, PREFIX)
    if not roots:
        return None, HostCopies(())
    return SlotCopies(roots, subtask=subtask, attempt=attempt), HostCopies(roots)


def _is_safe(root: Path) -> bool:
    try:
        private_directory(root, _INSTEAD)
    except StorageError as error:
        _warn(root, error)
        return False
    return True


def _look(path: Path) -> FoundCopy | None:
    size = checksum = 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                size += len(chunk)
                checksum = zlib.crc32(chunk, checksum)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("the copy %r cannot be read: %s", str(path), error.strerror or error)
        return None
    return FoundCopy(path, size, checksum)


def _names(handles: Iterable[FileHandle]) -> frozenset[str]:
    return frozenset(copy_name(handle.path) for handle in handles if handle.data is None)


def _link(source: Path, target: Path) -> bool:
    """Give a file another name; False if it is not there, or its disk does not allow that."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in _NOT_LINKED:
            return False
        raise
    return True


def _link_first(sources: Iterable[Path], target: Path) -> None:
    """Give the first file that is there another name; others wrote what is not on this host."""
    for source in sources:
        if _link(source, target):
            return


def _warn(place: Path, error: Exception) -> None:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    warn_once(
        log,
        f"no local copies in {str(place.parent)!r} ({reason}): state is read from the checkpoint "
        "storage where they are missing",
    )
