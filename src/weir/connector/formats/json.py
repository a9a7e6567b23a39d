"""JSON rows by PyFlink's names: messages that are one JSON object, and rows of a declared type.

Fields are found by name. A field that is not there is None, unless that was forbidden; fields that
the type does not have are left out. Values are converted as Flink's format does: `"12"` is a
number where a number is declared, and `12` is text where text is.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar, NoReturn

import msgspec
import pyarrow as pa

from weir.common._text import written
from weir.common.serialization import DeserializationSchema, SerializationSchema
from weir.common.typeinfo import MapTypeInfo, RowTypeInfo, TypeInformation, Types
from weir.common.types import row_class
from weir.connector.formats.columns import json_columns
from weir.connector.formats.json_schema import type_of_schema
from weir.connector.formats.texts import BYTES, from_base64, moment_of, parser, require_row
from weir.errors import UsageError

Convert = Callable[[Any], Any]
_DOUBLE_TEXT = written(Types.DOUBLE())
_encode = msgspec.json.Encoder(decimal_format="number").encode
_decode = msgspec.json.Decoder().decode
_WHOLE = {"INT": (-(1 << 31), (1 << 31) - 1), "LONG": (-(1 << 63), (1 << 63) - 1)}


def _text(value: Any) -> str:
    """Return a value as text; objects and lists, of which no number can be made, as none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _DOUBLE_TEXT(value)
    return "" if isinstance(value, (dict, list)) else str(value)


def _string(value: Any) -> str:
    return _encode(value).decode() if isinstance(value, (dict, list)) else _text(value)


class _Reading:
    """Makes the conversions of one schema."""

    def __init__(self, *, fail_on_missing: bool, ignore_errors: bool) -> None:
        self._fail_on_missing = fail_on_missing
        self._ignore_errors = ignore_errors

    def of(self, type_info: TypeInformation) -> Convert:
        """Return the conversion of a type; null is None."""
        plain, ignore = self._plain(type_info), self._ignore_errors

        def convert(value: Any) -> Any:
            if value is None:
                return None
            try:
                return plain(value)
            except (ValueError, TypeError):
                if not ignore:
                    raise
                return None

        return convert

    def _plain(self, type_info: TypeInformation) -> Convert:
        if isinstance(type_info, RowTypeInfo):
            return self._row(type_info)
        if isinstance(type_info, MapTypeInfo):
            return self._map(type_info)
        if type_info == BYTES:
            return lambda value: (
                from_base64(value) if isinstance(value, str) else _no("text", value)
            )
        element = getattr(type_info, "elem_type", None)
        if element is not None:
            one = self.of(element)
            return lambda value: (
                [one(item) for item in value] if isinstance(value, list) else _no("list", value)
            )
        if type_info.kind == "PICKLED_BYTE_ARRAY":
            return lambda value: value
        return _basic(type_info)

    def _row(self, type_info: RowTypeInfo) -> Convert:
        names = type_info.row_names
        make, arity = row_class(names)._of, len(names)
        fields = [(n, self.of(t)) for n, t in zip(names, type_info.get_field_types(), strict=True)]
        required = self._fail_on_missing

        def convert(value: Any) -> Any:
            if isinstance(value, list) and len(value) == arity:
                return make(tuple(c(v) for (_, c), v in zip(fields, value, strict=True)))
            if not isinstance(value, dict):
                _no("object", value)
            if required:
                for name, _ in fields:
                    if name not in value:
                        msg = f"there is no field {name!r}"
                        raise ValueError(msg)
            get = value.get
            return make(tuple([field(get(name)) for name, field in fields]))

        return convert

    def _map(self, type_info: MapTypeInfo) -> Convert:
        key, item = self.of(type_info.key_type), self.of(type_info.value_type)

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                _no("object", value)
            return {key(k): item(v) for k, v in value.items()}

        return convert


def _no(wanted: str, value: Any) -> NoReturn:
    msg = f"{_encode(value).decode():.80} is no {wanted}"
    raise ValueError(msg)


def _basic(type_info: TypeInformation) -> Convert:
    kind, parse = type_info.kind, parser(type_info)
    if parse is None:
        msg = f"JSON rows cannot have a field of type {type_info!r}"
        raise UsageError(msg)
    from_text = parse
    if kind in ("STRING", "CHAR"):
        return lambda value: from_text(_string(value))
    if kind == "BOOLEAN":
        return lambda value: value if isinstance(value, bool) else from_text(_text(value))
    if kind == "DOUBLE":
        return lambda value: value if isinstance(value, float) else from_text(_text(value))
    if kind in _WHOLE:
        low, high = _WHOLE[kind]

        def whole(value: Any) -> Any:
            number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
            if number and low <= value <= high:
                return int(value)
            return from_text(_text(value))

        return whole
    return lambda value: from_text(_text(value))


