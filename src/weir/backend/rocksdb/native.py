"""Incremental snapshots: the files of the database, each uploaded once.

The sync phase makes hard links of the database's files. The table files that no completed
checkpoint of this database has are uploaded; small ones are put into one file together. What is
small and changes every time (MANIFEST, CURRENT) goes into the checkpoint's own file; options are
those of the configuration, whatever they were. The footer entry `_native.rocksdb` describes it::

    {"kind": "NATIVE", "type": {}, "groups": {},
     "tables": [[name, [path, size, crc32, data], offset, length], …],
     "files": [[name, offset, length, crc32], …],
     "stored": [[name, kind, type, column family], …], "packed": [[name, kind, type], …],
     "timers": {name: {"type": …, "counts": [[group, count], …]}}, "sequence": number}

Names of table files are never used twice within a database, also when it goes on after a restore
from its own files; therefore a name tells whether a file is in the storage.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from weir.backend.base import KeyedPart, SharedFiles, SnapshotOutput
from weir.backend.rocksdb.catalog import NATIVE
from weir.backend.rocksdb.options import RocksDBSettings
from weir.errors import UsageError
from weir.failpoint import reach
from weir.snapshot import FileHandle

_CHUNK = 1 << 20
_TABLE = ".sst"
_NEEDED = ("CURRENT", "MANIFEST-", "rocksdict-config.json")


class Placed(NamedTuple):
    """Where the bytes of a table file are in the storage."""

    handle: FileHandle
    offset: int
    length: int


class NativeSnapshot:
    """Links to the files of a database; see `weir.backend.base.KeyedSnapshot`."""

    def __init__(
        self,
        checkpoint_id: int,
        directory: Path,
        known: dict[str, Placed],
        facts: dict[str, Any],
        settings: RocksDBSettings,
    ) -> None:
        """Keep the directory of links, what is stored already, and the description."""
        self.checkpoint_id = checkpoint_id
        self.placed: dict[str, Placed] | None = None
        self._directory = directory
        self._known = known
        self._facts = facts
        self._settings = settings
        self._heap_timers: list[Any] = []

    def with_timers(self, snapshots: list[Any]) -> NativeSnapshot:
        """Add timers that are not in the database."""
        self._heap_timers = snapshots
        return self

    def write(self, out: SnapshotOutput) -> KeyedPart:
        """Upload new table files and write the rest into the checkpoint's own file.

        Raises:
            UsageError: the snapshot was released.
        """
        if not self._directory.exists():
            msg = f"snapshot {self.checkpoint_id} was released before it was written"
            raise UsageError(msg)
        tables, others = [], []
        for path in sorted(self._directory.iterdir()):
            if path.name.endswith(_TABLE):
                tables.append(path)
            elif path.name.startswith(_NEEDED):
                others.append(path)
        placed = self._place(tables, out.shared)
        files = [[p.name, *out.writer.section(p.read_bytes())] for p in others]
        entry = {
            "kind": "NATIVE",
            "type": {},
            "groups": {},
            "tables": [
                [name, [h.path, h.size, h.crc32, h.data], offset, length]
                for name, (h, offset, length) in placed.items()
            ],
            "files": files,
            **self._facts,
        }
        states: dict[str, Any] = {NATIVE: entry}
        for timers in self._heap_timers:
            states.update(timers.write(out).states)
        self.placed = placed
        handles = {p.handle.path: p.handle for p in placed.values()}
        return KeyedPart(states, attachments=tuple(handles.values()))

    def _place(self, tables: list[Path], shared: SharedFiles) -> dict[str, Placed]:
        """Return where every table file is, after uploading the new ones."""
        sizes = {path.name: path.stat().st_size for path in tables}
        usable = worth_keeping(self._known, sizes, self._settings.space_amplification)
        new = [path for path in tables if path.name not in usable]
        small = [path for path in new if sizes[path.name] < self._settings.merged_below]
        bundles = _bundles(small, sizes, self._settings.merged_bytes)
        bundles += [[path] for path in new if sizes[path.name] >= self._settings.merged_below]
        found = {name: usable[name] for name in sizes if name in usable}
        with ThreadPoolExecutor(self._settings.transfer_threads) as pool:
            for part in pool.map(lambda bundle: self._upload(shared, bundle), bundles):
                found |= part
        reach("rocksdb.uploaded")
        return found

    def _upload(self, shared: SharedFiles, bundle: list[Path]) -> dict[str, Placed]:
        if len(bundle) == 1:
            handle = shared.upload(bundle[0])
            return {bundle[0].name: Placed(handle, 0, handle.size)}
        merged = self._directory / f"merged-{bundle[0].stem}"
        places: list[tuple[str, int, int]] = []
        with merged.open("wb") as out:
            for path in bundle:
                start = out.tell()
                with path.open("rb") as source:
                    shutil.copyfileobj(source, out, _CHUNK)
                places.append((path.name, start, out.tell() - start))
        handle = shared.upload(merged)
        merged.unlink()
        return {name: Placed(handle, offset, length) for name, offset, length in places}

    def release(self) -> None:
        """Remove the links."""
        shutil.rmtree(self._directory, ignore_errors=True)


def worth_keeping(
    known: dict[str, Placed], sizes: dict[str, int], amplification: float
) -> dict[str, Placed]:
    """Return the stored files to refer to again.

    A merged file of which too little is in use is not: its live parts are uploaded anew, so that
    it can be deleted.
    """
    used: dict[str, int] = defaultdict(int)
    live = {name: placed for name, placed in known.items() if name in sizes}
    for placed in live.values():
        used[placed.handle.path] += placed.length
    return {
        name: placed
        for name, placed in live.items()
        if placed.handle.size <= amplification * used[placed.handle.path]
    }


def _bundles(paths: list[Path], sizes: dict[str, int], limit: int) -> list[list[Path]]:
    """Deal small files out to merged ones of a limited size."""
    bundles: list[list[Path]] = []
    room = 0
    for path in paths:
        if not bundles or sizes[path.name] > room:
            bundles.append([])
            room = limit
        bundles[-1].append(path)
        room -= sizes[path.name]
    return bundles
