"""What slots, pipes and the JobManager say to each other.

Plain values, encoded as MessagePack; every message carries the execution attempt, so that nothing
of an older attempt is ever believed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from weir.backend.factory import BackendSettings
from weir.connector.sink import NewerOutput
from weir.runtime.epoch import Barrier, Epoch
from weir.runtime.memory import MemoryLimits
from weir.snapshot import FileHandle
from weir.storage.options import StorageOptions

LOST = "SlotLost"
"""The kind of failure that others saw of a slot; all other kinds a slot itself has told."""
OUT_OF_MEMORY = "OutOfMemory"
NEXT_ATTEMPT = "a newer execution attempt begins"
"""Why a slot is told to leave while the job goes on: what it keeps for others stays."""
FINISHED = "the job has finished"
"""Why a slot is told to leave when all is committed: functions have time to close."""


class OperatorShare(msgspec.Struct, frozen=True):
    """What a slot stored of one operator; see `weir.backend.base.KeyedPart` for the files.

    `size` are the bytes of it in the slot's own file. `watermark` is None at either end of time.
    For people: `state_sizes` are the bytes of each state in all files, `other_size` those of files
    whose states are not told apart, `reused_size` those of files of earlier checkpoints.
    """

    operator: str
    keyed_range: tuple[int, int] | None
    keyed_states: list[str]
    operator_states: dict[str, tuple[str, int]]
    size: int = 0
    layers: list[FileHandle] = []
    attachments: list[FileHandle] = []
    watermark: int | None = None
    state_sizes: dict[str, int] = {}
    other_size: int = 0
    reused_size: int = 0


class InFlightShare(msgspec.Struct, frozen=True):
    """Rows that the barrier overtook, in the slot's own file; at which level, and how many."""

    level: int
    records: int
    size: int


class Acknowledge(msgspec.Struct, frozen=True):
    """A slot finished its share of a checkpoint, in the directory that the barrier named.

    `created` are the shared files among the operators' that this checkpoint made: nobody else
    refers to them before it is complete. With `cut` the barrier overtook rows here; otherwise rows
    in flight count only if it did so at other slots, at that level. `partitions` are how far the
    partitions of the sources were, the same at all slots.
    """

    attempt: int
    subtask: int
    checkpoint_id: int
    file: FileHandle | None
    operators: list[OperatorShare]
    created: list[FileHandle] = []
    directory: str = ""
    sync_ms: float = 0.0
    async_ms: float = 0.0
    in_flight: InFlightShare | None = None
    cut: bool = False
    partitions: list[tuple[str, str, int]] = []


class Decline(msgspec.Struct, frozen=True):
    """A slot could not finish its share of a checkpoint."""

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


class SlotUsage(msgspec.Struct, frozen=True):
    """What a slot has used since it began: memory of now, processor time, time with records."""

    memory_bytes: int
    cpu_ms: int
    busy_ms: int


class Heartbeat(msgspec.Struct, frozen=True):
    """A slot lives; nobody decides by its `usage`."""

    attempt: int
    subtask: int
    usage: SlotUsage | None = None


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

    `elements` lists, by file, the positions of the elements to take of each operator state. Event
    time begins at `watermark`.
    """

    operator: str
    keyed: list[KeyedSource]
    elements: list[tuple[FileHandle, dict[str, list[int]]]]
    watermark: int | None = None


class InFlightSource(msgspec.Struct, frozen=True):
    """Rows in flight that one old subtask stored, among the rest of its file."""

    subtask: int
    file: FileHandle


class CopyPlace(msgspec.Struct, frozen=True):
    """Where slots keep copies of state files: a directory of this name in each of `dirs`.

    Without `dirs` it is in the host's directory for temporary files. With `restore` copies are
    read when state is restored.
    """

    name: str
    dirs: list[str]
    restore: bool


class Assignment(msgspec.Struct, frozen=True):
    """A slot's work: plan, identity, and the state to start from.

    Files of the restored checkpoint are relative to `restore_directory`. With `reusable`, new
    checkpoints may refer to its shared files. With `in_memory` all state travels in messages.
    `in_flight` are all rows that the barrier overtook, for all subtasks. `newer_output` is what
    becomes of output that checkpoints newer than the restored one committed; with `from_savepoint`
    that one is a savepoint. Files in `damaged` are not to be read: only copies in `copies` can
    stand in for them. `partitions` are how far the partitions of the sources were. With `queryable`
    others may ask for state.
    """

    job_id: str
    job_name: str
    plan: bytes
    storage_uri: str
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
    newer_output: NewerOutput = NewerOutput.NONE
    from_savepoint: bool = False
    memory: MemoryLimits = MemoryLimits()
    copies: CopyPlace | None = None
    damaged: list[str] = []
    partitions: list[tuple[str, str, int]] = []
    queryable: bool = False


class EpochCall(msgspec.Struct, frozen=True):
    """Header of an epoch sent to a slot: what its input of one level belongs to."""

    attempt: int
    level: int
    epoch: Epoch


class Cut(msgspec.Struct, frozen=True):
    """Where a barrier overtakes rows: at a level of the epoch with this number.

    With `replayed` the sources will read the epoch again.
    """

    attempt: int
    epoch: int
    level: int
    barrier: Barrier
    replayed: bool = False


class EndMarker(msgspec.Struct, frozen=True):
    """Closes a stream of frames; without it the stream broke off."""

    frames: int


MESSAGES = (
    Acknowledge,
    Decline,
    SlotFailure,
    Hello,
    Heartbeat,
    Register,
    Assignment,
    EpochCall,
    Cut,
    EndMarker,
)
# Built before any thread needs them: msgspec describes a type to itself when it is first used, and
# two threads that do so at the same time end the process.
_encode = msgspec.msgpack.Encoder().encode
_decoders: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in MESSAGES
}


def encode(message: msgspec.Struct) -> bytes:
    """Encode a message."""
    return _encode(message)


def decode(data: Any, kind: type[Any]) -> Any:
    """Decode a message of one of the kinds in `MESSAGES`; any thread may.

    Raises:
        msgspec.DecodeError: it is none; one that is nested too deeply is none either.
    """
    try:
        return _decoders[kind].decode(data)
    except RecursionError as error:
        raise msgspec.DecodeError(str(error)) from None
