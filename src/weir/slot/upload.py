"""The async phase of a checkpoint: write what the sync phase froze, then acknowledge."""

from __future__ import annotations

from typing import Any

import msgspec

from weir.backend.base import RESERVED_PREFIX, KeyedPart
from weir.failpoint import reach
from weir.runtime.frame import MAX_WATERMARK, MIN_WATERMARK
from weir.runtime.stateful import OperatorSnapshot
from weir.slot.files import Recording, SlotFiles
from weir.slot.known_files import add_sizes, own_sizes
from weir.slot.messages import InFlightShare, OperatorShare
from weir.slot.rows import IN_FLIGHT, StoredRows
from weir.snapshot import FileHandle, SnapshotWriter
from weir.state.raw import RAW_KEYED


class Upload:
    """One slot's share of one checkpoint; what it made is known also when it fails."""

    def __init__(self, files: SlotFiles, checkpoint_id: int = 0) -> None:
        self._files = files
        self._checkpoint_id = checkpoint_id
        self._recordings: list[Recording] = []
        self.file: FileHandle | None = None
        self.shares: list[OperatorShare] = []
        self.in_flight: InFlightShare | None = None

    @property
    def created(self) -> list[FileHandle]:
        """Return the shared files that were made."""
        return [handle for recording in self._recordings for handle in recording.created]

    def keep_copies(self, checkpoint_id: int) -> None:
        """Put copies of all files of this share together, where copies are made."""
        copies = self._files.copies
        if copies is None:
            return
        own = [] if self.file is None else [self.file]
        shared = [h for share in self.shares for h in (*share.layers, *share.attachments)]
        copies.keep(checkpoint_id, own + shared, own + self.created)

    def run(
        self,
        directory: str,
        snapshots: list[OperatorSnapshot],
        rows: StoredRows | None = None,
    ) -> None:
        """Write one file for all operators of a slot, and shared ones where backends want them.

        Rows in flight go into the same file.

        All files are durable when this returns. When it raises, the checkpoint's own file is not
        visible, and shared files that were made are deleted.
        """
        if not snapshots and not rows:
            return

        def fill(writer: SnapshotWriter) -> dict[str, Any]:
            footers = {}
            for snapshot in snapshots:
                shared = Recording(self._files.shared(snapshot.node.id))
                self._recordings.append(shared)
                before = writer.size
                footer, keyed = snapshot.write(writer, shared)
                size = writer.size - before
                self._files.refuse_too_large(size)
                footers[snapshot.node.id] = footer
                share = share_of(snapshot, footer, keyed, size)
                self.shares.append(self._with_sizes(share, footer, keyed))
                reach("slot.upload")
            if not rows:
                return {"operators": footers}
            before = writer.size
            described = rows.write(writer)
            self.in_flight = InFlightShare(rows.level, rows.records, writer.size - before)
            self._files.refuse_too_large(self.in_flight.size)
            return {"operators": footers, IN_FLIGHT: described}

        try:
            self.file = self._files.write(directory, "", fill)
        except BaseException:
            for recording in self._recordings:
                for handle in recording.created:
                    recording.delete(handle)
            raise

    def _with_sizes(
        self, share: OperatorShare, footer: dict[str, Any], keyed: KeyedPart
    ) -> OperatorShare:
        used = self._files.known.use(self._checkpoint_id, (*keyed.layers, *keyed.attachments))
        sizes = own_sizes(footer)
        add_sizes(sizes, used.states)
        return msgspec.structs.replace(
            share,
            state_sizes={name: size for name, size in sizes.items() if size},
            other_size=used.other,
            reused_size=used.reused,
        )


def share_of(
    snapshot: OperatorSnapshot, footer: dict[str, Any], keyed: KeyedPart, size: int
) -> OperatorShare:
    """Return what the metadata says of an operator whose snapshot was written."""
    groups, watermark = snapshot.key_groups, snapshot.watermark
    # Every keyed operator has timers; only some make it one whose state would be missed.
    names = [n for n, e in footer["keyed"].items() if e["groups"] or not _are_timers(n)]
    return OperatorShare(
        operator=snapshot.node.id,
        keyed_range=None if groups is None else (groups.start, groups.end),
        keyed_states=sorted(names) + [RAW_KEYED] * ("raw_keyed" in footer),
        operator_states={
            name: (state["mode"], len(state["elements"]))
            for name, state in footer["operator"].items()
        },
        size=size,
        layers=list(keyed.layers),
        attachments=list(keyed.attachments),
        # After the end of time there may be more input: then it begins anew, as in Flink.
        watermark=watermark if MIN_WATERMARK < watermark < MAX_WATERMARK else None,
    )


def _are_timers(name: str) -> bool:
    return name.startswith(RESERVED_PREFIX)
