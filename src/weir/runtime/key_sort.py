"""Records read back key by key, each key's in the order of their timestamps.

What is more than may lie in memory goes to files without a name, in runs that are sorted by key and
time; reading merges them. Keys come in the order of their bytes, equal times by input and arrival.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from weir.backend.key_bytes import key_codec
from weir.codec import codec_for
from weir.errors import UsageError
from weir.runtime.frame import MIN_WATERMARK, Chunk, dumps
from weir.runtime.memory import offload

Record: TypeAlias = tuple[int, int, Any]
"""Timestamp (`MIN_WATERMARK` for none), input, value."""
_STRIDE = 1024
_time_and_input = itemgetter(0, 1)


@dataclass(frozen=True)
class KeyedRecords:
    """All records of a key, in strides of one input each; they are read once."""

    key: Any
    group: int
    strides: Iterator[tuple[Chunk, int]]


class KeySort:
    """The records of one operator; `budget` is how many bytes of frames may be in memory."""

    def __init__(self, key_type: Any, budget: int, directory: Path | None = None) -> None:
        self._encode = key_codec(codec_for(key_type)).encode
        self._budget = budget
        self._directory = directory
        self._records: dict[Any, list[Record]] = {}
        self._owners: dict[Any, int] = {}
        self._in_order = True
        self._size = 0
        self._runs: list[list[pa.Buffer]] = []

    @property
    def empty(self) -> bool:
        """Tell whether there is no record."""
        return not self._records and not self._runs

    @property
    def runs(self) -> int:
        """Count the sorted runs in files."""
        return len(self._runs)

    def add(self, chunk: Chunk, input_index: int, size: int) -> None:
        """Take records that were `size` bytes on their way.

        Raises:
            StorageError: what is too much for the memory cannot be written.
        """
        values, keys, groups = chunk.values, chunk.keys, chunk.groups
        if keys is None or groups is None:
            msg = "records arrived without keys at a keyed operator"
            raise UsageError(msg)
        records, owners = self._records, self._owners
        stamps = chunk.timestamps
        times = [MIN_WATERMARK] * len(values) if stamps is None else stamps
        self._in_order = self._in_order and stamps is None and input_index == 0
        for v, k, g, t in zip(values, keys, groups, times, strict=True):
            found = records.get(k)
            if found is None:
                found = records[k] = []
                owners[k] = g
            found.append((MIN_WATERMARK if t is None else t, input_index, v))
        self._size += size
        if self._size > self._budget:
            self._spill()

    def read(self) -> Iterator[KeyedRecords]:
        """Go through the keys; nothing is left then. A key is read before the next one."""
        runs, self._runs = self._runs, []
        parts = [_read_run(run) for run in runs]
        if not parts:
            for _, key, group, records in self._sorted():
                yield KeyedRecords(key, group, _strides(key, group, records))
            return
        parts.append(_flat(self._sorted()))
        merged = heapq.merge(*parts, key=itemgetter(0, 1, 2))
        for _, same in groupby(merged, key=itemgetter(0)):
            first = next(same)
            key, group = first[4], first[5]
            rest = _with_first(first, same)  # noqa: B031 - it goes on behind the first
            yield KeyedRecords(key, group, _strides(key, group, rest))

    def _sorted(self) -> Iterator[tuple[bytes, Any, int, list[Record]]]:
        """Take the records in memory out, by key and time."""
        records, owners, in_order = self._records, self._owners, self._in_order
        self._records, self._owners, self._in_order, self._size = {}, {}, True, 0
        for data, key in sorted(((self._encode(k), k) for k in records), key=itemgetter(0)):
            found = records.pop(key)
            if not in_order:
                found.sort(key=_time_and_input)
            yield data, key, owners[key], found

    def _spill(self) -> None:
        blocks: list[bytes] = []
        block: list[tuple[bytes, Any, int, list[Record]]] = []
        held = 0
        for data, key, group, records in self._sorted():
            for start in range(0, len(records), _STRIDE):
                part = records[start : start + _STRIDE]
                block.append((data, key, group, part))
                held += len(part)
                if held >= _STRIDE:
                    blocks.append(dumps(block))
                    block, held = [], 0
        if block:
            blocks.append(dumps(block))
        self._runs.append(offload(blocks, self._directory))


_Flat: TypeAlias = tuple[bytes, int, int, Any, Any, int]


def _flat(entries: Iterable[tuple[bytes, Any, int, list[Record]]]) -> Iterator[_Flat]:
    for data, key, group, records in entries:
        for t, i, v in records:
            yield data, t, i, v, key, group


def _read_run(run: list[pa.Buffer]) -> Iterator[_Flat]:
    for block in run:
        yield from _flat(pickle.loads(memoryview(block)))


def _with_first(first: _Flat, rest: Iterator[_Flat]) -> Iterator[Record]:
    yield first[1], first[2], first[3]
    for flat in rest:
        yield flat[1], flat[2], flat[3]


def _strides(key: Any, group: int, records: Iterable[Record]) -> Iterator[tuple[Chunk, int]]:
    for number, run in groupby(records, key=itemgetter(1)):
        while stride := list(islice(run, _STRIDE)):
            stamps: list[int | None] = [None if t == MIN_WATERMARK else t for t, _, _ in stride]
            known = any(t is not None for t in stamps)
            count = len(stride)
            yield (
                Chunk(
                    [v for _, _, v in stride],
                    stamps if known else None,
                    [key] * count,
                    [group] * count,
                ),
                number,
            )
