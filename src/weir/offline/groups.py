"""How a keyed state is spread over key groups, told from footers alone."""

from __future__ import annotations

from dataclasses import dataclass

from weir.errors import UsageError
from weir.offline.opened import open_snapshot
from weir.offline.states import OperatorContents
from weir.storage.options import StorageOptions


@dataclass(frozen=True)
class GroupSizes:
    """Entries and bytes of each key group that has any; -1 where a database keeps them.

    With `changes` a checkpoint of a chain was looked at: entries that were written again count
    again.
    """

    max_parallelism: int
    groups: tuple[tuple[int, int, int], ...]
    changes: bool = False


def group_sizes(
    location: str, operator: str, state: str, options: StorageOptions | None = None
) -> GroupSizes:
    """Return how one keyed state of an operator is spread, in the order of key groups.

    Raises:
        UsageError: there is no such checkpoint, operator or keyed state.
        CorruptStateError: a file is damaged.
        StorageError: a file cannot be read.
    """
    opened = open_snapshot(location, options)
    record = opened.operator(operator)
    found = OperatorContents(record.id)
    for subtask in record.subtasks:
        layers = [opened.reader(index) for index in subtask.layers]
        found.add_subtask(layers, None if subtask.file is None else opened.reader(subtask.file))
    groups = found.groups(state)
    if groups is None:
        msg = f"operator {operator!r} has no keyed state {state!r}"
        raise UsageError(msg)
    return GroupSizes(record.max_parallelism, tuple(groups), found.has_changes(state))
