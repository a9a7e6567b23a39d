"""The sending side of an edge: who gets which record, packed into frames.

One `EdgeWriter` per edge and sender. Routing depends only on the records and the sender, never on
chance: sending the same input again gives the same frames, which is what makes a repeated Spark
task harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.codec.arrow import arrow_schema_for, rows_to_batch
from weir.codec.arrow_read import read_column
from weir.codec.declared_key import DeclaredKey
from weir.errors import UsageError, UserFunctionError, WeirError
from weir.failpoint import ProcessDeath
from weir.graph.plan import EdgeNode
from weir.graph.transformation import Partitioning
from weir.keygroup import key_group, key_groups_of_int64, murmur_column, stable_hash
from weir.keys import one_nan
from weir.runtime.columnar import ColumnarChunk
from weir.runtime.frame import (
    GROUPS,
    TIMESTAMPS,
    Chunk,
    ColumnChunk,
    Frame,
    field_positions,
    origin,
    pack_chunk,
    pack_columns,
)
from weir.runtime.partition_time import partition_owner
from weir.runtime.raised import last_given, shorten, unsendable, user_traceback

_CACHE_MAX = 1 << 18
_JAVA_INT = pa.types.is_signed_integer


class EdgeWriter:
    """Packs the records of one edge into frames for the subtasks of its target."""

    def __init__(
        self, edge: EdgeNode, sender: int, operator_name: str, giver: str | None = None
    ) -> None:
        """Prepare for one sender (a subtask, or a partition of the source side).

        `operator_name` is the operator that takes the records, `giver` the one that they are of.
        """
        self.edge = edge
        self.sender = sender
        self._operator_name = operator_name
        self._giver = operator_name if giver is None else giver
        self._targets = edge.parallelism
        self._sequence = 0
        self._next = sender % edge.parallelism
        self._cache: dict[Any, int] = {}
        self._columnar = edge.type is not None and arrow_schema_for(edge.type) is not None
        self.partition = ""
        self.partitions: set[str] = set()
        if edge.by_partition:
            self._columnar = False  # the partition travels beside the records
        if self._columnar and edge.key is not None and edge.key.fields is None:
            self._columnar = False  # keys that are not fields travel beside the records
        self._declared = DeclaredKey.of(None if edge.key is None else edge.key.key_type)
        self._owner = np.arange(edge.max_parallelism) * edge.parallelism // edge.max_parallelism
        self.records = 0
        self.frames: list[Frame] = []

    @property
    def checks_types(self) -> bool:
        """Tell whether records that their declared type cannot hold are refused here."""
        return self._columnar

    def restart(self) -> None:
        """Begin a new epoch: numbering and round-robin start again, so a replay is identical."""
        self._sequence = 0
        self._next = self.sender % self._targets
        self.records = 0
        self.frames = []

    def take_frames(self) -> list[Frame]:
        """Hand over what was packed so far."""
        frames, self.frames = self.frames, []
        return frames

    def write(self, chunk: Chunk) -> None:
        """Route and pack records."""
        if isinstance(chunk, ColumnarChunk):
            if self.write_columns(ColumnChunk(chunk.batch, chunk.stamps)):
                return
            # Whoever sends them record by record needs them once.
            chunk = Chunk(chunk.values, chunk.timestamps)
        if not chunk.values:
            return
        self.records += len(chunk.values)
        mode = self.edge.partitioning
        if mode is Partitioning.HASH and self._columnar:
            self._send_keyed_columns(self._batch(chunk))
        elif mode is Partitioning.HASH:
            self._write_keyed(chunk)
        elif mode is Partitioning.BROADCAST:
            payload = self._pack(chunk)
            for target in range(self._targets):
                self._send(target, payload)
        elif mode is Partitioning.GLOBAL:
            self._send(0, self._pack(chunk))
        elif self.edge.by_partition:
            self.partitions.add(self.partition)
            names = [self.partition] * len(chunk.values)
            target = partition_owner(self.partition, self._targets)
            self._send(target, self._pack(Chunk(chunk.values, chunk.timestamps, names)))
        elif mode is Partitioning.FORWARD:
            self._send(self._forward_target(), self._pack(chunk))
        else:
            self._write_spread(chunk, self._spread(chunk))

    def write_columns(self, chunk: ColumnChunk) -> bool:
        """Route records that are still columns; False when this edge needs Python records."""
        edge = self.edge
        if not self._columnar or edge.partitioning in (Partitioning.CUSTOM, Partitioning.SHUFFLE):
            return False
        batch = chunk.batch
        if batch.num_rows == 0:
            return True
        self.records += batch.num_rows
        if chunk.timestamps is not None:
            batch = batch.append_column(TIMESTAMPS, chunk.timestamps)
        self._route_columns(batch)
        return True

    def _route_columns(self, batch: pa.RecordBatch) -> None:
        mode = self.edge.partitioning
        if mode is Partitioning.HASH:
            self._send_keyed_columns(batch)
        elif mode is Partitioning.BROADCAST:
            payload = pack_columns(batch)
            for target in range(self._targets):
                self._send(target, payload)
        elif mode is Partitioning.GLOBAL:
            self._send(0, pack_columns(batch))
        else:
            self._send(self._forward_target(), pack_columns(batch))

    def _forward_target(self) -> int:
        if self.edge.source_level > 0 and self.edge.partitioning is Partitioning.FORWARD:
            return self.sender
        target = self._next
        self._next = (target + 1) % self._targets
        return target

    def _send(self, target: int, payload: Any) -> None:
        number = origin(self.sender, self._sequence)
        self._sequence += 1
        self.frames.append(Frame(target, self.edge.id, number, payload))

    def _pack(self, chunk: Chunk) -> Any:
        if self._columnar:
            return pack_columns(self._batch(chunk))
        try:
            return pack_chunk(chunk)
        except BaseException as error:
            raise unsendable(self._giver, chunk.values, error) from error

    def _batch(self, chunk: Chunk) -> pa.RecordBatch:
        try:
            batch = rows_to_batch(chunk.values, self.edge.type)
        except UsageError as error:
            raise self._misfit(chunk.values, error) from error
        if chunk.timestamps is not None:
            batch = batch.append_column(TIMESTAMPS, pa.array(chunk.timestamps, pa.int64()))
        return batch

    def _misfit(self, values: list[Any], error: UsageError) -> UsageError:
        """Return the error of the first record that its declared type cannot hold."""
        reasons = ((value, _refusal(value, self.edge.type)) for value in values)
        bad, reason = next((pair for pair in reasons if pair[1] is not None), (None, error))
        at = "" if reason is error else f" at record {shorten(bad)}"
        return UsageError(
            f"operator '{self._giver}'{at}: its output is declared as {self.edge.type!r}: {reason}"
        )

    def _write_keyed(self, chunk: Chunk) -> None:
        keys = self._keys(chunk.values)
        if self._declared is not None and not self._declared.holds(keys):
            keys = [self._as_declared(key) for key in keys]
        groups = self._groups(keys)
        if self._targets == 1:
            packed = Chunk(chunk.values, chunk.timestamps, keys, groups)
            self._send(0, self._pack(packed))
            return
        owners = self._owner[np.asarray(groups)]
        self._write_spread(Chunk(chunk.values, chunk.timestamps, keys, groups), owners)

    def _write_spread(self, chunk: Chunk, owners: npt.NDArray[Any]) -> None:
        for target in np.unique(owners).tolist():
            mask = (owners == target).tolist()
            part = Chunk(
                list(compress(chunk.values, mask)),
                None if chunk.timestamps is None else list(compress(chunk.timestamps, mask)),
                None if chunk.keys is None else list(compress(chunk.keys, mask)),
                None if chunk.groups is None else list(compress(chunk.groups, mask)),
            )
            self._send(target, self._pack(part))

    def _keys(self, values: list[Any]) -> list[Any]:
        key = self.edge.key
        if key is None:
            msg = f"edge into '{self._operator_name}' is keyed but has no key selector"
            raise UsageError(msg)
        return self._asked("key selector", key.selector, values)

    def _asked(self, what: str, function: Callable[[Any], Any], values: list[Any]) -> list[Any]:
        """Return what a function of the user says about every record, or key."""
        rest = iter(values)
        try:
            return [function(v) for v in rest]
        except (WeirError, ProcessDeath):
            raise
        except BaseException as error:
            name = f"{what} of '{self._operator_name}'"
            shown = shorten(last_given(values, rest))
            raise UserFunctionError(name, shown, user_traceback(error)) from None

    def _as_declared(self, key: Any) -> Any:
        try:
            return self._declared.convert(key)  # type: ignore[union-attr]
        except UsageError as error:
            raise self._refused(error) from error

    def _groups(self, keys: list[Any]) -> list[int]:
        """Return the key groups; keys with a NaN are replaced by those that state is found by."""
        cache = self._cache
        if len(cache) > _CACHE_MAX:
            cache.clear()
        groups: list[int] = []
        append = groups.append
        try:
            for k in keys:
                g = cache.get(k)
                if g is None:
                    g = self._new_group(keys, len(groups))
                append(g)
        except TypeError:
            stable_hash(k)  # says what is wrong with this key; a mutable field inside it is left
            msg = f"a key of type {type(k).__name__} is unhashable ({shorten(k)})"
            raise UsageError(msg) from None
        return groups

    def _new_group(self, keys: list[Any], position: int) -> int:
        """Return the key group of a key that is not in the cache, where a NaN never is."""
        key = keys[position]
        try:
            found = one_nan(key)
            group = key_group(found, self.edge.max_parallelism)
        except UsageError as error:
            raise self._refused(error) from error
        if found is key:
            self._cache[key] = group
        else:
            keys[position] = found
        return group

    def _refused(self, error: UsageError) -> UsageError:
        return UsageError(f"the key of a record for operator '{self._operator_name}': {error}")

    def _spread(self, chunk: Chunk) -> npt.NDArray[Any]:
        count = len(chunk.values)
        if self.edge.partitioning is Partitioning.CUSTOM:
            return self._custom(chunk.values)
        if self.edge.partitioning is Partitioning.SHUFFLE:
            # Scattered by the position in the stream: a replay spreads records alike.
            first = origin(self.sender, self._sequence) * 0x9E3779B1 + self.records
            positions = (np.arange(count) + (first & 0x7FFFFFFF)).astype(np.uint32)
            return murmur_column(positions) % self._targets
        start, self._next = self._next, (self._next + count) % self._targets
        return (np.arange(count) + start) % self._targets

    def _custom(self, values: list[Any]) -> npt.NDArray[Any]:
        edge = self.edge
        keys = self._keys(values)
        function = edge.partition_fn
        if function is None:
            msg = f"custom partitioning into '{self._operator_name}' has no partitioner"
            raise UsageError(msg)
        owners = self._asked("partitioner", lambda key: function(key, self._targets), keys)
        for key, owner in zip(keys, owners, strict=True):
            if not isinstance(owner, int) or not 0 <= owner < self._targets:
                msg = (
                    f"the partitioner returned {owner!r} for key {shorten(key)}; expected a "
                    f"subtask from 0 to {self._targets - 1}"
                )
                raise UsageError(msg)
        return np.array(owners)

    def _send_keyed_columns(self, batch: pa.RecordBatch) -> None:
        fields = self.edge.key.fields if self.edge.key else None
        groups = self._column_groups(batch, fields or ())
        batch = batch.append_column(GROUPS, pa.array(groups.astype(np.uint16)))
        self._send_split(batch, self._owner[groups])

    def _send_split(self, batch: pa.RecordBatch, owners: npt.NDArray[Any]) -> None:
        for target in range(self._targets):
            rows = np.flatnonzero(owners == target)
            if len(rows) == batch.num_rows:
                self._send(target, pack_columns(batch))
            elif len(rows):
                self._send(target, pack_columns(batch.take(pa.array(rows))))

    def _column_groups(self, batch: pa.RecordBatch, fields: Sequence[str | int]) -> Any:
        positions = field_positions(batch.schema, fields)
        if len(positions) == 1:
            column = batch.column(positions[0])
            if column.null_count:
                self._new_group([None], 0)  # which refuses it
            if _JAVA_INT(column.type):
                return key_groups_of_int64(
                    column.cast(pa.int64()).to_numpy(), self.edge.max_parallelism
                )
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                return self._string_groups(column)
        types = self.edge.type.get_field_types()
        found = [read_column(batch.column(i), types[i]) for i in positions]
        keys = found[0] if len(found) == 1 else list(zip(*found, strict=True))
        return np.array(self._groups(keys))

    def _string_groups(self, column: pa.Array) -> Any:
        """Hash each distinct string once; what a batch repeats costs nothing."""
        encoded = column.dictionary_encode()
        distinct = self._groups(encoded.dictionary.to_pylist())
        return np.array(distinct)[encoded.indices.to_numpy()]


def _refusal(value: Any, type_info: Any) -> UsageError | None:
    try:
        rows_to_batch([value], type_info)
    except UsageError as error:
        return error
    return None
