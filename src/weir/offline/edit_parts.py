"""Parts of an edit of a savepoint: who writes rows, which files there are, moved positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from weir.checkpoint.metadata import (
    FileRecord,
    OperatorRecord,
    SourceLayout,
    SourcePositions,
    SubtaskRecord,
    log_check,
)
from weir.codec.plain import PlainCodec
from weir.codec.portable import Portable
from weir.common.typeinfo import PickledBytesTypeInfo
from weir.errors import UsageError
from weir.ids import operator_id
from weir.keygroup import range_of
from weir.offline.bootstrap import Bootstrap, BootstrapInput
from weir.offline.contents import transactions_in
from weir.offline.encoding import no_batch
from weir.offline.export import conform
from weir.offline.keyed import Layout, StoredKind
from weir.offline.opened import OpenSnapshot
from weir.offline.spilled import RowsByGroup, SpilledRows
from weir.offline.tables import MAP_KEY, VALUE
from weir.offline.writing import NewElements, Target, copy_file, write_keyed

_HEAD_LINES: Final = 2


class KeyedRows(Protocol):
    """Where the rows of a keyed state come from, and who writes them."""

    def write(
        self,
        target: Target,
        operator: OperatorRecord,
        name: str,
        state: tuple[StoredKind, Layout],
    ) -> list[FileRecord]:
        """Write a file for each subtask of the operator, in their order."""


class GivenRows:
    """Rows in any order; what is more than some megabytes lies in files until it is written.

    They are batches, or something that has `batches()` or `to_batches()`, which is asked anew each
    time: a savepoint may be written twice, or once more after the storage failed. What gives its
    batches only once is written once; after that it is refused, as nothing would be left of it.
    """

    def __init__(self, rows: Any) -> None:
        """Refuse what holds no rows.

        Raises:
            UsageError: it is neither a table nor batches.
        """
        names = ("batches", "to_batches")
        ask = next((getattr(rows, name) for name in names if hasattr(rows, name)), None)
        if ask is None and (not isinstance(rows, Iterable) or isinstance(rows, (str, Mapping))):
            raise UsageError(no_batch(rows))
        self._ask: Callable[[], Iterable[Any]] = ask or (lambda: rows)
        self._once = isinstance(rows, Iterator)
        self._used = False

    def batches(self, name: str) -> Iterable[Any]:
        """Return the batches of a state, from the first one.

        Raises:
            UsageError: they were given by an iterator, which has ended.
        """
        if self._once and self._used:
            msg = (
                f"the rows of state {name!r} came from an iterator, which was used by a write "
                "before: give a table or a list of batches, which can be written again"
            )
            raise UsageError(msg)
        self._used = True
        return self._ask()

    def write(
        self,
        target: Target,
        operator: OperatorRecord,
        name: str,
        state: tuple[StoredKind, Layout],
    ) -> list[FileRecord]:
        """Write a file for each subtask of the operator, in their order."""
        width, groups = operator.parallelism, operator.max_parallelism
        with SpilledRows(state[1], groups) as spilled:
            for batch in self.batches(name):
                spilled.add(batch)
            rows = RowsByGroup(spilled.in_order())
            ranges = [range_of(index, width, groups) for index in range(width)]
            return [
                write_keyed(
                    target, operator.id, name, state, rows=(index, own, rows.up_to(own.end))
                )
                for index, own in enumerate(ranges)
            ]


@dataclass(frozen=True)
class GivenElements:
    """The elements of an operator state, with the forms of its values and of its map keys."""

    mode: Any
    forms: tuple[Portable, Portable | None]
    elements: list[Any]

    def dealt(self, width: int) -> NewElements:
        """Deal the elements out to subtasks in turn; those of a broadcast state go to all."""
        found = self.elements
        if self.mode == "BROADCAST":
            parts = [found] * width
        else:
            parts = [found[index::width] for index in range(width)]
        return NewElements.of(self.mode, *self.forms, parts=parts)

    def transactions(self, name: str) -> list[tuple[int, str]]:
        """Return the transactions that they are, where they are the state of a sink for those."""
        [entries] = self.dealt(1).elements
        return [found for data in entries for found in transactions_in(data, name)]


def prepared(transactions: Iterable[tuple[int, str]], *, pickled: bool) -> list[bytes]:
    """Return the elements of a sink's state for transactions, given with their checkpoints."""
    by_checkpoint: dict[int, list[str]] = {}
    for number, transaction in transactions:
        by_checkpoint.setdefault(number, []).append(transaction)
    entries = [msgspec.json.encode(entry) for entry in sorted(by_checkpoint.items())]
    return [PlainCodec().encode(entry) for entry in entries] if pickled else entries


def elements_of(column: Any, of: Portable) -> list[Any]:
    """Return the elements of operator state in a column; undeclared ones stay their pickles."""
    if isinstance(of.type_info, PickledBytesTypeInfo) and of.codec.safe:
        found: list[Any] = column.to_pylist()
        return found
    return of.values(column)


