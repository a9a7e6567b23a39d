"""A checksum of rows that does not depend on their order: count, sum and exclusive or.

A row gives one 64-bit fingerprint for each group of its columns. A workload has two groups where
the order of the rows decides which of them is paired with which, as behind a second shuffle.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_MASK = (1 << 64) - 1
Column = Any


@dataclass(frozen=True)
class Checksum:
    """What is left of a set of rows."""

    count: int = 0
    total: int = 0
    parity: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        """Return the checksum of both sets together."""
        return Checksum(
            self.count + other.count,
            (self.total + other.total) & _MASK,
            self.parity ^ other.parity,
        )

    def to_json(self) -> list[Any]:
        """Return a form that survives JSON, whose readers may not know 64-bit integers."""
        return [self.count, f"{self.total:016x}", f"{self.parity:016x}"]

    @classmethod
    def from_json(cls, form: list[Any]) -> Checksum:
        """Read what `to_json` gave."""
        return cls(int(form[0]), int(form[1], 16), int(form[2], 16))


def mix(words: np.ndarray) -> np.ndarray:
    """Spread every bit of 64-bit words over all of them; equal words stay equal."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def of_columns(columns: Sequence[Column], groups: Sequence[Sequence[int]]) -> Checksum:
    """Return the checksum of rows that are given as columns of integers or strings."""
    count = len(columns[0]) if columns else 0
    if not count:
        return Checksum()
    total, parity = 0, 0
    for number, group in enumerate(groups):
        words = np.full(count, number + 1, np.uint64)
        for index in group:
            words = mix(words * np.uint64(0x9E3779B97F4A7C15) + as_words(columns[index]))
        total += int(np.add.reduce(words))
        parity ^= int(np.bitwise_xor.reduce(words))
    return Checksum(count, total & _MASK, parity)


def of_rows(rows: Iterable[Sequence[Any]], groups: Sequence[Sequence[int]]) -> Checksum:
    """Return the checksum of rows that are given as sequences."""
    return of_columns(list(zip(*rows, strict=True)), groups)


def as_words(column: Column) -> np.ndarray:
    """Return integers as they are, in two's complement, and strings as their CRC."""
    if len(column) and isinstance(column[0], str):
        return np.fromiter((zlib.crc32(s.encode()) for s in column), np.uint64, len(column))
    return np.asarray(column, np.int64).view(np.uint64)