def _has_big(type_info: TypeInformation) -> bool:
    if isinstance(type_info, RowTypeInfo):
        return any(map(_has_big, type_info.get_field_types()))
    if isinstance(type_info, MapTypeInfo):
        return _has_big(type_info.key_type) or _has_big(type_info.value_type)
    element = getattr(type_info, "elem_type", None)
    return type_info.kind in ("BIG_DEC", "BIG_INT") or (element is not None and _has_big(element))


def _exactly(message: bytes) -> Any:
    """Parse with all the digits that numbers have."""
    return json.loads(
        bytes(message).decode("utf-8"), parse_float=Decimal, parse_constant=_no_constant
    )


def _no_constant(name: str) -> NoReturn:
    msg = f"{name} is no JSON"
    raise ValueError(msg)


class JsonRowDeserializationSchema(DeserializationSchema):
    """Makes rows of messages that are JSON objects.

    With `ignore_parse_errors` a field that cannot be converted is None, and a message that is no
    JSON object is left out.

    Example:
        row = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
        schema = JsonRowDeserializationSchema.builder().type_info(row).build()
        schema.deserialize(b'{"id": 1, "name": "ann"}')
    """

    Builder: ClassVar[type[JsonRowDeserializationSchemaBuilder]]

    def __init__(
        self,
        type_info: RowTypeInfo,
        fail_on_missing_field: bool = False,
        ignore_parse_errors: bool = False,
    ) -> None:
        """Prefer the builder."""
        self._type: RowTypeInfo = require_row(type_info, "JsonRowDeserializationSchema")
        if fail_on_missing_field and ignore_parse_errors:
            msg = (
                "JSON rows: fail_on_missing_field() and ignore_parse_errors() contradict each "
                "other; choose one of them"
            )
            raise UsageError(msg)
        self._fail_on_missing = fail_on_missing_field
        self.ignores_errors = ignore_parse_errors
        self._prepare()

    def _prepare(self) -> None:
        reading = _Reading(fail_on_missing=self._fail_on_missing, ignore_errors=self.ignores_errors)
        self._convert = reading.of(self._type)
        self._parse: Callable[[bytes], Any] = _exactly if _has_big(self._type) else _decode

    @staticmethod
    def builder() -> JsonRowDeserializationSchemaBuilder:
        """Begin a schema."""
        return JsonRowDeserializationSchemaBuilder()

    def deserialize(self, message: bytes) -> Any:
        """Return the row of a message; None for one that is left out, or that is `null`.

        Raises:
            ValueError: it is no JSON object, or a value does not fit its field.
        """
        try:
            return self._convert(self._parse(message))
        except (ValueError, RecursionError):  # msgspec's own errors are among the first
            if not self.ignores_errors:
                raise
            return None

    def deserialize_columns(self, values: pa.Array) -> pa.RecordBatch | None:
        """Return the rows of many messages as columns; None where some have to be read alone."""
        return json_columns(values, self._type, nulls_allowed=not self._fail_on_missing)

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the rows."""
        return self._type

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made again."""
        kept = dict(self.__dict__)
        del kept["_convert"], kept["_parse"]
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the conversions again."""
        self.__dict__.update(state)
        self._prepare()


class JsonRowDeserializationSchemaBuilder:
    """PyFlink's builder; every method returns the builder.

    Example:
        builder = JsonRowDeserializationSchema.builder().type_info(Types.ROW([Types.INT()]))
        builder.ignore_parse_errors().build()
    """

    def __init__(self) -> None:
        """Begin with nothing set."""
        self._type: Any = None
        self._fail_on_missing = False
        self._ignore_errors = False

    def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchemaBuilder:
        """Say what rows are made; their names are those of the fields of the objects."""
        self._type = require_row(type_info, "JsonRowDeserializationSchema.type_info()")
        return self

    def json_schema(self, json_schema: str) -> JsonRowDeserializationSchemaBuilder:
        """Say what rows are made by a JSON schema; numbers become decimals.

        Raises:
            UsageError: it is no JSON schema, or one of something else than objects.
        """
        self._type = require_row(type_of_schema(json_schema), "json_schema()")
        return self

    def fail_on_missing_field(self) -> JsonRowDeserializationSchemaBuilder:
        """Refuse messages in which a field is missing."""
        self._fail_on_missing = True
        return self

    def ignore_parse_errors(self) -> JsonRowDeserializationSchemaBuilder:
        """Leave out what cannot be read."""
        self._ignore_errors = True
        return self

    def build(self) -> JsonRowDeserializationSchema:
        """Return the schema."""
        if self._type is None:
            msg = "JsonRowDeserializationSchema needs type_info() or json_schema()"
            raise UsageError(msg)
        return JsonRowDeserializationSchema(self._type, self._fail_on_missing, self._ignore_errors)


JsonRowDeserializationSchema.Builder = JsonRowDeserializationSchemaBuilder


def _writing(type_info: TypeInformation) -> Convert:
    plain = _plain_writing(type_info)
    return lambda value: None if value is None else plain(value)


def _plain_writing(type_info: TypeInformation) -> Convert:
    """Return what makes of a checked value one that the encoder writes as Flink does."""
    if isinstance(type_info, RowTypeInfo):
        names = type_info.row_names
        fields = [_writing(t) for t in type_info.get_field_types()]
        return lambda row: {n: f(v) for n, f, v in zip(names, fields, row._values, strict=True)}
    if isinstance(type_info, MapTypeInfo):
        item = _writing(type_info.value_type)
        return lambda value: {_text(k): item(v) for k, v in value.items()}
    if type_info == BYTES:
        return lambda value: base64.b64encode(value).decode("ascii")
    element = getattr(type_info, "elem_type", None)
    if element is not None:
        one = _writing(element)
        return lambda value: [one(item) for item in value]
    return _WRITING.get(type_info.kind, lambda value: value)


def _number(value: float) -> Any:
    # JSON has no such numbers; Flink writes their names.
    return value if math.isfinite(value) else _DOUBLE_TEXT(value)


def _zoned(value: Any) -> str:
    text: str = value.replace(tzinfo=None).isoformat()
    return f"{text}Z"


_WRITING: dict[str, Convert] = {
    "FLOAT": _number,
    "DOUBLE": _number,
    "SQL_DATE": lambda value: value.isoformat(),
    "SQL_TIME": lambda value: f"{value.isoformat()}Z",
    "SQL_TIMESTAMP": _zoned,
    "TIMESTAMP_LTZ": _zoned,
    "INSTANT": lambda value: _zoned(moment_of(value)),
}


class JsonRowSerializationSchema(SerializationSchema):
    """Makes JSON objects of rows.

    Dates and times are text, bytes are text in base 64, NaN and infinities are their names.

    Example:
        row = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
        JsonRowSerializationSchema.builder().with_type_info(row).build().serialize((1, "ann"))
    """

    Builder: ClassVar[type[JsonRowSerializationSchemaBuilder]]

    def __init__(self, type_info: RowTypeInfo) -> None:
        """Prefer the builder."""
        self._type: RowTypeInfo = require_row(type_info, "JsonRowSerializationSchema")
        self._convert = _writing(self._type)

    @staticmethod
    def builder() -> JsonRowSerializationSchemaBuilder:
        """Begin a schema."""
        return JsonRowSerializationSchemaBuilder()

    def serialize(self, element: Any) -> bytes:
        """Return the object of a row, or of a tuple with its fields.

        Raises:
            UsageError: it does not fit the type.
        """
        return _encode(self._convert(self._type.check(element)))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made again."""
        return {"_type": self._type}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the conversions again."""
        self._type = state["_type"]
        self._convert = _writing(self._type)


class JsonRowSerializationSchemaBuilder:
    """PyFlink's builder; every method returns the builder.

    Example:
        JsonRowSerializationSchema.builder().with_type_info(Types.ROW([Types.INT()])).build()
    """

    def __init__(self) -> None:
        """Begin with nothing set."""
        self._type: Any = None

    def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchemaBuilder:
        """Say what rows are written."""
        self._type = require_row(type_info, "JsonRowSerializationSchema.with_type_info()")
        return self

    def build(self) -> JsonRowSerializationSchema:
        """Return the schema."""
        if self._type is None:
            msg = "JsonRowSerializationSchema needs with_type_info()"
            raise UsageError(msg)
        return JsonRowSerializationSchema(self._type)


JsonRowSerializationSchema.Builder = JsonRowSerializationSchemaBuilder
