"""Checks of what users pass, where the type annotation alone would not stop them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weir.common.typeinfo import (
    BasicTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from weir.errors import UsageError
from weir.keygroup import MAX_PARALLELISM_BOUND


def require_type(value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Refuse a value of another type.

    Raises:
        TypeError: naming what was expected and what was found.
    """
    if not isinstance(value, kinds):
        msg = f"expected {expected}, found {type(value).__name__}: {value!r}"
        raise TypeError(msg)


def check_text(text: Any, what: str) -> None:
    """Refuse anything but text that logs, messages and files can hold."""
    if not isinstance(text, str):
        msg = f"{what} is text, found {type(text).__name__}: {text!r}"
        raise UsageError(msg)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        msg = f"{what} cannot be encoded, found {text!r}: {error.reason} at character {error.start}"
        raise UsageError(msg) from error


def check_parallelism(parallelism: Any, owner: str) -> None:
    """Refuse anything but a whole number of at least one."""
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        msg = (
            f"{owner}: the parallelism must be a whole number of at least 1, found {parallelism!r}"
        )
        raise UsageError(msg)


def check_max_parallelism(max_parallelism: Any, owner: str) -> None:
    """Refuse anything but a whole number from one to the number of key groups there can be."""
    valid = isinstance(max_parallelism, int) and not isinstance(max_parallelism, bool)
    if not valid or not 1 <= max_parallelism <= MAX_PARALLELISM_BOUND:
        msg = (
            f"{owner}: the max parallelism must be a whole number from 1 to "
            f"{MAX_PARALLELISM_BOUND}, found {max_parallelism!r}"
        )
        raise UsageError(msg)


def projected_type(
    record_type: TypeInformation | None, field_indexes: Sequence[int]
) -> TypeInformation:
    """Return the type of a projected stream of tuples.

    Raises:
        UsageError: the stream is not declared to hold tuples, or a position does not exist.
    """
    if not isinstance(record_type, TupleTypeInfo):
        msg = (
            f"Only Tuple DataStreams can be projected, the type here is {record_type!r}; "
            "declare Types.TUPLE([...]) or use map()"
        )
        raise UsageError(msg)
    types = list(record_type.get_field_types())
    if not field_indexes:
        msg = "project() needs at least one field position"
        raise UsageError(msg)
    for index in field_indexes:
        if not 0 <= index < len(types):
            msg = f"project() got position {index!r}, but the tuple has {len(types)} fields from 0"
            raise UsageError(msg)
    return Types.TUPLE([types[index] for index in field_indexes])


def aggregate_field(op: str, position: int | str, record_type: TypeInformation | None) -> int | str:
    """Return the field of a rolling aggregate, checked against the declared type.

    Raises:
        TypeError: the position is neither a number nor a name.
        UsageError: the declared type has no such field.
    """
    if isinstance(position, bool) or not isinstance(position, (int, str)):
        msg = (
            f"The field position of {op}() must be of int or str type, "
            f"found {type(position).__name__}: {position!r}"
        )
        raise TypeError(msg)
    known = True
    if isinstance(record_type, RowTypeInfo):
        names = list(record_type.get_field_names())
        known = position in names if isinstance(position, str) else 0 <= position < len(names)
    elif isinstance(record_type, TupleTypeInfo):
        size = len(record_type.get_field_types())
        known = isinstance(position, int) and 0 <= position < size
    elif isinstance(record_type, BasicTypeInfo) and not isinstance(
        record_type, PickledBytesTypeInfo
    ):
        known = position == 0
    if not known:
        msg = f"{op}() got field {position!r}, which the stream's type {record_type!r} has not"
        raise UsageError(msg)
    return position


def check_timestamp_field(field: int | str, record_type: TypeInformation | None) -> None:
    """Refuse a field that cannot hold the timestamps of a stream, where its type is declared.

    Raises:
        UsageError: the declared type has no such field, or one that holds no times.
    """
    if not isinstance(record_type, (RowTypeInfo, TupleTypeInfo)):
        return
    names = list(record_type.get_field_names())
    position = names.index(field) if field in names else field
    types = record_type.get_field_types()
    if not isinstance(position, int) or not 0 <= position < len(types):
        msg = f"the timestamps are to be in field {field!r}; the stream has the fields {names!r}"
        raise UsageError(msg)
    if not isinstance(types[position], PickledBytesTypeInfo) and types[position].kind not in _TIMES:
        msg = (
            f"the timestamps are to be in field {field!r}, which holds {types[position]!r}; "
            "expected milliseconds as a whole number, or a point in time"
        )
        raise UsageError(msg)


_TIMES = {"BYTE", "SHORT", "INT", "LONG", "SQL_TIMESTAMP", "TIMESTAMP_LTZ"}
