"""Rows of windows as columns: those of one key and one slice of time become one row.

A slice is as long as the greatest common divisor of size and slide, so all of its moments have the
same windows. Such a row, taken as a record, has the effect of its rows one by one: the first one
with the sum, the least or the greatest value; the first of the least or greatest ones; for counts,
the first one and how many they are. Integers are added exactly; what is not exact is refused: sums
of floating-point numbers, which depend on the order of all additions, and sums beyond 62 bits.

Nothing here knows state or time: senders and receivers of rows use it alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo, Types
from weir.graph.plan import EdgeNode
from weir.runtime.columnar import Array, can_encode_keys, fits, number_keys, values_of
from weir.runtime.frame import field_positions
from weir.runtime.window_folding import can_fold
from weir.window.assigners import AlignedWindows
from weir.window.spec import COUNT, FieldAggregate, Holding, WindowSpec

EXTREME = 1 << 61
"""Times and sizes beyond this are left to records: nothing below overflows."""
_SAFE_SUM = float(1 << 62)
_DENSE = 1 << 12
_TABLE_MIN = 1 << 16
_COUNTS = Types.LONG()


def can_take_columns(spec: WindowSpec, edge: EdgeNode) -> bool:
    """Tell whether windows can take columns: their keys are one, and they know what to do.

    They hold what a function makes of records, the records, or an aggregate of a column.
    """
    key, declared, contents = edge.key, edge.type, spec.contents
    if key is None or not can_fold(spec):
        return False
    single = key.fields is not None and len(key.fields) == 1
    if not single or not isinstance(declared, (RowTypeInfo, TupleTypeInfo)):
        return False
    if contents.aggregate is not None and contents.aggregate.op == COUNT:
        return bool(contents.value_type == _COUNTS)
    return contents.holding is Holding.AGGREGATED or bool(contents.value_type == declared)


@dataclass(frozen=True)
class Partials:
    """What rows make of keys and slices or windows, a place in all arrays for each pair.

    `codes` are the numbers of the keys, `starts` those of slices or windows, `values` the
    aggregates, `rows` the rows whose other fields the results have, `firsts` the first rows, in
    whose order the pairs are, and `counts`, where somebody asked for them, how many rows it were.
    """

    codes: Array
    starts: Array
    values: Array
    rows: Array
    firsts: Array
    counts: Array | None = None

    @classmethod
    def of(
        cls, op: str, rows: Partials, keys: int, step: int, *, counted: bool = False
    ) -> Partials:
        """Aggregate rows of the same key and start; starts are multiples of a step apart.

        They are in the order of their first rows.
        """
        windows, numbers = numbered(rows.starts, step)
        width = len(windows)
        places = rows.codes * width + numbers if width > 1 else rows.codes
        size = keys * width
        names: Array | None = None
        if size > max(4 * len(places), _TABLE_MIN):
            names, places = np.unique(places, return_inverse=True)
            size = len(names)
        first = first_rows(places, size)
        best = _aggregated(op, places, rows.values, size)
        used = np.flatnonzero(first >= 0)
        used = used[np.argsort(first[used], kind="stable")]
        firsts = rows.firsts[first[used]]
        taken = firsts
        if op.endswith("_by"):
            winners = np.flatnonzero(rows.values == best[places])
            least = np.full(size, np.iinfo(np.int64).max)
            np.minimum.at(least, places[winners], rows.rows[winners])
            taken = least[used]
        found = used if names is None else names[used]
        codes, starts = (found // width, windows[found % width]) if width > 1 else (found, None)
        return cls(
            codes,
            np.full(len(codes), windows[0]) if starts is None else starts,
            best[used],
            rows=taken,
            firsts=firsts,
            counts=np.bincount(places, minlength=size)[used] if counted else None,
        )

    def where(self, mask: Array) -> Partials:
        """Return some of the pairs, by a mask or in an order."""
        if mask.dtype == np.bool_ and mask.all():
            return self
        return Partials(
            self.codes[mask],
            self.starts[mask],
            self.values[mask],
            rows=self.rows[mask],
            firsts=self.firsts[mask],
            counts=None if self.counts is None else self.counts[mask],
        )


def numbered(starts: Array, step: int) -> tuple[Array, Array]:
    """Return the distinct starts in order, and the number of each row's own among them."""
    low, high = int(starts.min()), int(starts.max())
    if low == high:
        return np.array([low]), np.zeros(len(starts), np.int64)
    count = (high - low) // step + 1
    if count <= _DENSE:
        # Not by arange with a step: it counts in floating-point numbers.
        return low + step * np.arange(count), (starts - low) // step
    distinct, numbers = np.unique(starts, return_inverse=True)
    return distinct, numbers


