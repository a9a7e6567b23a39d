r"""The `_metadata` file: what a checkpoint consists of, and its versioned encoding.

::

    weir-metadata <version> <crc32 of the body, 8 hex digits> <length of the body>\n
    <body: canonical JSON (sorted keys, no spaces, ASCII) of `CheckpointMetadata`>

Invariant: a file that decodes is exactly the file that was written. Everything else is refused by
name before a byte of state is read. Checkpoints never see typed values: state is files here.

A right checksum is no proof of good intentions: numbers, times and paths have bounds, and what lies
beyond them is refused like any other damage. The bounds hold for writing, too.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import msgspec

from weir.errors import CorruptStateError, IncompatibleStateError, UsageError

FORMAT_VERSION: Final = 4
READABLE_VERSIONS: Final = (2, 3, 4)
_MAGIC: Final = b"weir-metadata "
_VERSION = re.compile(rb"[0-9]{1,9}\Z")
_HEADER = re.compile(rb"weir-metadata ([1-9][0-9]{0,8}) ([0-9a-f]{8}) (0|[1-9][0-9]{0,18})\Z")
_LOG_NAME = re.compile(r"sources/(?:0|[1-9][0-9]{0,8})/([^/]*)\Z")

# A day less than the calendar has, which leaves room for every time zone.
_LAST_MOMENT_MS: Final = 253_402_214_400_000
_PATH_MAX: Final = 1024
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Epoch = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=_LAST_MOMENT_MS)]
Watermark = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Checksum = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Width = Annotated[int, msgspec.Meta(ge=1, le=32768)]
KeyGroup = Annotated[int, msgspec.Meta(ge=0, le=32767)]

Kind = Literal["checkpoint", "savepoint"]
RedistributionMode = Literal["SPLIT", "UNION", "BROADCAST"]


@dataclass(frozen=True)
class FileRecord:
    """One state file: path relative to the checkpoint directory, and how to recognise it.

    Files that other checkpoints may use too are named `../shared/…`. A small file is kept here
    instead of on the storage: then `data` are its bytes, and `path` is only a name.
    """

    path: str
    size: Number
    crc32: Checksum
    subtask: Number
    data: bytes | None = None


@dataclass(frozen=True)
class OperatorStateRecord:
    """One operator state of one subtask: how it is redistributed, and its number of elements."""

    mode: RedistributionMode
    elements: Number


@dataclass(frozen=True)
class SubtaskRecord:
    """What one subtask of an operator stored.

    `file` is an index into `CheckpointMetadata.files`; `keyed_range` is the first and last key
    group inside. A subtask that had nothing to store has no file. `layers` are the files, oldest
    first, whose keyed state `file` adds to; `attachments` are further files that `file` names.
    Without a `watermark` event time begins at the minimum; versions before 4 have none.
    """

    index: Number
    file: Number | None = None
    keyed_range: tuple[KeyGroup, KeyGroup] | None = None
    keyed_states: tuple[str, ...] = ()
    operator_states: dict[str, OperatorStateRecord] = field(default_factory=dict)
    layers: tuple[Number, ...] = ()
    attachments: tuple[Number, ...] = ()
    watermark: Watermark | None = None


@dataclass(frozen=True)
class OperatorRecord:
    """One operator of the program that took the checkpoint."""

    id: str
    uid: str | None
    name: str
    parallelism: Width
    max_parallelism: Width
    has_state: bool
    subtasks: tuple[SubtaskRecord, ...] = ()


@dataclass(frozen=True)
class SourceLayout:
    """Which source, by uid, stands at which line of Spark's offset log entry.

    A source whose records the program itself gives is known by `records`, how many of them were
    read; `spool` is where the records of a bounded DataFrame were kept, all of them.
    """

    uid: str
    index: Number
    records: Number | None = None
    spool: str | None = None


def layout_of(uids: Iterable[str]) -> tuple[SourceLayout, ...]:
    """Number the sources in plan order."""
    return tuple(SourceLayout(uid, index) for index, uid in enumerate(uids))


def log_check(index: int) -> str:
    """Return the name under which positions say how to recognise a source's log."""
    return f"@log/{index}"


