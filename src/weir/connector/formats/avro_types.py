"""What an Avro schema is as a type of rows and as Arrow columns, and how values go to and fro.

Schemas are those that fastavro has parsed: names of types are whole, and each is defined once.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from weir.common.time import Instant
from weir.common.typeinfo import RowTypeInfo, TypeInformation, Types
from weir.common.types import Row, row_class
from weir.connector.formats.texts import moment_of
from weir.errors import UsageError

Convert = Callable[[Any], Any]
_UTC = datetime.timezone.utc
_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_PLAIN: dict[str, tuple[TypeInformation, Any]] = {
    "null": (Types.PICKLED_BYTE_ARRAY(), pa.null()),
    "boolean": (Types.BOOLEAN(), pa.bool_()),
    "int": (Types.INT(), pa.int32()),
    "long": (Types.LONG(), pa.int64()),
    "float": (Types.FLOAT(), pa.float32()),
    "double": (Types.DOUBLE(), pa.float64()),
    "string": (Types.STRING(), pa.string()),
    "enum": (Types.STRING(), pa.string()),
    "bytes": (_BYTES, pa.binary()),
    "fixed": (_BYTES, pa.binary()),
}
_LOGICAL: dict[str, tuple[TypeInformation, Any]] = {
    "date": (Types.SQL_DATE(), pa.date32()),
    "time-millis": (Types.SQL_TIME(), pa.time32("ms")),
    "time-micros": (Types.SQL_TIME(), pa.time64("us")),
    "timestamp-millis": (Types.SQL_TIMESTAMP(), pa.timestamp("ms", "UTC")),
    "timestamp-micros": (Types.SQL_TIMESTAMP(), pa.timestamp("us", "UTC")),
    "local-timestamp-millis": (Types.SQL_TIMESTAMP(), pa.timestamp("ms")),
    "local-timestamp-micros": (Types.SQL_TIMESTAMP(), pa.timestamp("us")),
}
_DEPTH_MAX = 100


class _Names:
    """The types of a schema by name."""

    def __init__(self, schema: Any) -> None:
        self._known: dict[str, Any] = {}
        self._collect(schema)

    def _collect(self, node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                self._collect(each)
        elif isinstance(node, dict):
            if isinstance(node.get("name"), str) and "type" in node:
                self._known.setdefault(node["name"], node)
            for key in ("type", "items", "values"):
                if not isinstance(node.get(key), str):
                    self._collect(node.get(key))
            for field in node.get("fields", ()):
                self._collect(field["type"])

    def resolve(self, node: Any) -> Any:
        """Return a type without its name, without null, and not wrapped once more."""
        for _ in range(_DEPTH_MAX):
            if isinstance(node, list):
                others = [each for each in node if each != "null"]
                if len(others) > 1:
                    return node
                node = others[0] if others else "null"
            elif isinstance(node, str) and node not in _PLAIN and node in self._known:
                node = self._known[node]
            elif isinstance(node, dict) and isinstance(node.get("type"), (dict, list)):
                node = node["type"]
            else:
                return node
        msg = "an Avro schema that holds itself has no type of rows"
        raise UsageError(msg)


def _kind(node: Any) -> str:
    return node["type"] if isinstance(node, dict) else str(node)


def _logical(node: Any) -> str | None:
    return node.get("logicalType") if isinstance(node, dict) else None


def _no_column(node: Any, where: str) -> UsageError:
    return UsageError(
        f"Avro: {where} is a union of several types, {node!r}, which has no type here"
    )


def type_of_avro(schema: Any) -> RowTypeInfo:
    """Return the type of the rows of a record schema.

    Raises:
        UsageError: it is none of records, or holds a union of several types, or itself.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        msg = f"expected an Avro schema of a record, found {schema!r:.200}"
        raise UsageError(msg)
    return _row(_Names(schema), schema, 0)


def _row(names: _Names, node: Any, depth: int) -> RowTypeInfo:
    fields = node["fields"]
    types = [_type(names, f["type"], f"field {f['name']!r}", depth + 1) for f in fields]
    return RowTypeInfo(types, [f["name"] for f in fields])


