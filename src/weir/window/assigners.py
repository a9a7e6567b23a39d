"""Assigners: which windows a record belongs to.

An assigner is asked once for every record. Those of time windows compute from a timestamp or from
the processing time alone; where windows are staggered, from what the key has drawn, too.
"""

from __future__ import annotations

import enum
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic, Protocol, TypeVar

from weir.common._generics import T
from weir.common.serializer import TypeSerializer
from weir.common.time import to_ms
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.state.descriptor import ValueStateDescriptor
from weir.window.further_triggers import EndOfStreamTrigger
from weir.window.triggers import (
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    Trigger,
    W,
)
from weir.window.windows import (
    MIN_TIMESTAMP,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    time_window,
)

WINDOWS_PER_RECORD_MAX = 10_000_000


class WindowAssigner(ABC, Generic[T, W]):
    """Assigns windows to records.

    Example:
        assigner: WindowAssigner = TumblingEventTimeWindows.of(Time.minutes(5))
        keyed.window(assigner).sum(1)
    """

    class WindowAssignerContext(Protocol):
        """What an assigner can ask for."""

        def get_current_processing_time(self) -> int:
            """Return the processing time; it stands still during an epoch."""

        def get_runtime_context(self) -> Any:
            """Return the runtime context, whose keyed state is that of the record's key."""

    @abstractmethod
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Any]:
        """Return the windows of a record; without a timestamp `timestamp` is -2**63."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return the trigger of windows for which the program sets none."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[Any]:
        """Return what the windows are: Weir's serializer of time, count or global windows.

        Windows of other classes are stored pickled; a serializer of the program's own is unused.
        """

    @abstractmethod
    def is_event_time(self) -> bool:
        """Tell whether windows end by event time."""


WindowAssignerContext = WindowAssigner.WindowAssignerContext


class MergingWindowAssigner(WindowAssigner[T, W]):
    """Assigns windows that may grow together.

    Example:
        def merges(assigner: WindowAssigner):
            return isinstance(assigner, MergingWindowAssigner)

        merges(EventTimeSessionWindows.with_gap(Time.minutes(10)))
    """

    class MergeCallback(Protocol):
        """Learns which windows are one window now."""

        def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
            """Take note of a group and of the window that it becomes."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[Any], callback: Any) -> None:
        """Call `callback.merge(members, result)` for every group of windows to merge."""


MergeCallback = MergingWindowAssigner.MergeCallback


def require_timestamp(timestamp: int | None) -> int:
    """Return the timestamp of a record in an event-time window.

    Raises:
        UsageError: it has none.
    """
    if timestamp is None or timestamp == MIN_TIMESTAMP:
        msg = (
            "a record without a timestamp came to a window of event time: call "
            "assign_timestamps_and_watermarks() in front of it, or use a window of processing time"
        )
        raise UsageError(msg)
    return timestamp


