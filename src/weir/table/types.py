"""The types of PyFlink's Table API, as far as the formats of files are declared by them.

A type here only describes: `type_info` is the type of the records that a stream of it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weir.common.typeinfo import RowTypeInfo, TypeInformation, Types
from weir.errors import UsageError

__all__ = ["ArrayType", "DataType", "DataTypes", "MapType", "NumericType", "RowField", "RowType"]

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_TYPE_INFOS: dict[str, TypeInformation] = {
    "CHAR": Types.STRING(),
    "VARCHAR": Types.STRING(),
    "STRING": Types.STRING(),
    "BOOLEAN": Types.BOOLEAN(),
    "BINARY": _BYTES,
    "VARBINARY": _BYTES,
    "BYTES": _BYTES,
    "DECIMAL": Types.BIG_DEC(),
    "TINYINT": Types.BYTE(),
    "SMALLINT": Types.SHORT(),
    "INT": Types.INT(),
    "BIGINT": Types.LONG(),
    "FLOAT": Types.FLOAT(),
    "DOUBLE": Types.DOUBLE(),
    "DATE": Types.SQL_DATE(),
    "TIME": Types.SQL_TIME(),
    "TIMESTAMP": Types.SQL_TIMESTAMP(),
    "TIMESTAMP_LTZ": Types.INSTANT(),
}


@dataclass(frozen=True)
class DataType:
    """A type by its name in SQL; `arguments` are lengths, or precision and scale.

    Example:
        DataTypes.DECIMAL(10, 2).arguments
    """

    name: str
    arguments: tuple[int, ...] = ()
    is_nullable: bool = True

    def not_null(self) -> DataType:
        """Return the same type without null."""
        return replace(self, is_nullable=False)

    def nullable(self) -> DataType:
        """Return the same type with null."""
        return replace(self, is_nullable=True)

    def bridged_to(self, conversion_cls: str) -> DataType:
        """Return the same type: there are no classes of Java to choose from."""
        return self

    def type_info(self) -> TypeInformation:
        """Return the type of the records of a stream."""
        return _TYPE_INFOS[self.name]

    def __str__(self) -> str:
        """Show the type as SQL does."""
        shown = f"({', '.join(map(str, self.arguments))})" if self.arguments else ""
        return f"{self.name}{shown}{'' if self.is_nullable else ' NOT NULL'}"


@dataclass(frozen=True)
class NumericType(DataType):
    """A number.

    Example:
        isinstance(DataTypes.BIGINT(), NumericType)
    """


@dataclass(frozen=True)
class ArrayType(DataType):
    """A list of one type.

    Example:
        DataTypes.ARRAY(DataTypes.INT()).element_type
    """

    element_type: DataType = DataType("STRING")

    def type_info(self) -> TypeInformation:
        """Return the type of lists."""
        return Types.LIST(self.element_type.type_info())

    def __str__(self) -> str:
        """Show the type as SQL does."""
        return f"ARRAY<{self.element_type}>"


@dataclass(frozen=True)
class MapType(DataType):
    """A dict of one type of keys and one of values.

    Example:
        DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()).key_type
    """

    key_type: DataType = DataType("STRING")
    value_type: DataType = DataType("STRING")

    def type_info(self) -> TypeInformation:
        """Return the type of dicts."""
        return Types.MAP(self.key_type.type_info(), self.value_type.type_info())

    def __str__(self) -> str:
        """Show the type as SQL does."""
        return f"MAP<{self.key_type}, {self.value_type}>"


@dataclass(frozen=True)
class RowField:
    """A field of a row.

    Example:
        DataTypes.FIELD("id", DataTypes.INT()).name
    """

    name: str
    data_type: DataType
    description: str | None = None


@dataclass(frozen=True)
class RowType(DataType):
    """A row of named fields, which iterating over it gives.

    Example:
        DataTypes.ROW([DataTypes.FIELD("id", DataTypes.INT())]).field_names()
    """

    fields: tuple[RowField, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        return [field.name for field in self.fields]

    def field_names(self) -> list[str]:
        """Return the names of the fields."""
        return self.names

    def field_types(self) -> list[DataType]:
        """Return the types of the fields."""
        return [field.data_type for field in self.fields]

    def type_info(self) -> RowTypeInfo:
        """Return the type of rows with these names."""
        return RowTypeInfo([t.type_info() for t in self.field_types()], self.names)

    def __iter__(self) -> Iterator[RowField]:
        """Return the fields."""
        return iter(self.fields)

    def __len__(self) -> int:
        """Count the fields."""
        return len(self.fields)

    def __str__(self) -> str:
        """Show the type as SQL does."""
        return f"ROW<{', '.join(f'`{f.name}` {f.data_type}' for f in self.fields)}>"


def _data_type(value: Any, where: str) -> DataType:
    if isinstance(value, DataType):
        return value
    msg = f"{where} must be a type such as DataTypes.INT(), found {value!r}"
    raise UsageError(msg)


def _limited(name: str, length: int, low: int, high: int) -> int:
    if not isinstance(length, int) or not low <= length <= high:
        msg = f"DataTypes.{name}: found {length!r}, expected a number from {low} to {high}"
        raise UsageError(msg)
    return length


class DataTypes:
    """The types by PyFlink's names: call them, `DataTypes.INT()`.

    Example:
        DataTypes.ROW([DataTypes.FIELD("id", DataTypes.BIGINT())]).type_info()
    """

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> DataType:
        """Return text of so many characters."""
        return DataType("CHAR", (_limited("CHAR", length, 1, 2**31 - 1),), nullable)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> DataType:
        """Return text of at most so many characters."""
        return DataType("VARCHAR", (_limited("VARCHAR", length, 1, 2**31 - 1),), nullable)

    @staticmethod
    def STRING(nullable: bool = True) -> DataType:
        """Return text."""
        return DataType("STRING", (), nullable)

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> DataType:
        """Return True or False."""
        return DataType("BOOLEAN", (), nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> DataType:
        """Return so many bytes."""
        return DataType("BINARY", (_limited("BINARY", length, 1, 2**31 - 1),), nullable)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> DataType:
        """Return at most so many bytes."""
        return DataType("VARBINARY", (_limited("VARBINARY", length, 1, 2**31 - 1),), nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> DataType:
        """Return bytes."""
        return DataType("BYTES", (), nullable)

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> NumericType:
        """Return a decimal of so many digits, of which `scale` are behind the point."""
        digits = _limited("DECIMAL", precision, 1, 38)
        return NumericType("DECIMAL", (digits, _limited("DECIMAL", scale, 0, digits)), nullable)

    @staticmethod
    def TINYINT(nullable: bool = True) -> NumericType:
        """Return a whole number of one byte."""
        return NumericType("TINYINT", (), nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> NumericType:
        """Return a whole number of two bytes."""
        return NumericType("SMALLINT", (), nullable)

    @staticmethod
    def INT(nullable: bool = True) -> NumericType:
        """Return a whole number of four bytes."""
        return NumericType("INT", (), nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> NumericType:
        """Return a whole number of eight bytes."""
        return NumericType("BIGINT", (), nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> NumericType:
        """Return a number of 32 bits."""
        return NumericType("FLOAT", (), nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> NumericType:
        """Return a number of 64 bits."""
        return NumericType("DOUBLE", (), nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> DataType:
        """Return a day."""
        return DataType("DATE", (), nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> DataType:
        """Return a time of day."""
        return DataType("TIME", (_limited("TIME", precision, 0, 9),), nullable)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> DataType:
        """Return a day and a time, without a zone."""
        return DataType("TIMESTAMP", (_limited("TIMESTAMP", precision, 0, 9),), nullable)

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> DataType:
        """Return a moment; its values are of `Instant`."""
        return DataType("TIMESTAMP_LTZ", (_limited("TIMESTAMP_LTZ", precision, 0, 9),), nullable)

    @staticmethod
    def TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision: int = 6, nullable: bool = True) -> DataType:
        """Return what `TIMESTAMP_LTZ` is short for."""
        return DataTypes.TIMESTAMP_LTZ(precision, nullable)

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> ArrayType:
        """Return lists."""
        element = _data_type(element_type, "the element type of DataTypes.ARRAY")
        return ArrayType("ARRAY", (), nullable, element)

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> MapType:
        """Return dicts."""
        key = _data_type(key_type, "the key type of DataTypes.MAP")
        value = _data_type(value_type, "the value type of DataTypes.MAP")
        return MapType("MAP", (), nullable, key_type=key, value_type=value)

    @staticmethod
    def FIELD(name: str, data_type: DataType, description: str | None = None) -> RowField:
        """Return a field of a row."""
        return RowField(name, _data_type(data_type, f"the type of field {name!r}"), description)

    @staticmethod
    def ROW(row_fields: Sequence[RowField] = (), nullable: bool = True) -> RowType:
        """Return rows with these fields."""
        fields = tuple(row_fields)
        names = [getattr(field, "name", None) for field in fields]
        if len(set(names)) != len(names) or not all(isinstance(f, RowField) for f in fields):
            msg = f"DataTypes.ROW: expected fields with different names, found {fields!r}"
            raise UsageError(msg)
        return RowType("ROW", (), nullable, fields)
