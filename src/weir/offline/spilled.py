"""Rows of a keyed state, put in the order of key groups in bounded memory.

Rows are dealt out to buckets of neighbouring key groups. When there are too many in memory, all of
them go to a file for each bucket. In the end one bucket after the other is read; one of several key
groups is dealt out again, so that memory holds a few megabytes, or one key group.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.keygroup import KeyGroupRange
from weir.offline.encoding import with_key_groups
from weir.offline.export import conform
from weir.offline.keyed import Layout
from weir.offline.tables import KEY_GROUP
from weir.storage.private_files import remove_directory, temporary_directory

HELD_BYTES: Final = 32 << 20
_BUCKETS: Final = 128
_BATCH_ROWS: Final = 1 << 16


class SpilledRows:
    """Rows that come in any order, of one state; a context that removes its files."""

    def __init__(
        self,
        layout: Layout,
        max_parallelism: int,
        held_bytes: int = HELD_BYTES,
        key_groups: KeyGroupRange | None = None,
    ) -> None:
        """Begin without rows; `key_groups` are those that rows can be in, else all of them."""
        self._layout = layout
        self._groups = max_parallelism
        self._limit = held_bytes
        self._own = key_groups or KeyGroupRange(0, max_parallelism - 1)
        self._buckets = min(_BUCKETS, len(self._own))
        self._held: list[list[Any]] = [[] for _ in range(self._buckets)]
        self._bytes = 0
        self._folder: Path | None = None
        self._writers: dict[int, tuple[Any, Any]] = {}

    def __enter__(self) -> SpilledRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_writing()
        if self._folder is not None:
            remove_directory(self._folder)

    def add(self, batch: Any) -> None:
        """Take some rows.

        Raises:
            UsageError: a column is missing or does not fit, or a key is none.
        """
        placed = with_key_groups(batch, self._layout.key, self._groups)
        self.add_placed(conform(placed, self._layout.schema))

    def add_placed(self, rows: Any) -> None:
        """Take some rows that have their key groups and all columns."""
        rows = rows.take(pc.sort_indices(rows.column(0)))
        column = rows.column(0).to_numpy(zero_copy_only=False).astype(np.int64)
        owners = (column - self._own.start) * self._buckets // len(self._own)
        found, firsts, counts = np.unique(owners, return_index=True, return_counts=True)
        for owner, first, count in zip(found, firsts, counts, strict=True):
            self._held[int(owner)].append(rows.slice(int(first), int(count)))
        self._bytes += rows.nbytes
        if self._bytes > self._limit:
            self._spill()

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = temporary_directory("weir-rows-")
        for bucket, held in enumerate(self._held):
            if held:
                writer = self._writer(bucket)
                # A slice is written alone, not with the batch that it is of.
                writer.write_table(pa.Table.from_batches(held).combine_chunks())
        self._held = [[] for _ in range(self._buckets)]
        self._bytes = 0

    def _path(self, bucket: int) -> Path:
        return (self._folder or Path()) / f"{bucket}.arrow"

    def _writer(self, bucket: int) -> Any:
        if bucket not in self._writers:
            file = self._path(bucket).open("wb")
            self._writers[bucket] = (pa.ipc.new_stream(file, self._layout.schema), file)
        return self._writers[bucket][0]

    def _end_writing(self) -> None:
        for writer, file in self._writers.values():
            writer.close()
            file.close()
        self._writers = {}

    def in_order(self) -> Iterator[Any]:
        """Yield all rows in the order of key groups, in batches; once, behind the last one."""
        spilled = set(self._writers)
        self._end_writing()
        for bucket in range(self._buckets):
            parts = []
            own = self._groups_of(bucket)
            if bucket in spilled and len(own) > 1:
                yield from self._dealt_again(bucket, own)
                continue
            if bucket in spilled:
                with self._path(bucket).open("rb") as file, pa.ipc.open_stream(file) as reader:
                    parts = reader.read_all().to_batches()
                self._path(bucket).unlink()
            parts += self._held[bucket]
            self._held[bucket] = []
            if parts:
                table = pa.Table.from_batches(parts, self._layout.schema)
                order = pc.sort_indices(table, [(KEY_GROUP, "ascending")])
                yield from table.take(order).combine_chunks().to_batches(_BATCH_ROWS)

    def _groups_of(self, bucket: int) -> KeyGroupRange:
        first, after = (-(-n * len(self._own) // self._buckets) for n in (bucket, bucket + 1))
        return KeyGroupRange(self._own.start + first, self._own.start + after - 1)

    def _dealt_again(self, bucket: int, own: KeyGroupRange) -> Iterator[Any]:
        """Yield the rows of a bucket that may be too large for memory, in order."""
        held, self._held[bucket] = self._held[bucket], []
        with SpilledRows(self._layout, self._groups, self._limit, key_groups=own) as inner:
            with self._path(bucket).open("rb") as file, pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    inner.add_placed(batch)
            self._path(bucket).unlink()
            for batch in held:
                inner.add_placed(batch)
            yield from inner.in_order()


class RowsByGroup:
    """Rows in the order of key groups, handed out range by range."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._rest: Any = None

    def up_to(self, last: int) -> Iterator[Any]:
        """Yield the rows that are left, up to a key group; what follows stays for the next."""
        while True:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            self._rest = None
            if batch is None:
                return
            groups = batch.column(0).to_numpy(zero_copy_only=False)
            stop = int(np.searchsorted(groups, last, side="right"))
            if stop:
                yield batch.slice(0, stop)
            if stop < batch.num_rows:
                self._rest = batch.slice(stop)
                return


def packed(batch: Any) -> bytes:
    """Return rows as bytes, which tell their columns."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())


def unpacked(data: Any) -> Any:
    """Return the rows that `packed` made bytes of, in one batch."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
