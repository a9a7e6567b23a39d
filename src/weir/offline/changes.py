"""Small changes to a savepoint, as people ask for them: one value set, one key deleted, a rename.

The rows of the state that is changed are held in memory.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from weir.errors import UsageError
from weir.offline.contents import SnapshotContents
from weir.offline.edit_parts import GivenRows
from weir.offline.editing import SavepointEdit
from weir.offline.encoding import with_key_groups
from weir.offline.export import conform, from_rows
from weir.offline.keyed import KeyedTable
from weir.offline.keys import key_from_text
from weir.offline.tables import KEY, TTL_TIMESTAMP, VALUE


def rename_state(
    edit: SavepointEdit, contents: SnapshotContents, operator: str, before: str, after: str
) -> None:
    """Give a keyed state another name.

    Raises:
        UsageError: there is none of the old name, or one of the new name.
    """
    table = contents.keyed_state(operator, before)
    if after in edit.kinds(operator):
        msg = f"operator {operator!r} has a state {after!r} already"
        raise UsageError(msg)
    edit.with_keyed_state(operator, after, table.stored, GivenRows(table))
    edit.remove_state(operator, before)


def set_value(table: KeyedTable, rows: Any, key: str, value: str, now_ms: int) -> Any:
    """Return the rows of a state with another value of a key, given as texts.

    Raises:
        UsageError: the state is no ValueState outside of windows, or a text does not fit.
    """
    names = set(table.schema.names)
    if names - {"key_group", KEY, VALUE, TTL_TIMESTAMP}:
        msg = f"state {table.name!r} is a {table.kind}: export it, change the file, import it"
        raise UsageError(msg)
    left = delete_key(table, rows, key)
    layout = table.layout
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = value
    wanted = pa.schema([(VALUE, layout.value.arrow)])
    columns = {
        KEY: layout.key.column([key_from_text(key, layout.key)], KEY),
        VALUE: from_rows([{VALUE: parsed}], wanted).column(0),
    }
    if layout.expires:
        columns[TTL_TIMESTAMP] = pa.array([now_ms], pa.int64())
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    placed = with_key_groups(batch, layout.key, table.operator.max_parallelism)
    added = pa.Table.from_batches([conform(placed, table.schema)])
    return pa.concat_tables([left, added])


def delete_key(table: KeyedTable, rows: Any, key: str) -> Any:
    """Return the rows of a state without those of a key, given as text.

    Raises:
        UsageError: the text is no key.
    """
    wanted = key_from_text(key, table.layout.key)
    keys = [k for chunk in rows[KEY].chunks for k in table.layout.key.values(chunk)]
    return rows.filter(pa.array([k != wanted for k in keys], pa.bool_()))


def whole_table(table: KeyedTable) -> Any:
    """Return all rows of a state."""
    return pa.Table.from_batches(table.batches(), table.schema)
