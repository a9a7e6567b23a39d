"""Rolling aggregates over whole columns: one look at the state per key and epoch, not per record.

The results are those of the record-by-record way, bit for bit. What columns cannot do exactly
(nulls, sums that might overflow, sums of floating-point numbers, NaN) is refused before anything is
touched, and the records go the other way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.codec.arrow import batch_to_rows
from weir.runtime.frame import GROUPS, TIMESTAMPS, WEIGHTS, Chunk, read_batch

Array = npt.NDArray[Any]
_SAFE = 1 << 62
_DENSE_KEYS = 1 << 12


@dataclass(frozen=True)
class ColumnInput:
    """Records of a keyed edge as columns, with their key groups and timestamps.

    `weights` says how many records each row stands for, None for one each.
    """

    batch: pa.RecordBatch
    groups: Array
    timestamps: pa.Array | None
    weights: Array | None = None

    @property
    def records(self) -> int:
        """Count the records."""
        return int(self.batch.num_rows if self.weights is None else self.weights.sum())

    def take(self, rows: Array) -> ColumnInput:
        """Return some of the rows, in the order given."""
        places = pa.array(rows)
        return ColumnInput(
            self.batch.take(places),
            self.groups[rows],
            None if self.timestamps is None else self.timestamps.take(places),
            None if self.weights is None else self.weights[rows],
        )

    @classmethod
    def of(cls, payloads: list[pa.Buffer]) -> ColumnInput | None:
        """Join columnar payloads of one edge, in order; None when only some have timestamps."""
        batches = _weighed([read_batch(payload) for payload in payloads])
        if any(batch.schema != batches[0].schema for batch in batches):
            return None
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        groups = batch.column(GROUPS).to_numpy()
        names = batch.schema.names
        timestamps = batch.column(TIMESTAMPS) if TIMESTAMPS in names else None
        weights = [batch.column(name).to_numpy() for name in WEIGHTS if name in names]
        own = [name for name in names if name not in (GROUPS, TIMESTAMPS, *WEIGHTS)]
        return cls(batch.select(own), groups, timestamps, *weights)


def _weighed(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return batches with weights in all of them if there are some in one."""
    with_weights = {name: b for b in batches for name in WEIGHTS if name in b.schema.names}
    for name, like in with_weights.items():
        batches = [
            b
            if name in b.schema.names
            else b.append_column(name, pa.array(np.ones(b.num_rows, np.int64))).select(
                [n for n in like.schema.names if n == name or n in b.schema.names]
            )
            for b in batches
        ]
    return batches


class ColumnarChunk(Chunk):
    """Records that are still columns; they become Python records when somebody asks for them."""

    __slots__ = ("_rows", "batch", "stamps")

    def __init__(self, batch: pa.RecordBatch, type_info: Any, stamps: pa.Array | None) -> None:
        """Hold the columns as they are."""
        self.batch = batch
        self.type = type_info
        self.stamps = stamps
        self.keys = None
        self.groups = None
        self.merged = None
        self._rows: list[Any] | None = None

    def __len__(self) -> int:
        """Count the records."""
        return int(self.batch.num_rows)

    @property
    def values(self) -> list[Any]:  # type: ignore[override]
        """Return the records."""
        if self._rows is None:
            self._rows = batch_to_rows(self.batch, self.type)
        return self._rows

    @property
    def timestamps(self) -> list[int | None] | None:  # type: ignore[override]
        """Return the timestamps of the records."""
        return None if self.stamps is None else self.stamps.to_pylist()


@dataclass(frozen=True)
class Grouped:
    """Rows by key: `codes` numbers the keys in the order of their first row.

    `order` sorts the rows by key and keeps their order within one; `starts` are the places in it
    where keys begin, `first` the first row of each key.
    """

    codes: Array
    counts: Array
    order: Array
    starts: Array
    first: Array

    @classmethod
    def of(cls, codes: Array, keys: int) -> Grouped:
        """Group rows by the number of their key."""
        counts = np.bincount(codes, minlength=keys)
        order = stable_order(codes, keys)
        starts = np.cumsum(counts) - counts
        return cls(codes=codes, counts=counts, order=order, starts=starts, first=order[starts])


def stable_order(codes: Array, count: int) -> Array:
    """Return the order that sorts numbers below `count`, equal ones as they come.

    numpy sorts 16-bit numbers by their digits, several times faster than wider ones.
    """
    order: Array = np.argsort((codes & 0xFFFF).astype(np.uint16), kind="stable")
    for shift in range(16, max(count - 1, 0).bit_length(), 16):
        digit = ((codes >> shift) & 0xFFFF).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def can_encode_keys(column: pa.Array) -> bool:
    """Tell whether keys are equal in the column where they are equal in Python (0.0 is -0.0)."""
    kinds = pa.types
    exact = kinds.is_signed_integer(column.type) or kinds.is_string(column.type)
    return exact and not column.null_count


