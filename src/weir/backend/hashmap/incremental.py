"""Checkpoints that consist of a chain of layers: all entries once, then changes.

Changes are kept in intervals, one per snapshot taken. A checkpoint holds the chain of the newest
completed checkpoint and one more layer with everything that changed since, whatever became of the
checkpoints between: only files of completed ones are sure to stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weir.backend.base import KeyedPart, SnapshotOutput
from weir.backend.hashmap.marks import Changed
from weir.backend.hashmap.snapshots import FrozenChanges, FrozenTables, StateNames
from weir.backend.hashmap.tracked import TrackedTable
from weir.backend.restored import RestoredState
from weir.backend.timers import TimerSnapshot
from weir.snapshot import FileHandle

LAYERS_MAX = 10
INTERVALS_MAX = 16


@dataclass(frozen=True)
class Chain:
    """The layers of a checkpoint, oldest first; the first one holds all entries of its moment."""

    layers: tuple[FileHandle, ...] = ()

    def extended(self, layer: FileHandle) -> Chain:
        """Return the chain with one more layer."""
        return Chain((*self.layers, layer))


def needs_base(chain: Chain | None) -> bool:
    """Decide whether all entries are written again instead of one more layer of changes.

    That is when there is no chain to go on with, when restoring it would read too many files, and
    when its changes have become more than half of what they are changes to.
    """
    if chain is None or not chain.layers:
        return True
    base, *deltas = chain.layers
    return len(chain.layers) >= LAYERS_MAX or 2 * sum(d.size for d in deltas) > base.size


@dataclass
class Taken:
    """A checkpoint on its way: its chain is known once it has been written."""

    checkpoint_id: int
    chain: Chain | None = None


@dataclass
class Interval:
    """What changed before a snapshot was taken, and after the one before, by state."""

    checkpoint_id: int
    states: dict[str, Changed] = field(default_factory=dict)


class Increments:
    """The chain of the newest completed checkpoint and all that happened since."""

    def __init__(self) -> None:
        self._chain: Chain | None = None
        self._taken: dict[int, Taken] = {}
        self._intervals: list[Interval] = []

    def restored(self, layers: tuple[FileHandle, ...] | None) -> None:
        """Go on with the layers of a restored checkpoint, if there are any to go on with."""
        self._chain = None if layers is None else Chain(layers)

    def take(
        self,
        checkpoint_id: int,
        tables: dict[str, TrackedTable],
        restored: dict[str, RestoredState],
        timers: list[TimerSnapshot],
    ) -> IncrementalSnapshot:
        """Freeze what the checkpoint has to write; the changes until now become an interval."""
        taken = {name: table.take() for name, table in tables.items()}
        changed = {name: c for name, c in taken.items() if c.groups or c.anew}
        if self._chain is not None or self._taken:
            self._intervals.append(Interval(checkpoint_id, changed))
        if len(self._intervals) > INTERVALS_MAX:
            # Nothing completes: do not remember changes to a chain that is long out of date.
            self._chain = None
            self._intervals.clear()
            self._taken.clear()
        entry = self._taken[checkpoint_id] = Taken(checkpoint_id)
        payload: FrozenTables | FrozenChanges | None
        if needs_base(self._chain):
            chain = Chain()
            payload = FrozenTables(checkpoint_id, tables.values(), restored)
        else:
            chain, since = self._chain or Chain(), self._since()
            payload = FrozenChanges(checkpoint_id, tables, since) if since else None
        names = StateNames(tables.values(), restored.values())
        return IncrementalSnapshot(entry, chain, payload, names, timers=timers)

    def _since(self) -> dict[str, list[Changed]]:
        changes: dict[str, list[Changed]] = {}
        for interval in self._intervals:
            for name, changed in interval.states.items():
                changes.setdefault(name, []).append(changed)
        return changes

    def completed(self, checkpoint_id: int) -> None:
        """Go on with the chain of a completed checkpoint, unless a newer one has completed."""
        taken = self._taken.pop(checkpoint_id, None)
        if taken is None or taken.chain is None:
            return
        self._chain = taken.chain
        self._intervals = [i for i in self._intervals if i.checkpoint_id > checkpoint_id]
        # Older ones that complete later are no news.
        self._taken = {n: t for n, t in self._taken.items() if n > checkpoint_id}

    def aborted(self, checkpoint_id: int) -> None:
        """Forget a checkpoint; what it would have held is still to be written."""
        self._taken.pop(checkpoint_id, None)


class IncrementalSnapshot:
    """One more layer over a chain; see `weir.backend.base.KeyedSnapshot`."""

    def __init__(
        self,
        taken: Taken,
        chain: Chain,
        payload: FrozenTables | FrozenChanges | None,
        names: StateNames,
        timers: list[TimerSnapshot],
    ) -> None:
        """Take what was frozen; without a payload the chain stays as it is."""
        self.checkpoint_id = taken.checkpoint_id
        self._taken = taken
        self._chain = chain
        self._payload = payload
        self._names = names
        self._timers = timers

    def write(self, out: SnapshotOutput) -> KeyedPart:
        """Make the new layer; timers go into the checkpoint's own file.

        Raises:
            UsageError: the snapshot was released.
        """
        chain = self._chain
        if self._payload is not None:
            chain = chain.extended(out.shared.write(self._payload.write))
        states = self._names.entries()
        for timers in self._timers:
            states.update(timers.write(out).states)
        self._taken.chain = chain
        return KeyedPart(states, chain.layers)

    def release(self) -> None:
        """Give the frozen layers back."""
        if self._payload is not None:
            self._payload.release()
