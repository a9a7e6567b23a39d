"""What tools of Arrow Flight SQL ask about a server before they send a query.

State is read-only and there are no transactions. Tools get what they ask for and no more; of what
is not listed here they take their own defaults.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from weir.version import __version__

_STRING, _BOOL, _BIGINT, _BITMASK = range(4)
_VALUE: Final = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.string())),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
)
INFO_SCHEMA: Final = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field("value", _VALUE, nullable=False),
    ]
)
_INSENSITIVE: Final = 3  # names keep their case, and are compared without it


def _column(name: str, kind: Any = None) -> Any:
    return pa.field(name, kind or pa.string(), nullable=False)


_PRIMARY: Final = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        _column("table_name"),
        _column("column_name"),
        pa.field("key_name", pa.string()),
        _column("key_sequence", pa.int32()),
    ]
)
_FOREIGN: Final = pa.schema(
    [
        pa.field("pk_catalog_name", pa.string()),
        pa.field("pk_db_schema_name", pa.string()),
        _column("pk_table_name"),
        _column("pk_column_name"),
        pa.field("fk_catalog_name", pa.string()),
        pa.field("fk_db_schema_name", pa.string()),
        _column("fk_table_name"),
        _column("fk_column_name"),
        _column("key_sequence", pa.int32()),
        pa.field("fk_key_name", pa.string()),
        pa.field("pk_key_name", pa.string()),
        _column("update_rule", pa.uint8()),
        _column("delete_rule", pa.uint8()),
    ]
)
KEYS: Final = {
    "CommandGetPrimaryKeys": _PRIMARY,
    "CommandGetExportedKeys": _FOREIGN,
    "CommandGetImportedKeys": _FOREIGN,
    "CommandGetCrossReference": _FOREIGN,
}
"""What is asked about keys of tables, of which views have none."""


def _facts(timeout_ms: int) -> dict[int, tuple[int, Any]]:
    """Return the facts by their number in Arrow Flight SQL, each with its place in the union."""
    return {
        0: (_STRING, "Weir"),
        1: (_STRING, __version__),
        2: (_STRING, pa.__version__),
        3: (_BOOL, True),  # read only
        4: (_BOOL, True),  # SQL
        5: (_BOOL, False),  # Substrait
        8: (_BITMASK, 0),  # no transactions
        9: (_BOOL, False),  # no way to cancel
        100: (_BITMASK, min(timeout_ms, 2**31 - 1)),
        101: (_BITMASK, 0),
        500: (_BOOL, False),  # no catalogs, schemas or tables are made
        501: (_BOOL, False),
        502: (_BOOL, False),
        503: (_BIGINT, _INSENSITIVE),
        504: (_STRING, '"'),
        505: (_BIGINT, _INSENSITIVE),
        506: (_BOOL, True),  # who sees a table may read it
    }


def info_columns(wanted: list[int], timeout_ms: int) -> list[Any]:
    """Return the columns of what is known of some facts; no number means all."""
    known = _facts(timeout_ms)
    names = [name for name in (wanted or known) if name in known]
    children: list[list[Any]] = [[] for _ in range(_VALUE.num_fields)]
    kinds, offsets = [], []
    for name in names:
        kind, value = known[name]
        kinds.append(kind)
        offsets.append(len(children[kind]))
        children[kind].append(value)
    columns = [pa.array(c, _VALUE.field(i).type) for i, c in enumerate(children)]
    fields = [_VALUE.field(i).name for i in range(_VALUE.num_fields)]
    values = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), columns, fields
    )
    return [pa.array(names, pa.uint32()), values]
