"""Windows that no record can fire: an epoch is folded by key and window, state is touched once.

Tumbling and sliding windows with the trigger of their own time fire when that time passes their
end, and it does not pass while records are handled. So the records of a chunk are sorted by window
first; what a key and window hold is read once, folded in the order of arrival, and written once: at
the end of the epoch, before a snapshot, before time moves, and when it becomes much. Only windows
that are behind the watermark and not yet over fire with every record: those rows take the
operator's way for single records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

from weir.backend.address import split_address
from weir.backend.base import Timers
from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo
from weir.errors import UsageError
from weir.runtime.frame import Chunk
from weir.runtime.window_contents import Fold, Folded, Records, ReduceFold
from weir.runtime.window_groups import WindowGroups
from weir.window.assigners import AlignedWindows, require_timestamp
from weir.window.namespaces import TIME
from weir.window.spec import Calling, WindowSpec
from weir.window.triggers import EventTimeTrigger, ProcessingTimeTrigger, PurgingTrigger, Trigger
from weir.window.windows import MAX_TIMESTAMP, MIN_TIMESTAMP, time_window

_UNREAD: Final = object()
_BATCH = 1024
PENDING_MAX = 1 << 17
"""How many keys of windows, or records, may wait to be written."""

Rows = list[int] | None
"""Positions in a chunk; None are all of them."""


def can_fold(spec: WindowSpec) -> bool:
    """Tell whether no record of windows before their end can make them fire."""
    if spec.evictor is not None or not isinstance(spec.assigner, AlignedWindows):
        return False
    expected = EventTimeTrigger if spec.assigner.is_event_time() else ProcessingTimeTrigger
    # A subclass may do anything.
    return (
        type(_plain(spec.trigger)) is expected
        and type(spec.assigner).__module__ == AlignedWindows.__module__
    )


def _plain(trigger: Trigger[Any, Any]) -> Trigger[Any, Any]:
    return trigger.nested_trigger if type(trigger) is PurgingTrigger else trigger


class _Pane:
    """What the records of an epoch make of one window, by key; not yet in the state.

    `held` is a folded value that goes on from the state's, or records that come behind it; these
    are `admitted` when all have the declared type for sure.
    """

    __slots__ = ("admitted", "held", "namespace", "opened", "owners")

    def __init__(self, namespace: tuple[int, int]) -> None:
        self.namespace = namespace
        self.admitted = True
        self.held: dict[Any, Any] = {}
        self.owners: dict[Any, int] = {}
        self.opened: list[Any] = []

    def append(self, values: Sequence[Any], keys: Sequence[Any], groups: Sequence[int]) -> int:
        """Take records as they are; return how many."""
        held, owners = self.held, self.owners
        get = held.get
        for v, k, g in zip(values, keys, groups, strict=True):
            rows = get(k)
            if rows is None:
                held[k] = [v]
                owners[k] = g
            else:
                rows.append(v)
        return len(values)


class Folding:
    """Handles chunks and timers of a window operator for which `can_fold` is true."""

    def __init__(self, operator: Any) -> None:
        """Bind to an operator whose contents are open."""
        spec: WindowSpec = operator.spec
        assigner: Any = spec.assigner
        self._operator = operator
        self._assigner: AlignedWindows = assigner
        self._contents: Folded | Records = operator.contents
        self._state: Any = self._contents.state
        self._fold = self._contents.how if isinstance(self._contents, Folded) else None
        self._panes: dict[int, _Pane] = {}
        self._pending = 0
        self._event_time: bool = operator.event_time
        self._lateness_ms = spec.lateness_ms if operator.event_time else 0
        self._purges = type(spec.trigger) is PurgingTrigger
        self._extends = self._fold is None and hasattr(self._state, "extend_all")
        # An accumulator's result may be anything, and raise; that of a count is the count.
        reduces = isinstance(self._fold, ReduceFold) or spec.contents.aggregate is not None
        self._passes = spec.calling is Calling.PASS and not self._lateness_ms and reduces
        self._groups = WindowGroups(operator)
        self._timers: Timers = (
            operator.event_timers if operator.event_time else operator.processing_timers
        )

    # ---- records

    def process(self, chunk: Chunk) -> None:
        """Put all records of a chunk into their windows."""
        if not chunk.values:
            return
        if chunk.keys is None or chunk.groups is None:
            msg = "records arrived without keys at a keyed operator"
            raise UsageError(msg)
        if not self._event_time:
            now = self._operator.now_ms()
            self._fold_all(dict.fromkeys(self._assigner.starts(now)), chunk, MIN_TIMESTAMP)
            return
        stamps = self._stamps(chunk)
        windows = self._windows(stamps)
        behind = self._fold_all(windows, chunk, self._operator.watermark)
        if behind or self._assigner.slide > self._assigner.size:
            self._one_by_one(behind, windows, stamps, chunk)

    def _stamps(self, chunk: Chunk) -> list[int]:
        """Return the timestamps of the records: all must have one."""
        stamps: Any = chunk.timestamps
        try:
            if stamps is not None and min(stamps) > MIN_TIMESTAMP:
                found: list[int] = stamps
                return found
        except TypeError:
            pass  # some are None: the next lines say which
        value, stamp = next(
            (v, t)
            for v, t in zip(chunk.values, stamps or (None,), strict=False)
            if t is None or t == MIN_TIMESTAMP
        )
        try:
            return [require_timestamp(stamp)]
        except UsageError as error:
            raise self._operator.failed(error, value) from None

    def _windows(self, stamps: list[int]) -> dict[int, Rows]:
        """Return the starts of all windows of a chunk, with the rows that belong to each."""
        starts = self._assigner.starts(max(stamps))
        if starts and starts == self._assigner.starts(min(stamps)):
            return dict.fromkeys(starts)
        rows: dict[int, Rows] = {}
        found: dict[int, list[int]] = defaultdict(list)
        size, slide, offset = self._assigner.size, self._assigner.slide, self._assigner.offset
        if size == slide:
            for i, t in enumerate(stamps):
                found[t - (t - offset) % size].append(i)
        else:
            for i, t in enumerate(stamps):
                for start in range(t - (t - offset) % slide, t - size, -slide):
                    found[start].append(i)
        rows.update(found)
        return rows

    def _fold_all(
        self, windows: dict[int, Rows], chunk: Chunk, watermark: int
    ) -> dict[int, list[int]]:
        """Fold rows of windows before the watermark; return the other windows by row."""
        behind: dict[int, list[int]] = defaultdict(list)
        size = self._assigner.size
        for start, rows in windows.items():
            if start + size - 1 <= watermark:
                for i in range(len(chunk.values)) if rows is None else rows:
                    behind[i].append(start)
                continue
            values, keys, groups = _picked(rows, chunk.values, chunk.keys, chunk.groups)  # type: ignore[arg-type]
            pane = self._panes.get(start)
            if pane is None:
                pane = self._panes[start] = _Pane(self._namespace(start, values[0]))
            if self._fold is None:
                pane.admitted = pane.admitted and self._is_admitted(chunk)
                self._pending += pane.append(values, keys, groups)
            else:
                self._pending += self._folded(self._fold, pane, values, keys=keys, groups=groups)
        if self._pending > PENDING_MAX:
            self.flush()
        return behind

    def _namespace(self, start: int, record: Any) -> tuple[int, int]:
        try:
            window = time_window(start, start + self._assigner.size)
        except UsageError as error:
            raise self._operator.failed(error, record) from None
        return window.start, window.end

    def _folded(
        self,
        how: Fold,
        pane: _Pane,
        values: Sequence[Any],
        keys: Sequence[Any],
        groups: Sequence[int],
    ) -> int:
        """Fold records into what a pane holds; return for how many keys state was read."""
        current, first, add = self._operator.current, how.first, how.add
        read, held, owners = self._contents.state.value, pane.held, pane.owners
        current.namespace = pane.namespace
        get, known = held.get, len(owners)
        v: Any = None
        try:
            for v, k, g in zip(values, keys, groups, strict=True):
                before = get(k, _UNREAD)
                if before is _UNREAD:
                    current.key = k
                    current.group = owners[k] = g
                    before = read()
                    if before is None:
                        pane.opened.append(k)
                held[k] = first(v) if before is None else add(before, v)
        except BaseException as error:
            raise self._operator.failed(error, v) from None
        return len(owners) - known

    def fold_group(self, start: int, group: int, keys: list[Any], values: list[Any]) -> None:
        """Fold one value for each of some keys of a key group into a window."""
        self.flush()
        self._groups.fold(self._namespace(start, values[0]), group, keys, values)

    def add_group(self, start: int, group: int, keys: list[Any], lists: list[Any]) -> None:
        """Add records of some keys of a key group to a window, a list for each key."""
        self.flush()
        self._groups.add(self._namespace(start, lists[0][0]), group, keys, lists)

    def drop_late(self, count: int) -> bool:
        """Count late records; False when they have to be shown."""
        dropped: bool = self._operator.drop_late(count)
        return dropped

    def flush(self) -> None:
        """Write what was folded to the state, and set the timers of windows that it opened."""
        if not self._panes:
            return
        panes, self._panes, self._pending = self._panes, {}, 0
        current = self._operator.current
        state = self._state
        write = state.add_all if self._fold is None else state.update
        for pane in panes.values():
            current.namespace = pane.namespace
            if self._extends and pane.admitted:
                self._extend(pane)
                continue
            owners, held = pane.owners, None
            try:
                for k, held in pane.held.items():
                    current.key = k
                    current.group = owners[k]
                    write(held)
            except BaseException as error:
                raise self._operator.failed(error, held) from None
            self._register(pane)

    def _is_admitted(self, chunk: Chunk) -> bool:
        """Tell whether records were columns of the type that windows hold them in."""
        if chunk.type is None:
            return False
        declared = self._operator.spec.contents.value_type
        rows = isinstance(declared, (RowTypeInfo, TupleTypeInfo))
        return rows and (chunk.type is declared or chunk.type == declared)

    def _extend(self, pane: _Pane) -> None:
        """Write records that need no look at each, and set timers where there were none."""
        keys = list(pane.held)
        groups = [pane.owners[key] for key in keys]
        new = self._state.extend_all(keys, groups, list(pane.held.values()))
        if len(new) < len(keys):
            keys, groups = [keys[i] for i in new], [groups[i] for i in new]
        self._register_all(pane.namespace, keys, groups)

    def _register(self, pane: _Pane) -> None:
        """Set the timers of a window; for a key that has them nothing happens."""
        # Who holds records does not know whether there were some before.
        keys = list(pane.owners) if self._fold is None else pane.opened
        self._register_all(pane.namespace, keys, [pane.owners[key] for key in keys])

    def _register_all(
        self, namespace: tuple[int, int], keys: Sequence[Any], groups: Sequence[int]
    ) -> None:
        for time in self._groups.ends(namespace[1] - 1):
            self._timers.register_all(time, keys, groups, namespace)

    def _one_by_one(
        self,
        behind: dict[int, list[int]],
        windows: dict[int, Rows],
        stamps: list[int],
        chunk: Chunk,
    ) -> None:
        """Handle rows with windows behind the watermark, and rows without windows, in order."""
        operator, size = self._operator, self._assigner.size
        current, watermark = operator.current, operator.watermark
        for i in sorted({*behind, *self._without(windows, len(stamps))}):
            value, stamp = chunk.values[i], stamps[i]
            starts = self._assigner.starts(stamp)
            current.key, current.group = chunk.keys[i], chunk.groups[i]  # type: ignore[index]
            try:
                latest_first = sorted(behind.get(i, ()), reverse=True)
                older = [time_window(s, s + size) for s in latest_first]
                taken = operator.into_windows(value, stamp, older)
                folded = bool(starts) and starts[0] + size - 1 > watermark
                if not taken and not folded:
                    count = 1 if chunk.merged is None else chunk.merged[i]
                    operator.skipped(value, stamp, count)
            except BaseException as error:
                raise operator.failed(error, value) from None

    def _without(self, windows: dict[int, Rows], count: int) -> set[int]:
        """Return the rows in the gaps between windows, which only a long slide leaves."""
        if self._assigner.slide <= self._assigner.size or None in windows.values():
            return set()
        return set(range(count)).difference(*(rows or () for rows in windows.values()))

    # ---- timers

    def fire(self, timers: Timers, up_to: int) -> None:
        """Fire windows whose end has passed, and forget those that are over."""
        if timers.next_timestamp() is None:
            return
        if self._passes:
            self._pass_on(timers, up_to)
            return
        for time, group, addresses in timers.pop_buckets(up_to):
            taken = self._groups.take(time, group, addresses)
            if taken is None:
                self._fire_each(time, group, addresses)
            else:
                self._give_all(time, group, *taken)

    def _give_all(self, time: int, group: int, keys: list[Any], contents: list[Any]) -> None:
        """Let the function have what was taken out of windows of one time, which are over."""
        operator, how = self._operator, self._contents
        result_of = how.result_of if isinstance(how, Folded) else None
        current, give, clear_function = operator.current, operator.give, operator.clear_function
        window = time_window(time + 1 - self._assigner.size, time + 1)
        namespace = (window.start, window.end)
        current.group = group
        for key, held in zip(keys, contents, strict=True):
            current.key = key
            try:
                elements = held if result_of is None else result_of(held)
                if elements:
                    give(window, namespace, elements, time)
                clear_function(window, namespace)
            except BaseException as error:
                raise operator.failed(error, f"timer {time} of key {key!r}") from None
            if len(operator.out) >= _BATCH:
                operator.flush()

    def _pass_on(self, timers: Timers, up_to: int) -> None:
        """Send on what windows hold, many at a time: no function gets it, and they are over."""
        operator = self._operator
        for time, group, addresses in timers.pop_buckets(up_to):
            taken = self._groups.take(time, group, addresses)
            if taken is None:
                self._fire_each(time, group, addresses)
                continue
            found = [value for value in taken[1] if value is not None]
            operator.out.extend(found)
            operator.stamps.extend(repeat(time, len(found)))
            if len(operator.out) >= _BATCH:
                operator.flush()

    def _fire_each(self, time: int, group: int, addresses: list[Any]) -> None:
        operator, contents = self._operator, self._contents
        current, clear_function = operator.current, operator.clear_function
        current.group = group
        for address in addresses:
            current.key, namespace = split_address(address)
            try:
                window = TIME.window(namespace)
                last = window.end - 1
                if time == last:
                    current.namespace = namespace
                    elements = contents.elements()
                    if elements:
                        operator.give(window, namespace, elements, last)
                current.namespace = namespace
                if self._is_over(time, last):
                    contents.clear()
                    clear_function(window, namespace)
                elif self._purges and time == last:
                    contents.clear()
            except BaseException as error:
                raise operator.failed(error, f"timer {time} of key {current.key!r}") from None
            if len(operator.out) >= _BATCH:
                operator.flush()

    def _is_over(self, time: int, last: int) -> bool:
        """Tell whether a timer ends the current window, whose last moment is given.

        Windows of a job before may have been allowed to be late for another time: one that has no
        timer at its end gets it, and one whose end has passed must not stay.
        """
        current, over = self._operator.current, self._groups.over(last)
        if time < over != MAX_TIMESTAMP:
            self._timers.register(over, current.key, current.group, current.namespace)
        return time == over or (time > over and bool(self._contents.elements()))


def _picked(rows: Rows, *columns: Sequence[Any]) -> tuple[Sequence[Any], ...]:
    """Return the rows of parallel lists."""
    if rows is None:
        return columns
    if len(rows) == 1:
        return tuple([column[rows[0]]] for column in columns)
    pick = itemgetter(*rows)
    return tuple(pick(column) for column in columns)