@dataclass(frozen=True)
class SourcePositions:
    """How far every source was read, as Spark wrote it; all text is kept verbatim.

    `offset_lines` and `commit_lines` are the lines of the log entries of `batch_id`;
    `source_logs` are further files by their name relative to Spark's checkpoint directory. Names
    that begin with `@` are no files: `@directory` is where the logs lie that are not here, and
    `@log/<index>` is how to recognise the one of a source.
    """

    batch_id: Number | None = None
    offset_lines: tuple[str, ...] = ()
    commit_lines: tuple[str, ...] = ()
    source_logs: dict[str, str] = field(default_factory=dict)
    layout: tuple[SourceLayout, ...] = ()


@dataclass(frozen=True)
class InFlightRecord:
    """Rows that the barrier overtook at one subtask: in `file`, at a level of the program."""

    subtask: Number
    file: Number
    level: Number
    records: Number
    size: Number


@dataclass(frozen=True)
class PartitionRecord:
    """How far one partition of a source was in event time.

    `operator` is the id of what makes the watermarks: a watermark strategy, or the source itself.
    """

    operator: str
    partition: str
    watermark: Watermark


@dataclass(frozen=True)
class CheckpointMetadata:
    """Everything there is to know about a completed checkpoint or savepoint.

    With `in_flight` the state is one in the middle of `epoch`, whose rows went half through the
    program: those rows come first when the job goes on.
    """

    checkpoint_id: Number
    job_id: str
    job_name: str
    timestamp_ms: Moment
    kind: Kind
    epoch: Epoch
    sources: SourcePositions = field(default_factory=SourcePositions)
    operators: tuple[OperatorRecord, ...] = ()
    files: tuple[FileRecord, ...] = ()
    in_flight: tuple[InFlightRecord, ...] = ()
    savepoint_format: str | None = None
    format_version: int = FORMAT_VERSION
    partitions: tuple[PartitionRecord, ...] = ()


_decode_body = msgspec.json.Decoder(CheckpointMetadata).decode
# Bytes that are no text, and values that are nested too deeply, have errors of their own.
_UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def encode_metadata(metadata: CheckpointMetadata) -> bytes:
    """Return the contents of the `_metadata` file; equal metadata gives equal bytes.

    Raises:
        UsageError: the metadata refers to files or subtasks that it does not have, or holds what
            nobody could read back.
    """
    plain: Any = msgspec.to_builtins(metadata)
    body = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode("ascii")
    try:
        for problem in _inconsistencies(_decode_body(body)):
            raise _inconsistent(metadata, problem)
    except _UNDECODABLE as error:
        raise _inconsistent(metadata, str(error)) from error
    header = b"weir-metadata %d %08x %d\n" % (metadata.format_version, zlib.crc32(body), len(body))
    return header + body


def decode_metadata(data: bytes, name: str) -> CheckpointMetadata:
    """Return the metadata in a file's contents; `name` is the file, for messages.

    Raises:
        CorruptStateError: the contents are not what was written.
        IncompatibleStateError: a newer version of Weir wrote them.
    """
    header, newline, body = data.partition(b"\n")
    _refuse_newer(header, name)
    match = _HEADER.match(header)
    if match is None or not newline:
        raise _corrupt(name, f"it starts with {data[:40]!r}, not with a weir-metadata header")
    length = int(match.group(3))
    if len(body) != length:
        raise _corrupt(name, f"its body has {len(body)} bytes, expected {length}")
    found, expected = f"{zlib.crc32(body):08x}", match.group(2).decode()
    if found != expected:
        raise _corrupt(name, f"its checksum is {found!r}, expected {expected!r}")
    try:
        metadata = _decode_body(body)
    except _UNDECODABLE as error:
        raise _corrupt(name, str(error)) from error
    # The checksum covers the body alone, so a damaged header could name another readable version.
    if metadata.format_version != int(match.group(1)):
        described = f"version {int(match.group(1))!r}, its body {metadata.format_version!r}"
        raise _corrupt(name, f"its header says {described}")
    for problem in _inconsistencies(metadata):
        raise _corrupt(name, problem)
    return metadata


