"""What a backend offers so that others may look at its state between two records.

Looking changes nothing: no entry counts as used or changed, none is brought into a cache, and no
time to live begins anew. What is returned are the backend's own objects, to be encoded before
anything else happens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from weir.backend.base import StateCleanup
from weir.backend.group_format import GroupFormat
from weir.backend.kinds import StateKind
from weir.keygroup import KeyGroupRange

Entries = Iterable[tuple[Any, Any]]
"""Addresses (`weir.backend.address`) and what is stored under them."""


@dataclass(frozen=True)
class SeenState:
    """A registered state: how its entries are encoded, and what drops them."""

    name: str
    kind: StateKind
    format: GroupFormat
    cleanup: StateCleanup | None


@runtime_checkable
class Peekable(Protocol):
    """A keyed backend that can be looked at, on its own thread, between two strides."""

    key_groups: KeyGroupRange

    def seen_states(self) -> list[SeenState]:
        """Return the registered states."""

    def peek(self, name: str, group: int, keys: Collection[Any], *, spaced: bool) -> Entries:
        """Return the entries of some keys of a key group that is owned.

        With `spaced` those in all namespaces, else those outside of them.
        """

    def peek_group(self, name: str, group: int) -> Entries:
        """Return all entries of a key group that is owned."""
