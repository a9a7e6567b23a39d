"""Filling a subtask's operators from the files that its assignment names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weir.backend.base import RestoreSource, StateLayer
from weir.errors import CorruptStateError
from weir.keygroup import KeyGroupRange
from weir.runtime.stateful import StatefulOperator
from weir.runtime.subtask import Subtask
from weir.slot.copies import HostCopies, RestoreCopies, copy_name
from weir.slot.files import StoredFiles
from weir.slot.known_files import KnownFiles
from weir.slot.messages import Assignment, KeyedSource, OperatorRestore
from weir.slot.rows import restore_rows
from weir.snapshot import FileHandle, SnapshotReader
from weir.state.operator_state import OperatorRestoreSource
from weir.state.raw import RawKeyedSource
from weir.storage.base import Storage
from weir.storage.uri import open_storage


def restore_subtask(
    subtask: Subtask,
    assignment: Assignment,
    storage: Storage | None = None,
    copies: HostCopies | None = None,
    known: KnownFiles | None = None,
) -> None:
    """Restore every operator; nothing of the user has run yet.

    Reads from `storage` where it is given, else from the one that the assignment names; and before
    that from the host's `copies`, if the assignment wants them. `known` is told of files that
    checkpoints to come may refer to.

    Raises:
        CorruptStateError: a file is damaged or does not hold what the metadata says.
        MissingCopyError: only a copy could have been read, and there is none.
        IncompatibleStateError: rows in flight have no place in the program.
    """
    if assignment.checkpoint_id is None:
        return
    opened = storage or open_storage(assignment.restore_uri, assignment.storage)
    files = StoredFiles(
        opened, assignment.restore_directory, assignment.job_id, _copies(assignment, copies)
    )
    readers: dict[str, SnapshotReader] = {}

    def reader(handle: FileHandle) -> SnapshotReader:
        found = readers.get(handle.path)
        if found is None:
            found = readers[handle.path] = files.reader(handle)
        return found

    parts = {r.operator: r for r in assignment.restore}
    for op in subtask.operators.values():
        if isinstance(op, StatefulOperator):
            part = parts.get(op.node.id, OperatorRestore(op.node.id, [], []))
            keyed = [
                RestoreSource(
                    tuple(
                        StateLayer(reader(h), _footer(reader(h), part.operator)["keyed"], h)
                        for h in source.files
                    ),
                    key_groups=KeyGroupRange(source.start, source.end),
                    stored=KeyGroupRange(*source.stored),
                    files=files,
                    reusable=assignment.reusable,
                )
                for source in part.keyed
            ]
            elements = [_elements(reader(h), part.operator, wanted) for h, wanted in part.elements]
            raw = [_raw(reader, part.operator, source) for source in part.keyed]
            op.restore(assignment.checkpoint_id, keyed, elements, raw)
            if known is not None and assignment.reusable:
                for layer in (layer for source in keyed for layer in source.layers):
                    if layer.handle is not None:
                        known.restored(files.lasting(layer.handle).path, layer.states)
            if part.watermark is not None:
                op.restore_watermark(part.watermark)
    subtask.time.restore(assignment.partitions)
    stored = [(source.subtask, reader(source.file)) for source in assignment.in_flight]
    restore_rows(subtask, stored, allow_missing=assignment.allow_non_restored)


def _copies(assignment: Assignment, host: HostCopies | None) -> RestoreCopies | None:
    place, checkpoint_id = assignment.copies, assignment.checkpoint_id
    if host is None or place is None or not place.restore or checkpoint_id is None:
        return None
    return RestoreCopies(host, checkpoint_id, frozenset(map(copy_name, assignment.damaged)))


def _footer(reader: SnapshotReader, operator: str) -> dict[str, Any]:
    part = reader.footer.get("operators", {}).get(operator)
    if part is None:
        msg = f"{reader.name!r} holds nothing of operator {operator!r}, as its checkpoint says"
        raise CorruptStateError(msg)
    found: dict[str, Any] = part
    return found


def _raw(
    reader: Callable[[FileHandle], SnapshotReader], operator: str, source: KeyedSource
) -> RawKeyedSource:
    # Raw state is written anew for every checkpoint, so only its own file has any.
    own = reader(source.files[-1])
    part = _footer(own, operator).get("raw_keyed", {})
    return RawKeyedSource(own, part, KeyGroupRange(source.start, source.end))


def _elements(
    reader: SnapshotReader, operator: str, wanted: dict[str, list[int]]
) -> OperatorRestoreSource:
    stored = _footer(reader, operator)["operator"]
    states = {}
    for name, positions in wanted.items():
        state = stored[name]
        states[name] = {**state, "elements": [state["elements"][i] for i in positions]}
    return OperatorRestoreSource(reader, states)
