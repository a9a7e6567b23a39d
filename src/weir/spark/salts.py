"""Salts: integers that plain hash partitioning sends to a chosen partition.

Spark routes a row of `repartition(n, salt)` to `pmod(hash(salt), n)`; `salts(n)[i]` is a number
that lands on partition i. Unlike other ways of exact routing, Spark sees ordinary hash
partitioning, so that a union with cached control rows keeps partitions together.
"""

from __future__ import annotations

from functools import lru_cache

_M32 = 0xFFFFFFFF


def spark_hash_int(value: int, seed: int = 42) -> int:
    """Return Spark's `hash` of an int (murmur3 x86 32, seed 42), signed."""
    k = (value * 0xCC9E2D51) & _M32
    k = ((k << 15) | (k >> 17)) & _M32
    k = (k * 0x1B873593) & _M32
    h = seed ^ k
    h = ((h << 13) | (h >> 19)) & _M32
    h = (h * 5 + 0xE6546B64) & _M32
    h ^= 4
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & _M32
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & _M32
    h ^= h >> 16
    return h - (1 << 32) if h & 0x80000000 else h


@lru_cache(maxsize=64)
def salts(partitions: int) -> tuple[int, ...]:
    """Return one salt for each partition, the smallest ones."""
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < partitions:
        found.setdefault(spark_hash_int(candidate) % partitions, candidate)
        candidate += 1
    return tuple(found[i] for i in range(partitions))
