"""Windows: time, count and global ones, and their bytes.

A window is a value, equal to every other one of its class with the same bounds. Time windows are
`[start, end)` in milliseconds, and both bounds fit 64 bits.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import total_ordering
from typing import BinaryIO

from weir.common.serializer import TypeSerializer
from weir.errors import UsageError

MIN_TIMESTAMP = -(1 << 63)
MAX_TIMESTAMP = (1 << 63) - 1


class Window(ABC):
    """A group of records of one key; compared by value and hashable.

    Example:
        window: Window = TimeWindow(0, 5_000)
        window.max_timestamp()
    """

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the largest timestamp that still belongs to the window."""


@total_ordering
class TimeWindow(Window):
    """The times from `start` up to, not including, `end`.

    Example:
        TimeWindow(0, 5_000).max_timestamp()
    """

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        """Make the window of two bounds in milliseconds."""
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        """Return the last millisecond of the window."""
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Tell whether the windows overlap or touch: an end that is the other's start counts."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the least window that holds both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the window of a size and an offset that a timestamp falls into."""
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(
        windows: Iterable[TimeWindow],
        callback: Callable[[Iterable[TimeWindow], TimeWindow], None],
    ) -> None:
        """Find windows that overlap or touch; call back for every group of more than one.

        The callback may be a function of (members, result) or a `MergeCallback` with `merge`.
        """
        merge = getattr(callback, "merge", callback)
        groups: list[tuple[TimeWindow, dict[TimeWindow, None]]] = []
        for window in sorted(windows):
            if groups and groups[-1][0].intersects(window):
                covered, members = groups.pop()
                members[window] = None
                groups.append((covered.cover(window), members))
            else:
                groups.append((window, {window: None}))
        for covered, members in groups:
            if len(members) > 1:
                merge(list(members), covered)

    def __eq__(self, other: object) -> bool:
        """Compare by bounds."""
        return other.__class__ is TimeWindow and self.start == other.start and self.end == other.end

    def __lt__(self, other: TimeWindow) -> bool:
        """Order by start, then by end."""
        if not isinstance(other, TimeWindow):
            return NotImplemented
        return (self.start, self.end) < (other.start, other.end)

    def __hash__(self) -> int:
        """Hash by bounds."""
        return self.start * 31 + self.end

    def __repr__(self) -> str:
        """Show the bounds."""
        return f"TimeWindow(start={self.start}, end={self.end})"


class CountWindow(Window):
    """The window of a number among the count windows of a key.

    Example:
        CountWindow(7).id
    """

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        """Make the window of a number, from 0."""
        self.id = id

    def max_timestamp(self) -> int:
        """Return the largest timestamp there is: a count window never ends by time."""
        return MAX_TIMESTAMP

    def __eq__(self, other: object) -> bool:
        """Compare by number."""
        return other.__class__ is CountWindow and self.id == other.id

    def __hash__(self) -> int:
        """Hash by number."""
        return self.id

    def __repr__(self) -> str:
        """Show the number."""
        return f"CountWindow(id={self.id})"


class GlobalWindow(Window):
    """The one window of all records of a key.

    Example:
        GlobalWindow().max_timestamp()
    """

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """Return the window."""
        return _GLOBAL

    def max_timestamp(self) -> int:
        """Return the largest timestamp there is: the window never ends by time."""
        return MAX_TIMESTAMP

    def __eq__(self, other: object) -> bool:
        """All are one."""
        return other.__class__ is GlobalWindow

    def __hash__(self) -> int:
        """All are one."""
        return 0

    def __repr__(self) -> str:
        """Show the name."""
        return "GlobalWindow"


_GLOBAL = GlobalWindow()
_LONG = struct.Struct(">q")
_LONGS = struct.Struct(">qq")


def time_window(start: int, end: int) -> TimeWindow:
    """Return a window whose bounds were computed from a timestamp.

    Raises:
        UsageError: a bound does not fit 64 bits.
    """
    if not MIN_TIMESTAMP <= start <= end <= MAX_TIMESTAMP:
        msg = (
            f"the window from {start} to {end} does not fit 64 bits: check the record's timestamp "
            "and the window's length, both are milliseconds"
        )
        raise UsageError(msg)
    return TimeWindow(start, end)


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Two big-endian longs.

    Example:
        TimeWindowSerializer()
    """

    def serialize(self, element: TimeWindow, stream: BinaryIO) -> None:
        """Write a window."""
        stream.write(_LONGS.pack(element.start, element.end))

    def deserialize(self, stream: BinaryIO) -> TimeWindow:
        """Read a window."""
        return TimeWindow(*_LONGS.unpack(stream.read(_LONGS.size)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """One big-endian long.

    Example:
        CountWindowSerializer()
    """

    def serialize(self, element: CountWindow, stream: BinaryIO) -> None:
        """Write a window."""
        stream.write(_LONG.pack(element.id))

    def deserialize(self, stream: BinaryIO) -> CountWindow:
        """Read a window."""
        return CountWindow(_LONG.unpack(stream.read(_LONG.size))[0])


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """One byte.

    Example:
        GlobalWindowSerializer()
    """

    def serialize(self, element: GlobalWindow, stream: BinaryIO) -> None:
        """Write a window."""
        stream.write(b"\0")

    def deserialize(self, stream: BinaryIO) -> GlobalWindow:
        """Read a window."""
        stream.read(1)
        return _GLOBAL
