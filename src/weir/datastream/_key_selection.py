"""Where a key comes from: functions, field names, and field access found inside lambdas.

A key that is plain field access can be taken from columns without running Python per record. It is
found by calling the selector once with a probe. Only functions whose byte code can do nothing but
read items and attributes of their argument are probed, so probing has no effect that a user could
see; whatever is not certain counts as an ordinary function.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import Any

from weir.common.typeinfo import (
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from weir.common.types import Row
from weir.datastream._plain_functions import key_callable
from weir.errors import UsageError
from weir.graph.transformation import KeySpec

Field = str | int

_HARMLESS = frozenset(
    {
        "BINARY_SUBSCR",
        "BUILD_TUPLE",
        "CACHE",
        "EXTENDED_ARG",
        "LOAD_ATTR",
        "LOAD_CONST",
        "LOAD_FAST",
        "LOAD_FAST_BORROW",
        "LOAD_FAST_BORROW_LOAD_FAST_BORROW",
        "LOAD_FAST_LOAD_FAST",
        "LOAD_SMALL_INT",
        "NOP",
        "RESUME",
        "RETURN_VALUE",
    }
)


class _NotSymbolic(Exception):
    """The selector does something else than reading fields of the record."""


class _Access:
    """What the probe returns: remembers which field was read, and can do nothing else."""

    __slots__ = ("field",)

    def __init__(self, field: Field) -> None:
        self.field = field


class _Probe:
    """Stands for a record: reading a field gives an `_Access`, anything else gives up."""

    __slots__ = ()

    def __getitem__(self, field: object) -> _Access:
        # A bool is an int to Python; a negative position depends on the record's length.
        if type(field) is str or (type(field) is int and field >= 0):
            return _Access(field)
        raise _NotSymbolic

    def __getattribute__(self, name: str) -> _Access:
        # Row's own methods win over a field of the same name, here as in a real record.
        if name.startswith("_") or hasattr(Row, name):
            raise _NotSymbolic
        return _Access(name)


class FieldSelector:
    """Reads one field as the bare key, several as a tuple; picklable."""

    __slots__ = ("fields",)

    def __init__(self, fields: tuple[Field, ...]) -> None:
        """Keep the names or positions."""
        self.fields = fields

    def __call__(self, value: Any) -> Any:
        """Return the key of a record: item access, as on rows, tuples and dicts."""
        if len(self.fields) == 1:
            return value[self.fields[0]]
        return tuple(value[field] for field in self.fields)

    def __repr__(self) -> str:
        """Read as the constructor call."""
        return f"FieldSelector({self.fields!r})"


def key_spec(selector: Any, key_type: Any, record_type: TypeInformation | None) -> KeySpec:
    """Return where the key of a stream comes from.

    Args:
        selector: a `KeySelector`, a callable, a field name, a position, or several of those.
        key_type: declared type of the key, None for any Python value.
        record_type: declared type of the stream; names are checked against it.
    """
    named = _named_fields(selector)
    if named is not None:
        _check_fields(named, record_type)
        return KeySpec(FieldSelector(named), named, key_type)
    function = key_callable(selector)
    found = symbolic_fields(function) if _has_fields(record_type) else None
    if found is not None and not _all_known(found, record_type):
        found = None
    return KeySpec(function, found, key_type)


def symbolic_fields(function: Callable[[Any], Any]) -> tuple[Field, ...] | None:
    """Return the fields that a function reads as the key, None when it does anything else.

    Guarantee: never raises and never lets the function have an effect.
    """
    if not isinstance(function, types.FunctionType) or not _only_reads_fields(function):
        return None
    try:
        result = function(_Probe())
    except (_NotSymbolic, TypeError, AttributeError):
        return None
    accesses = result if type(result) is tuple else (result,)
    if not accesses or any(type(access) is not _Access for access in accesses):
        return None
    if type(result) is tuple and len(result) == 1:
        # `(row[0],)` is a tuple key; one field means the bare value.
        return None
    return tuple(access.field for access in accesses)


def _only_reads_fields(function: types.FunctionType) -> bool:
    code = function.__code__
    if code.co_argcount != 1 or code.co_kwonlyargcount or code.co_freevars or code.co_cellvars:
        return False
    if code.co_flags & (0x04 | 0x08):  # *args, **kwargs
        return False
    return all(
        i.opname in _HARMLESS or (i.opname == "BINARY_OP" and i.argrepr == "[]")
        for i in dis.get_instructions(code)
    )


def _named_fields(selector: Any) -> tuple[Field, ...] | None:
    if isinstance(selector, (str, int)) and not isinstance(selector, bool):
        selector = (selector,)
    if not isinstance(selector, (list, tuple)):
        return None
    fields = tuple(selector)
    if not fields:
        msg = "key_by() got no field: name at least one column to key the stream by"
        raise UsageError(msg)
    for field in fields:
        if isinstance(field, bool) or not isinstance(field, (str, int)):
            msg = f"key_by() takes column names or positions, found {field!r} in {selector!r}"
            raise TypeError(msg)
        if isinstance(field, int) and field < 0:
            msg = f"key_by() positions start at 0, found {field!r}"
            raise UsageError(msg)
    return fields


def _has_fields(record_type: TypeInformation | None) -> bool:
    """Tell whether `record[0]` means a field; of a string it would be a character."""
    kinds = (RowTypeInfo, TupleTypeInfo, PickledBytesTypeInfo)
    return record_type is None or isinstance(record_type, kinds)


def _names_and_size(record_type: TypeInformation | None) -> tuple[list[str], int] | None:
    if isinstance(record_type, RowTypeInfo):
        names = list(record_type.get_field_names())
        return names, len(names)
    if isinstance(record_type, TupleTypeInfo):
        return [], len(record_type.get_field_types())
    return None


def _all_known(fields: tuple[Field, ...], record_type: TypeInformation | None) -> bool:
    known = _names_and_size(record_type)
    if known is None:
        return True
    names, size = known
    return all(f in names if isinstance(f, str) else f < size for f in fields)


def _check_fields(fields: tuple[Field, ...], record_type: TypeInformation | None) -> None:
    if not _has_fields(record_type):
        msg = (
            f"key_by({fields!r}) needs records with fields, but the stream has type "
            f"{record_type!r}; give a function instead"
        )
        raise UsageError(msg)
    if not _all_known(fields, record_type):
        msg = (
            f"key_by({fields!r}) names a field that the stream's type {record_type!r} does not "
            "have; check the spelling or the position"
        )
        raise UsageError(msg)
