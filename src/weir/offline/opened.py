"""A checkpoint or savepoint that is open for reading: its metadata, its operators, its files.

Opening reads the metadata alone. Files are opened when somebody needs them, and every byte of them
is checked against its checksum before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weir.backend.base import RestoreSource, StateLayer
from weir.checkpoint.metadata import CheckpointMetadata, OperatorRecord, SubtaskRecord
from weir.checkpoint.paths import split_location
from weir.checkpoint.store import load_checkpoint
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.slot.files import StoredFiles
from weir.snapshot import FileHandle, SnapshotReader
from weir.storage.base import Storage
from weir.storage.options import StorageOptions
from weir.storage.uri import open_storage


@dataclass
class OpenSnapshot:
    """A checkpoint or savepoint and the storage that it lies on."""

    storage: Storage
    directory: str
    metadata: CheckpointMetadata
    _readers: dict[int, SnapshotReader] = field(default_factory=dict)

    @property
    def location(self) -> str:
        """Where it is, as a URI."""
        return f"{self.storage.uri}/{self.directory}"

    @property
    def files(self) -> StoredFiles:
        """All files, relative to its directory."""
        return StoredFiles(self.storage, self.directory)

    def handle(self, index: int) -> FileHandle:
        """Return how a file is found and recognised."""
        file = self.metadata.files[index]
        return FileHandle(file.path, file.size, file.crc32, file.data)

    def reader(self, index: int) -> SnapshotReader:
        """Open a snapshot file, once.

        Raises:
            CorruptStateError: it is damaged.
            StorageError: it cannot be read.
        """
        found = self._readers.get(index)
        if found is None:
            found = self._readers[index] = self.files.reader(self.handle(index))
        return found

    def operator(self, which: str) -> OperatorRecord:
        """Return an operator, given its uid, its id, or its name where only one has it.

        Raises:
            UsageError: there is none, or several have that name.
        """
        operators = self.metadata.operators
        for found in operators:
            if which in (found.uid, found.id):
                return found
        named = [found for found in operators if found.name == which]
        if len(named) == 1:
            return named[0]
        known = ", ".join(repr(o.uid or o.id) for o in operators if o.has_state) or "none"
        if named:
            msg = f"{len(named)} operators are named {which!r}: give the uid or id of one: {known}"
            raise UsageError(msg)
        kind = self.metadata.kind
        msg = f"{kind} {self.location!r} has no operator {which!r}: those with state are {known}"
        raise UsageError(msg)

    def keyed_sources(
        self, operator: OperatorRecord, key_groups: KeyGroupRange
    ) -> list[RestoreSource]:
        """Return where keyed state of an operator is, for the key groups in a range.

        Raises:
            CorruptStateError: a file is damaged.
            StorageError: a file cannot be read.
        """
        found = []
        for subtask in operator.subtasks:
            if subtask.keyed_range is None or not self.indexes(subtask):
                continue
            stored = KeyGroupRange(*subtask.keyed_range)
            if len(stored.intersect(key_groups)):
                layers = tuple(self._layer(i, operator.id) for i in self.indexes(subtask))
                found.append(RestoreSource(layers, stored, stored, self.files))
        return found

    def _layer(self, index: int, operator_id: str) -> StateLayer:
        reader = self.reader(index)
        return StateLayer(reader, reader.operator(operator_id)["keyed"], self.handle(index))

    @staticmethod
    def indexes(subtask: SubtaskRecord) -> tuple[int, ...]:
        """Return the snapshot files of a subtask, oldest first, its own file last."""
        return subtask.layers if subtask.file is None else (*subtask.layers, subtask.file)


def open_snapshot(location: str, options: StorageOptions | None = None) -> OpenSnapshot:
    """Open a checkpoint or savepoint, given its directory or `_metadata`, as path or URI.

    Raises:
        UsageError: there is none at that place.
        CorruptStateError: its metadata is damaged.
        IncompatibleStateError: a newer version of Weir wrote it.
    """
    uri, directory = split_location(location)
    storage = open_storage(uri, options)
    metadata = load_checkpoint(storage, directory)
    if any(file.data is None and file.path.startswith("../../") for file in metadata.files):
        uri, job = split_location(uri)  # it shares files with another job
        storage, directory = open_storage(uri, options), f"{job}/{directory}"
    return OpenSnapshot(storage, directory, metadata)
