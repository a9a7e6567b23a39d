"""Positional arguments of the older state backends, in PyFlink's order or in one of Java's.

Books and programs have both: `FsStateBackend(path, savepoints)` and `FsStateBackend(path, False)`.
Which was meant follows from the types. What fits none is refused: a number is never a path.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weir.errors import UsageError


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


_KINDS = {"path": _is_path, "number": _is_number, "switch": _is_switch}
_WORDS = {"path": "a path", "number": "a whole number", "switch": "True or False"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a constructor: its name, and what its values are."""

    name: str
    kind: str

    def fits(self, value: Any) -> bool:
        """Tell whether a value can be this parameter's."""
        return _KINDS[self.kind](value)


def arguments(
    call: str,
    given: Sequence[Any],
    pyflink: Sequence[Parameter],
    java: Sequence[Sequence[Parameter]],
) -> dict[str, Any]:
    """Return the arguments of a call by PyFlink's names.

    `given` are the values in PyFlink's order, None where there is none. Paths become texts.

    Raises:
        UsageError: they are neither in PyFlink's order nor in one of Java's.
    """
    values = list(given)
    if all(value is None or p.fits(value) for p, value in zip(pyflink, values, strict=True)):
        return _named(pyflink, values)
    while values and values[-1] is None:
        values.pop()
    for form in java:
        if len(form) == len(values) and all(p.fits(v) for p, v in zip(form, values, strict=True)):
            return {p.name: None for p in pyflink} | _named(form, values)
    expected = ", ".join(f"{p.name} ({_WORDS[p.kind]})" for p in pyflink)
    others = " or ".join(f"{call}({', '.join(p.name for p in form)})" for form in java)
    shown = ", ".join(map(repr, values))
    msg = f"found {call}({shown}), expected {expected}, or as in Java {others}"
    raise UsageError(msg)


def _named(form: Sequence[Parameter], values: Sequence[Any]) -> dict[str, Any]:
    pairs = zip(form, values, strict=True)
    return {p.name: os.fspath(v) if isinstance(v, os.PathLike) else v for p, v in pairs}
