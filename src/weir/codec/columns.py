"""Whole columns of numbers to MessagePack, from arrays instead of Python objects.

The bytes are those of a list of the same numbers, so the codecs of their types decode them; only
the numbers are not each as short as they could be: all are as long as the longest one needs.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

_ARRAY_32: Final = 0xDD
_FLOAT_64: Final = 0xCB
_UNSIGNED: Final = ((0xCC, ">u1"), (0xCD, ">u2"), (0xCE, ">u4"), (0xCF, ">u8"))
_SIGNED: Final = ((0xD0, ">i1"), (0xD1, ">i2"), (0xD2, ">i4"), (0xD3, ">i8"))


def encode_numbers(numbers: Any) -> bytes:
    """Return the MessagePack list of an array of 64-bit integers or floats."""
    header = bytes([_ARRAY_32]) + len(numbers).to_bytes(4, "big")
    if not len(numbers):
        return header
    if numbers.dtype == np.float64:
        return header + _tagged(numbers, _FLOAT_64, ">f8")
    low, high = int(numbers.min()), int(numbers.max())
    for tag, form in _SIGNED if low < 0 else _UNSIGNED:
        bounds = np.iinfo(form)
        if bounds.min <= low and high <= bounds.max:
            return header + _tagged(numbers, tag, form)
    msg = f"integers from {low} to {high} do not fit into 64 bits"
    raise OverflowError(msg)


def _tagged(numbers: Any, tag: int, form: str) -> bytes:
    """Return all numbers in one form, each behind its tag."""
    size = np.dtype(form).itemsize
    cells = np.empty((len(numbers), 1 + size), np.uint8)
    cells[:, 0] = tag
    cells[:, 1:] = numbers.astype(form).view(np.uint8).reshape(-1, size)
    return cells.tobytes()
