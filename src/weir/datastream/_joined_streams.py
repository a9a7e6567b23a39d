"""Two streams that meet in windows: `join` gives every pair, `co_group` both groups.

    first.join(second).where(key1).equal_to(key2).window(assigner).apply(function)

Both are one window operator over the union of the two streams, each record marked with its side:
(0, record, None) or (1, None, record), of the declared types of both streams. So late records are
judged as in any window, and event time is that of the slower stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from weir.common.typeinfo import Types
from weir.datastream._checks import require_type
from weir.datastream._key_selection import key_spec
from weir.datastream._plain_functions import PlainMap, require_instance
from weir.datastream._stream import Stream, check_same_program, declared_type
from weir.datastream._windowed_streams import WindowsByKey
from weir.datastream.functions import (
    CoGroupFunction,
    FlatJoinFunction,
    Function,
    JoinFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from weir.errors import UsageError
from weir.graph import kinds
from weir.graph.transformation import Edge, KeySpec, Partitioning, Transformation
from weir.runtime.raised import whole
from weir.window.evictors import Evictor
from weir.window.triggers import Trigger

S = TypeVar("S", bound=Stream)
M = TypeVar("M", bound="Meeting[Any]")
Self = TypeVar("Self", bound="Meeting[Any]")
Meet = Callable[[list[Any], list[Any]], Any]
_FIRST, _SECOND = 0, 1


class JoinedStreams(Generic[M]):
    """Two streams whose pairs are to be joined, or groups to be grouped together."""

    def __init__(
        self,
        first: Stream,
        second: Stream,
        meeting: Callable[[WindowsByKey[Any]], M],
        result: Callable[[Transformation], Stream],
    ) -> None:
        """Take two streams of one program, and what is made of them when they are in windows."""
        require_type(second, Stream, "a DataStream")
        check_same_program(first, second, "join")
        self._streams = first, second
        self._meeting = meeting
        self._result = result

    def where(self, key_selector: Any, key_type: Any = None) -> Where[M]:
        """Key the first stream."""
        first, _ = self._streams
        spec = key_spec(key_selector, declared_type(key_type, "key_type"), first.record_type)
        return Where(self, spec)


class Where(Generic[M]):
    """Two streams, the first of them with a key."""

    def __init__(self, joined: JoinedStreams[M], first: KeySpec) -> None:
        """Hold the key of the first stream."""
        self._joined = joined
        self._first = first

    def equal_to(self, key_selector: Any, key_type: Any = None) -> EqualTo[M]:
        """Key the second stream: records of equal keys meet.

        Raises:
            UsageError: the declared types of the keys differ.
        """
        _, second = self._joined._streams
        declared = declared_type(key_type, "key_type")
        spec = key_spec(key_selector, declared, second.record_type)
        if None not in (self._first.key_type, declared) and self._first.key_type != declared:
            msg = (
                f"The keys for the two inputs are not equal: {self._first.key_type!r} of the "
                f"first and {declared!r} of the second; declare one type for both"
            )
            raise UsageError(msg)
        return EqualTo(self._joined, self._first, spec)


class EqualTo(Generic[M]):
    """Two streams with keys."""

    def __init__(self, joined: JoinedStreams[M], first: KeySpec, second: KeySpec) -> None:
        """Hold both keys."""
        self._joined = joined
        self._keys = first, second

    def window(self, window_assigner: Any) -> M:
        """Let records meet that share a window."""
        joined, (first, second) = self._joined, self._keys
        both_types = _type_of_both(*joined._streams)
        edges = [
            *_marked(joined._streams[0], _FIRST, both_types),
            *_marked(joined._streams[1], _SECOND, both_types),
        ]
        key = KeySpec(
            _SideKey(first.selector, second.selector), None, first.key_type or second.key_type
        )
        env = joined._streams[0].env
        both = Stream(env, Stream(env, edges)._spread(Partitioning.HASH, key=key))
        return joined._meeting(WindowsByKey(both, window_assigner, joined._result))


class Meeting(Generic[S]):
    """Two keyed streams cut into windows; `_meet` says how a function sees what meets there."""

    def __init__(self, windows: WindowsByKey[S]) -> None:
        """Take the windows of the union of both streams."""
        self._windows = windows

    def trigger(self: Self, trigger: Trigger[Any, Any]) -> Self:
        """Let another trigger than the assigner's decide when windows fire."""
        self._windows.trigger(trigger)
        return self

    def evictor(self: Self, evictor: Evictor) -> Self:
        """Let an evictor remove records of both streams around the function."""
        self._windows.evictor(evictor)
        return self

    def allowed_lateness(self: Self, time_ms: Any) -> Self:
        """Keep windows so many milliseconds beyond their end, for late records."""
        self._windows.allowed_lateness(time_ms)
        return self

    def _meet(self, function: Any) -> Meet:
        raise NotImplementedError

    def _apply(self, function: Any, output_type: Any) -> S:
        both = _BothSides(function, self._meet(function))
        return self._windows._result(self._windows._process(both, output_type))


