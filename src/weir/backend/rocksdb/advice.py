"""Advice on values that another kind of state would keep better, once per state of an operator."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import Any, Final

from weir.notices import warn_once

log = logging.getLogger("weir.backend")
LARGE_BYTES: Final = 1 << 20
"""From this size on a value is worth a look."""


def advise_on_large(operator: str, state: str, value: Any, size: int) -> None:
    """Say that a large value which is mostly one dict belongs into map state.

    RocksDB reads and writes a value as a whole, the entries of a map one by one.
    """
    largest = max(_dicts(value), key=len, default=None)
    if largest is None or 2 * len(pickle.dumps(largest)) < size:
        return
    warn_once(
        log,
        f"operator {operator!r}: a value of state {state!r} has more than 1 MB and is mostly one "
        "dict, which RocksDB reads and writes as a whole: keep its entries in a MapState",
    )


def _dicts(value: Any, depth: int = 3) -> Iterator[dict[Any, Any]]:
    if isinstance(value, dict):
        yield value
    elif depth and isinstance(value, (tuple, list)):
        for item in value[:100]:
            yield from _dicts(item, depth - 1)
    elif depth and hasattr(value, "__dict__"):
        for item in vars(value).values():
            yield from _dicts(item, depth - 1)
