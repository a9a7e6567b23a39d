"""What can stand in for files of a checkpoint that are damaged or missing: local recovery."""

from __future__ import annotations

from collections.abc import Iterable

from weir.checkpoint.metadata import CheckpointMetadata, FileRecord
from weir.checkpoint.paths import is_uri
from weir.checkpoint.retention import CheckpointRef
from weir.jobmanager.settings import LocalRecovery
from weir.slot.copies import (
    HostCopies,
    MissingCopyError,
    Source,
    choose_source,
    copy_name,
    new_copy_place,
    remove_copies,
)
from weir.slot.messages import CopyPlace
from weir.snapshot import FileHandle


class StandIns:
    """The job's copies of state files on the slots' hosts, and its newest metadata in memory.

    The driver reads every file of a checkpoint before an attempt starts from it. For one that is
    damaged or missing it asks here. Where all slots run on the driver's host, it reads the copies
    and so knows for certain. Elsewhere nobody can tell before the slots are there, because Spark
    chooses their hosts: the attempt starts with a list of the damaged files, which its slots do not
    touch; each verifies its copies, and one that has none fails the attempt with
    `MissingCopyError`. The checkpoint is then judged without copies, as if there were none at all.
    So no byte is used that was not checked, an older checkpoint is only chosen after somebody has
    looked in vain, and a message tells each step. *Rejected:* asking all hosts first, which needs
    slots without work, and a fall-back without an attempt, which gives up what is there.
    """

    def __init__(self, local: LocalRecovery, *, one_host: bool) -> None:
        self._one_host = one_host
        self.place: CopyPlace | None = None
        if local.backup:
            self.place = new_copy_place(local.dirs, restore=local.restore)
        self._newest: tuple[CheckpointRef, CheckpointMetadata] | None = None
        self._lacking: set[int] = set()

    @property
    def wanted(self) -> bool:
        """Tell whether state is restored from copies."""
        return self.place is not None and self.place.restore

    def keep(self, ref: CheckpointRef, metadata: CheckpointMetadata) -> None:
        """Remember the metadata of a checkpoint that has just been completed."""
        if self.wanted and not is_uri(ref.directory):
            self._newest = ref, metadata

    def metadata(self, ref: CheckpointRef) -> CheckpointMetadata | None:
        """Return the metadata of a checkpoint if it is the newest of this job."""
        newest = self._newest
        return newest[1] if newest is not None and newest[0] == ref else None

    def replace(self, checkpoint_id: int, files: Iterable[FileRecord]) -> bool:
        """Tell whether an attempt can start although these files cannot be used."""
        wanted = list(files)
        if self.place is None or not self.wanted or checkpoint_id in self._lacking:
            return False
        # Slots take what is kept in the metadata as it is.
        if any(file.data is not None for file in wanted):
            return False
        if not self._one_host:
            return True
        host = HostCopies.there(self.place)
        return all(_has(host, checkpoint_id, file) for file in wanted)

    def failed(self, error: BaseException, checkpoint_id: int) -> None:
        """Learn why an attempt failed that was restored from a checkpoint."""
        if isinstance(error, MissingCopyError):
            self._lacking.add(checkpoint_id)

    def remove(self) -> None:
        """Remove the copies on this host; slots on other hosts remove theirs."""
        if self.place is not None:
            remove_copies(self.place)


def _has(host: HostCopies, checkpoint_id: int, file: FileRecord) -> bool:
    handle = FileHandle(file.path, file.size, file.crc32)
    found = host.find(checkpoint_id, copy_name(file.path))
    return choose_source(handle, found, damaged=True).source is Source.COPY
