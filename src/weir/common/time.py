"""Lengths of time and points in time with PyFlink's names; all immutable values."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from functools import total_ordering

from weir.errors import UsageError

__all__ = ["Duration", "Instant", "Time"]

_NANOS_PER_MS = 1_000_000
_DURATION = re.compile(r"\s*(\d+)\s*([a-zA-Zµ]*)\s*")
_UNIT_NANOS = {
    unit: nanos
    for nanos, units in (
        (86_400_000_000_000, "d day days"),
        (3_600_000_000_000, "h hour hours"),
        (60_000_000_000, "m min minute minutes"),
        (1_000_000_000, "s sec secs second seconds"),
        (_NANOS_PER_MS, "ms milli millis millisecond milliseconds"),
        (1000, "us µs micro micros microsecond microseconds"),
        (1, "ns nano nanos nanosecond nanoseconds"),
    )
    for unit in units.split()
}


def _whole(value: int, unit: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"a time in {unit} must be a whole number, got {value!r}"
        raise UsageError(msg)
    return value


@total_ordering
@dataclass(frozen=True)
class Duration:
    """A length of time with nanosecond resolution.

    Example:
        Duration.of_minutes(5).to_millis()
    """

    nanos: int

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a length of days."""
        return Duration.of_hours(_whole(days, "days") * 24)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a length of hours."""
        return Duration.of_minutes(_whole(hours, "hours") * 60)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a length of minutes."""
        return Duration.of_seconds(_whole(minutes, "minutes") * 60)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Return a length of seconds."""
        return Duration.of_millis(_whole(seconds, "seconds") * 1000)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a length of milliseconds."""
        return Duration(_whole(millis, "milliseconds") * _NANOS_PER_MS)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a length of nanoseconds."""
        return Duration(_whole(nanos, "nanoseconds"))

    @staticmethod
    def of(value: datetime.timedelta | Time | Duration | int) -> Duration:
        """Convert a timedelta, a `Time` or a number of milliseconds."""
        if isinstance(value, Duration):
            return value
        if isinstance(value, datetime.timedelta):
            return Duration(value // datetime.timedelta(microseconds=1) * 1000)
        return Duration.of_millis(to_ms(value))

    def to_millis(self) -> int:
        """Return whole milliseconds, rounded down."""
        return self.nanos // _NANOS_PER_MS

    def to_nanos(self) -> int:
        """Return nanoseconds."""
        return self.nanos

    def __lt__(self, other: object) -> bool:
        """Order by length."""
        return self.nanos < other.nanos if isinstance(other, Duration) else NotImplemented

    def __repr__(self) -> str:
        """Show milliseconds, or nanoseconds when it has a fraction."""
        if self.nanos % _NANOS_PER_MS:
            return f"Duration.of_nanos({self.nanos})"
        return f"Duration.of_millis({self.to_millis()})"


@total_ordering
@dataclass(frozen=True)
class Instant:
    """A point in time: seconds since the Unix epoch and nanoseconds within the second.

    Example:
        Instant.of_epoch_milli(1_500).to_epoch_milli()
    """

    seconds: int
    nanos: int

    def to_epoch_milli(self) -> int:
        """Return milliseconds since the Unix epoch, rounded down."""
        return self.seconds * 1000 + self.nanos // _NANOS_PER_MS

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Return the point so many milliseconds after the Unix epoch."""
        seconds, millis = divmod(_whole(epoch_milli, "milliseconds"), 1000)
        return Instant(seconds, millis * _NANOS_PER_MS)

    def __weir_key__(self) -> tuple[int, int]:
        """Return what key groups are computed from."""
        return (self.seconds, self.nanos)

    def __lt__(self, other: object) -> bool:
        """Order by time."""
        if not isinstance(other, Instant):
            return NotImplemented
        return (self.seconds, self.nanos) < (other.seconds, other.nanos)

    def __repr__(self) -> str:
        """Show seconds and nanoseconds."""
        return f"Instant<{self.seconds}, {self.nanos}>"


@total_ordering
@dataclass(frozen=True, init=False)
class Time:
    """A length of time in milliseconds, PyFlink's older class.

    Example:
        Time.seconds(10).to_milliseconds()
    """

    _milliseconds: int

    def __init__(self, milliseconds: int) -> None:
        # A field of this name would hide the static method below.
        object.__setattr__(self, "_milliseconds", milliseconds)

    def to_milliseconds(self) -> int:
        """Return milliseconds."""
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return a length of milliseconds."""
        return Time(_whole(milliseconds, "milliseconds"))

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return a length of seconds."""
        return Time(_whole(seconds, "seconds") * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return a length of minutes."""
        return Time.seconds(_whole(minutes, "minutes") * 60)

    @staticmethod
    def hours(hours: int) -> Time:
        """Return a length of hours."""
        return Time.minutes(_whole(hours, "hours") * 60)

    @staticmethod
    def days(days: int) -> Time:
        """Return a length of days."""
        return Time.hours(_whole(days, "days") * 24)

    @staticmethod
    def of(value: datetime.timedelta | Time | Duration | int) -> Time:
        """Convert a timedelta, a `Duration` or a number of milliseconds."""
        return Time(to_ms(value))

    def __lt__(self, other: object) -> bool:
        """Order by length."""
        if not isinstance(other, Time):
            return NotImplemented
        return self._milliseconds < other._milliseconds

    def __str__(self) -> str:
        """Show the length with its unit."""
        return f"{self._milliseconds} ms"

    def __repr__(self) -> str:
        """Show the constructor call."""
        return f"Time.milliseconds({self._milliseconds})"


def to_ms(value: datetime.timedelta | Time | Duration | int) -> int:
    """Return whole milliseconds of anything that PyFlink accepts as a length of time.

    Raises:
        UsageError: the value is none of a Duration, a Time, a timedelta or whole milliseconds.
    """
    if isinstance(value, Duration):
        return value.to_millis()
    if isinstance(value, Time):
        return value.to_milliseconds()
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    msg = f"expected a Duration, a Time, a timedelta or whole milliseconds, got {value!r}"
    raise UsageError(msg)


def parse_duration_ms(text: str) -> int:
    """Read `10 s`, `500 ms`, `10min`, or a plain number of milliseconds; rounds down.

    Raises:
        UsageError: the text has another form.
    """
    match = _DURATION.fullmatch(text)
    unit = match.group(2).lower() or "ms" if match else ""
    if match is None or unit not in _UNIT_NANOS:
        msg = f"not a length of time: {text!r}; write '10 s', '500 ms', '10 min' or milliseconds"
        raise UsageError(msg)
    return int(match.group(1)) * _UNIT_NANOS[unit] // _NANOS_PER_MS
