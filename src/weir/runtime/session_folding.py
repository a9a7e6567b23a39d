"""Sessions that no record can fire: they grow in memory, and state is touched once an epoch.

With the trigger of event time and no allowed lateness a session fires when the watermark passes its
end, and it does not pass while records are handled. So the sessions of a key are read once, records
are added and sessions merged here, in the order of arrival, and what became of them is written at
the end of the epoch, before a snapshot, before time moves, and when it becomes much. State and
timers are those of the operator's way for single records.
"""

from __future__ import annotations

from typing import Any, Final

from weir.backend.address import split_address
from weir.backend.base import VOID, Timers
from weir.errors import UsageError
from weir.runtime.frame import Chunk
from weir.runtime.window_contents import Folded, Records
from weir.window.assigners import SessionWindows, require_timestamp
from weir.window.spec import WindowSpec
from weir.window.triggers import EventTimeTrigger
from weir.window.windows import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeWindow, time_window

KEYS_MAX = 1 << 16
"""How many keys' sessions may wait to be written."""
_BATCH: Final = 1024
_UNREAD: Final = object()
Space = tuple[int, int]


def can_fold_sessions(spec: WindowSpec) -> bool:
    """Tell whether windows are sessions that no record can fire."""
    assigner = spec.assigner
    if spec.evictor is not None or spec.lateness_ms or not isinstance(assigner, SessionWindows):
        return False
    # A subclass may do anything.
    own = type(assigner).__module__ == SessionWindows.__module__
    return own and assigner.is_event_time() and type(spec.trigger) is EventTimeTrigger


class _Session:
    """One session: its bounds, its window with a timer, and where its contents are.

    `held` is a folded value that goes on from the state's, or records that come behind it.
    """

    __slots__ = ("end", "held", "place", "start", "timed")

    def __init__(self, start: int, end: int, timed: Space | None, place: Space) -> None:
        self.start = start
        self.end = end
        self.timed = timed
        self.place = place
        self.held: Any = _UNREAD


class _OfKey:
    """The sessions of one key, and what of the stored ones is no more."""

    __slots__ = ("changed", "group", "left", "sessions", "untimed")

    def __init__(self, group: int, sessions: list[_Session]) -> None:
        self.group = group
        self.sessions = sessions
        self.changed = False
        self.left: list[Space] = []
        self.untimed: list[Space] = []


