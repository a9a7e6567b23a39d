"""Sources as plain values: what to read, nothing about how.

The door creates them and `weir.spark` turns them into Spark streams. A source value is complete
when it is created; it opens nothing and holds no connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weir.errors import UsageError


@dataclass(frozen=True)
class CollectionSource:
    """The elements of a Python collection, once, in order."""

    elements: list[Any] = field(repr=False)
    type_info: Any = None


@dataclass(frozen=True)
class SequenceSource:
    """The whole numbers from `start` to `end`, both included, once."""

    start: int
    end: int

    def __post_init__(self) -> None:
        """Refuse an empty range, which is always a mistake."""
        if self.start > self.end:
            msg = (
                f"a number sequence must not start behind its end: start {self.start!r}, "
                f"end {self.end!r}"
            )
            raise UsageError(msg)


@dataclass(frozen=True)
class TextFileSource:
    """The lines of a file, or of the files of a directory, once."""

    path: str
    charset: str = "UTF-8"


@dataclass(frozen=True)
class DataFrameSource:
    """The rows of a Spark DataFrame: streaming ones go on, static ones are read once."""

    dataframe: Any
    type_info: Any = None


@dataclass(frozen=True)
class FunctionSource:
    """The records that a `SourceFunction` collects while it runs."""

    function: Any
    type_info: Any = None
