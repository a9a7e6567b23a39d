"""What is inside a checkpoint or savepoint, told from its metadata and the footers of its files.

Never decodes a value, so no code of the program that wrote it runs. A file that is missing or
damaged is a problem to report, and everything that is known without it is still told.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from weir.checkpoint.metadata import (
    CheckpointMetadata,
    FileRecord,
    OperatorRecord,
    SubtaskRecord,
)
from weir.checkpoint.paths import resolve
from weir.checkpoint.store import verify_files
from weir.connector.position import position_text
from weir.errors import CorruptStateError
from weir.offline.model import (
    Description,
    FileUse,
    InFlightDescription,
    OperatorDescription,
    SourceDescription,
    SubtaskDescription,
)
from weir.offline.opened import open_snapshot
from weir.offline.states import OperatorContents
from weir.offline.text import offset_of
from weir.snapshot import SnapshotReader
from weir.storage.base import MissingFileError, Storage
from weir.storage.options import StorageOptions


def describe(
    location: str, options: StorageOptions | None = None, *, verify: bool = False
) -> Description:
    """Describe a checkpoint or savepoint, given its directory or `_metadata`, as path or URI.

    Reads the metadata and a few hundred bytes of every file; with `verify` all files entirely.

    Raises:
        UsageError: there is none at that place.
        CorruptStateError: its metadata is damaged.
        IncompatibleStateError: a newer version of Weir wrote it.
    """
    opened = open_snapshot(location, options)
    storage, directory, metadata = opened.storage, opened.directory, opened.metadata
    files = _Files(storage, directory, metadata)
    files.check(verify=verify)
    operators = tuple(_operator(record, files) for record in metadata.operators)
    outside = tuple(_outside(metadata))
    return Description(
        location=opened.location,
        kind=metadata.kind,
        checkpoint_id=metadata.checkpoint_id,
        format_version=metadata.format_version,
        savepoint_format=metadata.savepoint_format,
        job_id=metadata.job_id,
        job_name=metadata.job_name,
        timestamp_ms=metadata.timestamp_ms,
        epoch=metadata.epoch,
        bytes=sum(file.size for file in unique_files(metadata)),
        shared_bytes=sum(file.size for file in unique_files(metadata) if is_outside(file)),
        files=sum(file.data is None for file in unique_files(metadata)),
        operators=operators,
        sources=tuple(_sources(metadata)),
        in_flight=tuple(
            InFlightDescription(rows.subtask, rows.level, rows.records, rows.size)
            for rows in metadata.in_flight
        ),
        verified=verify,
        problems=tuple(files.problems),
        relocatable=not outside,
        outside=outside,
    )


def unique_files(metadata: CheckpointMetadata) -> list[FileRecord]:
    """Return the files of a checkpoint, each once, however many subtasks use it."""
    return list({file.path: file for file in metadata.files}.values())


def is_outside(file: FileRecord) -> bool:
    """Tell whether a file lies outside of the checkpoint's directory."""
    return file.data is None and file.path.startswith("../")


