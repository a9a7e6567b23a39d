"""Aggregates of windows over whole columns: an epoch becomes one record per key and window.

Windows that no record can fire (`weir.runtime.window_folding`) hold what sum, min, max, min_by or
max_by made of their records. Such an aggregate of some records, taken as a record, has the effect
of these records one by one: the first record with the sum, the least or the greatest value; the
first of the least or greatest records. So the rows of an epoch are grouped by key and window as
columns, and what they make is folded into the state once per key and window.

Results and state are those of the record-by-record way. What columns cannot do exactly is refused
before anything is touched. Rows of windows behind the watermark are split off first: records handle
those, which may be late, or fire.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.codec.arrow import batch_to_columns, columns_to_rows
from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo
from weir.graph.plan import EdgeNode
from weir.runtime.columnar import (
    Array,
    ColumnInput,
    can_encode_keys,
    encode_keys,
    fits,
    values_of,
)
from weir.runtime.frame import GROUPS, TIMESTAMPS, Chunk, batch_to_chunk, field_positions
from weir.runtime.window_folding import can_fold
from weir.window.assigners import AlignedWindows
from weir.window.spec import FieldAggregate, WindowSpec

_EXTREME = 1 << 61
"""Times and sizes beyond this are left to records: nothing below overflows."""
_SAFE_SUM = float(1 << 62)
_DENSE = 1 << 12
_TABLE_MIN = 1 << 16


def can_take_columns(spec: WindowSpec, edge: EdgeNode) -> bool:
    """Tell whether windows can aggregate columns: their keys are one, and the field is another."""
    key, declared = edge.key, edge.type
    if spec.contents.aggregate is None or key is None or not can_fold(spec):
        return False
    single = key.fields is not None and len(key.fields) == 1
    rows = isinstance(declared, (RowTypeInfo, TupleTypeInfo))
    return single and rows and declared == spec.contents.value_type


class ColumnWindows(Protocol):
    """What columns need of a window operator's way with records."""

    def fold_once(self, start: int, values: list[Any], keys: list[Any], groups: list[int]) -> None:
        """Fold one record for each of some keys into a window."""

    def process(self, chunk: Chunk) -> None:
        """Put records into their windows one by one."""

    def drop_late(self, count: int) -> bool:
        """Count late records; False when they have to be shown."""


