"""What backends do alike with the entries of key groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weir.backend.base import Keep
from weir.backend.kinds import Shape
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange


class Foreign(dict[Any, Any]):
    """Stands for the key groups that belong to other subtasks."""

    def _refuse(self, *_: Any) -> Any:
        msg = "the current key's key group is not owned by this subtask"
        raise UsageError(msg)

    get = __getitem__ = __setitem__ = __contains__ = pop = _refuse


FOREIGN = Foreign()


def owned_groups(key_groups: KeyGroupRange, make: Callable[[int], Any]) -> list[Any]:
    """Return a list by key group, with a refusal below the first one that is owned.

    So a record that was routed to the wrong subtask fails loudly instead of touching another
    group's entries.
    """
    return [FOREIGN] * key_groups.start + [make(group) for group in key_groups]


def kept(shape: Shape, stored: Any, keep: Keep) -> Any:
    """Return what stays of a stored entry: itself, a smaller copy, or None."""
    if shape is Shape.LIST:
        elements = [e for e in stored if keep(e)]
        return stored if len(elements) == len(stored) else elements or None
    if shape is Shape.MAP:
        entries = {k: v for k, v in stored.items() if keep(v)}
        return stored if len(entries) == len(stored) else entries or None
    return stored if keep(stored) else None