class SessionFolding:
    """Handles chunks and timers of a window operator for which `can_fold_sessions` is true."""

    def __init__(self, operator: Any, in_flight: Any) -> None:
        """Bind to an operator whose contents are open; `in_flight` is where sessions are stored."""
        assigner: Any = operator.spec.assigner
        self._operator = operator
        self._gap = assigner._gap
        self._in_flight = in_flight
        self._contents: Folded | Records = operator.contents
        self._fold = self._contents.how if isinstance(self._contents, Folded) else None
        self._keys: dict[Any, _OfKey] = {}
        self._extends = hasattr(in_flight, "extend_all")
        self._ending: dict[Any, tuple[int, dict[Space, Space]]] = {}

    # ---- records

    def process(self, chunk: Chunk) -> None:
        """Put all records of a chunk into their sessions."""
        if chunk.keys is None or chunk.groups is None:
            msg = "records arrived without keys at a keyed operator"
            raise UsageError(msg)
        stamps: Any = chunk.timestamps or [None] * len(chunk.values)
        gap, v = self._gap, None
        try:
            for v, k, g, t in zip(chunk.values, chunk.keys, chunk.groups, stamps, strict=True):
                start = require_timestamp(t)
                end = start + gap(v)
                if end > MAX_TIMESTAMP or start < MIN_TIMESTAMP:
                    time_window(start, end)  # which refuses it
                of_key = self._keys.get(k)
                if of_key is None:
                    of_key = self._read(k, g)
                self._take(of_key, k, v, (start, end))
        except BaseException as error:
            raise self._operator.failed(error, v) from None

    def _read(self, key: Any, group: int) -> _OfKey:
        if len(self._keys) >= KEYS_MAX:
            self.flush()
        current = self._operator.current
        current.key, current.group, current.namespace = key, group, VOID
        stored = [_Session(w[0], w[1], w, place) for w, place in self._in_flight.get()]
        found = self._keys[key] = _OfKey(group, stored)
        return found

    def _take(self, of_key: _OfKey, key: Any, value: Any, window: Space) -> None:
        """Add a record, whose own window is given, to the sessions of a key."""
        (start, end), over = window, self._operator.watermark + 1
        # A job before may have let sessions stay that are over; those grow no more.
        least = max(start, over + 1)
        touching = [s for s in of_key.sessions if s.start <= end and s.end >= least]
        if not touching:
            if end <= over:
                self._operator.skipped(value, start)
                return
            session = _Session(start, end, None, window)
            of_key.sessions.append(session)
            session.held = [value] if self._fold is None else self._fold.first(value)
        else:
            session = touching[0]
            if len(touching) > 1:
                session = self._merged(of_key, key, touching)
            session.start = min(session.start, start)
            session.end = max(session.end, end)
            self._add(of_key, key, session, value)
        of_key.changed = True

    def _add(self, of_key: _OfKey, key: Any, session: _Session, value: Any) -> None:
        if self._fold is None:
            if session.held is _UNREAD:
                session.held = [value]
            else:
                session.held.append(value)
            return
        held = self._folded(of_key, key, session)
        how = self._fold
        session.held = how.first(value) if held is None else how.add(held, value)

    def _folded(self, of_key: _OfKey, key: Any, session: _Session) -> Any:
        """Return the folded value of a session."""
        if session.held is _UNREAD:
            state: Any = self._contents.state
            current = self._operator.current
            current.key, current.group, current.namespace = key, of_key.group, session.place
            session.held = state.value()
        return session.held

    def _merged(self, of_key: _OfKey, key: Any, touching: list[_Session]) -> _Session:
        """Let sessions be the first of them, with the contents of all in their order."""
        touching.sort(key=lambda session: (session.start, session.end))
        first, *others = touching
        if self._fold is None:
            self._move(of_key, key, touching)
        else:
            held = self._folded(of_key, key, first)
            for other in others:
                more = self._folded(of_key, key, other)
                if more is not None:
                    held = more if held is None else self._fold.merge(held, more)
            first.held = held
        for other in others:
            of_key.sessions.remove(other)
            first.end = max(first.end, other.end)
            if other.timed is not None:
                of_key.untimed.append(other.timed)
                of_key.left.append(other.place)
        return first

    def _move(self, of_key: _OfKey, key: Any, touching: list[_Session]) -> None:
        """Append the records of sessions to those of the first."""
        first, *others = touching
        if all(other.timed is None for other in others):
            # None of theirs is in the state.
            more = [record for other in others for record in other.held]
            first.held = more if first.held is _UNREAD else first.held + more
            return
        current = self._operator.current
        current.key, current.group = key, of_key.group
        for session in touching:
            self._write_contents(session)
        self._contents.merge(first.place, [other.place for other in others])

    # ---- state

    def flush(self) -> None:
        """Write what became of sessions, and set their timers."""
        if not self._keys:
            return
        keys, self._keys = self._keys, {}
        current = self._operator.current
        for key, of_key in keys.items():
            if of_key.changed:
                current.key, current.group = key, of_key.group
                self._write(key, of_key)
        current.namespace = VOID

    def _write(self, key: Any, of_key: _OfKey) -> None:
        operator, group = self._operator, of_key.group
        current, timers = operator.current, operator.event_timers
        for place in of_key.left:
            current.namespace = place
            self._contents.clear()
        moved = bool(of_key.left)
        for window in of_key.untimed:
            timers.delete(window[1] - 1, key, group, window)
        for session in of_key.sessions:
            grew = session.held is not _UNREAD
            self._write_contents(session)
            window = (session.start, session.end)
            if session.timed != window:
                moved = True
                if session.timed is not None:
                    timers.delete(session.timed[1] - 1, key, group, session.timed)
                timers.register(window[1] - 1, key, group, window)
            elif grew:
                # Most have it; one of a job before with another trigger may not.
                timers.register(window[1] - 1, key, group, window)
        if moved:
            self._store(key, group, [((s.start, s.end), s.place) for s in of_key.sessions])

    def _store(self, key: Any, group: int, windows: list[tuple[Space, Space]]) -> None:
        """Write the windows in flight of the current key; bounds of sessions need no check."""
        self._operator.current.namespace = VOID
        if self._extends:
            self._in_flight.clear()
            if windows:
                self._in_flight.extend_all([key], [group], [windows])
        else:
            self._in_flight.update(windows)

    def _write_contents(self, session: _Session) -> None:
        """Write what a session of the current key holds beyond the state."""
        if session.held is _UNREAD:
            return
        state: Any = self._contents.state
        self._operator.current.namespace = session.place
        try:
            if self._fold is None:
                state.add_all(session.held)
                session.held = _UNREAD
            else:
                state.update(session.held)
        except BaseException as error:
            raise self._operator.failed(error, session.held) from None

    # ---- timers

    def fire(self, timers: Timers, up_to: int) -> None:
        """Fire sessions whose end has passed, and forget them."""
        operator = self._operator
        for time, group, addresses in timers.pop_buckets(up_to):
            for address in addresses:
                key, window = split_address(address)
                try:
                    self._end(key, group, window, time)
                except BaseException as error:
                    raise operator.failed(error, f"timer {time} of key {key!r}") from None
                if len(operator.out) >= _BATCH:
                    operator.flush()
        self._store_ended()
        operator.current.namespace = VOID

    def _store_ended(self) -> None:
        """Write what sessions are left of keys that had some fired."""
        current = self._operator.current
        ending, self._ending = self._ending, {}
        for key, (group, places) in ending.items():
            current.key, current.group = key, group
            self._store(key, group, list(places.items()))

    def _places(self, key: Any, group: int) -> dict[Space, Space]:
        """Return where the contents of a key's sessions are; read once while sessions fire."""
        known = self._ending.get(key)
        if known is None:
            if len(self._ending) >= KEYS_MAX:
                self._store_ended()
            current = self._operator.current
            current.key, current.group, current.namespace = key, group, VOID
            known = self._ending[key] = (group, dict(self._in_flight.get()))
        return known[1]

    def _end(self, key: Any, group: int, window: Space, time: int) -> None:
        operator, contents = self._operator, self._contents
        places = self._places(key, group)
        if window not in places or time < window[1] - 1:
            return
        place = places.pop(window)
        current, whole = operator.current, TimeWindow(*window)
        current.key, current.group, current.namespace = key, group, place
        # After its end there is a timer only where a job before allowed lateness.
        elements = contents.elements() if time == window[1] - 1 else []
        if elements:
            operator.give(whole, window, elements, time)
            current.namespace = place
        contents.clear()
        operator.clear_function(whole, window)
