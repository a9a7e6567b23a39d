"""What the caches of all kinds of state share: where rows are, what memory is left, key groups.

Between two flushes a cache is the truth for what it holds and the database for the rest. A cache
holds values as objects, so that a hot key is decoded once; what changed is written by `flush`,
which leaves the cache as it is, and `forget` drops what the database has too.

A tracked store also remembers what flushes and sweeps wrote, until `drain`: addresses, map keys,
and the bytes of appended list elements. The other values are read again then, so that what is
drained is what the database holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from weir.backend.admission import holds_only_immutable
from weir.backend.base import Keep, StateCleanup
from weir.backend.delta import GroupDelta
from weir.backend.group_format import GroupFormat
from weir.backend.isolation import IMMUTABLE
from weir.backend.kinds import StateKind
from weir.backend.rocksdb.database import ColumnFamily, Row, WriteBatch
from weir.backend.rocksdb.keys import Addresses
from weir.keygroup import KeyGroupRange

ABSENT: Final = object()
"""In a cache: known not to be there."""
ENTRY_BYTES = 250
"""What an entry of a cache takes beside its value, about."""


class Budget:
    """Counts the memory of all caches of a backend, and calls for relief when it is used up."""

    __slots__ = ("_limit", "_relieve", "used")

    def __init__(self, limit: int, relieve: Callable[[], None]) -> None:
        """Call `relieve` whenever more than `limit` bytes are in use."""
        self._limit = limit
        self._relieve = relieve
        self.used = 0

    def charge(self, size: int) -> None:
        """Count the memory of a new entry."""
        self.used += size + ENTRY_BYTES
        if self.used > self._limit:
            self._relieve()


class Sequence:
    """Numbers that grow through the life of a database."""

    __slots__ = ("last",)

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def next(self) -> int:
        """Return the next number."""
        self.last += 1
        return self.last


@dataclass
class StateFacts:
    """One registered state: its declaration as far as the backend needs it, and its rows."""

    name: str
    kind: StateKind
    format: GroupFormat
    cleanup: StateCleanup | None
    family: ColumnFamily

    def snapshot_filter(self) -> Keep | None:
        """Return what full snapshots taken now leave out, None for nothing."""
        cleanup = self.cleanup
        return cleanup.keep() if cleanup is not None and cleanup.full_snapshot else None


@dataclass(frozen=True)
class StoreContext:
    """What the stores of a backend have in common; `operator` is its name for people."""

    addresses: Addresses
    key_groups: KeyGroupRange
    budget: Budget
    sequence: Sequence
    tracked: bool = False
    operator: str = ""


class Store(Protocol):
    """The cache in front of one state."""

    facts: StateFacts
    groups: list[Any]
    mutable: bool
    """Whether values may change in place."""

    def flush(self, batch: WriteBatch) -> None:
        """Write what changed, also values that were handed out and changed in place."""

    def forget(self, keep: Iterable[tuple[int, Any]] = ()) -> None:
        """Drop all flushed entries but those of some addresses, given with their key groups."""

    def peek(self, group: int, address: Any) -> Any:
        """Return what is stored under an address, None for nothing; it is not kept in memory."""

    def is_settled(self, group: int, address: Any) -> bool:
        """Tell whether the database has all there is of an address."""

    def filter(self, batch: WriteBatch, rows: list[Row], keep: Keep) -> list[bytes]:
        """Remove what is not kept from the rows of one address; return the keys of those hit."""

    def discard(self, group: int, address: Any, hit: list[bytes]) -> None:
        """Drop a settled entry, because a filter hit some of its rows."""

    def drain(self) -> dict[int, GroupDelta]:
        """Return all changes since the last drain; everything is flushed.

        The values may be objects of the cache.
        """


def may_change(value_type: Any) -> bool:
    """Tell whether values of a declared type may change in place."""
    return not holds_only_immutable(value_type)


def is_fixed(value: Any) -> bool:
    """Tell quickly whether a value cannot change; False when in doubt."""
    cls = value.__class__
    if cls is tuple and len(value) == 2:  # a value with its timestamp
        cls = value[0].__class__
    return cls in IMMUTABLE
