"""New savepoints: made of nothing, or of an existing one with some states changed.

What is not changed is taken over as it is: files are copied, or rewritten without decoding a value.
The source is only read. `write` either makes a whole savepoint or leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeVar

import pyarrow as pa

from weir.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from weir.checkpoint.paths import metadata_path
from weir.checkpoint.store import write_metadata
from weir.clock import Clock, SystemClock
from weir.codec.portable import portable
from weir.common.typeinfo import TypeInformation, Types
from weir.errors import UsageError
from weir.ids import new_job_id, operator_id
from weir.keygroup import MAX_PARALLELISM_BOUND, range_of
from weir.offline.bootstrap import Bootstrap, BootstrapInput
from weir.offline.contents import SnapshotContents
from weir.offline.edit_parts import (
    GivenElements,
    GivenRows,
    KeyedRows,
    NewFiles,
    Pending,
    elements_of_table,
    has_raw_keyed,
    moved,
    prepared,
)
from weir.offline.keyed import Layout, StoredKind, stored_kinds
from weir.offline.opened import OpenSnapshot
from weir.offline.writing import OperatorEdit, Target, kind_of
from weir.runtime.sinks import COMMITTABLES
from weir.runtime.window_contents import CONTENTS
from weir.state.descriptor import StateDescriptor
from weir.storage.options import StorageOptions

_MODES: Final = ("SPLIT", "UNION", "BROADCAST")
_Edit = TypeVar("_Edit", bound="SavepointEdit")


class SavepointEdit:
    """Collects changes and writes a savepoint; every method returns itself.

    Example:
        SavepointEdit.of(read_snapshot(place)).write("copy")
    """

    def __init__(
        self,
        metadata: CheckpointMetadata,
        source: OpenSnapshot | None = None,
        *,
        clock: Clock | None = None,
        unpickle: bool = False,
    ) -> None:
        self._metadata = metadata
        self._source = source
        self._clock = clock or SystemClock()
        self._unpickle = unpickle
        self._operators = {record.id: Pending(record) for record in metadata.operators}

    @classmethod
    def new(cls: type[_Edit], checkpoint_id: int = 1, *, clock: Clock | None = None) -> _Edit:
        """Begin a savepoint without any operator and source."""
        metadata = CheckpointMetadata(
            checkpoint_id, new_job_id(), "state processor", 0, kind="savepoint", epoch=-1
        )
        return cls(metadata, clock=clock)

    @classmethod
    def of(
        cls: type[_Edit],
        contents: SnapshotContents,
        *,
        drop_in_flight: bool = False,
        clock: Clock | None = None,
    ) -> _Edit:
        """Begin with everything that a checkpoint or savepoint holds.

        Raises:
            UsageError: it holds rows in flight, and they are not to be dropped.
        """
        metadata = contents.snapshot.metadata
        if metadata.in_flight and not drop_in_flight:
            rows = sum(found.records for found in metadata.in_flight)
            msg = (
                f"{contents.snapshot.location!r} holds {rows} rows in flight, which belong to the "
                "state as it is: take a savepoint, which holds none, or drop them with "
                "drop_in_flight=True"
            )
            raise UsageError(msg)
        return cls(metadata, contents.snapshot, clock=clock, unpickle=contents.unpickle)

    @property
    def checkpoint_id(self) -> int:
        """The id of the checkpoint that the savepoint is."""
        return self._metadata.checkpoint_id

    def operator(self, which: str) -> OperatorRecord:
        """Return an operator, given its uid, id or name.

        Raises:
            UsageError: there is none.
        """
        return self._find(which).record

    def with_operator(self, uid: str, *, parallelism: int, max_parallelism: int) -> SavepointEdit:
        """Add an operator without state.

        Raises:
            UsageError: it is there, or a number is out of bounds.
        """
        known = {name for p in self._operators.values() for name in (p.record.uid, p.record.id)}
        if not known.isdisjoint((uid, operator_id(uid))):
            msg = f"operator {uid!r} is there already: remove it first, or change its states"
            raise UsageError(msg)
        if not 1 <= parallelism <= max_parallelism <= MAX_PARALLELISM_BOUND:
            msg = (
                f"operator {uid!r} has parallelism {parallelism} of at most {max_parallelism}: "
                f"expected 1 to {MAX_PARALLELISM_BOUND}, the parallelism not above its bound"
            )
            raise UsageError(msg)
        record = OperatorRecord(
            operator_id(uid),
            uid,
            uid,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            has_state=True,
        )
        self._operators[record.id] = Pending(record)
        return self

    def with_bootstrap(self, bootstrap: Bootstrap, given: BootstrapInput) -> SavepointEdit:
        """Add an operator whose state its own function makes of records, when this is written.

        Raises:
            UsageError: it is there.
        """
        node = bootstrap.operator
        if node.id in self._operators:
            msg = f"operator {node.uid or node.id!r} is there already: remove it first"
            raise UsageError(msg)
        record = OperatorRecord(
            node.id,
            node.uid,
            node.name,
            parallelism=node.parallelism,
            max_parallelism=node.max_parallelism,
            has_state=True,
        )
        self._operators[node.id] = Pending(record, made=(bootstrap, given))
        return self

    def remove_operator(self, which: str) -> SavepointEdit:
        """Leave an operator out; raises UsageError when there is none."""
        del self._operators[self._find(which).record.id]
        return self

    def change_operator_identifier(self, which: str, uid: str) -> SavepointEdit:
        """Give an operator another uid.

        Raises:
            UsageError: there is no such operator, or another one has that uid.
        """
        pending = self._find(which)
        if operator_id(uid) in self._operators:
            msg = f"another operator has the uid {uid!r}"
            raise UsageError(msg)
        del self._operators[pending.record.id]
        pending.rename(uid)
        self._operators[pending.record.id] = pending
        return self

    def with_max_parallelism(self, which: str, max_parallelism: int) -> SavepointEdit:
        """Give an operator another max parallelism: all its entries move to new key groups.

        Raises:
            UsageError: the number is out of bounds or below the parallelism, the operator has raw
                keyed state, which belongs to key groups and not to keys, or a bootstrap makes it.
        """
        pending = self._stored(which)
        record = pending.record
        if not record.parallelism <= max_parallelism <= MAX_PARALLELISM_BOUND:
            msg = (
                f"the max parallelism of operator {which!r} cannot be {max_parallelism}: expected "
                f"{record.parallelism}, its parallelism, to {MAX_PARALLELISM_BOUND}"
            )
            raise UsageError(msg)
        if self._source is not None:
            source_id = pending.source_id or record.id
            if any(has_raw_keyed(self._source, source_id, s) for s in record.subtasks):
                msg = f"operator {which!r} has raw keyed state, which cannot move to other groups"
                raise UsageError(msg)
            contents = SnapshotContents(self._source, self._unpickle, as_text=False)
            for name, kind in self.kinds(which).items():
                if name not in pending.keyed:
                    table = contents.keyed_state(source_id, name)
                    pending.keyed[name] = (kind, GivenRows(table))
        pending.record, pending.regrouped = replace(record, max_parallelism=max_parallelism), True
        return self

    def remove_state(self, which: str, name: str) -> SavepointEdit:
        """Leave a state of an operator out.

        Raises:
            UsageError: there is none.
        """
        pending = self._find(which)
        known = {*self.kinds(which), *pending.element_names}
        if name not in known:
            names = ", ".join(map(repr, sorted(known))) or "none"
            msg = f"operator {which!r} has no state {name!r}: there are {names}"
            raise UsageError(msg)
        pending.remove(name)
        return self

    def kinds(self, which: str) -> dict[str, StoredKind]:
        """Return the keyed states that an operator has or gets."""
        pending = self._find(which)
        stored: dict[str, StoredKind] = {}
        if self._source is not None:
            record = replace(pending.record, id=pending.source_id or pending.record.id)
            everything = range_of(0, 1, record.max_parallelism)
            stored = stored_kinds(self._source.keyed_sources(record, everything))
        left = {n: kind for n, kind in stored.items() if n not in pending.dropped}
        return {**left, **{name: kind for name, (kind, _) in pending.keyed.items()}}

    def with_keyed_state(
        self, which: str, name: str, kind: StoredKind | None, rows: KeyedRows
    ) -> SavepointEdit:
        """Replace a keyed state, or add one; without a kind it is what it was.

        Raises:
            UsageError: there is no such operator, or no kind is known, or its keys are of
                another type than those of the operator's other states, or a bootstrap
                makes the operator.
        """
        pending = self._stored(which)
        known = self.kinds(which)
        chosen = kind or known.get(name)
        if chosen is None:
            msg = f"state {name!r} of operator {which!r} is new: say what it is, with a descriptor"
            raise UsageError(msg)
        for other, found in known.items():
            if other != name and found.types["key"] != chosen.types["key"]:
                msg = (
                    f"state {name!r} has keys of {chosen.type_of('key')!r}, state {other!r} of the "
                    f"same operator has keys of {found.type_of('key')!r}: they must be alike"
                )
                raise UsageError(msg)
        pending.keyed[name] = (chosen, rows)
        return self

    def with_rows(
        self,
        which: str,
        state: str | StateDescriptor,
        rows: Any,
        *,
        key_type: TypeInformation | None = None,
    ) -> SavepointEdit:
        """Replace or add a keyed state by rows: a table or batches of Arrow, or a DataFrame.

        A state that is there is known by its name. One that is new needs a descriptor, and the type
        of its keys unless other states of the operator tell it.

        Raises:
            UsageError: it is not known what the state is; see also `with_keyed_state`.
        """
        given = self._keyed_rows(rows)
        if isinstance(state, str):
            return self.with_keyed_state(which, state, None, given)
        kind = kind_of(state, key_type or self.key_type(which))
        return self.with_keyed_state(which, state.name, kind, given)

    def with_element_rows(
        self, which: str, descriptor: StateDescriptor, rows: Any, mode: str = "SPLIT"
    ) -> SavepointEdit:
        """Replace or add an operator state by rows with a `value`, and a `map_key` of a map.

        A list state is SPLIT or UNION, a map state BROADCAST.

        Raises:
            UsageError: columns do not fit, or a map key is there twice.
        """
        of_map = mode == "BROADCAST"
        types = (descriptor.value_type, descriptor.key_type if of_map else None)
        declared = [Types.PICKLED_BYTE_ARRAY() if t is None else t for t in types]
        value, key = (portable(found, self._unpickle, False) for found in declared)
        table = self._arrow(rows)
        elements = elements_of_table(table, descriptor.name, value, key if of_map else None)
        chosen = (declared[0], declared[1] if of_map else None)
        return self.with_operator_state(which, descriptor.name, mode, chosen, elements=elements)

    def _keyed_rows(self, rows: Any) -> KeyedRows:
        """Return who writes rows that were given."""
        return GivenRows(rows)

    def _arrow(self, rows: Any) -> Any:
        """Return rows that were given as a table of Arrow."""
        return rows if hasattr(rows, "to_batches") else pa.Table.from_batches(rows)

    def key_type(self, which: str) -> TypeInformation:
        """Return the type of an operator's keys.

        Raises:
            UsageError: it has no keyed state yet that would tell.
        """
        for kind in self.kinds(which).values():
            return kind.type_of("key")
        msg = f"operator {which!r} has no keyed state yet: say of which type its keys are"
        raise UsageError(msg)

    def with_operator_state(
        self,
        which: str,
        name: str,
        mode: str,
        types: tuple[TypeInformation, TypeInformation | None],
        elements: Iterable[Any],
    ) -> SavepointEdit:
        """Replace an operator state, or add one; `types` are those of values and of map keys.

        A list is dealt out to the subtasks in turn, a broadcast map of (key, value) goes to all.

        Raises:
            UsageError: there is no such operator or mode, or a bootstrap makes the operator.
        """
        if mode not in _MODES:
            msg = f"operator state {name!r} is {mode!r}, expected one of {', '.join(_MODES)}"
            raise UsageError(msg)
        pending = self._stored(which)
        value = portable(types[0], self._unpickle, False)
        key = None if types[1] is None else portable(types[1], self._unpickle, False)
        pending.elements[name] = GivenElements(mode, (value, key), list(elements))
        return self

    def with_source_position(
        self, uid: str, offset: str | None, records: int | None
    ) -> SavepointEdit:
        """Let a source go on at another place: Spark's offset, or how many records were read.

        Raises:
            UsageError: there is no such source, or its position is of the other form.
        """
        positions = self._metadata.sources
        found = next((s for s in positions.layout if s.uid == uid), None)
        if found is None:
            known = ", ".join(repr(s.uid) for s in positions.layout) or "none"
            msg = f"there is no source {uid!r}: there are {known}"
            raise UsageError(msg)
        self._metadata = replace(self._metadata, sources=moved(positions, found, offset, records))
        return self

    def filter_transactions(self, which: str, keep: Callable[[int, str], bool]) -> SavepointEdit:
        """Keep only some of the transactions that a sink had prepared and not committed.

        `keep` is asked with the checkpoint that prepared one and the transaction, as
        `SnapshotContents.transactions` shows them. What is kept is committed by the job that starts
        from the savepoint; what is dropped never is, whatever is kept later.

        Raises:
            UsageError: there is no such operator, or it is no sink that prepares transactions.
        """
        kept = self._transactions(which)
        types = (Types.PICKLED_BYTE_ARRAY(), None)
        pickled = portable(types[0], self._unpickle, False).codec.safe
        elements = prepared((row for row in kept if keep(*row)), pickled=pickled)
        return self.with_operator_state(which, COMMITTABLES, "UNION", types, elements=elements)

    def write(self, location: str, options: StorageOptions | None = None) -> str:
        """Write the savepoint; returns where it is.

        Raises:
            UsageError: something is at that place, or rows do not fit.
            CorruptStateError: a file of the source is damaged.
            StorageError: a file cannot be read or written.
        """
        target = Target.at(location, options)
        try:
            write_metadata(target.storage, target.directory, self._written(target))
        except BaseException:
            if not target.storage.exists(metadata_path(target.directory)):
                target.storage.delete_tree(target.directory)
            raise
        return f"{target.storage.uri}/{target.directory}"

    def _written(self, target: Target) -> CheckpointMetadata:
        files = NewFiles(self._source, target)
        operators = [self._operator(p, files, target) for p in self._operators.values()]
        named = {file.path for file in files.records}
        for stray in set(target.storage.list(target.directory)) - named:
            target.storage.delete(f"{target.directory}/{stray}")  # of a task that ran twice
        return replace(
            self._metadata,
            timestamp_ms=self._clock.now_ms(),
            kind="savepoint",
            savepoint_format="CANONICAL",
            operators=tuple(operators),
            files=tuple(files.records),
            in_flight=(),
        )

    def _operator(self, pending: Pending, files: NewFiles, target: Target) -> OperatorRecord:
        record = pending.record
        if pending.made is not None:
            return self._bootstrapped(pending.made, record, files, target)
        if not pending.is_changed and not pending.has_attachments:
            copied = [
                replace(
                    subtask,
                    file=None if subtask.file is None else files.copied(subtask.file),
                    layers=tuple(map(files.copied, subtask.layers)),
                )
                for subtask in record.subtasks
            ]
            return replace(record, subtasks=tuple(copied))
        edit = OperatorEdit(
            record,
            elements={n: given.dealt(record.parallelism) for n, given in pending.elements.items()},
            dropped=pending.dropped,
            source=self._source,
            source_id=pending.source_id,
            unpickle=self._unpickle,
        )
        for name, (kind, rows) in pending.keyed.items():
            layout = self._layout(record, kind)
            edit.keyed[name] = rows.write(target, record, name, (kind, layout))
        made, parts = edit.subtasks(target)
        subtasks = [
            replace(subtask, file=numbers[-1], layers=tuple(numbers[:-1]))
            for subtask, own in zip(made, parts, strict=True)
            for numbers in [[files.add(file) for file in own]]
        ]
        return replace(record, has_state=True, subtasks=tuple(subtasks))

    @staticmethod
    def _bootstrapped(
        made: tuple[Bootstrap, BootstrapInput],
        record: OperatorRecord,
        files: NewFiles,
        target: Target,
    ) -> OperatorRecord:
        bootstrap, given = made
        subtasks = [
            replace(subtask, file=files.add(file))
            for subtask, file in given.run(bootstrap, target, record)
        ]
        return replace(record, has_state=True, subtasks=tuple(subtasks))

    def _layout(self, record: OperatorRecord, kind: StoredKind) -> Layout:
        in_windows = CONTENTS in self.kinds(record.id)
        return Layout.of(kind, unpickle=self._unpickle, in_windows=in_windows, as_text=False)

    def _transactions(self, which: str) -> list[tuple[int, str]]:
        """Return the transactions that a sink had prepared, without those that were dropped."""
        pending = self._find(which)
        given = pending.elements.get(COMMITTABLES)
        if given is not None:
            return given.transactions(COMMITTABLES)
        if self._source is None or not pending.record.subtasks:
            msg = f"operator {which!r} is new, or has no state: it has prepared no transactions"
            raise UsageError(msg)
        if COMMITTABLES in pending.dropped:
            msg = f"the transactions of operator {which!r} were removed: there are none to keep"
            raise UsageError(msg)
        at = pending.source_id or pending.record.id
        return [row[1:] for row in SnapshotContents(self._source).transactions(at).rows]

    def _stored(self, which: str) -> Pending:
        """Return an operator whose states can be given one by one."""
        pending = self._find(which)
        if pending.made is not None:
            msg = (
                f"a bootstrap makes the state of operator {which!r} when this is written: give its "
                "states and its max parallelism there, or change the savepoint that is written"
            )
            raise UsageError(msg)
        return pending

    def _find(self, which: str) -> Pending:
        for pending in self._operators.values():
            if which in (pending.record.uid, pending.record.id):
                return pending
        named = [p for p in self._operators.values() if p.record.name == which]
        if len(named) == 1:
            return named[0]
        known = ", ".join(repr(p.record.uid or p.record.id) for p in self._operators.values())
        msg = f"there is no operator {which!r}: there are {known or 'none'}"
        raise UsageError(msg)
