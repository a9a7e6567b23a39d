"""How each declared type goes over the wire: the pieces that `codec_for` compiles.

Most types have a MessagePack form that msgspec writes and reads in C, tuples, maps and dates
included. What has none (rows, big integers, instants, pickled parts) is converted by a pair of
functions. `clean` tells, without running Python code per element, whether a whole list already
consists of exactly typed values.
"""

from __future__ import annotations

import datetime
import decimal
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import attrgetter
from types import GenericAlias
from typing import Annotated, Any, Union

import msgspec

from weir.codec import pickled
from weir.common._check import INT_RANGES
from weir.common.time import Instant
from weir.common.typeinfo import MapTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from weir.common.types import row_class

Convert = Callable[[Any], Any]
Clean = Callable[[Sequence[Any]], bool]

_NONE = type(None)
_values = attrgetter("_values")
_tzinfo = attrgetter("tzinfo")


@dataclass(frozen=True)
class CodecPlan:
    """The wire form of one type.

    Attributes:
        wire: what msgspec decodes to, None not included.
        clean: whether all values of a list (None allowed) have exactly the declared type.
        down: value to wire form, None when they are the same; never called with None.
        up: wire form to value, likewise.
        up_many: `up` for a list without None, where that is faster.
        safe: whether decoding cannot run code.
    """

    wire: Any
    clean: Clean
    down: Convert | None = None
    up: Convert | None = None
    up_many: Callable[[list[Any]], list[Any]] | None = None
    safe: bool = True


def scalar_clean(type_info: TypeInformation | None) -> Clean | None:
    """Return what tells of a list whether its values, or None, have exactly a declared scalar type.

    None for types that are not scalars: undeclared ones admit everything, and values with fields or
    elements are looked into where they become columns, unless there are FLOATs inside, which are
    rounded to 32 bits at once.
    """
    if type_info is None or type_info.kind == "PICKLED_BYTE_ARRAY":
        return None
    kind = type_info.kind
    scalar = kind in INT_RANGES or kind in _BASIC
    return plan_for(type_info).clean if scalar or _holds_float(type_info) else None


def _holds_float(type_info: TypeInformation) -> bool:
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return any(map(_holds_float, type_info.get_field_types()))
    if isinstance(type_info, MapTypeInfo):
        return _holds_float(type_info.key_type) or _holds_float(type_info.value_type)
    element = getattr(type_info, "elem_type", None)
    return type_info.kind == "FLOAT" if element is None else _holds_float(element)


def plan_for(type_info: TypeInformation) -> CodecPlan:
    """Compile the wire form of a declared type."""
    kind = type_info.kind
    if kind in INT_RANGES:
        return _int_plan(*INT_RANGES[kind])
    if kind in _BASIC:
        return _BASIC[kind]
    if isinstance(type_info, RowTypeInfo):
        return _row_plan(type_info)
    if isinstance(type_info, TupleTypeInfo):
        return _tuple_plan([plan_for(t) for t in type_info.get_field_types()])
    if isinstance(type_info, MapTypeInfo):
        return _map_plan(plan_for(type_info.key_type), plan_for(type_info.value_type))
    element: TypeInformation = type_info.elem_type  # type: ignore[attr-defined]
    if kind == "PRIMITIVE_ARRAY" and element.kind == "BYTE":
        return CodecPlan(bytes, _only(bytes))
    return _list_plan(plan_for(element))


def _present(values: Sequence[Any], wanted: type) -> Sequence[Any] | None:
    """Return the values without None, or None when any is not exactly of the wanted class."""
    kinds = set(map(type, values))
    if _NONE in kinds:
        kinds.discard(_NONE)
        values = [v for v in values if v is not None]
    return values if kinds <= {wanted} else None


def _only(wanted: type) -> Clean:
    allowed = {wanted, _NONE}
    return lambda values: set(map(type, values)) <= allowed


def _fit_64_bits(ints: Sequence[int]) -> bool:
    """Tell whether all have at most 64 bits, faster than by looking for the least and largest."""
    try:
        array("q", ints)
    except OverflowError:
        return False
    return True


def _int_plan(low: int, high: int) -> CodecPlan:
    def clean(values: Sequence[Any]) -> bool:
        ints = _present(values, int)
        if ints is None:
            return False
        if high == INT_RANGES["LONG"][1]:
            return _fit_64_bits(ints)
        return not ints or (min(ints) >= low and max(ints) <= high)

    return CodecPlan(Annotated[int, msgspec.Meta(ge=low, le=high)], clean)


def _clean_float32(values: Sequence[Any]) -> bool:
    floats = _present(values, float)
    if floats is None:
        return False
    return list(array("f", floats)) == list(floats)


def _clean_char(values: Sequence[Any]) -> bool:
    chars = _present(values, str)
    return chars is not None and set(map(len, chars)) <= {1}


def _clean_zoned(wanted: type, zones: set[Any]) -> Clean:
    def clean(values: Sequence[Any]) -> bool:
        times = _present(values, wanted)
        return times is not None and set(map(_tzinfo, times)) <= zones

    return clean


def _big_int_down(value: int) -> int | bytes:
    if -(1 << 63) <= value < (1 << 63):
        return value
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _big_int_up(value: int | bytes) -> int:
    return value if isinstance(value, int) else int.from_bytes(value, "big", signed=True)


def _instant_up(value: tuple[int, int]) -> Instant:
    return Instant(value[0], value[1])


