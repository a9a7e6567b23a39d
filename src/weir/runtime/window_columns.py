"""Windows over whole columns: rows of an epoch are grouped by key and window, and kept once each.

Windows that no record can fire (`weir.runtime.window_folding`) hold what sum, min, max, min_by,
max_by or a count made of their records; or the records, or what a function of the user made of
them. The first are made of columns (`weir.runtime.window_slices`): of the rows of a slice of time,
then of windows, and what they make is folded into the state once per key and window. For the others
rows are sorted by key and window as columns, and become Python objects in that order. State and
timers of a key group are touched together.

Results and state are those of the record-by-record way. What columns cannot do exactly is refused
before anything is touched. Rows of windows behind the watermark are split off first: records handle
those, which may be late, or fire.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.codec.arrow import batch_to_columns, batch_to_rows, columns_to_rows
from weir.codec.arrow_read import read_column
from weir.graph.plan import EdgeNode
from weir.runtime.columnar import Array, ColumnInput, number_keys, stable_order
from weir.runtime.frame import GROUPS, MERGED, TIMES, TIMESTAMPS, Chunk, batch_to_chunk
from weir.runtime.window_slices import EXTREME, Partials, Slices, first_rows, numbered
from weir.window.spec import COUNT, WindowSpec

_SHORT = 1 << 16
_STRIDE = 1024
RECORDS_MAX = 1 << 18
"""So many records of windows are Python objects at a time before state holds them."""


class ColumnWindows(Protocol):
    """What columns need of a window operator's way with records."""

    def fold_group(self, start: int, group: int, keys: list[Any], values: list[Any]) -> None:
        """Fold one value for each of some keys of a key group into a window."""

    def add_group(self, start: int, group: int, keys: list[Any], lists: list[Any]) -> None:
        """Add records of some keys of a key group to a window, a list for each key."""

    def process(self, chunk: Chunk) -> None:
        """Put records into their windows one by one."""

    def drop_late(self, count: int) -> bool:
        """Count late records; False when they have to be shown."""


