"""Whole columns of numbers to MessagePack and back, as arrays instead of Python objects.

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
_FORMS: Final = {_FLOAT_64: ">f8", **dict(_UNSIGNED), **dict(_SIGNED)}
_INT64_MAX: Final = np.iinfo(np.int64).max


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


def decode_numbers(data: Any) -> Any:
    """Return the array of a list that `encode_numbers` wrote; None for any other bytes."""
    view = np.frombuffer(data, np.uint8)
    if len(view) < 6 or view[0] != _ARRAY_32:
        return None
    count = int.from_bytes(view[1:5].tobytes(), "big")
    form = _FORMS.get(int(view[5]))
    if form is None or len(view) - 5 != count * (1 + np.dtype(form).itemsize):
        return None
    cells = view[5:].reshape(count, -1)
    if (cells[:, 0] != view[5]).any():
        return None  # numbers of several lengths, by chance as long as these would be
    numbers = np.ascontiguousarray(cells[:, 1:]).view(form).reshape(count)
    if form == ">f8":
        return numbers.astype(np.float64)
    if form == ">u8" and numbers.max() > _INT64_MAX:
        return None
    return numbers.astype(np.int64)


def _tagged(numbers: Any, tag: int, form: str) -> bytes:
    """Return all numbers in one form, each behind its tag."""
    size = np.dtype(form).itemsize
    cells = np.empty((len(numbers), 1 + size), np.uint8)
    cells[:, 0] = tag
    cells[:, 1:] = numbers.astype(form).view(np.uint8).reshape(-1, size)
    return cells.tobytes()
