"""Rows of a table back to the bytes of a keyed state: the inverse of `weir.offline.keyed`.

Rows come in the order of key groups, so that memory holds one group at a time. Columns of 64-bit
numbers are encoded as such; everything else becomes Python values once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from weir.backend.address import address_of
from weir.backend.base import VOID
from weir.backend.kinds import Shape
from weir.codec.portable import Portable
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.keygroup import key_group, key_groups_of_int64
from weir.keys import one_nan_many
from weir.offline.export import conform
from weir.offline.keyed import Layout
from weir.offline.tables import (
    KEY,
    KEY_GROUP,
    MAP_KEY,
    NAMESPACE,
    POSITION,
    TIMESTAMP,
    TTL_TIMESTAMP,
    VALUE,
    WINDOW,
)
from weir.offline.text import kind_text
from weir.runtime.raised import shorten

_TIME_WINDOW: Final = Types.TUPLE([Types.LONG(), Types.LONG()])
# For these an update with null is the end of the entry, or refused.
_WITHOUT_NULL: Final = frozenset({"VALUE", "LIST", "REDUCING"})


def with_key_groups(batch: Any, key: Portable, max_parallelism: int) -> Any:
    """Return a batch whose column of key groups says where its keys belong.

    A column of that name is replaced: whoever changes keys need not know about key groups.

    Raises:
        UsageError: it is no batch; a key is null, is of another type, or cannot be a key.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise UsageError(no_batch(batch))
    index = batch.schema.get_field_index(KEY)
    if index < 0:
        msg = f"column {KEY!r} is missing: found {', '.join(batch.schema.names)}"
        raise UsageError(msg)
    keys = conform(pa.RecordBatch.from_arrays([batch.column(index)], [KEY]), _only_key(key))
    column = keys.column(0)
    _refuse_null(KEY, column, "a key cannot be null")
    if key.type_info.kind == "LONG":
        groups = key_groups_of_int64(column.to_numpy(), max_parallelism).astype(np.int32)
    else:
        found = [key_group(value, max_parallelism) for value in key.values(column)]
        groups = np.asarray(found, np.int32)
    names = [name for name in batch.schema.names if name != KEY_GROUP]
    arrays = [batch.column(batch.schema.get_field_index(name)) for name in names]
    return pa.RecordBatch.from_arrays([pa.array(groups), *arrays], [KEY_GROUP, *names])


def no_batch(found: Any) -> str:
    """Say what rows are, where something else was given."""
    return f"rows are a table or batches of Arrow, or a DataFrame, not {shorten(found)}"


def _only_key(key: Portable) -> Any:
    return pa.schema([(KEY, key.arrow)])


def encoded_groups(batches: Iterable[Any], layout: Layout) -> Iterator[tuple[int, bytes, int]]:
    """Yield key groups with their bytes and numbers of entries, from rows in their order.

    Raises:
        UsageError: key groups do not ascend, a key or an element is there twice, or a value does
            not fit its type.
    """
    pending: list[Any] = []
    current = -1
    for batch in batches:
        conformed = conform(batch, layout.schema)
        groups = conformed.column(0).to_numpy(zero_copy_only=False)
        if not len(groups):
            continue
        cuts = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
        for start, stop in pairwise(cuts):
            group = int(groups[start])
            if group != current:
                if pending:
                    yield current, *_encoded(pending, layout, current)
                if group < current:
                    msg = f"key group {group} comes after {current}: sort rows by {KEY_GROUP!r}"
                    raise UsageError(msg)
                pending, current = [], group
            pending.append(conformed.slice(start, stop - start))
    if pending:
        yield current, *_encoded(pending, layout, current)


def _encoded(batches: list[Any], layout: Layout, group: int) -> tuple[bytes, int]:
    table = pa.Table.from_batches(batches, layout.schema).combine_chunks()
    columns = {name: _one(table.column(name)) for name in layout.schema.names}
    _refuse_null(KEY, columns[KEY], "a key cannot be null")
    if layout.kind in _WITHOUT_NULL:
        why = f"{kind_text(layout.kind)} cannot hold it; leave such rows out"
        _refuse_null(VALUE, columns[VALUE], why)
    if layout.is_numbers and not columns[VALUE].null_count:
        keys, values = columns[KEY].to_numpy(), columns[VALUE].to_numpy()
        if len(np.unique(keys)) != len(keys):
            _refuse_twice(keys.tolist())
        return layout.format.encode_numbers(keys, values), len(keys)
    addresses = _addresses(columns, layout)
    if layout.is_timers:
        _refuse_null(TIMESTAMP, columns[TIMESTAMP], "a timer needs a time")
        return layout.format.encode(addresses, columns[TIMESTAMP].to_pylist()), len(addresses)
    values = _values(columns, layout)
    if layout.format.shape is Shape.ONE:
        entries = dict(zip(addresses, values, strict=True))
        if len(entries) != len(addresses):
            _refuse_twice(addresses)
    elif layout.map_key is not None:
        map_keys = one_nan_many(layout.map_key.values(columns[MAP_KEY]))
        entries = _maps(addresses, map_keys, values)
    else:
        entries = _lists(addresses, columns[POSITION].to_pylist(), values)
    return layout.format.encode(list(entries), list(entries.values())), len(entries)


def _one(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _addresses(columns: dict[str, Any], layout: Layout) -> list[Any]:
    keys = one_nan_many(layout.key.values(columns[KEY]))
    if layout.namespace is None:
        return keys
    if layout.namespace.type_info == _TIME_WINDOW:
        pairs = zip(*(columns[name].to_pylist() for name in WINDOW), strict=True)
        spaces: list[Any] = [None if start is None else (start, end) for start, end in pairs]
    else:
        spaces = layout.namespace.values(columns[NAMESPACE])
    both = zip(keys, spaces, strict=True)
    return [address_of(key, VOID if space is None else space) for key, space in both]


def _values(columns: dict[str, Any], layout: Layout) -> list[Any]:
    values = layout.value.values(columns[VALUE])
    if not layout.expires:
        return values
    stamps = columns[TTL_TIMESTAMP]
    _refuse_null(TTL_TIMESTAMP, stamps, "every value that expires needs a time")
    return list(zip(values, stamps.to_pylist(), strict=True))


def _refuse_null(name: str, column: Any, why: str) -> None:
    if column.null_count:
        msg = f"{column.null_count} rows have a null in column {name!r}: {why}"
        raise UsageError(msg)


def _maps(addresses: list[Any], keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    found: dict[Any, dict[Any, Any]] = {}
    for address, key, value in zip(addresses, keys, values, strict=True):
        entries = found.setdefault(address, {})
        if key in entries:
            msg = f"map key {key!r} of key {address!r} is there twice"
            raise UsageError(msg)
        entries[key] = value
    return found


def _lists(addresses: list[Any], positions: list[Any], values: list[Any]) -> dict[Any, Any]:
    """Put elements together, in the order of their positions; gaps may be left by a filter."""
    found: dict[Any, dict[Any, Any]] = {}
    for address, position, value in zip(addresses, positions, values, strict=True):
        elements = found.setdefault(address, {})
        if position is None or position in elements:
            what = "is null" if position is None else "is there twice"
            msg = f"position {position!r} of key {address!r} {what}"
            raise UsageError(msg)
        elements[position] = value
    return {address: [e[p] for p in sorted(e)] for address, e in found.items()}


def _refuse_twice(addresses: list[Any]) -> None:
    seen: set[Any] = set()
    for address in addresses:
        if address in seen:
            msg = f"key {address!r} is there twice: a key has one value; aggregate the rows first"
            raise UsageError(msg)
        seen.add(address)