def encode_keys(column: pa.Array) -> tuple[Array, list[Any]]:
    """Return the number of each row's key, and the keys in the order of their numbers."""
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def number_keys(column: pa.Array) -> tuple[Array, int]:
    """Return a number for each row, the same for equal keys, and what all numbers are below."""
    if pa.types.is_signed_integer(column.type) and len(column):
        keys = column.to_numpy().astype(np.int64)
        low, high = int(keys.min()), int(keys.max())
        if high - low < max(_DENSE_KEYS, 2 * len(keys)):
            return keys - low, high - low + 1
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def values_of(column: pa.Array, op: str) -> Array | None:
    """Return a field as numbers; None when columns cannot aggregate it exactly."""
    if column.null_count:
        return None
    if pa.types.is_signed_integer(column.type):
        numbers: Array = column.to_numpy().astype(np.int64)
        return numbers
    if op == "sum" or not pa.types.is_floating(column.type):
        return None
    floats: Array = column.to_numpy().astype(np.float64)
    # Whether 0.0 or -0.0 is less depends on which came first.
    odd = np.isnan(floats).any() or (floats == 0).any()
    return None if odd else floats


def running(
    op: str, rows: Grouped, values: Array, before: Array, known: npt.NDArray[np.bool_]
) -> Array | None:
    """Return the aggregate after each row; None when it might not be exact.

    `before` is the result of each key so far, where `known` says that there is one.
    """
    in_order = values[rows.order]
    if op == "sum":
        total = _running_sum(rows, in_order, before, known)
    else:
        total = _running_least(rows, in_order, before, known, largest=op == "max")
    if total is None:
        return None
    out = np.empty_like(total)
    out[rows.order] = total
    return out


def folded(op: str, rows: Grouped, values: Array) -> Array | None:
    """Return the aggregate of each key; None when it might not be exact."""
    in_order = values[rows.order]
    if op == "sum":
        if float(np.abs(in_order.astype(np.float64)).sum()) >= _SAFE:
            return None
        sums: Array = np.add.reduceat(in_order, rows.starts)
        return sums
    least: Array = (np.minimum if op == "min" else np.maximum).reduceat(in_order, rows.starts)
    return least


def _running_sum(
    rows: Grouped, in_order: Array, before: Array, known: npt.NDArray[np.bool_]
) -> Array | None:
    bound = float(np.abs(in_order.astype(np.float64)).sum())
    start = np.where(known, before, 0)
    if bound + float(np.abs(start.astype(np.float64)).max(initial=0.0)) >= _SAFE:
        return None
    sums = np.cumsum(in_order)
    skipped = sums[rows.starts] - in_order[rows.starts]
    total: Array = sums + np.repeat(start - skipped, rows.counts)
    return total


def _running_least(
    rows: Grouped,
    in_order: Array,
    before: Array,
    known: npt.NDArray[np.bool_],
    *,
    largest: bool,
) -> Array | None:
    """Return running minima: each key is shifted below all keys before it, then one pass does."""
    used = np.concatenate([in_order, before[known]])
    distinct, ranks = np.unique(used, return_inverse=True)
    span = len(distinct)
    if span * len(rows.counts) >= _SAFE:
        return None
    if largest:
        ranks = span - 1 - ranks
    shifted = ranks[: len(in_order)].astype(np.int64)
    start = np.full(len(rows.counts), span - 1, np.int64)
    start[known] = ranks[len(in_order) :]
    shift = np.arange(len(rows.counts), dtype=np.int64) * span
    # The result so far counts as if it came with the key's first row.
    shifted[rows.starts] = np.minimum(shifted[rows.starts], start)
    shifted -= np.repeat(shift, rows.counts)
    least = np.minimum.accumulate(shifted) + np.repeat(shift, rows.counts)
    if largest:
        least = span - 1 - least
    found: Array = distinct[least]
    return found


def milliseconds_of(column: pa.Array) -> pa.Array | None:
    """Return times as milliseconds; None when records have to say what is wrong with them."""
    if column.null_count:
        return None
    if pa.types.is_signed_integer(column.type):
        return column.cast(pa.int64())
    if not pa.types.is_timestamp(column.type):
        return None
    # As records have them: what is below a microsecond is cut off.
    micros = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return pa.array(micros.cast(pa.int64()).to_numpy() // 1000)


def fits(results: Array, arrow_type: Any) -> bool:
    """Tell whether a column of the type holds all results."""
    if not pa.types.is_integer(arrow_type) or not len(results):
        return True
    bits = arrow_type.bit_width - 1
    return bool(results.min() >= -(1 << bits) and results.max() <= (1 << bits) - 1)