def _type(names: _Names, node: Any, where: str, depth: int) -> TypeInformation:
    node = names.resolve(node)
    if depth > _DEPTH_MAX:
        msg = f"Avro: {where} holds itself, and rows cannot"
        raise UsageError(msg)
    if isinstance(node, list):
        raise _no_column(node, where)
    kind, logical = _kind(node), _logical(node)
    if kind in ("record", "error"):
        return _row(names, node, depth)
    if kind == "array":
        return Types.OBJECT_ARRAY(_type(names, node["items"], f"the items of {where}", depth + 1))
    if kind == "map":
        item = _type(names, node["values"], f"the values of {where}", depth + 1)
        return Types.MAP(Types.STRING(), item)
    if logical == "decimal":
        return Types.BIG_DEC()
    return (_LOGICAL.get(logical or "") or _PLAIN[kind])[0]


def arrow_schema_of(schema: Any) -> pa.Schema:
    """Return the columns of Parquet files of a record schema.

    Raises:
        UsageError: it is none of records, or holds a union of several types, or itself.
    """
    type_of_avro(schema)
    names = _Names(schema)
    return pa.schema([_field(names, field) for field in schema["fields"]])


def _field(names: _Names, field: dict[str, Any]) -> pa.Field:
    node = field["type"]
    nullable = node == "null" or (isinstance(node, list) and "null" in node)
    return pa.field(field["name"], _arrow(names, node), nullable)


def _arrow(names: _Names, node: Any) -> Any:
    node = names.resolve(node)
    kind, logical = _kind(node), _logical(node)
    if kind in ("record", "error"):
        return pa.struct([_field(names, field) for field in node["fields"]])
    if kind == "array":
        return pa.list_(_arrow(names, node["items"]))
    if kind == "map":
        return pa.map_(pa.string(), _arrow(names, node["values"]))
    if logical == "decimal":
        return pa.decimal128(node["precision"], node.get("scale", 0))
    return (_LOGICAL.get(logical or "") or _PLAIN[kind])[1]


def from_avro(schema: Any) -> Convert:
    """Return what makes a row of what fastavro has read."""
    return _reading(_Names(schema), schema)


def _reading(names: _Names, node: Any) -> Convert:
    node = names.resolve(node)
    kind = _kind(node)
    if kind in ("record", "error"):
        fields = [(f["name"], _reading(names, f["type"])) for f in node["fields"]]
        make = row_class(tuple(name for name, _ in fields))._of
        return lambda value: make(tuple([_given(read, value[name]) for name, read in fields]))
    if kind == "array":
        one = _reading(names, node["items"])
        return lambda value: [_given(one, item) for item in value]
    if kind == "map":
        one = _reading(names, node["values"])
        return lambda value: {key: _given(one, item) for key, item in value.items()}
    return _plain if _logical(node) else _same


def _plain(value: Any) -> Any:
    """Return moments as the day and the time that they are in UTC."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(_UTC).replace(tzinfo=None)
    return value


def _same(value: Any) -> Any:
    return value


def _given(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def to_avro(schema: Any) -> Convert:
    """Return what makes of a row, found by place, what fastavro writes."""
    return _writing(_Names(schema), schema)


def _writing(names: _Names, node: Any) -> Convert:
    node = names.resolve(node)
    kind = _kind(node)
    if kind in ("record", "error"):
        fields = [(f["name"], _writing(names, f["type"])) for f in node["fields"]]
        return lambda value: {
            name: _given(write, item)
            for (name, write), item in zip(fields, _fields(value, fields), strict=True)
        }
    if kind == "array":
        one = _writing(names, node["items"])
        return lambda value: [_given(one, item) for item in value]
    if kind == "map":
        one = _writing(names, node["values"])
        return lambda value: {key: _given(one, item) for key, item in value.items()}
    logical = _logical(node)
    if logical == "decimal":
        return Decimal
    if logical in ("timestamp-millis", "timestamp-micros"):
        return _zoned
    return _same


def _fields(value: Any, fields: list[tuple[str, Convert]]) -> tuple[Any, ...]:
    if isinstance(value, dict):
        return tuple(value.get(name) for name, _ in fields)
    values = value._values if isinstance(value, Row) else tuple(value)
    if len(values) != len(fields):
        msg = f"expected {len(fields)} fields, found {len(values)}"
        raise ValueError(msg)
    return values


def _zoned(value: Any) -> Any:
    if isinstance(value, Instant):
        return moment_of(value)
    # What has no zone is UTC; fastavro would take it for the zone of this host.
    return value.replace(tzinfo=_UTC) if value.tzinfo is None else value
