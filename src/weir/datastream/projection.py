"""Checks on fields of records: projection and rolling aggregates."""

from __future__ import annotations

from collections.abc import Sequence

from weir.common.typeinfo import (
    BasicTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from weir.errors import UsageError


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
