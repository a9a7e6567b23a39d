"""What a backend offers so that others may look at its state between two records.

Looking changes nothing: no entry counts as used or changed, none is brought into a cache, and no
time to live begins anew. What is returned are the backend's own objects, to be encoded before
anything else happens. State that was restored is there before the program asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from weir.backend.base import StateCleanup
from weir.backend.group_format import GroupFormat
from weir.backend.kinds import StateKind
from weir.backend.restored import RestoredState
from weir.keygroup import KeyGroupRange

Entries = Iterable[tuple[Any, Any]]
"""Addresses (`weir.backend.address`) and what is stored under them."""


@dataclass(frozen=True)
class SeenState:
    """A state: how its entries are encoded, and what drops them.

    One that was `restored` and not asked for since has the types that it was stored with, which
    need not be those that it will have; what drops its entries is not known.
    """

    name: str
    kind: StateKind
    format: GroupFormat
    cleanup: StateCleanup | None
    restored: bool = False


def seen_restored(states: Iterable[RestoredState]) -> list[SeenState]:
    """Return states that were restored and not asked for; what is of no kind cannot be seen.

    Raises:
        CorruptStateError: the description of a type is none.
    """
    return [
        SeenState(s.name, StateKind[s.kind], s.stored_format(), cleanup=None, restored=True)
        for s in states
        if s.kind in StateKind.__members__
    ]


@runtime_checkable
class Peekable(Protocol):
    """A keyed backend that can be looked at, on its own thread, between two strides."""

    key_groups: KeyGroupRange

    def seen_states(self) -> list[SeenState]:
        """Return the registered states, and those that were restored and not asked for."""

    def peek(self, name: str, group: int, keys: Collection[Any], *, spaced: bool) -> Entries:
        """Return the entries of some keys of a key group that is owned.

        With `spaced` those in all namespaces, else those outside of them.
        """

    def peek_group(self, name: str, group: int) -> Entries:
        """Return all entries of a key group that is owned."""
