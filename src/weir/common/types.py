"""`Row` and `RowKind`: the record type of PyFlink programs, built to be cheap.

A row is one slot holding a tuple. Field names and the row kind are not stored in the row: they
belong to its class, which `row_class` creates once per combination and caches. Two rows with the
same names in another order are equal, hash alike and land in the same key group.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from operator import is_
from typing import Any, ClassVar

__all__ = ["Row", "RowKind"]


class RowKind(enum.Enum):
    """What a row means in a changelog.

    Example:
        row = Row(1, 2)
        row.set_row_kind(RowKind.DELETE)
    """

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        """Show the kind as Flink does: +I, -U, +U, -D."""
        return ("+I", "-U", "+U", "-D")[self.value]


class Row:
    """A fixed number of values, addressed by position and, when named, by name.

    `Row(1, "a")` has no names; `Row(id=1, name="a")` has. `Row("id", "name")` can be called as a
    template: `Person = Row("id", "name"); Person(1, "a")`. A row without names also answers to
    `f0`, `f1`, and so on. Values can be assigned by position, name or attribute.

    Example:
        row = Row(name="ann", amount=3)
        row.name, row["amount"], row.as_dict()
    """

    __slots__ = ("_values",)

    _values: tuple[Any, ...]
    _fields: ClassVar[tuple[str, ...] | None] = None
    _index: ClassVar[dict[str, int]] = {}
    _order: ClassVar[tuple[int, ...] | None] = None  # positions by sorted name; None: as stored
    _kind: ClassVar[RowKind] = RowKind.INSERT

    def __new__(cls, *args: Any, **kwargs: Any) -> Row:
        """Create a row from positional values, or from named ones, never both."""
        if not kwargs:
            if cls._fields is not None and len(args) != len(cls._fields):
                wanted = f"{len(cls._fields)} values for the fields {list(cls._fields)}"
                msg = f"a row takes {wanted}, got {len(args)}: {args!r}"
                raise ValueError(msg)
            return cls._of(args)
        if args:
            msg = "a Row takes either positional values or named values, not both"
            raise ValueError(msg)
        if cls._fields is None:
            return row_class(tuple(kwargs))._of(tuple(kwargs.values()))
        if kwargs.keys() != cls._index.keys():
            msg = f"a row with fields {list(cls._fields)} cannot take fields {list(kwargs)}"
            raise ValueError(msg)
        return cls._of(tuple(kwargs[name] for name in cls._fields))

    @classmethod
    def _of(cls, values: tuple[Any, ...]) -> Row:
        """Wrap a tuple of the right length without any check."""
        row: Row = _new(cls)
        row._values = values
        return row

    @classmethod
    def _of_many(cls, values: list[tuple[Any, ...]]) -> list[Row]:
        """Wrap many tuples as `_of` does, without running Python code per row."""
        rows: list[Row] = list(map(_new, repeat(cls, len(values))))
        deque(map(_set_values, rows, values), maxlen=0)
        return rows

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """Create a row of a given kind."""
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def __call__(self, *args: Any) -> Row:
        """Use this row's values as field names of a new row."""
        return row_class(self._values, self._kind)(*args)

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return names and values; `recursive` also converts rows inside values."""
        if self._fields is None:
            msg = f"{self!r} has no field names: a dict needs them"
            raise TypeError(msg)
        values = map(_plain, self._values) if recursive else self._values
        return dict(zip(self._fields, values, strict=True))

    def get_row_kind(self) -> RowKind:
        """Return the kind, INSERT unless set."""
        return self._kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Change the kind of this row."""
        self.__class__ = row_class(self._fields, row_kind)

    def set_field_names(self, field_names: Iterable[str]) -> None:
        """Name the values of this row, one name per value."""
        names = tuple(field_names)
        if len(names) != len(self._values):
            msg = f"{self!r} has {len(self._values)} values and cannot take the names {names!r}"
            raise ValueError(msg)
        self.__class__ = row_class(names, self._kind)

    def get_fields_by_names(self, names: list[str]) -> list[Any]:
        """Return the values in the order of `names`; all of them for a row without names."""
        if self._fields is None:
            return list(self._values)
        return [self[name] for name in names]

    def __weir_key__(self) -> tuple[Any, ...]:
        """Return what key groups are computed from: the values, ordered by field name."""
        order, values = self._order, self._values
        return values if order is None else tuple([values[i] for i in order])

    def __weir_replaced__(self, change: Callable[[Any], Any], *, in_order: bool = False) -> Row:
        """Return an equal row with changed values, itself if none changes.

        With `in_order` its fields are ordered by name, as in all equal rows.
        """
        wanted, before = self.__class__, self._values
        if in_order and self._order is not None:
            wanted = row_class(tuple(sorted(self._fields or (), key=_rank)), self._kind)
            before = self.__weir_key__()
        values = tuple([change(value) for value in before])
        same = wanted is self.__class__ and all(map(is_, values, before))
        return self if same else wanted._of(values)

    def _position(self, name: str) -> int:
        position = self._index.get(name)
        if position is not None:
            return position
        if self._fields is None and isinstance(name, str) and name[:1] == "f":
            digits = name[1:]
            if digits.isdecimal() and int(digits) < len(self._values):
                return int(digits)
        fields = "no field names" if self._fields is None else f"the fields {list(self._fields)}"
        msg = f"no field {name!r}: the row has {fields}"
        raise ValueError(msg)

    def __getitem__(self, item: Any) -> Any:
        """Return a value by position or name, or a list of values for a slice."""
        if item.__class__ is int:
            return self._values[item]
        if isinstance(item, slice):
            return list(self._values[item])
        return self._values[item if isinstance(item, int) else self._position(item)]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Replace a value by position or name, or as many values as a slice covers."""
        values = list(self._values)
        values[key if isinstance(key, (int, slice)) else self._position(key)] = value
        if len(values) != len(self._values):
            msg = f"cannot assign {value!r} to {key!r}: it changes the number of fields"
            raise ValueError(msg)
        self._values = tuple(values)

    def __getattr__(self, name: str) -> Any:
        """Answer to `f0`, `f1`, ... when the row has no names."""
        if name[:1] != "_":
            try:
                return self._values[self._position(name)]
            except ValueError as error:
                raise AttributeError(str(error)) from None
        raise AttributeError(name)

    def __contains__(self, item: object) -> bool:
        """Look among the field names, or among the values of a row without names."""
        return item in (self._values if self._fields is None else self._fields)

    def __iter__(self) -> Iterator[Any]:
        """Go through the values."""
        return iter(self._values)

    def __len__(self) -> int:
        """Count the values."""
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        """Compare kind, names (in any order) and values."""
        if self.__class__ is other.__class__:
            return bool(self._values == other._values)
        if not isinstance(other, Row) or self._fields is None or other._fields is None:
            return False
        if self._kind is not other._kind or self._index.keys() != other._index.keys():
            return False
        return self.__weir_key__() == other.__weir_key__()

    def __hash__(self) -> int:
        """Hash the values so that equal rows hash alike."""
        return self.__weir_key__().__hash__()

    def __reduce__(self) -> tuple[Callable[..., Row], tuple[Any, ...]]:
        """Pickle through the factory: classes with names exist in no module."""
        return _restore, (self._fields, self._values, self._kind.value)

    def __repr__(self) -> str:
        """Show names when there are any."""
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        pairs = zip(self._fields, self._values, strict=True)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"


_new: Callable[[Any], Any] = object.__new__
_set_values: Callable[[Row, tuple[Any, ...]], None] = Row.__dict__["_values"].__set__


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(True)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _restore(fields: tuple[str, ...] | None, values: tuple[Any, ...], kind: int) -> Row:
    return row_class(fields, RowKind(kind))._of(values)


def _field_property(position: int) -> property:
    def read(row: Row) -> Any:
        return row._values[position]

    def write(row: Row, value: Any) -> None:
        row[position] = value

    return property(read, write)


_classes: dict[tuple[tuple[str, ...] | None, RowKind], type[Row]] = {(None, RowKind.INSERT): Row}


def row_class(field_names: tuple[str, ...] | None, kind: RowKind = RowKind.INSERT) -> type[Row]:
    """Return the one class of rows with these names and kind, the same in every thread.

    Raises:
        ValueError: a name is not a string, or appears twice.
    """
    found = _classes.get((field_names, kind))
    if found is None:
        found = _classes.setdefault((field_names, kind), _create_class(field_names, kind))
    return found


def _rank(name: str) -> tuple[int, str]:
    """Order names alphabetically, and f0, f1, … f10 by their numbers: as if they had none."""
    digits = name[1:]
    numbered = name[:1] == "f" and digits.isdecimal()
    return (int(digits), "f") if numbered else (0, name)


def _create_class(field_names: tuple[str, ...] | None, kind: RowKind) -> type[Row]:
    members: dict[str, Any] = {"__slots__": (), "_kind": kind, "__module__": Row.__module__}
    if field_names is not None:
        index = {name: position for position, name in enumerate(field_names)}
        if len(index) != len(field_names) or not all(isinstance(n, str) for n in field_names):
            msg = f"row fields need different names that are strings, got {list(field_names)!r}"
            raise ValueError(msg)
        order = tuple(index[name] for name in sorted(field_names, key=_rank))
        members |= {
            "_fields": field_names,
            "_index": index,
            "_order": None if order == tuple(range(len(order))) else order,
        }
        for name, position in index.items():
            if not hasattr(Row, name) and not name.startswith("_"):
                members[name] = _field_property(position)
    return type("Row", (Row,), members)
