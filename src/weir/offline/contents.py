"""The values inside of a checkpoint or savepoint: every state of every operator as a table.

`read_snapshot(path)` opens one; nothing is read before a table's rows are asked for. Values that
were pickled are binaries, unless `unpickle` allows to load them, which runs code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from weir.checkpoint.metadata import OperatorRecord
from weir.codec.plain import loads_plain
from weir.connector.position import position_text
from weir.errors import CorruptStateError, UsageError
from weir.keygroup import KeyGroupRange
from weir.offline.elements import ElementTable, element_tables
from weir.offline.keyed import KeyedTable, StoredKind, keyed_table, stored_kinds
from weir.offline.opened import OpenSnapshot, open_snapshot
from weir.offline.tables import Rows, StateTable
from weir.offline.text import kind_text, offset_of
from weir.runtime.sinks import COMMITTABLES
from weir.slot.rows import IN_FLIGHT
from weir.storage.options import StorageOptions

_decode_prepared = msgspec.json.Decoder(tuple[int, list[str]]).decode

_OPERATORS: Final = pa.schema(
    [
        ("checkpoint_id", pa.int64()),
        ("operator_name", pa.string()),
        ("operator_uid", pa.string()),
        ("operator_uid_hash", pa.string()),
        ("operator_parallelism", pa.int32()),
        ("operator_max_parallelism", pa.int32()),
        ("operator_subtask_state_count", pa.int32()),
        ("state", pa.string()),
        ("kind", pa.string()),
    ]
)
_SOURCES: Final = pa.schema(
    [
        ("source", pa.string()),
        ("position", pa.string()),
        ("offset", pa.string()),
        ("records", pa.int64()),
    ]
)
_ROWS_IN_FLIGHT: Final = pa.schema(
    [
        ("subtask", pa.int32()),
        ("level", pa.int32()),
        ("from_operator", pa.string()),
        ("to_operator", pa.string()),
        ("to_subtask", pa.int32()),
        ("frames", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
_TRANSACTIONS: Final = pa.schema(
    [("subtask", pa.int32()), ("checkpoint_id", pa.int64()), ("transaction", pa.string())]
)


@dataclass(frozen=True)
class StoredState:
    """A state that a checkpoint holds: whose it is, its name, and what it is."""

    operator: OperatorRecord
    name: str
    kind: str


@dataclass(frozen=True)
class SnapshotContents:
    """Everything inside of a checkpoint or savepoint, as tables.

    With `unpickle` values that were pickled are loaded, and shown as texts; without `as_text` they
    are pickles all the same, which can be written back.

    Example:
        names = [state.name for state in read_snapshot(place).states()]
    """

    snapshot: OpenSnapshot
    unpickle: bool = False
    as_text: bool = True

    def states(self) -> list[StoredState]:
        """Return all states, operator by operator, in the order of names.

        Raises:
            CorruptStateError: a file is damaged.
            StorageError: a file cannot be read.
        """
        found = []
        for operator in self.snapshot.metadata.operators:
            kinds = self.kinds(operator)
            found += [StoredState(operator, n, kind_text(kinds[n].kind)) for n in sorted(kinds)]
            elements = element_tables(self.snapshot, operator, unpickle=self.unpickle)
            found += [StoredState(operator, n, elements[n].kind) for n in sorted(elements)]
        return found

    def table(self, operator: str, state: str) -> StateTable:
        """Return one state, given the uid, id or name of its operator, and its own name.

        Where keyed and operator state have the same name, it is the keyed one.

        Raises:
            UsageError: there is none.
            CorruptStateError: a file is damaged.
            StorageError: a file cannot be read.
        """
        record = self.snapshot.operator(operator)
        kinds = self.kinds(record)
        if state in kinds:
            return keyed_table(
                self.snapshot,
                record,
                state,
                kinds,
                unpickle=self.unpickle,
                as_text=self.as_text,
            )
        elements = element_tables(self.snapshot, record, unpickle=self.unpickle)
        if state in elements:
            return elements[state]
        names = [*sorted(kinds), *sorted(elements)]
        known = ", ".join(map(repr, names)) or "none"
        msg = f"operator {operator!r} has no state {state!r}: there are {known}"
        raise UsageError(msg)

    def keyed_state(self, operator: str, state: str) -> KeyedTable:
        """Return a keyed state; raises as `table` does, also for one that is not keyed."""
        found = self.table(operator, state)
        if isinstance(found, KeyedTable):
            return found
        msg = f"state {state!r} of operator {operator!r} is {found.kind}, not keyed state"
        raise UsageError(msg)

    def operator_state(self, operator: str, state: str) -> ElementTable:
        """Return an operator state; raises as `table` does, also for one that is keyed."""
        record = self.snapshot.operator(operator)
        elements = element_tables(self.snapshot, record, unpickle=self.unpickle)
        if state in elements:  # keyed state may have that name, too
            return elements[state]
        found = self.table(operator, state)
        msg = f"state {state!r} of operator {operator!r} is {found.kind}, not operator state"
        raise UsageError(msg)

    def operators(self) -> Rows:
        """Return a table with one row for each state, and one for an operator without any."""
        number = self.snapshot.metadata.checkpoint_id
        states = self.states()
        rows: list[tuple[Any, ...]] = []
        for op in self.snapshot.metadata.operators:
            facts = (op.name, op.uid, op.id, op.parallelism, op.max_parallelism, len(op.subtasks))
            own = [(number, *facts, s.name, s.kind) for s in states if s.operator is op]
            rows += own or [(number, *facts, None, None)]
        return Rows("operators", "operators", _OPERATORS, tuple(rows))

    def sources(self) -> Rows:
        """Return how far every source was read."""
        positions = self.snapshot.metadata.sources
        rows = []
        for source in sorted(positions.layout, key=lambda source: source.index):
            offset = offset_of(positions, source)
            text = position_text(offset, source.records)
            rows.append((source.uid, text, offset, source.records))
        return Rows("sources", "positions of sources", _SOURCES, tuple(rows))

    def in_flight(self) -> Rows:
        """Return where the rows are that a barrier had overtaken, by edge and subtask.

        Raises:
            CorruptStateError: a file is damaged.
            StorageError: a file cannot be read.
        """
        rows = [row for record in self.snapshot.metadata.in_flight for row in self._frames(record)]
        return Rows("in_flight", "rows in flight", _ROWS_IN_FLIGHT, tuple(rows))

    def transactions(self, operator: str) -> Rows:
        """Return what a sink had prepared and not committed, by checkpoint.

        Raises:
            UsageError: the operator is not there, or is no sink that prepares transactions.
            CorruptStateError: a file is damaged.
            StorageError: a file cannot be read.
        """
        table = self.operator_state(operator, COMMITTABLES)
        rows = []
        for part in table.parts:
            for data in part.reader.sections(part.addresses):
                for number, transaction in transactions_in(data, part.reader.name):
                    rows.append((part.subtask, number, transaction))
        return Rows(COMMITTABLES, "transactions of a sink", _TRANSACTIONS, tuple(rows))

    def _frames(self, record: Any) -> Iterator[tuple[Any, ...]]:
        reader = self.snapshot.reader(record.file)
        part: Any = reader.footer.get(IN_FLIGHT)
        try:
            found: dict[tuple[Any, ...], list[int]] = {}
            for edge, target, _, _, length, _ in part["frames"]:
                source, to = part["edges"][edge][:2]
                sizes = found.setdefault((str(source), str(to), int(target)), [])
                sizes.append(int(length))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            msg = f"{reader.name!r} is damaged: its rows in flight are not in the known form"
            raise CorruptStateError(msg) from error
        for (source, to, target), sizes in sorted(found.items()):
            facts = (record.subtask, record.level, self._name(source), self._name(to))
            yield (*facts, target, len(sizes), sum(sizes))

    def _name(self, operator_id: str) -> str:
        operators = self.snapshot.metadata.operators
        return next((o.uid or o.name for o in operators if o.id == operator_id), operator_id)

    def kinds(self, operator: OperatorRecord) -> dict[str, StoredKind]:
        """Return the keyed states of an operator, timers included."""
        everything = KeyGroupRange(0, operator.max_parallelism - 1)
        return stored_kinds(self.snapshot.keyed_sources(operator, everything))


def transactions_in(data: bytes, origin: str) -> list[tuple[int, str]]:
    """Return the transactions in an element of a sink's state for them, with their checkpoint.

    Raises:
        CorruptStateError: it is none; `origin` tells where it is.
    """
    try:
        number, transactions = _decode_prepared(loads_plain(data))
    except (msgspec.MsgspecError, TypeError) as error:
        msg = f"a transaction in {origin!r} is not in the known form ({error})"
        raise CorruptStateError(msg) from error
    return [(number, transaction) for transaction in transactions]


def read_snapshot(
    location: str, options: StorageOptions | None = None, *, unpickle: bool = False
) -> SnapshotContents:
    """Open a checkpoint or savepoint for reading, given its directory or `_metadata`.

    With `unpickle` pickled values are loaded, which runs code of whoever wrote them.

    Raises:
        UsageError: there is none at that place.
        CorruptStateError: its metadata is damaged.
        IncompatibleStateError: a newer version of Weir wrote it.
    """
    return SnapshotContents(open_snapshot(location, options), unpickle)
