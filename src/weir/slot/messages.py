"""What slots, pipes and the JobManager say to each other.

Plain values, encoded as MessagePack; every message carries the execution attempt, so that nothing
of an older attempt is ever believed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from weir.backend.factory import BackendSettings
from weir.snapshot import FileHandle
from weir.storage.options import StorageOptions


class OperatorPart(msgspec.Struct, frozen=True):
    """What a slot stored of one operator; see `weir.backend.base.KeyedPart` for the files.

    `size` are the bytes of it in the slot's own file.
    """

    operator: str
    keyed_range: tuple[int, int] | None
    keyed_states: list[str]
    operator_states: dict[str, tuple[str, int]]
    size: int = 0
    layers: list[FileHandle] = []
    attachments: list[FileHandle] = []


class InFlightPart(msgspec.Struct, frozen=True):
    """Rows that the barrier overtook, in the slot's own file; at which level, and how many."""

    level: int
    records: int
    size: int


class Acknowledge(msgspec.Struct, frozen=True):
    """A slot finished its part of a checkpoint, in the directory that the barrier named.

    `created` are the shared files among the operators' that this checkpoint made: nobody else
    refers to them before it is complete. With `cut` the barrier overtook rows here; otherwise rows
    in flight count only if it did so at other slots, at that level.
    """

    attempt: int
    subtask: int
    checkpoint_id: int
    file: FileHandle | None
    operators: list[OperatorPart]
    created: list[FileHandle] = []
    directory: str = ""
    sync_ms: float = 0.0
    async_ms: float = 0.0
    in_flight: InFlightPart | None = None
    cut: bool = False


class Decline(msgspec.Struct, frozen=True):
    """A slot could not finish its part of a checkpoint."""

    attempt: int
    subtask: int
    checkpoint_id: int
    reason: str


class SlotFailure(msgspec.Struct, frozen=True):
    """A slot cannot go on: a user function raised, or state is not what it should be."""

    attempt: int
    subtask: int
    kind: str
    message: str
    operator: str = ""
    record: str = ""


class Hello(msgspec.Struct, frozen=True):
    """A new slot process asks for its work."""

    attempt: int
    subtask: int
    pid: int
    host: str
    log_file: str


class Register(msgspec.Struct, frozen=True):
    """A slot restored its state and can take epochs at these addresses."""

    attempt: int
    subtask: int
    unix: str
    tcp: str
    staged: list[tuple[str, list[bytes]]]


class KeyedSource(msgspec.Struct, frozen=True):
    """What one old subtask stored: its files, oldest first, and the key groups to take.

    `stored` are the first and last key group inside.
    """

    files: list[FileHandle]
    start: int
    end: int
    stored: tuple[int, int]


class OperatorRestore(msgspec.Struct, frozen=True):
    """Where one operator of one subtask finds its state.

    `elements` lists, by file, the positions of the elements to take of each operator state.
    """

    operator: str
    keyed: list[KeyedSource]
    elements: list[tuple[FileHandle, dict[str, list[int]]]]


class InFlightSource(msgspec.Struct, frozen=True):
    """Rows in flight that one old subtask stored, among the rest of its file."""

    subtask: int
    file: FileHandle


class Assignment(msgspec.Struct, frozen=True):
    """A slot's work: plan, identity, and the state to start from.

    Files of the restored checkpoint are relative to `restore_directory`. With `reusable`, new
    checkpoints may refer to its shared files. With `in_memory` all state travels in messages.
    `in_flight` are all rows that the barrier overtook, for all subtasks.
    """

    job_id: str
    job_name: str
    plan: bytes
    storage_uri: str
    job_dir: str
    backend: BackendSettings
    lineage: list[str]
    heartbeat_ms: int
    lease_ms: int
    checkpoint_id: int | None
    restore_uri: str
    restore_directory: str
    restore: list[OperatorRestore]
    job_parameters: dict[str, str]
    inline_bytes: int = 0
    compress: bool = False
    in_memory: bool = False
    reusable: bool = False
    storage: StorageOptions = msgspec.field(default_factory=StorageOptions)
    in_flight: list[InFlightSource] = []
    allow_non_restored: bool = False


class EpochCall(msgspec.Struct, frozen=True):
    """Header of an epoch sent to a slot; `directory` is where its checkpoint's files go.

    A savepoint's directory is a URI, which may be on any storage.
    """

    attempt: int
    level: int
    epoch: int
    checkpoint_id: int | None = None
    checkpoint_timestamp_ms: int = 0
    final: bool = False
    drain: bool = True
    directory: str = ""
    full: bool = False
    native: bool = False
    overtaking: bool = False


class Cut(msgspec.Struct, frozen=True):
    """Where the barrier of a checkpoint overtakes rows: at a level of its epoch.

    With `replayed` the sources will read the epoch again.
    """

    attempt: int
    checkpoint_id: int
    epoch: int
    level: int
    timestamp_ms: int = 0
    directory: str = ""
    full: bool = False
    replayed: bool = False


class EndMarker(msgspec.Struct, frozen=True):
    """Closes a stream of frames; without it the stream broke off."""

    frames: int


def encode(message: msgspec.Struct) -> bytes:
    """Encode a message."""
    return msgspec.msgpack.encode(message)


def decode(data: Any, kind: type[Any]) -> Any:
    """Decode a message of a known kind."""
    return msgspec.msgpack.decode(data, type=kind)
