"""Checks of what users pass, where the type annotation alone would not stop them."""

from __future__ import annotations


def require_type(value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Refuse a value of another type.

    Raises:
        TypeError: naming what was expected and what was found.
    """
    if not isinstance(value, kinds):
        msg = f"expected {expected}, found {type(value).__name__}: {value!r}"
        raise TypeError(msg)
