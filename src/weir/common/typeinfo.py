"""`Types` and `TypeInformation`: declared types of records, keys and state.

A type is an immutable value: comparable, hashable, picklable, and described by plain JSON that
snapshots store (`to_json`, `type_from_json`). `check` says whether a value fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Generic

from weir.common import _check
from weir.common._absent import INTERNAL, absent
from weir.common._generics import K, T, T_co, V
from weir.common.time import Instant
from weir.common.types import Row
from weir.errors import CorruptStateError, UsageError

__all__ = [
    "BasicArrayTypeInfo",
    "BasicTypeInfo",
    "DateTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
]


class TypeInformation(Generic[T_co]):
    """A declared type.

    Attributes:
        kind: the name of the type in `Types`, such as "LONG" or "ROW".
        check: `check(value) -> value` returns the value in the exact type that a restore would
            give, the same object when nothing changes; None passes. It raises UsageError naming
            the type and the value when the type cannot hold it.

    Example:
        def describe(type_info: TypeInformation[int]):
            return type_info.to_json()

        describe(Types.LONG())
    """

    __slots__ = ("_args", "check", "kind")

    kind: str
    check: Callable[[Any], Any]
    _args: tuple[Any, ...]

    def _init(self, kind: str, args: tuple[Any, ...], check: Callable[[Any], Any]) -> None:
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "_args", args)
        object.__setattr__(self, "check", check)

    def to_json(self) -> dict[str, Any]:
        """Describe the type for a snapshot; `type_from_json` reads it back."""
        return {"type": self.kind}

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse: types are values."""
        msg = f"{self!r} is immutable: cannot set {name!r}"
        raise AttributeError(msg)

    def __eq__(self, other: object) -> bool:
        """Compare kind and arguments."""
        if not isinstance(other, TypeInformation):
            return NotImplemented
        return self.kind == other.kind and self._args == other._args

    def __hash__(self) -> int:
        """Hash kind and arguments."""
        return (self.kind, self._args).__hash__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the constructor call."""
        return type(self), self._args

    def __repr__(self) -> str:
        """Show the call on `Types` that makes this type."""
        return f"Types.{self.kind}({', '.join(map(repr, self._args))})"

    def __str__(self) -> str:
        """Show the type as PyFlink does."""
        return _NAMES.get(self.kind) or f"{type(self).__name__}<{', '.join(map(str, self._args))}>"


_NAMES = {
    "STRING": "String",
    "BYTE": "Byte",
    "BOOLEAN": "Boolean",
    "SHORT": "Short",
    "INT": "Integer",
    "LONG": "Long",
    "FLOAT": "Float",
    "DOUBLE": "Double",
    "CHAR": "Character",
    "BIG_INT": "BigInteger",
    "BIG_DEC": "BigDecimal",
    "INSTANT": "InstantTypeInfo",
    "SQL_DATE": "DateTypeInfo",
    "SQL_TIME": "TimeTypeInfo",
    "SQL_TIMESTAMP": "TimestampTypeInfo",
    "TIMESTAMP_LTZ": "TimestampLtzTypeInfo",
    "PICKLED_BYTE_ARRAY": "PickledByteArrayTypeInfo",
}


class BasicTypeInfo(TypeInformation[T_co]):
    """A number, a string, a boolean, a date: one indivisible value.

    Example:
        BasicTypeInfo("LONG") == Types.LONG()
    """

    __slots__ = ()

    def __init__(self, kind: str) -> None:
        if kind not in _check.BASIC_CHECKS:
            msg = f"unknown basic type {kind!r}: use one of {sorted(_check.BASIC_CHECKS)}"
            raise UsageError(msg)
        self._init(kind, (kind,), _check.BASIC_CHECKS[kind])

    def __repr__(self) -> str:
        """Show the call on `Types` that makes this type."""
        return f"Types.{self.kind}()"


def _basic_type_info(kind: str) -> Any:
    return staticmethod(lambda: BasicTypeInfo(kind))


_BASIC = "STRING BOOLEAN BYTE SHORT INT LONG FLOAT DOUBLE CHAR BIG_INT BIG_DEC INSTANT"
for _kind in _BASIC.split():
    setattr(BasicTypeInfo, f"{_kind}_TYPE_INFO", _basic_type_info(_kind))


class _NamedBasic(BasicTypeInfo[T_co]):
    """A basic type that PyFlink gives a class of its own."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the constructor call without arguments."""
        return type(self), ()


