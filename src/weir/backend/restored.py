"""State that was restored and not yet asked for: encoded, checked, carried along.

A function may register its states at any time after the restore. Until it does, the bytes are kept
as they came and go into every later snapshot unchanged, so that nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weir.backend.base import RESERVED_PREFIX, RestoreSource
from weir.backend.group_format import GroupFormat
from weir.errors import CorruptStateError, IncompatibleStateError
from weir.keygroup import KeyGroupRange
from weir.snapshot import SnapshotWriter


@dataclass(frozen=True)
class EncodedGroup:
    """The bytes of one key group, how many entries they hold, and the file they came from."""

    data: bytes
    count: int
    origin: str


@dataclass
class RestoredState:
    """One state as its snapshots describe it."""

    name: str
    kind: str
    types: dict[str, Any]
    groups: dict[int, EncodedGroup] = field(default_factory=dict)

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

    def write(self, writer: SnapshotWriter) -> dict[str, Any]:
        """Write the groups through and return the footer entry."""
        groups = {
            str(group): [*writer.section(part.data), part.count]
            for group, part in self.groups.items()
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
        for name, entry in source.states.items():
            if name.startswith(RESERVED_PREFIX) is timers:
                _read_state(states, name, entry, source, wanted)
    return states


def _read_state(
    states: dict[str, RestoredState],
    name: str,
    entry: Any,
    source: RestoreSource,
    wanted: KeyGroupRange,
) -> None:
    origin = source.reader.name
    state = states.setdefault(name, RestoredState(name, entry["kind"], entry["type"]))
    if (state.kind, state.types) != (entry["kind"], entry["type"]):
        msg = f"state {name!r} in {origin!r} has another kind or type than in its other files"
        raise CorruptStateError(msg)
    groups = {int(text): address for text, address in entry["groups"].items()}
    taken = sorted(wanted_groups := groups.keys() & set(wanted))
    if not state.groups.keys().isdisjoint(wanted_groups):
        msg = f"state {name!r} has key groups that are in {origin!r} and in another file"
        raise CorruptStateError(msg)
    parts = source.reader.sections([groups[g] for g in taken])
    for group, data in zip(taken, parts, strict=True):
        state.groups[group] = EncodedGroup(data, groups[group][3], origin)
