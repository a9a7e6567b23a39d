"""The one place that knows rocksdict: a database of column families with bytes in and out.

Opened in raw mode and without a write-ahead log: a database is scratch space that checkpoints are
made from, never the truth itself. rocksdict holds Python's global lock while it writes and while
it makes a checkpoint, therefore batches are cut and memory is flushed first, which does not.
Its snapshots do not apply to iterators; an iterator by itself shows the moment it was made, so
`ColumnFamily.cursor` is what a snapshot consists of.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from weir.backend.rocksdb.options import RocksDBSettings
from weir.errors import StorageError, UsageError

_CANNOT = "cannot {} the database in {}: {}"
Row: TypeAlias = tuple[bytes, bytes]


def require_rocksdict() -> Any:
    """Return the module rocksdict.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module("rocksdict")
    except ImportError as e:
        msg = (
            "the RocksDB state backend needs the package rocksdict: install it with "
            "pip install 'weir-spark[rocksdb]', on the hosts of executors too"
        )
        raise UsageError(msg) from e


class Cursor:
    """The rows of a column family as they were when the cursor was made; on any one thread.

    The iterator is destroyed before its column family is let go of, whoever drops that: the other
    way round RocksDB reads memory that is gone. Nothing else may hold the iterator.
    """

    def __init__(self, rows: Any, family: Any) -> None:
        """Keep the iterator and, after it, what it reads from."""
        self._rows = rows
        self._family = family

    def scan(self, start: bytes, stop: bytes | None = None) -> Iterator[Row]:
        """Go through the rows from `start` on, up to `stop`, which is left out."""
        for key in self.keys(start, stop):
            yield key, self._rows.value()

    def keys(self, start: bytes, stop: bytes | None = None) -> Iterator[bytes]:
        """Go through the keys alone."""
        self._rows.seek(start)
        while self._rows.valid():
            key = self._rows.key()
            if stop is not None and key >= stop:
                return
            yield key
            self._rows.next()
        self._rows.status()


class ColumnFamily:
    """One column family."""

    def __init__(self, name: str, rows: Any, handle: Any) -> None:
        self.name = name
        self.handle = handle
        self._rows = rows
        self.get = rows.get

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of several keys, None where there is none."""
        found: list[bytes | None] = self._rows.get(keys) if keys else []
        return found

    def cursor(self) -> Cursor:
        """Return the rows of this moment."""
        return Cursor(self._rows.iter(), (self._rows, self.handle))

    def flush(self) -> None:
        """Write what is in memory to files; other threads go on meanwhile."""
        self._rows.flush(True)

    def compact(self) -> None:
        """Rewrite all files, so that what was deleted leaves the disk."""
        self._rows.compact_range(None, None)

    def number(self, name: str) -> int:
        """Return a property of RocksDB, 0 when it has none of that name."""
        return int(self._rows.property_int_value(name) or 0)

    def close(self) -> None:
        """Let go of the column family; only cursors that are in use still hold it."""
        self._rows = self.handle = self.get = None


class Database:
    """A database in a directory.

    A new one is made when it is first written or asked for a column family: a backend that is
    restored puts another in its place before that.
    """

    def __init__(self, path: Path, settings: RocksDBSettings) -> None:
        """Open the database with all column families that it has, if it is there.

        Raises:
            StorageError: the directory cannot be used, or holds something else.
        """
        self._module = require_rocksdict()
        self.path = path
        self._settings = settings
        self._write_options = self._module.WriteOptions()
        self._write_options.disable_wal = True
        self._rows: Any = None
        self._closed = False
        self._families: dict[str, ColumnFamily] = {}
        try:
            self._options = settings.options()
            if (path / "CURRENT").exists():
                self._open(self._module.Rdict.list_cf(str(path), self._options))
        except Exception as e:
            raise StorageError(_CANNOT.format("open", self.path, e)) from e

    def _open(self, names: list[str]) -> None:
        families = {name: self._settings.options() for name in names}
        self._rows = self._module.Rdict(str(self.path), self._options, column_families=families)
        self._families = {name: self._wrap(name) for name in names if name != "default"}

    @property
    def _db(self) -> Any:
        if self._rows is None and not self._closed:
            try:
                self._open(["default"])
            except Exception as e:
                raise StorageError(_CANNOT.format("open", self.path, e)) from e
        return self._rows

    def names(self) -> list[str]:
        """Return the names of the column families."""
        return list(self._families)

    def family(self, name: str) -> ColumnFamily:
        """Return a column family; make it when there is none of that name."""
        found = self._families.get(name)
        if found is None:
            self._db.create_column_family(name, self._settings.options())
            found = self._families[name] = self._wrap(name)
        return found

    def drop(self, name: str) -> None:
        """Remove a column family and all its rows."""
        if self._families.pop(name, None) is not None:
            self._db.drop_column_family(name)

    def batch(self) -> WriteBatch:
        """Return an empty batch of changes."""
        return WriteBatch(self._module, self._write, self._settings.batch_bytes)

    def _wrap(self, name: str) -> ColumnFamily:
        rows = self._db.get_column_family(name)
        return ColumnFamily(name, rows, self._db.get_column_family_handle(name))

    def _write(self, batch: Any) -> None:
        try:
            self._db.write(batch, self._write_options)
        except Exception as e:
            raise StorageError(_CANNOT.format("write to", self.path, e)) from e

    def checkpoint(self, target: Path) -> None:
        """Make a directory that holds the database as it is now; its files are hard links.

        Raises:
            StorageError: the disk does not take it.
        """
        try:
            for family in self._families.values():
                family.flush()
            self._module.Checkpoint(self._db).create_checkpoint(str(target))
        except Exception as e:
            raise StorageError(_CANNOT.format("checkpoint", self.path, e)) from e

    def file_bytes(self) -> int:
        """Return the size of all table files."""
        return 0 if self._rows is None else sum(int(f["size"]) for f in self._rows.live_files())

    def memory_bytes(self) -> int:
        """Return the size of what is only in memory."""
        name = "rocksdb.cur-size-all-mem-tables"
        return sum(family.number(name) for family in self._families.values())

    def close(self) -> None:
        """Close the database; what was not flushed is lost. Harmless when done twice.

        Cursors that are in use keep it open, but nothing is written any more.
        """
        self._closed = True
        if self._rows is None:
            return
        self._rows.cancel_all_background(True)
        for family in self._families.values():
            family.close()
        self._families = {}
        self._rows = None


class WriteBatch:
    """Changes in order; written in pieces, all of them once `finish` has returned."""

    def __init__(self, module: Any, write: Any, limit: int) -> None:
        """Write a piece whenever it has reached `limit` bytes."""
        self._module = module
        self._write = write
        self._limit = limit
        self._size = 0
        self._batch = module.WriteBatch(raw_mode=True)

    def put(self, family: ColumnFamily, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self._batch.put(key, value, family.handle)
        self._count(len(key) + len(value))

    def delete(self, family: ColumnFamily, key: bytes) -> None:
        """Remove a key."""
        self._batch.delete(key, family.handle)
        self._count(len(key))

    def _count(self, size: int) -> None:
        self._size += size + 16
        if self._size >= self._limit:
            self.finish()

    def finish(self) -> None:
        """Write what was not written yet."""
        if self._size:
            self._write(self._batch)
            self._batch = self._module.WriteBatch(raw_mode=True)
            self._size = 0