def first_rows(places: Array, size: int) -> Array:
    """Return the first row of every place, -1 where there is none."""
    first = np.full(size, -1, np.int64)
    # Of several rows with one place the last one that is written stays: the first row.
    first[places[::-1]] = np.arange(len(places) - 1, -1, -1)
    return first


def _aggregated(op: str, places: Array, values: Array, size: int) -> Array:
    if op in ("sum", COUNT):
        total: Array = np.zeros(size, np.int64)
        np.add.at(total, places, values)
        return total
    least = op.startswith("min")
    bounds = np.iinfo(np.int64) if values.dtype.kind == "i" else np.finfo(np.float64)
    best = np.full(size, bounds.max if least else bounds.min, values.dtype)
    if values.dtype.kind == "f":
        best[:] = np.inf if least else -np.inf
    (np.minimum if least else np.maximum).at(best, places, values)
    return best


@dataclass(frozen=True)
class Measured:
    """Rows of a batch, ready to be aggregated: what of each counts, and when it is."""

    values: Array
    times: Array


class Slices:
    """How rows for the windows of a spec are aggregated, for which `can_take_columns` is true."""

    def __init__(self, spec: WindowSpec, edge: EdgeNode) -> None:
        """Take what the spec says of windows, and the edge of keys."""
        assigner: Any = spec.assigner
        self.assigner: AlignedWindows = assigner
        self.aggregate: FieldAggregate | None = spec.contents.aggregate
        self.op = "" if self.aggregate is None else self.aggregate.op
        self.event_time = spec.assigner.is_event_time()
        self.length = gcd(assigner.size, assigner.slide)
        self._key_fields: Any = edge.key.fields if edge.key is not None else ()

    def key(self, schema: pa.Schema) -> int:
        """Return the column of the keys."""
        return field_positions(schema, self._key_fields)[0]

    def field(self, schema: pa.Schema) -> int | None:
        """Return the column that is aggregated, None where that is none."""
        field = None if self.aggregate is None else self.aggregate.field
        return None if field is None else field_positions(schema, [field])[0]

    def measured(
        self, batch: pa.RecordBatch, stamps: pa.Array | None, weights: Array | None, now: int
    ) -> Measured | None:
        """Return what decides about rows; None when only records can do that exactly.

        `weights` says how many records a row stands for, None for one each; `now` is the processing
        time, the same for all.
        """
        key, field = self.key(batch.schema), self.field(batch.schema)
        if field == key or not can_encode_keys(batch.column(key)):
            return None
        values = self._values(batch, field, weights)
        times = None if values is None else self._times(batch.num_rows, stamps, now)
        return None if values is None or times is None else Measured(values, times)

    def _values(
        self, batch: pa.RecordBatch, field: int | None, weights: Array | None
    ) -> Array | None:
        if field is None:
            return np.ones(batch.num_rows, np.int64) if weights is None else weights
        values = values_of(batch.column(field), self.op)
        if values is None or (self.op == "sum" and not _sums_are_safe(values)):
            return None
        return values

    def _times(self, count: int, stamps: pa.Array | None, now: int) -> Array | None:
        """Return what decides the windows of the rows; None when records have to say it."""
        if max(self.assigner.size, self.assigner.slide, abs(now)) >= EXTREME:
            return None
        if not self.event_time:
            return np.full(count, now, np.int64)
        if stamps is None or stamps.null_count:
            return None
        times: Array = stamps.to_numpy()
        if count and (times.min() <= -EXTREME or times.max() >= EXTREME):
            return None
        return times

    def of(
        self,
        batch: pa.RecordBatch,
        measured: Measured,
        mask: npt.NDArray[np.bool_] | None = None,
        *,
        counted: bool = False,
    ) -> tuple[Partials, int] | None:
        """Return what rows make of keys and slices, and below what the numbers of keys are.

        None when the type of the field cannot hold it.
        """
        codes, keys = number_keys(batch.column(self.key(batch.schema)))
        starts = measured.times - (measured.times - self.assigner.offset) % self.length
        places = np.arange(batch.num_rows)
        rows = Partials(codes, starts, measured.values, rows=places, firsts=places)
        if mask is not None:
            rows = rows.where(mask)
        found = Partials.of(self.op, rows, keys, self.length, counted=counted)
        return (found, keys) if self.holds(found, batch) else None

    def holds(self, found: Partials, batch: pa.RecordBatch) -> bool:
        """Tell whether the column of the field can hold aggregates."""
        field = self.field(batch.schema)
        return field is None or fits(found.values, batch.column(field).type)


def _sums_are_safe(values: Array) -> bool:
    return float(np.abs(values.astype(np.float64)).sum()) < _SAFE_SUM
