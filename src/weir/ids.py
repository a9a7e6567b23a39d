"""Identities: jobs and operators.

An operator's id is the 128-bit murmur3 hash of its uid, as in Flink, so a uid gives the same id
in every run. Random ids come from the operating system, never from a seeded generator.
"""

from __future__ import annotations

import os
from typing import NewType

JobId = NewType("JobId", str)
OperatorId = NewType("OperatorId", str)

_MASK = 0xFFFFFFFFFFFFFFFF
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


def new_job_id() -> JobId:
    """Return 32 random hexadecimal digits."""
    return JobId(os.urandom(16).hex())


def unique_suffix(digits: int = 12) -> str:
    """Return random hexadecimal digits that make a file name unique to one attempt."""
    return os.urandom((digits + 1) // 2).hex()[:digits]


def operator_id(uid: str) -> OperatorId:
    """Return the operator id of a uid: murmur3 x64 128 (seed 0) of its UTF-8 bytes."""
    return OperatorId(murmur3_128(uid.encode()).hex())


def _rotl(x: int, r: int) -> int:
    return ((x << r) | (x >> (64 - r))) & _MASK


def _fmix(k: int) -> int:
    k ^= k >> 33
    k = (k * 0xFF51AFD7ED558CCD) & _MASK
    k ^= k >> 33
    k = (k * 0xC4CEB9FE1A85EC53) & _MASK
    return k ^ (k >> 33)


def murmur3_128(data: bytes) -> bytes:
    """Hash bytes with murmur3 x64 128, seed 0; both halves little-endian, as Guava prints it."""
    h1 = h2 = 0
    blocks = len(data) // 16
    for i in range(blocks):
        k1 = int.from_bytes(data[i * 16 : i * 16 + 8], "little")
        k2 = int.from_bytes(data[i * 16 + 8 : i * 16 + 16], "little")
        h1 ^= (_rotl((k1 * _C1) & _MASK, 31) * _C2) & _MASK
        h1 = ((_rotl(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= (_rotl((k2 * _C2) & _MASK, 33) * _C1) & _MASK
        h2 = ((_rotl(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    tail = data[blocks * 16 :]
    k1 = int.from_bytes(tail[:8], "little")
    k2 = int.from_bytes(tail[8:], "little")
    if k2:
        h2 ^= (_rotl((k2 * _C2) & _MASK, 33) * _C1) & _MASK
    if k1:
        h1 ^= (_rotl((k1 * _C1) & _MASK, 31) * _C2) & _MASK
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _fmix(h1), _fmix(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return h1.to_bytes(8, "little") + h2.to_bytes(8, "little")
