"""Copies that keep a snapshot apart from objects that user code goes on changing.

A value that cannot change is shared; everything else is copied once per snapshot, when user code
first gets hold of it.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import fractions
import uuid
from typing import Any

from weir.common.types import Row
from weir.errors import UsageError

IMMUTABLE: frozenset[type] = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        range,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        datetime.timezone,
        decimal.Decimal,
        fractions.Fraction,
        uuid.UUID,
    }
)


def is_immutable(value: Any) -> bool:
    """Tell whether neither the value nor anything inside it can change."""
    cls = value.__class__
    if cls in IMMUTABLE:
        return True
    return cls in (tuple, frozenset) and all(map(is_immutable, value))


def isolate(value: Any) -> Any:
    """Return the value itself when it cannot change, an independent copy otherwise.

    Raises:
        UsageError: the value cannot be copied.
    """
    cls = value.__class__
    if cls in IMMUTABLE or is_immutable(value):
        return value
    if cls is list and all(map(is_immutable, value)):
        return value.copy()
    if cls is dict and all(map(is_immutable, value.values())):
        return value.copy()
    if isinstance(value, Row) and all(map(is_immutable, value)):
        return copy.copy(value)
    try:
        return copy.deepcopy(value)
    except (TypeError, AttributeError, copy.Error) as e:
        msg = (
            f"a value of type {cls.__name__} in state cannot be copied ({e}), so a checkpoint "
            f"cannot be kept apart from later changes: store plain data, rows or dataclasses"
        )
        raise UsageError(msg) from e
