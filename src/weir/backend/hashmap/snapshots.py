"""Frozen tables on their way into a file, whole or as changes.

Invariant: what is written is what was there when the snapshot object was made, however late and
on whatever thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weir.backend.base import Keep, KeyedPart, SnapshotOutput
from weir.backend.delta import encode_delta
from weir.backend.hashmap.marks import Changed, union
from weir.backend.hashmap.table import StateTable
from weir.backend.restored import RestoredState
from weir.backend.timers import TimerSnapshot
from weir.errors import UsageError
from weir.snapshot import SnapshotWriter


class StateNames:
    """Which states there are, for files beside those with the entries."""

    def __init__(self, tables: Iterable[StateTable], restored: Iterable[RestoredState]) -> None:
        self._tables = list(tables)
        self._restored = list(restored)

    def entries(self) -> dict[str, Any]:
        """Return footer entries without any key group."""
        entries = {table.name: _entry(table, {}) for table in self._tables}
        for state in self._restored:
            entries[state.name] = {"kind": state.kind, "type": state.types, "groups": {}}
        return entries


class FrozenTables:
    """All tables of a backend as they were, and what was not registered yet."""

    def __init__(
        self,
        checkpoint_id: int,
        tables: Iterable[StateTable],
        restored: Mapping[str, RestoredState],
        *,
        filtered: bool = False,
    ) -> None:
        """Freeze the tables; with `filtered`, what is expired by now stays out."""
        self._checkpoint_id = checkpoint_id
        self._frozen = [(table, table.freeze()) for table in tables]
        self._filters = [t.snapshot_filter() if filtered else None for t, _ in self._frozen]
        self._restored = list(restored.values())
        self._released = False

    def write(self, writer: SnapshotWriter) -> dict[str, Any]:
        """Write all entries; return the footer part.

        Raises:
            UsageError: the tables were released.
        """
        footer: dict[str, Any] = {}
        for (table, frozen), keep in zip(self._frozen, self._filters, strict=True):
            footer[table.name] = self._write_table(writer, table, frozen, keep)
        for state in self._restored:
            footer[state.name] = state.write(writer)
        return footer

    def _write_table(
        self,
        writer: SnapshotWriter,
        table: StateTable,
        frozen: dict[int, dict[Any, Any]],
        keep: Keep | None,
    ) -> dict[str, Any]:
        groups = {}
        for group, layer in frozen.items():
            count, data = table.encode(layer, keep)
            refuse_if(self._released, self._checkpoint_id)
            if count:
                groups[str(group)] = [[*writer.section(data), count, 0]]
        return _entry(table, groups)

    def release(self) -> None:
        """Merge the layers back; costs time proportional to the keys that changed meanwhile."""
        if not self._released:
            self._released = True
            for table, frozen in self._frozen:
                table.thaw(frozen)


class FrozenChanges:
    """What changed in tables in some intervals, frozen."""

    def __init__(
        self,
        checkpoint_id: int,
        tables: Mapping[str, StateTable],
        changes: dict[str, list[Changed]],
    ) -> None:
        """Freeze the key groups that changed."""
        self._checkpoint_id = checkpoint_id
        self._changes = changes
        self._tables = [table for name, table in tables.items() if name in changes]
        self._frozen = [table.freeze(self._groups(table)) for table in self._tables]
        self._released = False

    def _groups(self, table: StateTable) -> Iterable[int]:
        changes = self._changes[table.name]
        if any(changed.anew for changed in changes):
            return table.key_groups
        return sorted({group for changed in changes for group in changed.groups})

    def write(self, writer: SnapshotWriter) -> dict[str, Any]:
        """Write the changes; return the footer part.

        Raises:
            UsageError: the tables were released.
        """
        footer: dict[str, Any] = {}
        for table, frozen in zip(self._tables, self._frozen, strict=True):
            changed = union(self._changes[table.name])
            groups = self._whole(writer, table, frozen) if changed.anew else {}
            if not changed.anew:
                for group, delta in table.deltas(frozen, changed.groups):
                    refuse_if(self._released, self._checkpoint_id)
                    if len(delta):
                        data = encode_delta(table.format, delta)
                        groups[str(group)] = [[*writer.section(data), len(delta), 1]]
            footer[table.name] = _entry(table, groups)
        return footer

    def _whole(
        self, writer: SnapshotWriter, table: StateTable, frozen: dict[int, dict[Any, Any]]
    ) -> dict[str, Any]:
        groups = {}
        for group, layer in frozen.items():
            count, data = table.encode(layer, None)
            refuse_if(self._released, self._checkpoint_id)
            if count:
                groups[str(group)] = [[*writer.section(data), count, 0]]
        return groups

    def release(self) -> None:
        """Merge the layers back."""
        if not self._released:
            self._released = True
            for table, frozen in zip(self._tables, self._frozen, strict=True):
                table.thaw(frozen)


class HashMapSnapshot:
    """Everything in one file; see `weir.backend.base.KeyedSnapshot`."""

    def __init__(
        self, checkpoint_id: int, tables: FrozenTables | None, timers: list[TimerSnapshot]
    ) -> None:
        """Take frozen tables, timers, or both."""
        self.checkpoint_id = checkpoint_id
        self._tables = tables
        self._timers = timers

    def write(self, out: SnapshotOutput) -> KeyedPart:
        """Write the frozen state into the checkpoint's own file.

        Raises:
            UsageError: the snapshot was released.
        """
        footer = {} if self._tables is None else self._tables.write(out.writer)
        for timers in self._timers:
            footer.update(timers.write(out).states)
        return KeyedPart(footer)

    def release(self) -> None:
        """Give the frozen layers back."""
        if self._tables is not None:
            self._tables.release()


def refuse_if(released: bool, checkpoint_id: int) -> None:
    """Refuse to go on with layers that may change again."""
    if released:
        msg = f"snapshot {checkpoint_id} was released before it was written"
        raise UsageError(msg)


def _entry(table: StateTable, groups: dict[str, Any]) -> dict[str, Any]:
    return {"kind": table.kind.name, "type": table.format.describe(), "groups": groups}
