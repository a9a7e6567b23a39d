"""What can be said about a stored checkpoint: plain data, in the words of its users.

Sizes are bytes as stored. A number that nobody knows without decoding state is None.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StateDescription:
    """One keyed state or timer queue of an operator, over all subtasks.

    `types` are by role: key, namespace, value, map_key. `entries` is None where changes are stored
    as such, `changes` of them, and where the state is inside the files of a database, whose
    `bytes` are known only together. `key_groups` are those with entries, such as "0-5, 9".
    """

    name: str
    kind: str
    types: dict[str, str]
    expires: bool = False
    entries: int | None = None
    changes: int = 0
    bytes: int | None = None
    key_groups: str | None = None


@dataclass(frozen=True)
class OperatorStateDescription:
    """One operator state over all subtasks; `mode` is how it is spread when it is restored."""

    name: str
    mode: str
    types: dict[str, str]
    elements: int
    bytes: int


@dataclass(frozen=True)
class FileUse:
    """A file that a subtask reads; `role` is own, layer, attachment or in flight."""

    path: str
    role: str
    bytes: int
    in_metadata: bool


@dataclass(frozen=True)
class SubtaskDescription:
    """What one subtask stored, with the first and last key group that it owned."""

    index: int
    key_groups: tuple[int, int] | None
    files: tuple[FileUse, ...]


@dataclass(frozen=True)
class OperatorDescription:
    """One operator; `raw_bytes` are raw keyed state, `database_bytes` files of a database."""

    id: str
    uid: str | None
    name: str
    parallelism: int
    max_parallelism: int
    has_state: bool
    bytes: int = 0
    raw_bytes: int = 0
    raw_key_groups: str | None = None
    database_bytes: int = 0
    states: tuple[StateDescription, ...] = ()
    operator_states: tuple[OperatorStateDescription, ...] = ()
    subtasks: tuple[SubtaskDescription, ...] = ()


@dataclass(frozen=True)
class SourceDescription:
    """How far a source was read: `position` for people, `offset` as Spark wrote it."""

    uid: str
    position: str
    offset: str | None = None
    records: int | None = None
    spool: str | None = None


@dataclass(frozen=True)
class InFlightDescription:
    """Rows that a barrier overtook at a subtask."""

    subtask: int
    level: int
    records: int
    bytes: int


@dataclass(frozen=True)
class Description:
    """Everything that a checkpoint or savepoint says about itself.

    `problems` are missing, cut or altered files; without `verified` only their sizes were looked
    at. `outside` are things that do not move with the directory.

    Example:
        assert describe(place, verify=True).problems == ()
    """

    location: str
    kind: str
    checkpoint_id: int
    format_version: int
    savepoint_format: str | None
    job_id: str
    job_name: str
    timestamp_ms: int
    epoch: int
    bytes: int
    shared_bytes: int
    files: int
    operators: tuple[OperatorDescription, ...] = ()
    sources: tuple[SourceDescription, ...] = ()
    in_flight: tuple[InFlightDescription, ...] = ()
    verified: bool = False
    problems: tuple[str, ...] = ()
    relocatable: bool = True
    outside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """One directory that is a checkpoint or savepoint, or looks like one.

    `problem` says why it cannot be read; then only its place is known.

    Example:
        newest = next(found for found in list_snapshots(place) if found.problem is None)
    """

    location: str
    kind: str | None = None
    checkpoint_id: int | None = None
    job_id: str | None = None
    job_name: str | None = None
    timestamp_ms: int | None = None
    bytes: int | None = None
    savepoint_format: str | None = None
    problem: str | None = None
    files: int | None = None