def elements_of_table(
    table: Any, name: str, value: Portable, map_key: Portable | None
) -> list[Any]:
    """Return the elements of an operator state in a table of Arrow; those of a map as (key, value).

    Raises:
        UsageError: columns do not fit, or a map key is there twice.
    """
    fields = [(VALUE, value.arrow)]
    if map_key is not None:
        fields.append((MAP_KEY, map_key.arrow))
    elements: list[Any] = []
    for batch in table.to_batches():
        found = conform(batch, pa.schema(fields))
        values = elements_of(found.column(0), value)
        if map_key is None:
            elements += values
        else:
            elements += zip(elements_of(found.column(1), map_key), values, strict=True)
    if map_key is not None and len({key for key, _ in elements}) != len(elements):
        msg = f"a map key of broadcast state {name!r} is there twice"
        raise UsageError(msg)
    return elements


def has_raw_keyed(source: OpenSnapshot, operator_id: str, subtask: SubtaskRecord) -> bool:
    """Tell whether a subtask of an operator stored raw keyed state."""
    if subtask.file is None:
        return False
    part = source.reader(subtask.file).footer.get("operators", {}).get(operator_id, {})
    return bool(part.get("raw_keyed", {}).get("groups"))


@dataclass
class Pending:
    """What was asked for one operator.

    States in `keyed` and `elements` are new, those in `dropped` are not taken over; a name may be
    in both. What was asked last counts.
    """

    record: OperatorRecord
    source_id: str | None = None
    keyed: dict[str, tuple[StoredKind, KeyedRows]] = field(default_factory=dict)
    elements: dict[str, GivenElements] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    made: tuple[Bootstrap, BootstrapInput] | None = None
    regrouped: bool = False

    def remove(self, name: str) -> None:
        """Leave the states of a name out, stored and new ones."""
        self.dropped.add(name)
        self.keyed.pop(name, None)
        self.elements.pop(name, None)

    def rename(self, uid: str) -> None:
        """Give the operator another uid; what is stored is found by the id that it had."""
        if self.made is not None:
            self.made = (self.made[0].renamed(uid), self.made[1])
        self.source_id = self.source_id or self.record.id
        self.record = replace(self.record, id=operator_id(uid), uid=uid)

    @property
    def element_names(self) -> set[str]:
        """The names of its operator states."""
        stored = {name for subtask in self.record.subtasks for name in subtask.operator_states}
        return {*self.elements, *(stored - self.dropped)}

    @property
    def is_changed(self) -> bool:
        """Tell whether its files cannot be taken over as they are."""
        asked = self.keyed or self.elements or self.dropped
        return bool(asked or self.source_id or self.regrouped)

    @property
    def has_attachments(self) -> bool:
        """Tell whether its files name other files, which would not be found after a copy."""
        return any(subtask.attachments for subtask in self.record.subtasks)


class NewFiles:
    """The files of the new savepoint; one of the source is copied once."""

    def __init__(self, source: OpenSnapshot | None, target: Target) -> None:
        self._source = source
        self._target = target
        self._copies: dict[str, int] = {}
        self.records: list[FileRecord] = []

    def add(self, file: FileRecord) -> int:
        """Take a new file; returns its number."""
        self.records.append(file)
        return len(self.records) - 1

    def copied(self, index: int) -> int:
        """Copy a file of the source; returns its new number."""
        if self._source is None:
            msg = f"file {index} of no savepoint"
            raise UsageError(msg)
        file = self._source.metadata.files[index]
        number = self._copies.get(file.path)
        if number is None:
            number = self._copies[file.path] = self.add(copy_file(self._source, file, self._target))
        return number


def moved(
    positions: SourcePositions, source: SourceLayout, offset: str | None, records: int | None
) -> SourcePositions:
    """Return positions with another one of one source.

    Raises:
        UsageError: the position is of the other form, or the source had not begun.
    """
    if (records is None) is (source.records is not None) or (offset is None) is (records is None):
        wanted = "records" if source.records is not None else "an offset, as Spark writes it"
        msg = f"the position of source {source.uid!r} is {wanted}, and nothing else"
        raise UsageError(msg)
    if records is not None:
        layout = tuple(
            replace(s, records=records) if s.uid == source.uid else s for s in positions.layout
        )
        return replace(positions, layout=layout)
    lines = list(positions.offset_lines)
    line = _HEAD_LINES + source.index
    if positions.batch_id is None or line >= len(lines):
        msg = f"source {source.uid!r} had not begun: it has no position that could be changed"
        raise UsageError(msg)
    lines[line] = str(offset)
    # The check of a log is that of the log up to the position before.
    logs = {k: v for k, v in positions.source_logs.items() if k != log_check(source.index)}
    return replace(positions, offset_lines=tuple(lines), source_logs=logs)
