"""The windows of one key that may grow together, and where the contents of each of them are.

A window that grew keeps its contents where they were: the set maps every window in flight to the
*state window* under which its contents are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from weir.window.assigners import MergingWindowAssigner, SessionWindows


def _never(window: Any) -> bool:
    return False


class Merged(NamedTuple):
    """What a merge amounts to.

    `members` became `result`. Their contents are those of `target`, then of `sources`.
    """

    result: Any
    members: list[Any]
    target: Any
    sources: list[Any]


class MergingWindowSet:
    """The windows in flight of one key; `mapping` is what they are now."""

    def __init__(
        self, assigner: MergingWindowAssigner[Any, Any], mapping: Mapping[Any, Any]
    ) -> None:
        """Begin with what is stored for the key."""
        self._assigner = assigner
        self._sessions = isinstance(assigner, SessionWindows)
        self.mapping = dict(mapping)
        self.changed = False
        """Whether the mapping is another than what is stored."""

    def state_window(self, window: Any) -> Any:
        """Return where the contents of a window are, None for one that is not in flight."""
        return self.mapping.get(window)

    def retire(self, window: Any) -> None:
        """Forget a window that is over."""
        del self.mapping[window]
        self.changed = True

    def add(
        self, new: Any, merge: Callable[[Merged], None], is_over: Callable[[Any], bool] = _never
    ) -> Any:
        """Add the window of a record; return the window in flight that it is part of.

        `merge` is called for every group of windows that are one window now, unless it is one
        window that stays as it was. Windows that are over do not merge any more: a job before may
        have let them stay for longer.
        """
        if new in self.mapping:
            return new
        groups: list[tuple[list[Any], Any]] = []
        # Sessions in flight are apart from each other: only those matter that the new one touches.
        near = (w for w in self.mapping if w.intersects(new)) if self._sessions else self.mapping
        others = [w for w in near if not is_over(w)]
        if others:
            self._assigner.merge_windows([*others, new], _Groups(groups))
        result = new
        for members, merged_into in groups:
            older = [member for member in dict.fromkeys(members) if member != new]
            if len(older) < len(members):
                result = merged_into
            self._unite(older, merged_into, merge)
        if result == new and new not in self.mapping:
            self.mapping[new] = new
            self.changed = True
        return result

    def _unite(self, members: list[Any], result: Any, merge: Callable[[Merged], None]) -> None:
        states = [self.mapping.pop(member) for member in members if member in self.mapping]
        if not states:
            return
        target, sources = states[0], states[1:]
        self.mapping[result] = target
        if members != [result]:
            self.changed = True
            merge(Merged(result, members, target, sources))


class _Groups:
    """Writes down what an assigner wants merged; can be called, too."""

    def __init__(self, groups: list[tuple[list[Any], Any]]) -> None:
        self._groups = groups

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        """Write one group down."""
        self._groups.append((list(to_be_merged), merge_result))

    __call__ = merge