@dataclass(frozen=True)
class Partials:
    """What rows make of keys and windows, a place in all arrays for each pair, by first row.

    `codes` are the numbers of the keys, `starts` those of windows, `values` the aggregates, `rows`
    the rows whose other fields the results have.
    """

    codes: Array
    starts: Array
    values: Array
    rows: Array

    @classmethod
    def of(cls, op: str, rows: Partials, keys: int, step: int) -> Partials:
        """Aggregate rows of the same key and window; starts are multiples of a step apart."""
        windows, numbers = _numbered(rows.starts, step)
        width = len(windows)
        places = rows.codes * width + numbers if width > 1 else rows.codes
        size = keys * width
        names: Array | None = None
        if size > max(4 * len(places), _TABLE_MIN):
            names, places = np.unique(places, return_inverse=True)
            size = len(names)
        first = _first_rows(places, size)
        best = _aggregated(op, places, rows.values, size)
        if op.endswith("_by"):
            winners = np.flatnonzero(rows.values == best[places])
            first = np.full(size, -1, np.int64)
            first[places[winners][::-1]] = winners[::-1]
        used = np.flatnonzero(first >= 0)
        used = used[np.argsort(first[used], kind="stable")]
        found = used if names is None else names[used]
        codes, starts = (found // width, windows[found % width]) if width > 1 else (found, None)
        return cls(
            codes,
            np.full(len(codes), windows[0]) if starts is None else starts,
            best[used],
            rows.rows[first[used]],
        )

    def where(self, mask: Array) -> Partials:
        """Return some of the pairs, by a mask or in an order."""
        if mask.dtype == np.bool_ and mask.all():
            return self
        return Partials(self.codes[mask], self.starts[mask], self.values[mask], self.rows[mask])


def _numbered(starts: Array, step: int) -> tuple[Array, Array]:
    """Return the distinct starts, and the number of each row's own among them."""
    low, high = int(starts.min()), int(starts.max())
    if low == high:
        return np.array([low]), np.zeros(len(starts), np.int64)
    if (high - low) // step < _DENSE:
        return np.arange(low, high + 1, step), (starts - low) // step
    distinct, numbers = np.unique(starts, return_inverse=True)
    return distinct, numbers


def _first_rows(places: Array, size: int) -> Array:
    """Return the first row of every place, -1 where there is none."""
    first = np.full(size, -1, np.int64)
    # Of several rows with one place the last one that is written stays: the first row.
    first[places[::-1]] = np.arange(len(places) - 1, -1, -1)
    return first


def _aggregated(op: str, places: Array, values: Array, size: int) -> Array:
    if op == "sum":
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


class WindowColumns:
    """Hands the columns of an epoch to a window operator's folding, aggregated."""

    def __init__(self, spec: WindowSpec, folding: ColumnWindows) -> None:
        """Bind to the windows of a spec for which `can_take_columns` is true."""
        assigner: Any = spec.assigner
        aggregate: Any = spec.contents.aggregate
        self._assigner: AlignedWindows = assigner
        self._aggregate: FieldAggregate = aggregate
        self._lateness_ms = spec.lateness_ms
        self._event_time = spec.assigner.is_event_time()
        self._folding = folding

    def process(self, given: ColumnInput, edge: EdgeNode, now: int, watermark: int) -> bool:
        """Take all rows; False when that would not be exact, and nothing was touched."""
        batch, op = given.batch, self._aggregate.op
        [field] = field_positions(batch.schema, [self._aggregate.field])
        [key] = field_positions(batch.schema, edge.key.fields)  # type: ignore[union-attr, arg-type]
        if field == key or not can_encode_keys(batch.column(key)):
            return False
        values = values_of(batch.column(field), op)
        if values is None or (op == "sum" and not _sums_are_safe(values)):
            return False
        times = self._times(given, now)
        if times is None:
            return False
        ahead = self._ahead(times, watermark)
        if ahead is None:
            return False
        found = None
        if ahead.any():
            codes, keys = encode_keys(batch.column(key))
            length = gcd(self._assigner.size, self._assigner.slide)
            slices = times - (times - self._assigner.offset) % length
            rows = Partials(codes, slices, values, np.arange(batch.num_rows))
            found = Partials.of(op, rows.where(ahead), len(keys), length)
            found = self._windows(found, len(keys), watermark)
            if not fits(found.values, batch.column(field).type):
                return False
        if not ahead.all():
            self._behind(given, edge, np.flatnonzero(~ahead), watermark)
        if found is not None:
            self._fold(found, given, edge, field=field)
        return True

    def _times(self, given: ColumnInput, now: int) -> Array | None:
        """Return what decides the windows of the rows; None when records have to say it."""
        if self._assigner.size >= _EXTREME or abs(now) >= _EXTREME:
            return None
        if not self._event_time:
            return np.full(given.batch.num_rows, now, np.int64)
        stamps = given.timestamps
        if stamps is None or stamps.null_count:
            return None
        times: Array = stamps.to_numpy()
        return times if times.min() > -_EXTREME and times.max() < _EXTREME else None

    def _ahead(self, times: Array, watermark: int) -> npt.NDArray[np.bool_] | None:
        """Tell which rows have a window, and none that is behind the watermark but not over.

        None when some have both a window that a record would fire and one that waits.
        """
        size, slide, offset = self._assigner.size, self._assigner.slide, self._assigner.offset
        latest = times - (times - offset) % slide
        has_window: npt.NDArray[np.bool_] = latest + size > times
        if not self._event_time or watermark < -_EXTREME:
            return has_window
        if self._lateness_ms and size > slide and bool((times <= watermark).any()):
            return None
        has_window &= latest + size - 1 > watermark
        return has_window

    def _behind(self, given: ColumnInput, edge: EdgeNode, rows: Array, watermark: int) -> None:
        """Let records handle rows that are late, that fire at once, or that have no window."""
        stamps: Any = given.timestamps
        taken = pa.array(rows)
        if self._event_time and not self._lateness_ms:
            late = int((stamps.to_numpy()[rows] <= watermark).sum())
            if self._folding.drop_late(late):
                return
        batch = given.batch.take(taken)
        batch = batch.append_column(GROUPS, pa.array(given.groups[rows]))
        if stamps is not None:
            batch = batch.append_column(TIMESTAMPS, stamps.take(taken))
        self._folding.process(batch_to_chunk(batch, edge))

    def _windows(self, slices: Partials, keys: int, watermark: int) -> Partials:
        """Return what slices make of the windows that are not over.

        All rows of a slice have the same windows.
        """
        size, slide, offset = self._assigner.size, self._assigner.slide, self._assigner.offset
        if size == slide:
            return slices
        latest = slices.starts - (slices.starts - offset) % slide
        parts = []
        for back in range(0, size, slide):
            starts = latest - back
            within = starts + size > slices.starts
            if self._event_time and watermark >= -_EXTREME:
                within &= starts + size - 1 > watermark
            part = Partials(slices.codes, starts, slices.values, slices.rows)
            parts.append(part.where(within))
        joined = Partials(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.rows for part in parts]),
        )
        order = np.argsort(joined.rows, kind="stable")
        return Partials.of(self._aggregate.op, joined.where(order), keys, slide)

    def _fold(self, found: Partials, given: ColumnInput, edge: EdgeNode, field: int) -> None:
        """Fold one record for each key and window, window by window."""
        order = np.argsort(found.starts, kind="stable")
        found = found.where(order)
        columns = batch_to_columns(given.batch.take(pa.array(found.rows)), edge.type)
        columns[field] = found.values.tolist()
        records = columns_to_rows(columns, edge.type)
        [key] = field_positions(given.batch.schema, edge.key.fields)  # type: ignore[union-attr, arg-type]
        keys, groups = columns[key], given.groups[found.rows].tolist()
        changes = np.flatnonzero(np.diff(found.starts)) + 1
        for low, high in pairwise([0, *changes.tolist(), len(records)]):
            self._folding.fold_once(
                int(found.starts[low]), records[low:high], keys[low:high], groups[low:high]
            )


def _sums_are_safe(values: Array) -> bool:
    return float(np.abs(values.astype(np.float64)).sum()) < _SAFE_SUM