def _refuse_newer(header: bytes, name: str) -> None:
    # Only the version is sure to keep its place in headers to come.
    version = header.removeprefix(_MAGIC).split(b" ", 1)[0]
    if not header.startswith(_MAGIC) or not _VERSION.match(version):
        return
    if int(version) > FORMAT_VERSION:
        msg = (
            f"{name!r} was written by a newer version of Weir: its format is {int(version)!r}, "
            f"this version reads up to {FORMAT_VERSION!r}; upgrade Weir to restore it"
        )
        raise IncompatibleStateError(msg)


def _inconsistent(metadata: CheckpointMetadata, problem: str) -> UsageError:
    return UsageError(f"metadata of checkpoint {metadata.checkpoint_id} is inconsistent: {problem}")


def _corrupt(name: str, reason: str) -> CorruptStateError:
    return CorruptStateError(f"{name!r} is damaged: {reason}; restore another checkpoint")


def _inconsistencies(metadata: CheckpointMetadata) -> Iterator[str]:
    if metadata.format_version not in READABLE_VERSIONS:
        yield f"format version {metadata.format_version!r}, expected {FORMAT_VERSION!r}"
    for file in metadata.files:
        if not _is_path(file.path):
            yield f"{file.path[:100]!r} is no path of a state file"
    yield from _inconsistent_sources(metadata.sources)
    for rows in metadata.in_flight:
        if not 0 <= rows.file < len(metadata.files):
            yield f"rows in flight are in file {rows.file!r}, which is missing"
    ids: set[str] = set()
    for operator in metadata.operators:
        if operator.id in ids:
            yield f"operator {operator.id!r} is there twice"
        ids.add(operator.id)
        yield from _inconsistent_subtasks(operator, len(metadata.files))


def _inconsistent_sources(sources: SourcePositions) -> Iterator[str]:
    for name in sources.source_logs:
        if not name.startswith("@") and not _is_log(name):
            yield f"{name[:100]!r} is no file of a source's log"


def _is_log(name: str) -> bool:
    """Tell whether this may be a file of a source's log, or marks one; it is written under it."""
    match = _LOG_NAME.match(name)
    return match is not None and (not match.group(1) or _is_part(match.group(1)))


def _inconsistent_subtasks(operator: OperatorRecord, files: int) -> Iterator[str]:
    seen: set[int] = set()
    for subtask in operator.subtasks:
        if subtask.index in seen or not 0 <= subtask.index < operator.parallelism:
            yield f"operator {operator.id!r} has an unexpected subtask {subtask.index!r}"
        seen.add(subtask.index)
        own = () if subtask.file is None else (subtask.file,)
        for file in (*own, *subtask.layers, *subtask.attachments):
            if not 0 <= file < files:
                yield f"operator {operator.id!r} refers to file {file!r}, which is missing"
        first, last = subtask.keyed_range or (0, 0)
        if not first <= last < operator.max_parallelism:
            found = f"key groups {first} to {last} of {operator.max_parallelism}"
            yield f"operator {operator.id!r} has {found} in subtask {subtask.index!r}"


def _is_path(path: str) -> bool:
    """Tell whether this may be a file of a checkpoint: inside of it, or of a job beside it."""
    parts = path.removeprefix("../").removeprefix("../").split("/")
    return all(map(_is_part, parts)) and len(path) <= _PATH_MAX


def _is_part(part: str) -> bool:
    plain = part and not part.startswith(".") and "\0" not in part and "/" not in part
    return bool(plain) and len(part) <= _PATH_MAX
