"""Where a record's file lies: bucket assigners, as PyFlink names them.

A bucket id is a relative directory below the sink's base path ("" is the base path itself). A
user's own assigner subclasses `BucketAssigner` and overrides `get_bucket_id`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from weir.connector.sink import MIN_WATERMARK
from weir.errors import UsageError


class BucketContext:
    """What an assigner may ask about a record besides the record; valid during the call only."""

    __slots__ = ("_processing_time", "_timestamp", "_watermark")

    def __init__(
        self,
        processing_time: int,
        watermark: int = MIN_WATERMARK,
        timestamp: int | None = None,
    ) -> None:
        """Hold the three times, in milliseconds."""
        self._processing_time = processing_time
        self._watermark = watermark
        self._timestamp = timestamp

    def current_processing_time(self) -> int:
        """Wall-clock time of the batch the record came in."""
        return self._processing_time

    def current_watermark(self) -> int:
        """Event-time watermark of the subtask."""
        return self._watermark

    def timestamp(self) -> int | None:
        """Event time of the record, None if it has none."""
        return self._timestamp


class BucketAssigner(ABC):
    """Decides which bucket a record belongs to. Must be picklable and depend on nothing else.

    Example:
        sink = FileSink.for_row_format("/out", Encoder.simple_string_encoder())
        sink.with_bucket_assigner(BucketAssigner.date_time_bucket_assigner("yyyy-MM-dd")).build()
    """

    Context = BucketContext

    @abstractmethod
    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        """Return the bucket of one record, for example `"day=2024-05-01"`."""

    def batch_bucket_id(self, context: BucketContext) -> str | None:
        """Return the one bucket of a whole batch, None if it depends on the record."""
        return None

    @staticmethod
    def base_path_bucket_assigner() -> BasePathBucketAssigner:
        """Put every file directly into the base path."""
        return BasePathBucketAssigner()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> DateTimeBucketAssigner:
        """Name buckets by processing time; no time zone means the machine's."""
        return DateTimeBucketAssigner(format_str, timezone_id)


class BasePathBucketAssigner(BucketAssigner):
    """No buckets."""

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        """Return the base path."""
        return ""

    def batch_bucket_id(self, context: BucketContext) -> str | None:
        """Return the base path."""
        return ""

    def __repr__(self) -> str:
        """Read as the call that made it."""
        return "BucketAssigner.base_path_bucket_assigner()"


class DateTimeBucketAssigner(BucketAssigner):
    """Buckets named by processing time after a Java date pattern."""

    def __init__(self, format_str: str, timezone_id: str | None) -> None:
        """Check pattern and zone now, so that a mistake shows where it was made."""
        self.format_str = format_str
        self.timezone_id = timezone_id
        self._pieces = _parse_pattern(format_str)
        _zone(timezone_id)

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        """Return the formatted processing time."""
        moment = datetime.fromtimestamp(
            context.current_processing_time() / 1000, _zone(self.timezone_id)
        )
        return "".join(
            text if width == 0 else _render(text, width, moment) for text, width in self._pieces
        )

    def batch_bucket_id(self, context: BucketContext) -> str | None:
        """Return the formatted processing time: all records of a batch share it."""
        return self.get_bucket_id(None, context)

    def __repr__(self) -> str:
        """Read as the call that made it."""
        call = "BucketAssigner.date_time_bucket_assigner"
        return f"{call}({self.format_str!r}, {self.timezone_id!r})"


_FIELDS = {
    "y": lambda t: t.year,
    "u": lambda t: t.year,
    "M": lambda t: t.month,
    "d": lambda t: t.day,
    "D": lambda t: t.timetuple().tm_yday,
    "H": lambda t: t.hour,
    "m": lambda t: t.minute,
    "s": lambda t: t.second,
}
_TOKEN = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|[^A-Za-z']+")


def _parse_pattern(pattern: str) -> list[tuple[str, int]]:
    """Split a pattern into (letter, width) fields and (literal, 0) pieces."""
    pieces: list[tuple[str, int]] = []
    position = 0
    while position < len(pattern):
        match = _TOKEN.match(pattern, position)
        letter = match.group(1) if match else None
        if match is None or (letter is not None and letter != "S" and letter not in _FIELDS):
            found = pattern[position]
            message = (
                f"date pattern {pattern!r}: {found!r} is not supported; use the letters "
                "y u M d D H m s S, and quote other text with '...'"
            )
            raise UsageError(message)
        if letter is not None:
            pieces.append((letter, len(match.group(0))))
        elif match.group(2) is not None:
            pieces.append((match.group(2).replace("''", "'") or "'", 0))
        else:
            pieces.append((match.group(0), 0))
        position = match.end()
    return pieces


def _render(letter: str, width: int, moment: datetime) -> str:
    if letter == "S":
        return f"{moment.microsecond:06d}".ljust(width, "0")[:width]
    number: int = _FIELDS[letter](moment)
    if letter in "yu" and width == 2:
        number %= 100
    return f"{number:0{width}d}"


def _zone(timezone_id: str | None) -> tzinfo | None:
    if timezone_id is None:
        return None
    offset = re.fullmatch(r"(?:GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d{2}))?", timezone_id)
    if offset:
        sign = -1 if offset[1] == "-" else 1
        return timezone(sign * timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0)))
    if timezone_id in ("UTC", "GMT", "Z", "UT"):
        return timezone.utc
    try:
        return ZoneInfo(timezone_id)
    except (ZoneInfoNotFoundError, ValueError) as error:
        message = (
            f"unknown time zone {timezone_id!r}: expected a name such as 'Europe/Berlin', "
            "'UTC' or an offset such as 'GMT-08:00'"
        )
        raise UsageError(message) from error


def check_bucket_id(bucket: Any) -> str:
    """Return a bucket id that stays below the base path; `UsageError` otherwise."""
    if isinstance(bucket, str) and (
        not bucket or all(part not in ("", ".", "..") for part in bucket.split("/"))
    ):
        return bucket
    message = (
        f"bucket assigner returned {bucket!r}: expected a relative directory such as "
        "'2024-05-01' or 'country=de/day=1', or '' for the base path"
    )
    raise UsageError(message)
