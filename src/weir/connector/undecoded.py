"""What becomes of input that cannot be decoded: the job fails, or it is left out and counted.

What is left out may go to a side output, as *dead letters*: rows with the bytes as they came, their
place, and the reason. A program reads them by `stream.get_side_output(DEAD_LETTERS)`, of the stream
that `from_source` returned.
"""

from __future__ import annotations

import enum
from typing import Any, Final

from weir.common.typeinfo import Types
from weir.common.types import row_class
from weir.connector.decoder import Undecoded
from weir.errors import UsageError
from weir.graph.output_tag import OutputTag

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_FIELDS = {
    "topic": Types.STRING(),
    "partition": Types.INT(),
    "offset": Types.LONG(),
    "key": _BYTES,
    "value": _BYTES,
    "reason": Types.STRING(),
}
DEAD_LETTERS: Final = OutputTag(
    "weir.dead-letters", Types.ROW_NAMED(list(_FIELDS), list(_FIELDS.values()))
)
"""The side output of what could not be decoded.

`topic`, `partition` and `offset` say where it is; of a file, the first is its path, the second is
None, and the third is the number of the line. `value` are the bytes, `reason` is why.
"""
_letter = row_class(tuple(_FIELDS))._of


class OnError(enum.Enum):
    """What becomes of a record that cannot be decoded."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"

    @classmethod
    def named(cls, name: Any, setting: str) -> OnError:
        """Return a choice by its name.

        Raises:
            UsageError: there is no such choice.
        """
        try:
            return cls(name)
        except ValueError as error:
            known = ", ".join(repr(each.value) for each in cls)
            msg = f"{setting} is {name!r}, expected one of {known}"
            raise UsageError(msg) from error

    @classmethod
    def chosen(cls, name: str | None, setting: str, *, read: bool) -> OnError:
        """Return what a setting says, given whether the program reads the dead letters.

        Raises:
            UsageError: both contradict each other.
        """
        if name is None:
            return cls.DEAD_LETTER if read else cls.FAIL
        found = cls.named(name, setting)
        if (found is cls.DEAD_LETTER) is read:
            return found
        if read:
            msg = (
                f"get_side_output(DEAD_LETTERS) is read, but {setting} is {name!r}: nothing would "
                "ever come; set it to 'dead-letter', or leave it out"
            )
        else:
            msg = (
                f"{setting} is 'dead-letter', but nobody reads them: call get_side_output("
                "DEAD_LETTERS) on the stream of the source, or choose 'skip'"
            )
        raise UsageError(msg)


class Faults:
    """The records of some input that could not be decoded, and were left out."""

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error
        self._count = 0
        self._letters: list[Any] = []

    @property
    def fails(self) -> bool:
        """Tell whether a record that cannot be decoded ends the job."""
        return self._on_error is OnError.FAIL

    def add(self, topic: str, partition: int | None, offset: int, **what: Any) -> None:
        """Leave a record out; `what` are its `key`, its `value` and the `error`."""
        self._count += 1
        if self._on_error is OnError.DEAD_LETTER:
            error = what["error"]
            reason = f"{type(error).__name__}: {error}"
            place = (topic, partition, offset)
            self._letters.append(_letter((*place, what.get("key"), what["value"], reason)))

    def count(self, number: int) -> None:
        """Count records that a schema left out by itself, as it was told to."""
        self._count += number

    def take(self) -> Undecoded | None:
        """Return what was left out since the last call, None for nothing."""
        if not self._count:
            return None
        count, letters = self._count, self._letters
        self._count, self._letters = 0, []
        return Undecoded(count, letters)