class _TimeAssigner(WindowAssigner[Any, Any]):
    """What assigners of time windows have in common."""

    event_time = True

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return the trigger that fires at the end of a window."""
        return EventTimeTrigger() if self.event_time else ProcessingTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        """Return that of time windows."""
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        """Tell whether windows end by event time."""
        return self.event_time

    def _time(self, timestamp: int, context: WindowAssignerContext) -> int:
        if self.event_time:
            return require_timestamp(timestamp)
        return context.get_current_processing_time()


class AlignedWindows(_TimeAssigner):
    """Windows of one size that begin at multiples of a slide: tumbling and sliding ones.

    `starts` is all that a window is: no record changes the windows of another.
    """

    size: int
    slide: int
    offset: int

    def starts(self, timestamp: int) -> range:
        """Return the starts of the windows of a timestamp, latest first."""
        start = timestamp - (timestamp - self.offset) % self.slide
        return range(start, timestamp - self.size, -self.slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        """Return the windows of a record, latest first."""
        size = self.size
        return [time_window(s, s + size) for s in self.starts(self._time(timestamp, context))]


A = TypeVar("A", bound="_Tumbling")


class _Tumbling(AlignedWindows):
    def __init__(self, size: int, offset: int = 0) -> None:
        """Make windows of a size that begin at multiples of it, shifted by an offset."""
        if abs(offset) >= size:
            msg = (
                f"{type(self).__name__} parameters must satisfy abs(offset) < size, "
                f"found size {size} and offset {offset} in milliseconds"
            )
            raise UsageError(msg)
        self.size = self.slide = size
        self.offset = offset

    def __repr__(self) -> str:
        """Show size and offset."""
        return f"{type(self).__name__}({self.size}, {self.offset})"


class TumblingEventTimeWindows(_Tumbling):
    """Windows of one size, one after the other, by event time.

    Example:
        keyed.window(TumblingEventTimeWindows.of(Time.minutes(5))).sum(1)
    """

    @staticmethod
    def of(
        size: Any, offset: Any = None, window_stagger: WindowStagger | None = None
    ) -> TumblingEventTimeWindows | StaggeredWindows:
        """Return the assigner of a size and an offset; keys may be staggered against each other."""
        plain = TumblingEventTimeWindows(to_ms(size), 0 if offset is None else to_ms(offset))
        return _staggered(plain, window_stagger)


class TumblingProcessingTimeWindows(_Tumbling):
    """Windows of one size, one after the other, by processing time.

    Example:
        keyed.window(TumblingProcessingTimeWindows.of(Time.minutes(5))).sum(1)
    """

    event_time = False

    @staticmethod
    def of(
        size: Any, offset: Any = None, window_stagger: WindowStagger | None = None
    ) -> TumblingProcessingTimeWindows | StaggeredWindows:
        """Return the assigner of a size and an offset; keys may be staggered against each other."""
        plain = TumblingProcessingTimeWindows(to_ms(size), 0 if offset is None else to_ms(offset))
        return _staggered(plain, window_stagger)


class WindowStagger(enum.Enum):
    """How the windows of different keys are shifted, so that they do not all fire at once.

    Flink draws once for every subtask, and again after every restart. Here what was drawn belongs
    to the key, so that a restored or rescaled job goes on with the windows that it had.

    Example:
        random = WindowStagger.RANDOM
        keyed.window(TumblingProcessingTimeWindows.of(Time.minutes(5), None, random)).sum(1)
    """

    ALIGNED = "ALIGNED"
    """Not at all."""
    RANDOM = "RANDOM"
    """By any part of the size; keys of one key group alike."""
    NATURAL = "NATURAL"
    """So that a window begins with the first record of the key, in processing time."""


class StaggeredWindows(_TimeAssigner):
    """Tumbling windows that begin at other times for other keys."""

    def __init__(self, plain: _Tumbling, stagger: WindowStagger) -> None:
        """Shift the windows of an assigner."""
        self._plain = plain
        self._stagger = stagger
        self._drawn = ValueStateDescriptor("_window_stagger", Types.LONG())
        self.event_time = plain.event_time

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Collection[TimeWindow]:
        """Return the window of a record."""
        time, size = self._time(timestamp, context), self._plain.size
        offset = self._plain.offset + self._shift(context)
        start = TimeWindow.get_window_start_with_offset(time, offset % size, size)
        return [time_window(start, start + size)]

    def _shift(self, context: Any) -> int:
        size = self._plain.size
        if self._stagger is WindowStagger.RANDOM:
            return zlib.crc32(str(context.key_group()).encode()) * size >> 32
        drawn = context.get_runtime_context().get_state(self._drawn)
        shift: int | None = drawn.value()
        if shift is None:
            shift = context.get_current_processing_time() % size
            drawn.update(shift)
        return shift

    def __repr__(self) -> str:
        """Show the assigner and how it is shifted."""
        return f"{self._plain!r}.{self._stagger.name}"


def _staggered(plain: A, stagger: WindowStagger | None) -> A | StaggeredWindows:
    if stagger is None or stagger is WindowStagger.ALIGNED:
        return plain
    if not isinstance(stagger, WindowStagger):
        msg = f"window_stagger: expected a WindowStagger, found {stagger!r}"  # type: ignore[unreachable]
        raise TypeError(msg)
    return StaggeredWindows(plain, stagger)


class _Sliding(AlignedWindows):
    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        """Make windows of a size that begin at multiples of a slide, shifted by an offset."""
        if abs(offset) >= slide or size <= 0:
            msg = (
                f"{type(self).__name__} parameters must satisfy abs(offset) < slide and size > 0, "
                f"found size {size}, slide {slide} and offset {offset} in milliseconds"
            )
            raise UsageError(msg)
        if size // slide > WINDOWS_PER_RECORD_MAX:
            msg = (
                f"{type(self).__name__}: a size of {size} ms and a slide of {slide} ms would give "
                f"every record more than {WINDOWS_PER_RECORD_MAX} windows"
            )
            raise UsageError(msg)
        self.size = size
        self.slide = slide
        self.offset = offset

    def __repr__(self) -> str:
        """Show size, slide and offset."""
        return f"{type(self).__name__}({self.size}, {self.slide}, {self.offset})"


class SlidingEventTimeWindows(_Sliding):
    """Windows of one size that begin every slide, by event time.

    Example:
        keyed.window(SlidingEventTimeWindows.of(Time.minutes(10), Time.minutes(5))).sum(1)
    """

    @staticmethod
    def of(size: Any, slide: Any, offset: Any = None) -> SlidingEventTimeWindows:
        """Return the assigner of a size, a slide and an offset."""
        shifted = 0 if offset is None else to_ms(offset)
        return SlidingEventTimeWindows(to_ms(size), to_ms(slide), shifted)


class SlidingProcessingTimeWindows(_Sliding):
    """Windows of one size that begin every slide, by processing time.

    Example:
        keyed.window(SlidingProcessingTimeWindows.of(Time.minutes(10), Time.minutes(5))).sum(1)
    """

    event_time = False

    @staticmethod
    def of(size: Any, slide: Any, offset: Any = None) -> SlidingProcessingTimeWindows:
        """Return the assigner of a size, a slide and an offset."""
        shifted = 0 if offset is None else to_ms(offset)
        return SlidingProcessingTimeWindows(to_ms(size), to_ms(slide), shifted)


class SessionWindowTimeGapExtractor(ABC):
    """Says of a record how long its session lasts beyond it.

    Example:
        class BySize(SessionWindowTimeGapExtractor):
            def extract(self, element):
                return 1_000 * element[1]
    """

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Return the gap behind a record in milliseconds."""