@dataclass
class _Files:
    """The files of one checkpoint, opened once each, and what is wrong with them."""

    storage: Storage
    directory: str
    metadata: CheckpointMetadata
    problems: list[str] = field(default_factory=list)
    _readers: dict[int, SnapshotReader | None] = field(default_factory=dict)
    _bad: set[str] = field(default_factory=set)

    def check(self, *, verify: bool) -> None:
        """Look at every file: at its size, or with `verify` at all of it."""
        for file in unique_files(self.metadata):
            problem = self._problem(file, verify)
            if problem is not None:
                self.problems.append(problem)
                self._bad.add(file.path)

    def _problem(self, file: FileRecord, verify: bool) -> str | None:
        if verify or file.data is not None:
            alone = replace(self.metadata, files=(file,))
            return next(iter(verify_files(self.storage, self.directory, alone)), None)
        name = self._name(file)
        try:
            size = self.storage.size(resolve(self.directory, file.path))
        except MissingFileError:
            return f"{name!r} is missing"
        return None if size == file.size else f"{name!r} has {size} bytes, expected {file.size}"

    def _name(self, file: FileRecord) -> str:
        return f"{self.storage.uri}/{resolve(self.directory, file.path)}"

    def reader(self, index: int) -> SnapshotReader | None:
        """Open a snapshot file; None when it cannot be, which is a problem then."""
        if index not in self._readers:
            self._readers[index] = self._open(self.metadata.files[index])
        return self._readers[index]

    def _open(self, file: FileRecord) -> SnapshotReader | None:
        if file.path in self._bad:
            return None
        data = file.data
        try:
            if data is not None:
                return SnapshotReader(lambda o, n: data[o : o + n], len(data), file.path)
            path = resolve(self.directory, file.path)
            return SnapshotReader(
                lambda o, n: self.storage.read_range(path, o, n), file.size, self._name(file)
            )
        except CorruptStateError as error:
            self.damaged(file, error)
            return None

    def damaged(self, file: FileRecord, error: CorruptStateError) -> None:
        """Take note of a file that is not what it should be."""
        self._bad.add(file.path)
        self.problems.append(str(error))


def _operator(record: OperatorRecord, files: _Files) -> OperatorDescription:
    contents = OperatorContents(record.id)
    for subtask in record.subtasks:
        _add(contents, subtask, files)
    return OperatorDescription(
        id=record.id,
        uid=record.uid,
        name=record.name,
        parallelism=record.parallelism,
        max_parallelism=record.max_parallelism,
        has_state=record.has_state,
        bytes=contents.bytes,
        raw_bytes=contents.raw_bytes,
        raw_key_groups=contents.raw_key_groups,
        database_bytes=contents.database_bytes,
        states=contents.states,
        operator_states=contents.operator_states,
        subtasks=tuple(_subtask(subtask, files.metadata) for subtask in record.subtasks),
    )


def _add(contents: OperatorContents, subtask: SubtaskRecord, files: _Files) -> None:
    layers = [reader for index in subtask.layers if (reader := files.reader(index)) is not None]
    own = None if subtask.file is None else files.reader(subtask.file)
    try:
        contents.add_subtask(layers, own)
    except CorruptStateError as error:
        index = subtask.layers[-1] if subtask.file is None else subtask.file
        files.damaged(files.metadata.files[index], error)


def _subtask(subtask: SubtaskRecord, metadata: CheckpointMetadata) -> SubtaskDescription:
    uses = [("layer", index) for index in subtask.layers]
    uses += [("attachment", index) for index in subtask.attachments]
    uses += [] if subtask.file is None else [("own", subtask.file)]
    described = []
    for role, index in uses:
        file = metadata.files[index]
        described.append(FileUse(file.path, role, file.size, file.data is not None))
    return SubtaskDescription(subtask.index, subtask.keyed_range, tuple(described))


def _sources(metadata: CheckpointMetadata) -> list[SourceDescription]:
    positions = metadata.sources
    found = []
    for source in sorted(positions.layout, key=lambda source: source.index):
        offset = offset_of(positions, source)
        text = position_text(offset, source.records)
        found.append(
            SourceDescription(
                source.uid, text, offset=offset, records=source.records, spool=source.spool
            )
        )
    return found


def _outside(metadata: CheckpointMetadata) -> list[str]:
    """Return what a copy of the directory would lack, one sentence each."""
    found = []
    shared = [file.path for file in unique_files(metadata) if is_outside(file)]
    if shared:
        found.append(f"{len(shared)} of its files lie outside of its directory")
    logs = sorted(metadata.sources.source_logs.items())
    places = [v for k, v in logs if k.startswith("@") and "/" not in k]
    found += [f"positions of its sources refer to {place!r}" for place in places]
    found += [
        f"records of source {source.uid!r} are in {source.spool!r}"
        for source in metadata.sources.layout
        if source.spool is not None and (source.spool.startswith("/") or "://" in source.spool)
    ]
    return found
