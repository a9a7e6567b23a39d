"""What users' functions raise, and the records in hand when they do, as text for people.

Invariant: whatever records and exceptions do when they are asked for their text, the result is text
that can be encoded, so that it reaches the user.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from operator import length_hint
from pathlib import Path
from types import GeneratorType
from typing import Any

from weir.codec.pickled import first_unpicklable
from weir.errors import UsageError, UserFunctionError, WeirError
from weir.failpoint import ProcessDeath

_PACKAGE = str(Path(__file__).resolve().parent.parent)


def encodable(text: str) -> str:
    """Return the text with halves of surrogate pairs, which no file or message takes, escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def shorten(record: Any, limit: int = 200) -> str:
    """Show a record in an error message."""
    try:
        text = repr(record)
    except Exception as error:
        return f"<{type(record).__name__}: its repr() raised {type(error).__name__}>"
    return encodable(text if len(text) <= limit else text[: limit - 3] + "...")


def last_given(values: list[Any], rest: Iterator[Any]) -> Any:
    """Return what an iterator over the list gave last: the record that was in hand.

    A comprehension over such an iterator needs no counter. It is as fast as `map`, which takes a
    `StopIteration` of its function for the end of the input.
    """
    return values[len(values) - 1 - length_hint(rest)]


def whole(results: Iterable[Any]) -> Iterable[Any]:
    """Return what a user's function gave, none of it missing.

    `map` and its like hand a `StopIteration` of their function on, which anybody who iterates over
    them takes for their end. An end comes from nowhere, or from a `__next__` of Python.

    Raises:
        StopIteration: a function raised it.
    """
    # Python itself guards generators.
    if results.__class__ in (list, tuple, GeneratorType):
        return results
    found, rest = [], iter(results)
    try:
        while True:
            found.append(next(rest))
    except StopIteration as end:
        names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(end.__traceback__)]
        if len(names) > 1 and "__next__" not in names:
            raise
    return found


def is_own_code(filename: str) -> bool:
    """Tell whether a file is part of Weir, not of the user's program."""
    return filename.startswith(_PACKAGE)


def user_traceback(error: BaseException) -> str:
    """Format an exception with the user's frames only."""
    shown = traceback.TracebackException.from_exception(error)
    seen: traceback.TracebackException | None = shown
    while seen is not None:
        kept = [f for f in seen.stack if not is_own_code(f.filename)]
        before = seen.__cause__ or seen.__context__
        if kept or before is not None:
            seen.stack = traceback.StackSummary.from_list(kept)
        seen = before
    return encodable("".join(shown.format()))


def unsendable(operator: str, values: list[Any], error: BaseException) -> BaseException:
    """Return the error of records that an operator gave and that cannot be pickled."""
    if isinstance(error, (WeirError, ProcessDeath)):
        return error
    found = first_unpicklable(values)
    if found is None:  # what raised is the program's own, such as a `__reduce__`
        return UserFunctionError(operator, "", user_traceback(error))
    record, why = found
    return UsageError(
        f"operator '{operator}' gave the record {shorten(record)}, which cannot be sent to another "
        f"process: {why}; locks, connections, files and generators belong into open()"
    )