class WindowColumns:
    """Hands the columns of an epoch to a window operator's folding, grouped."""

    def __init__(self, spec: WindowSpec, folding: ColumnWindows) -> None:
        """Bind to the windows of a spec for which `can_take_columns` is true."""
        self._spec = spec
        self._folding = folding
        self._slices: Slices | None = None

    def process(self, given: ColumnInput, edge: EdgeNode, now: int, watermark: int) -> bool:
        """Take all rows; False when that would not be exact, and nothing was touched."""
        if self._slices is None:
            self._slices = Slices(self._spec, edge)
        slices, batch = self._slices, given.batch
        rows = slices.measured(batch, given.timestamps, given.weights, now)
        if rows is None:
            return False
        ahead = self._ahead(slices, rows.times, watermark)
        if ahead is None:
            return False
        if not slices.op:
            self._behind(given, edge, np.flatnonzero(~ahead), watermark)
            kept = given if ahead.all() else given.take(np.flatnonzero(ahead))
            self._keep(slices, kept, edge, rows.times[ahead], watermark=watermark)
            return True
        found = None
        if ahead.any():
            made = slices.of(batch, rows, ahead)
            if made is None:
                return False
            found = self._windows(slices, *made, watermark)
            if not slices.holds(found, batch):
                return False
        self._behind(given, edge, np.flatnonzero(~ahead), watermark)
        if found is not None:
            self._fold(slices, found, given, edge)
        return True

    def _ahead(self, slices: Slices, times: Array, watermark: int) -> npt.NDArray[np.bool_] | None:
        """Tell which rows have a window, and none that is behind the watermark but not over.

        None when some have both a window that a record would fire and one that waits.
        """
        assigner = slices.assigner
        size, slide = assigner.size, assigner.slide
        latest = times - (times - assigner.offset) % slide
        has_window: npt.NDArray[np.bool_] = latest + size > times
        if not slices.event_time or watermark < -EXTREME:
            return has_window
        if self._spec.lateness_ms and size > slide and bool((times <= watermark).any()):
            return None
        has_window &= latest + size - 1 > watermark
        return has_window

    def _behind(self, given: ColumnInput, edge: EdgeNode, rows: Array, watermark: int) -> None:
        """Let records handle rows that are late, that fire at once, or that have no window."""
        if not len(rows):
            return
        stamps: Any = given.timestamps
        weights = None if given.weights is None else given.weights[rows]
        if self._spec.assigner.is_event_time() and not self._spec.lateness_ms:
            late = stamps.to_numpy()[rows] <= watermark
            count = int(late.sum() if weights is None else weights[late].sum())
            if self._folding.drop_late(count):
                return
        taken = given.take(rows)
        batch = taken.batch.append_column(GROUPS, pa.array(taken.groups))
        if taken.timestamps is not None:
            batch = batch.append_column(TIMESTAMPS, taken.timestamps)
        if weights is not None:
            counts = self._slices is not None and self._slices.op == COUNT
            batch = batch.append_column(TIMES if counts else MERGED, pa.array(weights))
        self._folding.process(batch_to_chunk(batch, edge))

    # ---- aggregates

    def _windows(self, slices: Slices, found: Partials, keys: int, watermark: int) -> Partials:
        """Return what slices make of the windows that are not over.

        All rows of a slice have the same windows.
        """
        assigner = slices.assigner
        size, slide = assigner.size, assigner.slide
        if size == slide:
            return found
        latest = found.starts - (found.starts - assigner.offset) % slide
        parts = []
        for back in range(0, size, slide):
            starts = latest - back
            within = starts + size > found.starts
            if slices.event_time and watermark >= -EXTREME:
                within &= starts + size - 1 > watermark
            parts.append(replace(found, starts=starts).where(within))
        joined = Partials(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.values for part in parts]),
            rows=np.concatenate([part.rows for part in parts]),
            firsts=np.concatenate([part.firsts for part in parts]),
        )
        order = np.argsort(joined.firsts, kind="stable")
        return Partials.of(slices.op, joined.where(order), keys, slide)

    def _fold(self, slices: Slices, found: Partials, given: ColumnInput, edge: EdgeNode) -> None:
        """Fold one value for each key and window, window by window, group by group."""
        groups = given.groups[found.rows]
        order = np.argsort(groups, kind="stable")
        order = _by_window(order, found.starts, slices.assigner.slide)
        found, groups = found.where(order), groups[order]
        keys, values = self._records(slices, found, given, edge)
        for low, high in _runs(found.starts, groups):
            self._folding.fold_group(
                int(found.starts[low]), int(groups[low]), keys[low:high], values[low:high]
            )

    def _records(
        self, slices: Slices, found: Partials, given: ColumnInput, edge: EdgeNode
    ) -> tuple[list[Any], list[Any]]:
        """Return the keys, and what is folded for each: a record, or a count."""
        rows = pa.array(found.rows)
        field = slices.field(given.batch.schema)
        if field is None:
            return self._keys(slices, given, edge, found.rows), found.values.tolist()
        columns = batch_to_columns(given.batch.take(rows), edge.type)
        columns[field] = found.values.tolist()
        return columns[slices.key(given.batch.schema)], columns_to_rows(columns, edge.type)

    @staticmethod
    def _keys(slices: Slices, given: ColumnInput, edge: EdgeNode, rows: Array) -> list[Any]:
        types: Any = edge.type
        key = slices.key(given.batch.schema)
        return read_column(
            given.batch.column(key).take(pa.array(rows)), types.get_field_types()[key]
        )

    # ---- records

    def _keep(
        self, slices: Slices, given: ColumnInput, edge: EdgeNode, times: Array, *, watermark: int
    ) -> None:
        """Add records to their windows, some at a time."""
        windows = 1 + slices.assigner.size // slices.assigner.slide
        step = max(RECORDS_MAX // windows, _STRIDE)
        count = given.batch.num_rows
        for low in range(0, count, step):
            part = given if count <= step else given.take(np.arange(low, min(low + step, count)))
            places, starts = _places(slices, times[low : low + step], watermark)
            self._keep_some(slices, part, edge, places, starts=starts)

    def _keep_some(
        self, slices: Slices, given: ColumnInput, edge: EdgeNode, places: Array, *, starts: Array
    ) -> None:
        """Add rows at places, each to the window that begins at its start."""
        codes, keys = number_keys(given.batch.column(slices.key(given.batch.schema)))
        slide = slices.assigner.slide
        first = _first_entries(codes[places], keys, starts, slide)
        groups = given.groups[places]
        # By window, group, first record of the key, and as they came.
        order = stable_order(first, len(first))
        order = order[np.argsort(groups[order], kind="stable")]
        order = _by_window(order, starts, slide)
        taken, first = places[order], first[order]
        if len(places) == given.batch.num_rows:
            records = batch_to_rows(given.batch.take(pa.array(taken)), edge.type)
        else:
            made = batch_to_rows(given.batch, edge.type)
            records = [made[i] for i in taken.tolist()]
        bounds = [0, *(np.flatnonzero(np.diff(first)) + 1).tolist(), len(records)]
        lists = [records[low:high] for low, high in pairwise(bounds)]
        heads = np.array(bounds[:-1])
        names = self._keys(slices, given, edge, taken[heads])
        starts, groups = starts[order][heads], groups[order][heads]
        for low, high in _runs(starts, groups):
            self._folding.add_group(
                int(starts[low]), int(groups[low]), names[low:high], lists[low:high]
            )


def _places(slices: Slices, times: Array, watermark: int) -> tuple[Array, Array]:
    """Return rows and the start of a window of each, for all windows that are not over."""
    assigner = slices.assigner
    size, slide = assigner.size, assigner.slide
    latest = times - (times - assigner.offset) % slide
    if size == slide:
        return np.arange(len(times)), latest
    starts = latest[:, None] - np.array(range(0, size, slide))
    within = starts + size > times[:, None]
    if slices.event_time and watermark >= -EXTREME:
        within &= starts + size - 1 > watermark
    return np.nonzero(within)[0], starts[within]


def _first_entries(codes: Array, keys: int, starts: Array, step: int) -> Array:
    """Return for each entry the first one with the same key and window."""
    windows, numbers = numbered(starts, step)
    places = codes * len(windows) + numbers
    size = keys * len(windows)
    if size > 4 * len(places) + _SHORT:
        _, places = np.unique(places, return_inverse=True)
        size = len(places)
    found: Array = first_rows(places, size)[places]
    return found


def _by_window(order: Array, starts: Array, step: int) -> Array:
    """Return an order by window that is as given within one."""
    windows, numbers = numbered(starts, step)
    if len(windows) == 1:
        return order
    numbers = numbers.astype(np.uint16) if len(windows) <= _SHORT else numbers
    sorted_: Array = order[np.argsort(numbers[order], kind="stable")]
    return sorted_


def _runs(starts: Array, groups: Array) -> list[tuple[int, int]]:
    """Return where windows or key groups change, as pairs of bounds."""
    changes = np.diff(starts) != 0
    changes |= np.diff(groups.astype(np.int64)) != 0
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(starts)]
    return list(pairwise(bounds))
