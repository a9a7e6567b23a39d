"""State that was restored and not yet asked for: encoded, checked, carried along.

A function may register its states at any time after the restore. Until it does, the bytes are kept
as they came and go into every later snapshot unchanged, so that nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weir.backend.base import NATIVE_PREFIX, RESERVED_PREFIX, RestoreSource, StateLayer
from weir.backend.delta import apply_delta, decode_delta
from weir.backend.group_format import GroupFormat
from weir.errors import CorruptStateError, IncompatibleStateError
from weir.keygroup import KeyGroupRange
from weir.snapshot import SnapshotWriter


@dataclass(frozen=True)
class EncodedGroup:
    """One part of a key group: all its entries, or with `delta` changes to the parts before it."""

    data: bytes
    count: int
    origin: str
    delta: bool = False


@dataclass
class RestoredState:
    """One state as its snapshots describe it."""

    name: str
    kind: str
    types: dict[str, Any]
    groups: dict[int, list[EncodedGroup]] = field(default_factory=dict)

    def check(self, kind: str, group_format: GroupFormat) -> None:
        """Refuse a registration that cannot read the restored entries.

        Raises:
            IncompatibleStateError: kind or types differ.
        """
        found, wanted = (self.kind, self.types), (kind, group_format.describe())
        if found != wanted:
            msg = (
                f"state {self.name!r} was restored as {found[0]} of type {found[1]!r}, but the "
                f"program declares {wanted[0]} of type {wanted[1]!r}: declare it as it was "
                f"stored, or give the new state another name"
            )
            raise IncompatibleStateError(msg)

    def entries(self, group: int, group_format: GroupFormat) -> dict[Any, Any]:
        """Decode a group's entries by address, all parts applied.

        Raises:
            CorruptStateError: the bytes are not in the group format.
        """
        entries: dict[Any, Any] = {}
        for part in self.groups[group]:
            if part.delta:
                apply_delta(entries, decode_delta(group_format, part.data, part.origin), self.kind)
            else:
                entries.update(group_format.decode(part.data, part.origin))
        return entries

    def write(self, writer: SnapshotWriter) -> dict[str, Any]:
        """Write the groups through and return the footer entry."""
        groups = {
            str(group): [[*writer.section(p.data), p.count, int(p.delta)] for p in parts]
            for group, parts in self.groups.items()
        }
        return {"kind": self.kind, "type": self.types, "groups": groups}


def read_states(
    sources: list[RestoreSource], key_groups: KeyGroupRange, *, timers: bool = False
) -> dict[str, RestoredState]:
    """Read the wanted key groups of all states from the sources, checksums verified.

    Timers are stored like states; they are read only when asked for, and then alone.

    Raises:
        CorruptStateError: a file is damaged, or two files hold the same key group.
    """
    states: dict[str, RestoredState] = {}
    for source in sources:
        wanted = source.key_groups.intersect(key_groups)
        taken: dict[str, RestoredState] = {}
        for layer in source.layers:
            for name, entry in layer.states.items():
                if name.startswith(NATIVE_PREFIX) or name.startswith(RESERVED_PREFIX) is not timers:
                    continue
                _read_layer(taken, name, entry, layer, wanted)
        for state in taken.values():
            _unite(states, state)
    return states


def _read_layer(
    states: dict[str, RestoredState],
    name: str,
    entry: Any,
    layer: StateLayer,
    wanted: KeyGroupRange,
) -> None:
    """Take a layer of one old subtask: whole groups replace what older layers said."""
    origin = layer.reader.name
    groups = {int(text): parts for text, parts in entry["groups"].items()}
    taken = [(g, part) for g in sorted(groups.keys() & set(wanted)) for part in groups[g]]
    data = layer.reader.sections([part for _, part in taken])
    state = states.get(name)
    if state is None or (state.kind, state.types) != (entry["kind"], entry["type"]):
        # A type that changed makes the state start over; its old entries were written anew.
        state = states[name] = RestoredState(name, entry["kind"], entry["type"])
    for (group, part), encoded in zip(taken, data, strict=True):
        found = EncodedGroup(encoded, part[3], origin, bool(part[4]))
        if found.delta:
            state.groups.setdefault(group, []).append(found)
        else:
            state.groups[group] = [found]


def _unite(states: dict[str, RestoredState], found: RestoredState) -> None:
    """Add what another old subtask stored of a state."""
    state = states.setdefault(found.name, found)
    if state is found:
        return
    origin = next((p.origin for parts in found.groups.values() for p in parts), "a file")
    if (state.kind, state.types) != (found.kind, found.types):
        msg = f"state {found.name!r} in {origin!r} has another kind or type than in its other files"
        raise CorruptStateError(msg)
    if not state.groups.keys().isdisjoint(found.groups):
        msg = f"state {found.name!r} has key groups that are in {origin!r} and in another file"
        raise CorruptStateError(msg)
    state.groups.update(found.groups)
