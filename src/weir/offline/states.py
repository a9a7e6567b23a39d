"""States of one operator as the footers of its files describe them, layers applied.

Footers are data of a file: what is not in the known form is a `CorruptStateError` that names it.
No section is read, so nothing is ever decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from weir.backend.base import NATIVE_PREFIX
from weir.errors import CorruptStateError
from weir.offline.model import OperatorStateDescription, StateDescription
from weir.offline.text import expires, kind_text, ranges_text, types_text
from weir.snapshot import SnapshotReader

_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)


@dataclass(frozen=True)
class _Part:
    bytes: int
    count: int
    delta: bool


@dataclass
class _Keyed:
    """A keyed state: of one subtask while its layers are applied, of all of them afterwards."""

    kind: str
    types: Any
    groups: dict[int, list[_Part]] = field(default_factory=dict)
    in_database: bool = False
    known_entries: int = 0

    def describe(self, name: str) -> StateDescription:
        parts = [part for group in self.groups.values() for part in group]
        changes = sum(part.count for part in parts if part.delta)
        timers = self.kind == "TIMER"
        exact = not changes and (timers or not self.in_database)
        count = self.known_entries + sum(part.count for part in parts if not part.delta)
        return StateDescription(
            name=name,
            kind=kind_text(self.kind),
            types=types_text(self.types),
            expires=expires(self.types),
            entries=count if exact else None,
            changes=changes,
            bytes=None if self.in_database else sum(part.bytes for part in parts),
            key_groups=ranges_text(self.groups),
        )


@dataclass
class _Elements:
    mode: str
    types: Any
    count: int = 0
    bytes: int = 0


class OperatorContents:
    """Adds up what the subtasks of one operator stored."""

    def __init__(self, operator_id: str) -> None:
        self._id = operator_id
        self._keyed: dict[str, _Keyed] = {}
        self._elements: dict[str, _Elements] = {}
        self._raw: dict[int, int] = {}
        self._database_bytes = 0

    def add_subtask(self, layers: list[SnapshotReader], own: SnapshotReader | None) -> None:
        """Take one subtask's files, oldest first, its own file last.

        Raises:
            CorruptStateError: a footer is not in the known form.
        """
        keyed: dict[str, _Keyed] = {}
        for reader in [*layers, *([] if own is None else [own])]:
            with _checked(reader):
                for name, entry in self._footer(reader).get("keyed", {}).items():
                    if name.startswith(NATIVE_PREFIX):
                        self._database_bytes += _read_native(keyed, entry)
                    else:
                        _read_layer(keyed, name, entry)
        for name, state in keyed.items():
            self._unite(name, state)
        if own is not None:
            with _checked(own):
                self._add_own(self._footer(own))

    def _footer(self, reader: SnapshotReader) -> Mapping[str, Any]:
        found: Mapping[str, Any] = reader.footer["operators"].get(self._id, {})
        return found

    def _unite(self, name: str, found: _Keyed) -> None:
        state = self._keyed.get(name)
        if state is None:
            self._keyed[name] = found
            return
        if found.groups and not state.groups:
            state.kind, state.types = found.kind, found.types
        state.groups.update(found.groups)
        state.in_database |= found.in_database
        state.known_entries += found.known_entries

    def _add_own(self, footer: Mapping[str, Any]) -> None:
        for name, entry in footer.get("operator", {}).items():
            state = self._elements.setdefault(name, _Elements(str(entry["mode"]), entry["type"]))
            state.count += len(entry["elements"])
            state.bytes += sum(int(length) for _, length, _ in entry["elements"])
        for group, (_, length, _) in footer.get("raw_keyed", {}).get("groups", {}).items():
            self._raw[int(group)] = int(length)

    @property
    def states(self) -> tuple[StateDescription, ...]:
        """Return the keyed states, timers last."""
        found = [state.describe(name) for name, state in sorted(self._keyed.items())]
        return tuple(sorted(found, key=lambda state: state.kind == kind_text("TIMER")))

    def groups(self, name: str) -> list[tuple[int, int, int]] | None:
        """Return key group, entries and bytes of a keyed state in order; None without that state.

        Changes count as entries; numbers that a database keeps to itself are -1.
        """
        state = self._keyed.get(name)
        if state is None:
            return None
        return [
            (
                group,
                -1 if state.in_database else sum(part.count for part in parts),
                -1 if state.in_database else sum(part.bytes for part in parts),
            )
            for group, parts in sorted(state.groups.items())
        ]

    def has_changes(self, name: str) -> bool:
        """Tell whether a keyed state is stored as changes, which are more than its entries."""
        state = self._keyed.get(name)
        parts = () if state is None else (p for group in state.groups.values() for p in group)
        return any(part.delta for part in parts)

    @property
    def operator_states(self) -> tuple[OperatorStateDescription, ...]:
        """Return the operator states."""
        return tuple(
            OperatorStateDescription(
                name, s.mode, types=types_text(s.types), elements=s.count, bytes=s.bytes
            )
            for name, s in sorted(self._elements.items())
        )

    @property
    def database_bytes(self) -> int:
        """Return how much the files of databases are."""
        return self._database_bytes

    @property
    def raw_bytes(self) -> int:
        """Return how much raw keyed state there is."""
        return sum(self._raw.values())

    @property
    def raw_key_groups(self) -> str | None:
        """Return the key groups with raw state."""
        return ranges_text(self._raw)

    @property
    def bytes(self) -> int:
        """Return how much all state of the operator is."""
        keyed = sum(state.bytes or 0 for state in self.states)
        elements = sum(state.bytes for state in self.operator_states)
        return keyed + elements + self.raw_bytes + self.database_bytes


@contextmanager
def _checked(reader: SnapshotReader) -> Iterator[None]:
    try:
        yield
    except _MALFORMED as error:
        msg = f"{reader.name!r} is damaged: its footer is not in the known form ({error!r})"
        raise CorruptStateError(msg) from error


def _read_layer(states: dict[str, _Keyed], name: str, entry: Mapping[str, Any]) -> None:
    """Take one layer of a state, as a restore does: whole groups replace older ones."""
    state = states.get(name)
    kind = str(entry["kind"])
    if state is None or (state.kind, state.types) != (kind, entry["type"]):
        state = states[name] = _Keyed(kind, entry["type"])
    for text, stored in entry["groups"].items():
        group = int(text)
        for _, length, _, count, delta in stored:
            part = _Part(int(length), int(count), bool(delta))
            if part.delta:
                state.groups.setdefault(group, []).append(part)
            else:
                state.groups[group] = [part]


def _read_native(states: dict[str, _Keyed], entry: Mapping[str, Any]) -> int:
    """Take the description of a database; returns how many bytes its files are."""
    for name, kind, types, *_ in (*entry["stored"], *entry["packed"]):
        states[name] = _Keyed(str(kind), types, in_database=True)
    for name, timers in entry["timers"].items():
        counts = {int(group): int(count) for group, count in timers["counts"]}
        state = _Keyed("TIMER", timers["type"], in_database=True)
        state.known_entries = sum(counts.values())
        state.groups = {group: [] for group in counts}
        states[name] = state
    tables = sum(int(length) for _, _, _, length in entry["tables"])
    return tables + sum(int(length) for _, _, length, _ in entry["files"])