class SessionWindows(_TimeAssigner, MergingWindowAssigner[Any, Any]):
    """Windows from a record to the end of its gap; those that touch are one."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        """Return the window from the record to the end of its gap."""
        start = self._time(timestamp, context)
        return [time_window(start, start + self._gap(element))]

    def _gap(self, element: Any) -> int:
        raise NotImplementedError

    def merge_windows(self, windows: Iterable[Any], callback: Any) -> None:
        """Merge windows that overlap or touch."""
        TimeWindow.merge_windows(windows, callback)


class _FixedGap(SessionWindows):
    def __init__(self, session_gap: int) -> None:
        """Make sessions that end when nothing came for so many milliseconds."""
        if session_gap <= 0:
            msg = (
                f"{type(self).__name__} parameters must satisfy 0 < size, "
                f"found {session_gap} milliseconds"
            )
            raise UsageError(msg)
        self.session_gap = session_gap

    def _gap(self, element: Any) -> int:
        return self.session_gap

    def __repr__(self) -> str:
        """Show the gap."""
        return f"{type(self).__name__}({self.session_gap})"


class _DynamicGap(SessionWindows):
    def __init__(self, session_window_time_gap_extractor: Any) -> None:
        """Make sessions whose gap every record says; a callable is taken as well."""
        extract = getattr(session_window_time_gap_extractor, "extract", None)
        extract = extract or session_window_time_gap_extractor
        if not callable(extract) or isinstance(session_window_time_gap_extractor, type):
            msg = (
                f"{type(self).__name__} needs a SessionWindowTimeGapExtractor, "
                f"found {session_window_time_gap_extractor!r}"
            )
            raise TypeError(msg)
        self._extract: Callable[[Any], int] = extract

    def _gap(self, element: Any) -> int:
        gap = self._extract(element)
        if not isinstance(gap, int) or gap <= 0:
            msg = (
                f"Dynamic session time gap must satisfy 0 < gap, found {gap!r}: the extractor "
                f"returns milliseconds as a whole number"
            )
            raise UsageError(msg)
        return gap

    def __repr__(self) -> str:
        """Show the name."""
        return f"{type(self).__name__}()"


class EventTimeSessionWindows(_FixedGap):
    """Sessions by event time: they end when no record came for a gap.

    Example:
        keyed.window(EventTimeSessionWindows.with_gap(Time.minutes(10))).sum(1)
    """

    @staticmethod
    def with_gap(size: Any) -> EventTimeSessionWindows:
        """Return the assigner of a gap."""
        return EventTimeSessionWindows(to_ms(size))

    @staticmethod
    def with_dynamic_gap(extractor: Any) -> DynamicEventTimeSessionWindows:
        """Return the assigner of gaps that records say."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_FixedGap):
    """Sessions by processing time: they end when no record came for a gap.

    Example:
        keyed.window(ProcessingTimeSessionWindows.with_gap(Time.minutes(10))).sum(1)
    """

    event_time = False

    @staticmethod
    def with_gap(size: Any) -> ProcessingTimeSessionWindows:
        """Return the assigner of a gap."""
        return ProcessingTimeSessionWindows(to_ms(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: Any,
    ) -> DynamicProcessingTimeSessionWindows:
        """Return the assigner of gaps that records say."""
        return DynamicProcessingTimeSessionWindows(extractor)


class DynamicEventTimeSessionWindows(_DynamicGap):
    """Sessions by event time whose gap every record says.

    Example:
        class BySize(SessionWindowTimeGapExtractor):
            def extract(self, element):
                return 1_000 * element[1]

        keyed.window(EventTimeSessionWindows.with_dynamic_gap(BySize())).sum(1)
    """

    @staticmethod
    def with_dynamic_gap(extractor: Any) -> DynamicEventTimeSessionWindows:
        """Return the assigner of gaps that records say."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(_DynamicGap):
    """Sessions by processing time whose gap every record says.

    Example:
        class BySize(SessionWindowTimeGapExtractor):
            def extract(self, element):
                return 1_000 * element[1]

        keyed.window(ProcessingTimeSessionWindows.with_dynamic_gap(BySize())).sum(1)
    """

    event_time = False

    @staticmethod
    def with_dynamic_gap(
        extractor: Any,
    ) -> DynamicProcessingTimeSessionWindows:
        """Return the assigner of gaps that records say."""
        return DynamicProcessingTimeSessionWindows(extractor)


class GlobalWindows(WindowAssigner[Any, Any]):
    """One window for all records of a key; it fires only with a trigger that the program sets.

    Example:
        keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(100)).sum(1)
    """

    def __init__(self, default_trigger: Trigger[Any, Any] | None = None) -> None:
        """Make the assigner with a default trigger; without one it never fires."""
        self._default: Trigger[Any, Any] = default_trigger or NeverTrigger()

    @staticmethod
    def create() -> GlobalWindows:
        """Return the assigner."""
        return GlobalWindows()

    @staticmethod
    def create_with_end_of_stream_trigger() -> GlobalWindows:
        """Return the assigner whose windows fire when the bounded input is over."""
        return GlobalWindows(EndOfStreamTrigger())

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        """Return the one window."""
        return (GlobalWindow.get(),)

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return the trigger that was chosen with the assigner."""
        return self._default

    def get_window_serializer(self) -> TypeSerializer[GlobalWindow]:
        """Return that of global windows."""
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        """Return False: the window never ends by time."""
        return False

    def __repr__(self) -> str:
        """Show the name."""
        return "GlobalWindows()"
