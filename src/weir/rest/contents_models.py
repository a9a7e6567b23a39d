"""Answers about what is inside checkpoints; values are texts, as `weir state cat` shows them."""

from __future__ import annotations

import msgspec


class KeyGroup(msgspec.Struct):
    """One key group of a state; -1 is unknown, for state inside the files of a database."""

    group: int
    entries: int
    bytes: int


class KeyGroups(msgspec.Struct, rename="kebab"):
    """How a state is spread; key groups without entries are left out.

    With `changes` an entry that the checkpoints of a chain wrote again counts again.
    """

    max_parallelism: int
    groups: list[KeyGroup]
    changes: bool


class ContentRows(msgspec.Struct):
    """Rows of a state; `more` tells that there are others."""

    kind: str
    columns: list[str]
    rows: list[list[str]]
    more: bool


class Change(msgspec.Struct):
    """One entry that differs: it was added, removed or changed."""

    what: str
    entry: str
    before: str | None
    after: str | None


class StateDifference(msgspec.Struct):
    """What differs in one state; `note` is what can be said instead of entries."""

    operator: str
    state: str
    kind: str
    added: int
    removed: int
    changed: int
    same: int
    note: str | None
    examples: list[Change]


class Differences(msgspec.Struct):
    """What differs between two checkpoints, state by state, equal ones included."""

    states: list[StateDifference]


class HeldFile(msgspec.Struct):
    """A file, and the checkpoints that would be broken without it."""

    path: str
    bytes: int
    checkpoints: list[int]


class HeldFiles(msgspec.Struct, rename="kebab"):
    """The files of all kept checkpoints, those that most of them hold first.

    `checkpoints` are those that were looked at, newest first; `left_out` older ones were not, and
    `more` files are not told. `shared_bytes` are in files that several checkpoints hold.
    """

    checkpoints: list[int]
    left_out: int
    files: list[HeldFile]
    more: int
    bytes: int
    shared_bytes: int
    problems: list[str]
