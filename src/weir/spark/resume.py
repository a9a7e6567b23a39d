"""Positions that another job left, and positions that other jobs can use.

Inside a job a position is a place in Spark's own logs. A job that starts from another one's
checkpoint or savepoint has logs and spooled files of its own, perhaps on another host: records that
the program itself gives are counted, the rows of a bounded DataFrame that were not read yet are
copied, and for every other source the files of Spark's log are part of the metadata.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from weir.checkpoint.metadata import SourceLayout, SourcePositions, log_check
from weir.checkpoint.paths import split_location
from weir.connector.source import RecordCount
from weir.errors import CorruptStateError, IncompatibleStateError, StorageError
from weir.spark.positions import LOG_DIRECTORY, embedded, log_of, offset_of
from weir.spark.source_logs import (
    NO_OFFSET,
    LogChecks,
    file_log_offset,
    listed_files,
    source_log,
)
from weir.storage.base import Storage
from weir.storage.options import StorageOptions
from weir.storage.uri import open_storage

EMBEDDED_BYTES_MAX = 64 << 10
OLD_SPOOL = "@spool"
_CHUNK = 4 << 20
_SPOOL_NAME = re.compile(r"spool-[0-9]{1,9}\Z")


@dataclass(frozen=True)
class Describer:
    """Turns positions in this job's logs into ones that another job can start from."""

    spools: Mapping[int, RecordCount] = field(default_factory=dict)
    kept: Mapping[int, Path] = field(default_factory=dict)
    options: StorageOptions | None = None
    checks: LogChecks = field(default_factory=LogChecks)
    embedded_bytes_max: int = EMBEDDED_BYTES_MAX

    def describe(self, positions: SourcePositions, savepoint: str | None) -> SourcePositions:
        """Add what another job needs; a savepoint, given by its URI, needs nothing but itself.

        Raises:
            CorruptStateError, StorageError: Spark's logs or the storage are not as they should be.
        """
        query = Path(positions.source_logs[LOG_DIRECTORY])
        layout, logs = [], dict[str, str]()
        for entry in positions.layout:
            offset, number = offset_of(positions, entry.index), entry.index
            folder = query / "sources" / str(number)
            if number in self.spools:
                read = _files_read(offset)
                layout.append(replace(entry, records=self.spools[number].records(read)))
                continue
            if savepoint is not None or _size(folder) <= self.embedded_bytes_max:
                logs |= embedded(number, source_log(folder, offset))
            else:
                logs[log_check(number)] = self.checks.of(folder, offset).text()
            if number in self.kept:
                entry = replace(entry, spool=self._keep(number, folder, offset, savepoint))
            layout.append(entry)
        if savepoint is None:
            logs[LOG_DIRECTORY] = str(query)
        return replace(positions, layout=tuple(layout), source_logs=logs)

    def _keep(self, number: int, log: Path, offset: str, savepoint: str | None) -> str:
        """Return where the rows of a bounded DataFrame lie; a savepoint gets the unread ones."""
        kept = self.kept[number]
        if savepoint is None:
            return str(kept)
        uri, directory = split_location(savepoint)
        storage, name = open_storage(uri, self.options), f"spool-{number}"
        read = listed_files(source_log(log, offset))
        for path in sorted(kept.glob("*.parquet")):
            if path.name not in read:
                with (
                    path.open("rb") as rows,
                    storage.open_write(f"{directory}/{name}/{path.name}") as out,
                ):
                    shutil.copyfileobj(rows, out, _CHUNK)
        return name


@dataclass(frozen=True)
class Resume:
    """Where the sources of a job begin that starts from another job's positions."""

    positions: SourcePositions = field(default_factory=SourcePositions)
    storage: Storage | None = None
    directory: str = ""

    def records(self, uid: str) -> int:
        """Return how many records of a source were read before.

        Raises:
            IncompatibleStateError: the positions are of a version that did not count them.
        """
        entry = self._entry(uid)
        if entry is not None and OLD_SPOOL in self.positions.source_logs:
            msg = (
                f"checkpoint {self.directory!r} does not say how many records of source {uid!r} "
                "were read: a version of Weir before savepoints wrote it, and only that version "
                "can resume from it"
            )
            raise IncompatibleStateError(msg)
        return 0 if entry is None or entry.records is None else entry.records

    def position(self, uid: str) -> str | None:
        """Return the line of the engine's log at which a source has stopped, None without one."""
        entry = self._entry(uid)
        line = NO_OFFSET if entry is None else offset_of(self.positions, entry.index)
        return None if line == NO_OFFSET else line

    def take_kept(self, uid: str, target: Path) -> bool:
        """Copy the rows of a bounded DataFrame that were not read yet; False when it is new.

        Raises:
            CorruptStateError: they are gone, or the name of their place leads elsewhere.
        """
        entry = self._entry(uid)
        if entry is None or entry.spool is None:
            return False
        if not entry.spool.startswith("/") and not _SPOOL_NAME.match(entry.spool):
            msg = (
                f"checkpoint {self.directory!r} is damaged: the rows of source {uid!r} are said to "
                f"be in {entry.spool[:100]!r}, expected a name like 'spool-0'"
            )
            raise CorruptStateError(msg)
        target.mkdir(parents=True, exist_ok=True)
        if entry.spool.startswith("/"):
            self._copy_local(entry, Path(entry.spool), target)
        elif self.storage is not None:
            folder = f"{self.directory}/{entry.spool}"
            for name in self.storage.list(folder):
                _download(self.storage, f"{folder}/{name}", target / name)
        return True

    def _copy_local(self, entry: SourceLayout, kept: Path, target: Path) -> None:
        if not kept.is_dir():
            msg = (
                f"the rows of source {entry.uid!r} that checkpoint {self.directory!r} has "
                f"positions in were kept in {str(kept)!r}, which is missing: restore that "
                "directory, or take a savepoint next time, which needs no other files"
            )
            raise CorruptStateError(msg)
        read = listed_files(log_of(self.positions, entry.index))
        for path in kept.glob("*.parquet"):
            if path.name not in read:
                shutil.copyfile(path, target / path.name)

    def _entry(self, uid: str) -> SourceLayout | None:
        return next((e for e in self.positions.layout if e.uid == uid), None)


def _files_read(offset: str) -> int:
    """Return how many files of a spool were read: each is a batch of its own."""
    last = file_log_offset(offset)
    return 0 if last is None else last + 1


def _size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.iterdir()) if folder.is_dir() else 0


def _download(storage: Storage, path: str, target: Path) -> None:
    size = storage.size(path)
    with target.open("wb") as out:
        for offset in range(0, size, _CHUNK):
            out.write(storage.read_range(path, offset, _CHUNK))
    if target.stat().st_size != size:
        msg = f"{path!r} has {size} bytes, {target.stat().st_size} came"
        raise StorageError(msg)
