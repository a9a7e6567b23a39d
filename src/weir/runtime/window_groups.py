"""Windows that no record can fire, of many keys at a time: those of one window and key group.

State and timers are touched by whole lists, most of it without running Python code for a key. The
effect is that of key after key, in the order given. Windows are not behind the watermark, and what
is given has the declared type.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from weir.backend.address import addresses_of, split_all
from weir.backend.admission import admission
from weir.backend.object_handles import FoldMany
from weir.runtime.field_merges import merges_of
from weir.runtime.window_contents import CONTENTS, Fold, Folded, Records
from weir.window.spec import WindowSpec
from weir.window.windows import MAX_TIMESTAMP, TimeWindow

Namespace = tuple[int, int]


class WindowGroups:
    """The contents and timers of a window operator whose contents are open."""

    def __init__(self, operator: Any) -> None:
        """Bind to an operator for which `can_fold` is true."""
        spec: WindowSpec = operator.spec
        contents: Folded | Records = operator.contents
        assigner: Any = spec.assigner
        self._operator = operator
        self._size: int = assigner.size
        self._state: Any = contents.state
        self._fold = contents.how if isinstance(contents, Folded) else None
        self._lateness_ms = spec.lateness_ms if operator.event_time else 0
        self._timers = operator.event_timers if operator.event_time else operator.processing_timers
        self._admit = admission(CONTENTS, spec.contents.value_type)
        self._extends = hasattr(self._state, "extend_group")
        self._takes = not self._lateness_ms and hasattr(self._state, "take_all")
        self._merges: Any = None
        if self._fold is not None and spec.contents.aggregate is not None:
            self._merges = merges_of(spec.contents, self._fold.add)

    def ends(self, last: int) -> list[int]:
        """Return when a window fires and, where that is another time, when it is over."""
        over = self.over(last)
        return [last] if over in (last, MAX_TIMESTAMP) else [last, over]

    def over(self, last: int) -> int:
        """Return when a window with that last moment is over."""
        return min(last + self._lateness_ms, MAX_TIMESTAMP)

    def fold(self, namespace: Namespace, group: int, keys: list[Any], values: list[Any]) -> None:
        """Fold an aggregate for each of some keys of a key group into a window."""
        try:
            self._fold_all(namespace, group, keys, partial(self._merged, values))
        except BaseException as error:
            raise self._operator.failed(error, TimeWindow(*namespace)) from None

    def _merged(self, values: list[Any], held: list[Any], new: list[int]) -> list[Any]:
        """Return what is held, with values that come; where nothing is, they are as they should."""
        if not new:
            return self._merges(held, values)  # type: ignore[no-any-return]
        if len(new) < len(held):
            there = [i for i, before in enumerate(held) if before is not None]
            made = self._merges([held[i] for i in there], [values[i] for i in there])
            values = values.copy()
            for i, value in zip(there, made, strict=True):
                values[i] = value
        return values

    def add(self, namespace: Namespace, group: int, keys: list[Any], lists: list[Any]) -> None:
        """Add records of some keys of a key group to a window, a list for each key."""
        state = self._state
        if self._fold is not None:
            gone: list[int] = []
            fold = partial(self._added, self._fold, lists, gone)
            addresses = self._fold_all(namespace, group, keys, fold)
            if gone:
                state.clear_group(group, [addresses[i] for i in gone])
            return
        addresses = addresses_of(keys, namespace)
        if self._extends:
            new = state.extend_group(group, addresses, lists)
            self._register(namespace, group, addresses, new)
            return
        current = self._operator.current
        current.group, current.namespace = group, namespace
        for key, elements in zip(keys, lists, strict=True):
            current.key = key
            state.add_all(elements)
        # Nobody knows whether there were some before; who has timers keeps them.
        self._register(namespace, group, addresses, list(range(len(keys))))

    def _added(
        self, how: Fold, lists: list[Any], gone: list[int], held: list[Any], new: list[int]
    ) -> list[Any]:
        """Return what is held with records folded in, one by one in their order.

        The positions of those of which nothing is left are added to `gone`.
        """
        first, add, admit = how.first, how.add, self._admit
        made: list[Any] = []
        v: Any = None
        try:
            for before, elements in zip(held, lists, strict=True):
                after = before
                for v in elements:
                    after = first(v) if after is None else add(after, v)
                if after is None:
                    gone.append(len(made))
                made.append(admit(after))
        except BaseException as error:
            raise self._operator.failed(error, v) from None
        return made

    def _fold_all(
        self, namespace: Namespace, group: int, keys: list[Any], fold: FoldMany
    ) -> list[Any]:
        """Set what some keys hold, and the timers of those that held nothing; return addresses."""
        addresses = addresses_of(keys, namespace)
        new = self._state.fold_group(group, addresses, fold)
        self._register(namespace, group, addresses, new)
        return addresses

    def _register(
        self, namespace: Namespace, group: int, addresses: list[Any], new: list[int]
    ) -> None:
        """Set the timers of addresses at some positions."""
        if len(new) < len(addresses):
            addresses = [addresses[i] for i in new]
        for time in self.ends(namespace[1] - 1):
            self._timers.register_group(time, group, addresses)

    def take(
        self, time: int, group: int, addresses: list[Any]
    ) -> tuple[list[Any], list[Any]] | None:
        """Take contents out of windows that fire and are over; return their keys, and them.

        None where only one after the other will do: with allowed lateness, or windows of a job
        before that had some; and where state does not know how.
        """
        split = split_all(addresses) if self._takes else None
        if split is None or split[1][0] != (time + 1 - self._size, time + 1):
            return None
        # Most are one object, which is counted without a look at its bounds.
        if split[1].count(split[1][0]) < len(addresses):
            return None
        return split[0], self._state.take_all(group, addresses)
