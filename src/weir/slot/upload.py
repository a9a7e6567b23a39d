"""The async phase of a checkpoint: write what the sync phase froze, then acknowledge."""

from __future__ import annotations

from typing import Any

from weir.checkpoint.paths import new_data_file, resolve
from weir.failpoint import reach
from weir.runtime.stateful import OperatorSnapshot
from weir.slot.messages import FileFacts, OperatorPart
from weir.snapshot import SnapshotWriter
from weir.storage.base import Storage


def write_snapshots(
    storage: Storage, directory: str, subtask: int, attempt: int, snapshots: list[OperatorSnapshot]
) -> tuple[FileFacts | None, list[OperatorPart]]:
    """Write one file for all operators of a slot; the name is unique to this attempt.

    Either the whole file is durable when this returns, or nothing is visible.
    """
    if not snapshots:
        return None, []
    name = new_data_file(subtask, attempt)
    footers: dict[str, Any] = {}
    with storage.open_write(resolve(directory, name)) as out:
        writer = SnapshotWriter(out)
        for snapshot in snapshots:
            footers[snapshot.node.id] = snapshot.write(writer)
            reach("slot.upload")
        facts = writer.finish({"operators": footers})
    parts = [_part(s, footers[s.node.id]) for s in snapshots]
    return FileFacts(name, facts.size, facts.crc32), parts


def _part(snapshot: OperatorSnapshot, footer: dict[str, Any]) -> OperatorPart:
    groups = snapshot.key_groups
    return OperatorPart(
        operator=snapshot.node.id,
        keyed_range=None if groups is None else (groups.start, groups.end),
        keyed_states=sorted(footer["keyed"]),
        operator_states={
            name: (state["mode"], len(state["elements"]))
            for name, state in footer["operator"].items()
        },
    )
