"""Rows in flight in a slot's snapshot file: written with a checkpoint, dealt out by a restore.

The footer of the file has one more key::

    "in_flight": {"level": …, "edges": [[fields of `StoredEdge`], …],
                  "frames": [[edge, target subtask, origin, offset, length, crc32], …],
                  "reports": [offset, length, crc32] or nothing}

`edge` is a position in `edges`. Every new subtask looks at all files and reads the frames that are
its own; `weir.checkpoint.in_flight` says which. Restored frames are handed to the subtask as input
of the level where they were going, in the first epoch.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, Final

from weir.checkpoint.in_flight import (
    StoredEdge,
    is_chosen_by_record,
    is_routed_anew,
    is_taken,
)
from weir.errors import CorruptStateError, IncompatibleStateError, WeirError
from weir.graph.plan import EdgeNode, JobPlan
from weir.runtime.exchange import EdgeWriter
from weir.runtime.frame import Chunk, Incoming, dumps, unpack_data
from weir.runtime.in_flight import GENERATION, InFlight, ReportedRows, as_buffer, count_records
from weir.runtime.subtask import Subtask
from weir.snapshot import SnapshotReader, SnapshotWriter

IN_FLIGHT: Final = "in_flight"


class StoredRows:
    """Rows in flight, ready to be written."""

    def __init__(self, plan: JobPlan, rows: InFlight) -> None:
        self._plan = plan
        self._rows = rows
        self.level = rows.level

    def __bool__(self) -> bool:
        """Tell whether there is anything to write."""
        return bool(self._rows)

    @property
    def records(self) -> int:
        """Count the records, those on their way to the driver included."""
        reported = sum(len(rows.values) for rows in self._rows.reports)
        return reported + count_records(self._plan, self._rows.frames)

    def write(self, writer: SnapshotWriter) -> dict[str, Any]:
        """Write the rows; return their footer part."""
        frames, reports = self._rows.frames, self._rows.reports
        numbers = sorted({frame.edge for frame in frames})
        position = {edge: i for i, edge in enumerate(numbers)}
        sections = writer.slices(bytes(memoryview(frame.payload)) for frame in frames)
        return {
            "level": self.level,
            "edges": [astuple(StoredEdge.of(self._plan, self._plan.edges[n])) for n in numbers],
            "frames": [
                (position[frame.edge], frame.target, frame.origin, *section)
                for frame, section in zip(frames, sections, strict=True)
            ],
            "reports": writer.section(_pack_reports(reports)) if reports else (),
        }


def _pack_reports(reports: list[ReportedRows]) -> bytes:
    return dumps([(rows.operator, rows.kind, rows.values) for rows in reports])


def restore_rows(
    subtask: Subtask,
    stored: Sequence[tuple[int, SnapshotReader]],
    *,
    allow_missing: bool,
) -> None:
    """Give a subtask its share of the rows in flight of all old subtasks.

    Raises:
        CorruptStateError: a file is damaged or does not hold what the metadata says.
        IncompatibleStateError: the program has no place for some rows, and that is not allowed.
    """
    own = _OwnRows(subtask, allow_missing)
    for old, reader in stored:
        part = reader.footer.get(IN_FLIGHT)
        if part is None:
            msg = f"{reader.name!r} holds no rows in flight, as its checkpoint says"
            raise CorruptStateError(msg)
        own.take_frames(reader, part)
        if part["reports"] and old % subtask.plan.slots == subtask.facts.subtask:
            own.take_reports(reader, part)


class _OwnRows:
    """What one subtask takes."""

    def __init__(self, subtask: Subtask, allow_missing: bool) -> None:
        self._subtask = subtask
        self._plan = subtask.plan
        self._index = subtask.facts.subtask
        self._allow_missing = allow_missing

    def take_frames(self, reader: SnapshotReader, part: dict[str, Any]) -> None:
        edges = [self._edge(StoredEdge(*found), reader) for found in part["edges"]]
        wanted = []
        for position, target, number, *section in part["frames"]:
            stored, edge = edges[position]
            if edge is None or self._index >= edge.parallelism:
                continue
            if is_taken(stored, edge, target, self._index):
                wanted.append((stored, edge, number, section))
        payloads = reader.sections(section for *_, section in wanted)
        for (stored, edge, number, _), payload in zip(wanted, payloads, strict=True):
            self._take(stored, edge, number, payload)

    def _edge(
        self, stored: StoredEdge, reader: SnapshotReader
    ) -> tuple[StoredEdge, EdgeNode | None]:
        edge = stored.find(self._plan)
        if edge is None:
            names = f"from operator {stored.source!r} to operator {stored.target!r}"
            self._refuse(f"{reader.name!r} holds rows in flight {names}")
        return stored, edge

    def _refuse(self, what: str) -> None:
        if not self._allow_missing:
            msg = (
                f"{what}, and the program has no such place: take a savepoint, which holds no "
                "rows in flight, before changing the program, or allow non-restored state to "
                "drop the rows"
            )
            raise IncompatibleStateError(msg)

    def _take(self, stored: StoredEdge, edge: EdgeNode, number: int, payload: bytes) -> None:
        if is_routed_anew(stored, edge) and is_chosen_by_record(edge):
            mine = self._chosen(edge, payload)
        else:
            mine = [payload]
        level = self._subtask.restored.setdefault(edge.target_level, [])
        level += [Incoming(edge.id, number - GENERATION, as_buffer(p)) for p in mine]

    def _chosen(self, edge: EdgeNode, payload: bytes) -> list[Any]:
        """Route the records of a frame anew, and return those that come here."""
        name = self._plan.operators[edge.target].name
        try:
            chunk = unpack_data(as_buffer(payload), edge)
            writer = EdgeWriter(edge, self._index, name)
            writer.write(Chunk(chunk.values, chunk.timestamps))
        except WeirError:
            raise
        except Exception as error:
            msg = f"rows in flight to '{name}' cannot be read: {type(error).__name__}: {error}"
            raise IncompatibleStateError(msg) from error
        return [frame.payload for frame in writer.frames if frame.target == self._index]

    def take_reports(self, reader: SnapshotReader, part: dict[str, Any]) -> None:
        indexes = {op.id: op.index for op in self._plan.operators}
        for operator, kind, values in pickle.loads(reader.section(part["reports"])):
            index = indexes.get(operator)
            if index is None:
                self._refuse(f"{reader.name!r} holds results of operator {operator!r}")
            else:
                self._subtask.restored_rows.append((index, kind, values))
