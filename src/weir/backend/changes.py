"""What a backend offers so that its changes can be logged.

The log and whole-state snapshots add up: everything that happened before a `drain` is in what it
and earlier ones returned, or in a `snapshot_states` that was taken right after one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from weir.backend.base import KeyedBackend, KeyedSnapshot
from weir.backend.delta import GroupDelta
from weir.backend.group_format import GroupFormat
from weir.backend.kinds import StateKind


@dataclass
class StateChanges:
    """What changed in one state, by key group.

    With `whole` the state starts over: each group's `put` holds all its entries, and groups that
    are not there are empty. That is how a state that was restored with other types is logged.
    """

    name: str
    kind: StateKind
    format: GroupFormat
    groups: dict[int, GroupDelta] = field(default_factory=dict)
    whole: bool = False


class ChangeSource(KeyedBackend, Protocol):
    """A keyed backend that can tell what changed.

    All methods run on the backend's thread, between epochs.
    """

    def drain(self) -> list[StateChanges] | None:
        """Return all changes of registered states since the last drain (or the restore).

        Entries that were only restored are no changes, unless their state was registered with
        types whose description (`GroupFormat.describe`) differs from the stored one: then it is
        returned once as a `whole`; or the answer is None once, for all state has to be written
        anew, which what changed since the last drain is part of. The values are the backend's own
        objects: they are to be encoded before anything else happens. Costs time proportional to
        the changes.
        """

    def snapshot_states(self, checkpoint_id: int) -> KeyedSnapshot:
        """Freeze all states, also unregistered ones, but no timers.

        Written like `SnapshotKind.FULL`, but nothing is left out as expired. The number is for
        messages; it is no checkpoint's.
        """

    def snapshot_timers(self, checkpoint_id: int) -> KeyedSnapshot:
        """Freeze the timers alone, to be written into a checkpoint's own file."""