def joining(function: Any) -> Meet:
    """Return what gives all pairs to a `JoinFunction`, a `FlatJoinFunction` or a callable.

    Raises:
        TypeError: it is none of them.
    """
    require_instance(function, "JoinFunction")
    if isinstance(function, FlatJoinFunction):
        flat = function.join

        def each(first: list[Any], second: list[Any]) -> Iterator[Any]:
            for a in first:
                for b in second:
                    yield from whole(flat(a, b) or ())

        return each
    join = function.join if isinstance(function, JoinFunction) else _plain(function, "JoinFunction")
    return lambda first, second: [join(a, b) for a in first for b in second]


def grouping(function: Any) -> Meet:
    """Return what gives both groups to a `CoGroupFunction` or a callable.

    Raises:
        TypeError: it is neither.
    """
    require_instance(function, "CoGroupFunction")
    if isinstance(function, CoGroupFunction):
        return function.co_group
    return _plain(function, "CoGroupFunction")


def _plain(function: Any, expected: str) -> Callable[[Any, Any], Any]:
    if not callable(function) or isinstance(function, Function):
        msg = (
            f"The input must be a {expected} or a callable of (first, second), "
            f"found {type(function).__name__}: {function!r}"
        )
        raise TypeError(msg)
    found: Callable[[Any, Any], Any] = function
    return found


class _SideKey:
    """The key of a marked record, by the selector of its side."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any]) -> None:
        self._first = first
        self._second = second

    def __call__(self, marked: tuple[int, Any, Any]) -> Any:
        """Return the key."""
        return self._first(marked[1]) if marked[0] == _FIRST else self._second(marked[-1])


class _BothSides(ProcessWindowFunction[Any, Any, Any, Any]):
    """Parts the records of a window by side."""

    def __init__(self, function: Any, meet: Meet) -> None:
        self._function = function
        self._meet = meet

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the user's function."""
        if isinstance(self._function, Function):
            self._function.open(runtime_context)

    def close(self) -> None:
        """Close the user's function."""
        if isinstance(self._function, Function):
            self._function.close()

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        """Call the user's function with what came from either side."""
        first: list[Any] = []
        second: list[Any] = []
        for marked in elements:
            # Earlier savepoints hold (side, record), which these two places fit as well.
            if marked[0] == _FIRST:
                first.append(marked[1])
            else:
                second.append(marked[-1])
        return self._meet(first, second)


def _type_of_both(first: Stream, second: Stream) -> Any:
    """Return the type of marked records; None where neither stream has a declared type."""
    types = first.record_type, second.record_type
    if types == (None, None):
        return None
    return Types.TUPLE([Types.INT(), *(t or Types.PICKLED_BYTE_ARRAY() for t in types)])


def _marked(stream: Stream, side: int, both_types: Any) -> list[Edge]:
    """Mark every record of a stream with its side; keys of the stream itself do not count."""
    first = side == _FIRST
    mark = PlainMap((lambda v: (_FIRST, v, None)) if first else (lambda v: (_SECOND, None, v)))
    plain = Stream(stream.env, stream._unkeyed_edges())
    name = "Join: first" if side == _FIRST else "Join: second"
    declared = plain._declare(kinds.MAP, name, function=mark, output_type=both_types)
    return [Edge(declared)]