_BASIC: dict[str, CodecPlan] = {
    "BIG_INT": CodecPlan(int | bytes, _only(int), _big_int_down, _big_int_up),
    "FLOAT": CodecPlan(float, _clean_float32),
    "DOUBLE": CodecPlan(float, _only(float)),
    "STRING": CodecPlan(str, _only(str)),
    "CHAR": CodecPlan(Annotated[str, msgspec.Meta(min_length=1, max_length=1)], _clean_char),
    "BOOLEAN": CodecPlan(bool, _only(bool)),
    "BIG_DEC": CodecPlan(decimal.Decimal, _only(decimal.Decimal)),
    "SQL_DATE": CodecPlan(datetime.date, _only(datetime.date)),
    "SQL_TIME": CodecPlan(
        Annotated[datetime.time, msgspec.Meta(tz=False)], _clean_zoned(datetime.time, {None})
    ),
    "SQL_TIMESTAMP": CodecPlan(
        Annotated[datetime.datetime, msgspec.Meta(tz=False)],
        _clean_zoned(datetime.datetime, {None}),
    ),
    "TIMESTAMP_LTZ": CodecPlan(
        Annotated[datetime.datetime, msgspec.Meta(tz=True)],
        _clean_zoned(datetime.datetime, {datetime.timezone.utc}),
    ),
    "INSTANT": CodecPlan(
        tuple[int, int], _only(Instant), attrgetter("seconds", "nanos"), _instant_up
    ),
    "PICKLED_BYTE_ARRAY": CodecPlan(
        bytes, lambda values: True, pickled.dumps, pickled.loads, safe=False
    ),
}


def _nullable(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    inner = convert
    return lambda value: None if value is None else inner(value)


def _generic(origin: type, *arguments: CodecPlan) -> Any:
    """Return `origin[...]` with nullable arguments, as a decoder needs it."""
    return GenericAlias(origin, tuple(nullable_wire(plan) for plan in arguments))


def nullable_wire(plan: CodecPlan) -> Any:
    """Return the wire form with None."""
    return Union[plan.wire, None]  # noqa: UP007 - an Annotated type has no `|` on Python 3.10


def _list_plan(element: CodecPlan) -> CodecPlan:
    def clean(values: Sequence[Any]) -> bool:
        lists = _present(values, list)
        return lists is not None and element.clean(list(chain.from_iterable(lists)))

    def each(convert: Convert | None) -> Convert | None:
        if convert is None:
            return None
        return lambda items: [None if item is None else convert(item) for item in items]

    return CodecPlan(
        _generic(list, element), clean, each(element.down), each(element.up), safe=element.safe
    )


def _map_plan(key: CodecPlan, value: CodecPlan) -> CodecPlan:
    def clean(values: Sequence[Any]) -> bool:
        dicts = _present(values, dict)
        if dicts is None:
            return False
        items = list(chain.from_iterable(map(dict.values, dicts)))
        return key.clean(list(chain.from_iterable(dicts))) and value.clean(items)

    safe = key.safe and value.safe
    if key.down is None and value.down is None:
        return CodecPlan(_generic(dict, key, value), clean, safe=safe)
    same: Convert = lambda item: item  # noqa: E731 - the identity, needed four times
    key_down, key_up = _nullable(key.down) or same, _nullable(key.up) or same
    value_down, value_up = _nullable(value.down) or same, _nullable(value.up) or same

    def down(items: dict[Any, Any]) -> list[tuple[Any, Any]]:
        return [(key_down(k), value_down(v)) for k, v in items.items()]

    def up(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        return {key_up(k): value_up(v) for k, v in pairs}

    pair = _generic(tuple, key, value)
    return CodecPlan(GenericAlias(list, (pair,)), clean, down, up, safe=safe)


def _fields_convert(converts: Sequence[Convert | None]) -> Convert | None:
    """Convert the fields of a tuple that need it; None when none does."""
    steps = [(i, _nullable(c)) for i, c in enumerate(converts) if c is not None]
    if not steps:
        return None

    def convert(values: Sequence[Any]) -> tuple[Any, ...]:
        fields = list(values)
        for position, step in steps:
            fields[position] = step(fields[position])  # type: ignore[misc]
        return tuple(fields)

    return convert


def _fields_clean(tuples: Sequence[Any], plans: Sequence[CodecPlan]) -> bool:
    if not set(map(len, tuples)) <= {len(plans)}:
        return False
    columns = zip(*tuples, strict=True)
    return all(plan.clean(column) for plan, column in zip(plans, columns, strict=False))


def _tuple_plan(fields: Sequence[CodecPlan]) -> CodecPlan:
    def clean(values: Sequence[Any]) -> bool:
        tuples = _present(values, tuple)
        return tuples is not None and _fields_clean(tuples, fields)

    return CodecPlan(
        _generic(tuple, *fields) if fields else tuple[()],
        clean,
        _fields_convert([f.down for f in fields]),
        _fields_convert([f.up for f in fields]),
        safe=all(f.safe for f in fields),
    )


def _row_plan(type_info: RowTypeInfo) -> CodecPlan:
    fields = [plan_for(t) for t in type_info.get_field_types()]
    wanted = row_class(type_info.row_names)

    def clean(values: Sequence[Any]) -> bool:
        rows = _present(values, wanted)
        return rows is not None and _fields_clean(list(map(_values, rows)), fields)

    fields_down = _fields_convert([f.down for f in fields])
    fields_up = _fields_convert([f.up for f in fields])
    return CodecPlan(
        _generic(tuple, *fields) if fields else tuple[()],
        clean,
        down=_values if fields_down is None else _chain(_values, fields_down),
        up=wanted._of if fields_up is None else _chain(fields_up, wanted._of),
        up_many=wanted._of_many if fields_up is None else None,
        safe=all(f.safe for f in fields),
    )


def _chain(*steps: Convert) -> Convert:
    return lambda value: reduce(lambda v, step: step(v), steps, value)
