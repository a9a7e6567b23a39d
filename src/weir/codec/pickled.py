"""Pickled values: what an undeclared type falls back to, and the only codec that runs code.

Values are pickled with the standard pickler; values that it cannot handle, or that belong to the
program's own `__main__` module, which other processes do not have, are pickled by value with
cloudpickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import cloudpickle

from weir.errors import CorruptStateError, IncompatibleStateError, UsageError

_PROTOCOL = 5
_UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError, RecursionError, ValueError)


def dumps(value: Any) -> bytes:
    """Pickle a value.

    Raises:
        UsageError: no pickler can handle the value.
    """
    try:
        data = pickle.dumps(value, _PROTOCOL)
        if b"__main__" not in data:
            return data
    except _UNPICKLABLE:
        pass
    try:
        by_value: bytes = cloudpickle.dumps(value, _PROTOCOL)
    except _UNPICKLABLE as error:
        kind = type(value).__name__
        msg = f"a value of type {kind} cannot be pickled ({error}): keep plain data in records"
        raise UsageError(msg) from error
    return by_value


def first_unpicklable(values: Iterable[Any]) -> tuple[Any, UsageError] | None:
    """Return the first of some values that no pickler can handle, and why."""
    tried = ((value, _refusal(value)) for value in values)
    return next(((value, error) for value, error in tried if error is not None), None)


def _refusal(value: Any) -> UsageError | None:
    try:
        dumps(value)
    except UsageError as error:
        return error
    return None


def loads(data: bytes | memoryview) -> Any:
    """Read a pickled value back; it runs code, so the bytes must be trusted.

    Raises:
        CorruptStateError: the bytes are no pickle.
        IncompatibleStateError: the class of a value can no longer be imported.
    """
    try:
        return pickle.loads(data)
    except (ImportError, AttributeError) as error:
        msg = f"a pickled value needs code that this program does not have: {error}"
        raise IncompatibleStateError(msg) from error
    except (
        pickle.UnpicklingError,
        EOFError,
        LookupError,
        TypeError,
        ValueError,
        OverflowError,
        MemoryError,
        RecursionError,
    ) as error:
        msg = f"{len(data)} bytes are not a pickled value: {type(error).__name__}: {error}"
        raise CorruptStateError(msg) from error