class InstantTypeInfo(_NamedBasic[Instant]):
    """Type of `Instant` values.

    Example:
        Types.INSTANT().check(Instant.of_epoch_milli(0))
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("INSTANT")


class DateTypeInfo(_NamedBasic[date]):
    """Type of `datetime.date` values.

    Example:
        DateTypeInfo() == Types.SQL_DATE()
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("SQL_DATE")


class TimeTypeInfo(_NamedBasic[time]):
    """Type of `datetime.time` values.

    Example:
        TimeTypeInfo() == Types.SQL_TIME()
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("SQL_TIME")


class TimestampTypeInfo(_NamedBasic[datetime]):
    """Type of `datetime.datetime` values.

    Example:
        TimestampTypeInfo() == Types.SQL_TIMESTAMP()
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("SQL_TIMESTAMP")


class PickledBytesTypeInfo(_NamedBasic[Any]):
    """Any Python object, pickled.

    Example:
        Types.PICKLED_BYTE_ARRAY().check({"any": object})
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("PICKLED_BYTE_ARRAY")


class SqlTimeTypeInfo:
    """PyFlink's access to the date and time types.

    Example:
        SqlTimeTypeInfo.DATE()
    """

    DATE = staticmethod(DateTypeInfo)
    TIME = staticmethod(TimeTypeInfo)
    TIMESTAMP = staticmethod(TimestampTypeInfo)


def _require_type(value: Any, where: str) -> TypeInformation:
    if isinstance(value, TypeInformation):
        return value
    hint = " (call it: Types.X())" if callable(value) else ""
    msg = f"{where} must be a type such as Types.LONG(), got {value!r}{hint}"
    raise UsageError(msg)


class _ElementTypeInfo(TypeInformation[list[T]], Generic[T]):
    """A list whose elements all have one type."""

    __slots__ = ()
    _kind = "LIST"

    def __init__(self, element_type: TypeInformation[T]) -> None:
        element = _require_type(element_type, f"the element type of Types.{self._kind}")
        name = f"Types.{self._kind}({element!r})"
        self._init(self._kind, (element,), self._element_check(name, element))

    def _element_check(self, name: str, element: TypeInformation) -> Callable[[Any], Any]:
        return _check.check_list(name, element.check)

    @property
    def elem_type(self) -> TypeInformation:
        """The type of the elements."""
        element: TypeInformation = self._args[0]
        return element

    def get_element_type(self) -> TypeInformation:
        """Return the type of the elements."""
        return self.elem_type

    def to_json(self) -> dict[str, Any]:
        """Describe the type for a snapshot."""
        return {"type": self.kind, "element": self.elem_type.to_json()}


class ListTypeInfo(_ElementTypeInfo[T]):
    """A list.

    Example:
        Types.LIST(Types.STRING()).get_element_type()
    """

    __slots__ = ()


class PrimitiveArrayTypeInfo(_ElementTypeInfo[T]):
    """An array of numbers: a list, and `bytes` for BYTE.

    Example:
        Types.PRIMITIVE_ARRAY(Types.BYTE()).check(b"bytes")
    """

    __slots__ = ()
    _kind = "PRIMITIVE_ARRAY"

    def _element_check(self, name: str, element: TypeInformation) -> Callable[[Any], Any]:
        if element.kind not in _PRIMITIVES:
            msg = f"{name}: a primitive array holds one of {', '.join(sorted(_PRIMITIVES))}"
            raise UsageError(msg)
        if element.kind == "BYTE":
            return _check.check_bytes
        return _check.check_list(name, element.check)


_PRIMITIVES = frozenset({"BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "CHAR"})


class BasicArrayTypeInfo(_ElementTypeInfo[T]):
    """An array of basic values, as a list.

    Example:
        Types.BASIC_ARRAY(Types.LONG()).check([1, 2])
    """

    __slots__ = ()
    _kind = "BASIC_ARRAY"


class ObjectArrayTypeInfo(_ElementTypeInfo[T]):
    """An array of values of any one type, as a list.

    Example:
        Types.OBJECT_ARRAY(Types.STRING()).check(["a"])
    """

    __slots__ = ()
    _kind = "OBJECT_ARRAY"


class MapTypeInfo(TypeInformation[dict[K, V]], Generic[K, V]):
    """A dict with one type of keys and one type of values.

    Example:
        Types.MAP(Types.STRING(), Types.LONG()).check({"a": 1})
    """

    __slots__ = ()

    def __init__(
        self, key_type_info: TypeInformation[K], value_type_info: TypeInformation[V]
    ) -> None:
        key = _require_type(key_type_info, "the key type of Types.MAP")
        value = _require_type(value_type_info, "the value type of Types.MAP")
        name = f"Types.MAP({key!r}, {value!r})"
        self._init("MAP", (key, value), _check.check_map(name, key.check, value.check))

    @property
    def key_type(self) -> TypeInformation:
        """The type of the keys."""
        key: TypeInformation = self._args[0]
        return key

    @property
    def value_type(self) -> TypeInformation:
        """The type of the values."""
        value: TypeInformation = self._args[1]
        return value

    def to_json(self) -> dict[str, Any]:
        """Describe the type for a snapshot."""
        key, value = self.key_type.to_json(), self.value_type.to_json()
        return {"type": "MAP", "key": key, "value": value}


class TupleTypeInfo(TypeInformation[tuple[Any, ...]]):
    """A tuple with one type per field.

    Example:
        Types.TUPLE([Types.STRING(), Types.LONG()]).check(("a", 1))
    """

    __slots__ = ()

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        types = tuple(_require_type(t, "a field type of Types.TUPLE") for t in field_types)
        name = f"Types.TUPLE({list(types)!r})"
        self._init("TUPLE", (types,), _check.check_tuple(name, [t.check for t in types]))

    def get_field_types(self) -> list[TypeInformation]:
        """Return the types of the fields."""
        return list(self._args[0])

    def get_field_names(self) -> list[str]:
        """Return f0, f1, and so on."""
        return [f"f{i}" for i in range(len(self._args[0]))]

    def to_json(self) -> dict[str, Any]:
        """Describe the type for a snapshot."""
        return {"type": "TUPLE", "fields": [t.to_json() for t in self._args[0]]}

    def __repr__(self) -> str:
        """Show the call on `Types` that makes this type."""
        return f"Types.TUPLE({list(self._args[0])!r})"

    def __str__(self) -> str:
        """Show the type as PyFlink does."""
        return f"TupleTypeInfo({', '.join(map(str, self._args[0]))})"


class RowTypeInfo(TypeInformation[Row]):
    """A `Row` with one type per field, with or without field names.

    Example:
        Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()]).get_field_index("name")
    """

    __slots__ = ()

    def __init__(
        self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None
    ) -> None:
        types = tuple(_require_type(t, "a field type of Types.ROW") for t in field_types)
        names = None if field_names is None else tuple(field_names)
        if names is not None and (
            len(names) != len(types)
            or len(set(names)) != len(names)
            or not all(isinstance(n, str) for n in names)
        ):
            msg = f"{len(types)} row fields need as many different names, got {list(names)!r}"
            raise UsageError(msg)
        self._init("ROW", (types, names), _check.check_anything)
        checks = [t.check for t in types]
        object.__setattr__(self, "check", _check.check_row(repr(self), names, checks))

    @property
    def field_names(self) -> tuple[str, ...] | None:
        """The declared names; None when the type has none."""
        names: tuple[str, ...] | None = self._args[1]
        return names

    @property
    def row_names(self) -> tuple[str, ...]:
        """The names of the fields of its rows: f0, f1, and so on when the type has none."""
        names = self.field_names
        return tuple(f"f{i}" for i in range(len(self._args[0]))) if names is None else names

    def get_field_names(self) -> list[str]:
        """Return the names; f0, f1, and so on when the type has none."""
        return list(self.row_names)

    def get_field_index(self, field_name: str) -> int:
        """Return the position of a field, -1 when there is none of that name."""
        names = self.get_field_names()
        return names.index(field_name) if field_name in names else -1

    def get_field_types(self) -> list[TypeInformation]:
        """Return the types of the fields."""
        return list(self._args[0])

    def to_json(self) -> dict[str, Any]:
        """Describe the type for a snapshot."""
        names = None if self.field_names is None else list(self.field_names)
        fields = [t.to_json() for t in self._args[0]]
        return {"type": "ROW", "names": names, "fields": fields}

    def __repr__(self) -> str:
        """Show the call on `Types` that makes this type."""
        types = list(self._args[0])
        if self.field_names is None:
            return f"Types.ROW({types!r})"
        return f"Types.ROW_NAMED({list(self.field_names)!r}, {types!r})"

    def __str__(self) -> str:
        """Show the type as PyFlink does."""
        shown = list(map(str, self._args[0]))
        if self.field_names is not None:
            shown = [f"{name}: {t}" for name, t in zip(self.field_names, shown, strict=True)]
        return f"RowTypeInfo({', '.join(shown)})"


def _basic(kind: str, of: type[T]) -> Callable[[], TypeInformation[T]]:
    value: BasicTypeInfo[T] = BasicTypeInfo(kind)
    return lambda: value


def _single(factory: Callable[[], TypeInformation[T]]) -> Callable[[], TypeInformation[T]]:
    value = factory()
    return lambda: value


def _row_named(field_names: Sequence[str], field_types: Sequence[TypeInformation]) -> RowTypeInfo:
    return RowTypeInfo(field_types, field_names)


def _list(element_type_info: TypeInformation[T]) -> ListTypeInfo[T]:
    return ListTypeInfo(element_type_info)


class Types:
    """All types by PyFlink's names: call them, `Types.LONG()`, `Types.LIST(Types.STRING())`.

    TIMESTAMP_LTZ is Weir's own: a `datetime` in UTC, which is what Spark's timestamps are.

    Example:
        record = Types.ROW_NAMED(["name", "tags"], [Types.STRING(), Types.LIST(Types.STRING())])
        record.get_field_names()
    """

    STRING = staticmethod(_basic("STRING", str))
    BYTE = staticmethod(_basic("BYTE", int))
    BOOLEAN = staticmethod(_basic("BOOLEAN", bool))
    SHORT = staticmethod(_basic("SHORT", int))
    INT = staticmethod(_basic("INT", int))
    LONG = staticmethod(_basic("LONG", int))
    FLOAT = staticmethod(_basic("FLOAT", float))
    DOUBLE = staticmethod(_basic("DOUBLE", float))
    CHAR = staticmethod(_basic("CHAR", str))
    BIG_INT = staticmethod(_basic("BIG_INT", int))
    BIG_DEC = staticmethod(_basic("BIG_DEC", Decimal))
    INSTANT = staticmethod(_single(InstantTypeInfo))
    SQL_DATE = staticmethod(_single(DateTypeInfo))
    SQL_TIME = staticmethod(_single(TimeTypeInfo))
    SQL_TIMESTAMP = staticmethod(_single(TimestampTypeInfo))
    TIMESTAMP_LTZ = staticmethod(_basic("TIMESTAMP_LTZ", datetime))
    PICKLED_BYTE_ARRAY = staticmethod(_single(PickledBytesTypeInfo))
    ROW = staticmethod(RowTypeInfo)
    ROW_NAMED = staticmethod(_row_named)
    TUPLE = staticmethod(TupleTypeInfo)
    PRIMITIVE_ARRAY = staticmethod(PrimitiveArrayTypeInfo)
    BASIC_ARRAY = staticmethod(BasicArrayTypeInfo)
    OBJECT_ARRAY = staticmethod(ObjectArrayTypeInfo)
    MAP = staticmethod(MapTypeInfo)
    LIST = staticmethod(_list)


_ELEMENT_TYPES: dict[str, Callable[[TypeInformation], TypeInformation]] = {
    "LIST": ListTypeInfo,
    "PRIMITIVE_ARRAY": PrimitiveArrayTypeInfo,
    "BASIC_ARRAY": BasicArrayTypeInfo,
    "OBJECT_ARRAY": ObjectArrayTypeInfo,
}


def type_from_json(description: dict[str, Any]) -> TypeInformation:
    """Read back what `TypeInformation.to_json` wrote.

    Raises:
        CorruptStateError: the description is not one of ours.
    """
    try:
        kind = description["type"]
        if kind in _check.BASIC_CHECKS:
            made: TypeInformation = getattr(Types, kind)()
            return made
        if kind in _ELEMENT_TYPES:
            return _ELEMENT_TYPES[kind](type_from_json(description["element"]))
        if kind == "MAP":
            key, value = type_from_json(description["key"]), type_from_json(description["value"])
            return MapTypeInfo(key, value)
        if kind == "TUPLE":
            return TupleTypeInfo([type_from_json(f) for f in description["fields"]])
        if kind == "ROW":
            fields = [type_from_json(f) for f in description["fields"]]
            return RowTypeInfo(fields, description["names"])
    except (KeyError, TypeError, AttributeError, UsageError) as error:
        msg = f"not a type description: {description!r} ({error})"
        raise CorruptStateError(msg) from error
    msg = f"unknown type {kind!r} in the type description {description!r}"
    raise CorruptStateError(msg)


__getattr__ = absent(
    __name__,
    {
        "BasicType ExternalTypeInfo": INTERNAL,
        "LocalTimeTypeInfo": "is a type of Java: use Types.SQL_DATE(), SQL_TIME(), SQL_TIMESTAMP()",
    },
)
