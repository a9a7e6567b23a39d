"""PostgreSQL's `COPY` in the place of plain inserts: the same rows, many times faster.

An insert of parameters alone, `insert into t (a, b) values (?, ?)`, can be a binary `COPY` in the
same transaction. It is one only where both leave the same behind:

* the statement has nothing else: no expression, no `on conflict`, no `returning`;
* the table is an ordinary one without rules, triggers, row security, identity and generated
  columns, which `COPY` treats otherwise;
* every declared type is that of its column or fits into it whatever the value is, so that no cast
  is needed, which `COPY` does not do.

Whether that is so is asked in the transaction that writes. Everything else is inserted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weir.common.typeinfo import Types

_NAME = r'(?:[A-Za-z_][\w$]*|"(?:[^"]|"")+")'
_INSERT = re.compile(
    rf"\s*insert\s+into\s+({_NAME}(?:\s*\.\s*{_NAME})?)\s*"
    rf"(?:\(\s*({_NAME}(?:\s*,\s*{_NAME})*)\s*\)\s*)?"
    r"values\s*\(\s*\?(?:\s*,\s*\?)*\s*\)\s*;?\s*",
    re.IGNORECASE | re.ASCII,
)
_INTEGERS = ("int2", "int4", "int8")
# Columns that hold every value of a declared type as it is.
_HOLDS: dict[str, tuple[str, ...]] = {
    "BYTE": _INTEGERS,
    "SHORT": _INTEGERS,
    "INT": _INTEGERS[1:],
    "LONG": _INTEGERS[2:],
    "FLOAT": ("float8",),
    "DOUBLE": ("float8",),
    "STRING": ("text", "varchar"),
    "BOOLEAN": ("bool",),
    "BIG_DEC": ("numeric",),
    "SQL_DATE": ("date",),
    "SQL_TIME": ("time",),
    "SQL_TIMESTAMP": ("timestamp",),
    "BYTES": ("bytea",),
}
# Since then the catalogue tells generated columns.
_OLDEST_SERVER = 120_000
_COLUMNS = """
select a.attname, y.typname, a.attidentity = '' and a.attgenerated = ''
       and y.typnamespace = 'pg_catalog'::regnamespace
from pg_class c join pg_attribute a on a.attrelid = c.oid join pg_type y on y.oid = a.atttypid
where c.oid = to_regclass(%s) and c.relkind = 'r' and not c.relhasrules and not c.relrowsecurity
      and not exists (select from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal)
      and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""


@dataclass(frozen=True)
class Insert:
    """A statement that only inserts its parameters; `listed` columns, or the first ones."""

    table: str
    listed: str | None
    kinds: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Return the names as the catalogue has them."""
        if self.listed is None:
            return None
        return tuple(_folded(name) for name in re.findall(_NAME, self.listed, re.ASCII))


def plain_insert(sql: str, field_types: Sequence[Any]) -> Insert | None:
    """Return a statement and the kinds of its parameters, if it may be a `COPY`."""
    found = _INSERT.fullmatch(sql)
    kinds = tuple(_kind(field) for field in field_types)
    if found is None or not all(kind in _HOLDS for kind in kinds):
        return None
    return Insert(found[1], found[2], kinds)


def _kind(field_type: Any) -> str:
    is_bytes = field_type == Types.PRIMITIVE_ARRAY(Types.BYTE())
    return "BYTES" if is_bytes else str(field_type.kind)


def _folded(name: str) -> str:
    """Return a name as the catalogue has it."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


@dataclass(frozen=True)
class Copy:
    """A `COPY` statement and the types of its columns."""

    sql: str
    types: tuple[str, ...]

    def write(self, cursor: Any, rows: Sequence[tuple[Any, ...]]) -> None:
        """Send rows; they are there, or the transaction is over."""
        with cursor.copy(self.sql) as copy:
            copy.set_types(self.types)
            for row in rows:
                copy.write_row(row)


def plan_copy(insert: Insert, found: Sequence[tuple[str, str, bool]]) -> Copy | None:
    """Return the `COPY` for a table with these columns: name, type, and whether it is plain.

    None if it would not do the same as the statement.
    """
    known = {name: (kind, plain) for name, kind, plain in found}
    names = insert.columns or tuple(known)[: len(insert.kinds)]
    once = len(names) == len(set(names)) == len(insert.kinds)
    if not once or not all(plain for _, plain in known.values()):
        return None
    types = tuple(known.get(name, ("", False))[0] for name in names)
    if not all(kind in _HOLDS[given] for kind, given in zip(types, insert.kinds, strict=True)):
        return None
    listed = insert.listed or ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    return Copy(f"copy {insert.table} ({listed}) from stdin (format binary)", types)


def find_copy(cursor: Any, insert: Insert) -> Copy | None:
    """Ask the catalogue, in the transaction of the cursor."""
    if cursor.connection.info.server_version < _OLDEST_SERVER:
        return None
    cursor.execute(_COLUMNS, (insert.table,))
    return plan_copy(insert, cursor.fetchall())
