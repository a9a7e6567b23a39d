"""Generated declared types, and values that fit them."""

from __future__ import annotations

import datetime
from typing import Any

from hypothesis import strategies as st

from weir.common.time import Instant
from weir.common.typeinfo import MapTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from weir.common.types import row_class

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOAT32 = st.floats(width=32, allow_nan=False)

BASIC_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BYTE": st.integers(-(1 << 7), (1 << 7) - 1),
    "SHORT": st.integers(-(1 << 15), (1 << 15) - 1),
    "INT": st.integers(-(1 << 31), (1 << 31) - 1),
    "LONG": st.integers(-(1 << 63), (1 << 63) - 1),
    "BIG_INT": st.integers(),
    "FLOAT": FLOAT32,
    "DOUBLE": st.floats(allow_nan=False),
    "STRING": TEXT,
    "CHAR": st.characters(exclude_categories=["Cs"]),
    "BOOLEAN": st.booleans(),
    "BIG_DEC": st.decimals(allow_nan=False, allow_infinity=False),
    "SQL_DATE": st.dates(),
    "SQL_TIME": st.times(),
    "SQL_TIMESTAMP": st.datetimes(),
    "TIMESTAMP_LTZ": st.datetimes(timezones=st.just(datetime.timezone.utc)),
    "INSTANT": st.builds(Instant, st.integers(-(10**9), 10**9), st.integers(0, 999_999_999)),
}
HASHABLE = ["INT", "LONG", "STRING", "BOOLEAN", "SQL_DATE", "BIG_INT", "INSTANT"]
BASIC = st.sampled_from(sorted(BASIC_VALUES)).map(lambda kind: getattr(Types, kind)())
KEYS = st.sampled_from(HASHABLE).map(lambda kind: getattr(Types, kind)())
PRIMITIVES = st.sampled_from(["BYTE", "INT", "LONG", "DOUBLE", "BOOLEAN"])


def _named(types: list[TypeInformation]) -> TypeInformation:
    return Types.ROW_NAMED([f"c{i}" for i in range(len(types), 0, -1)], types)


def _compound(inner: st.SearchStrategy[TypeInformation]) -> st.SearchStrategy[TypeInformation]:
    fields = st.lists(inner, max_size=4)
    keys = st.one_of(KEYS, st.lists(KEYS, min_size=1, max_size=2).map(Types.TUPLE))
    return st.one_of(
        fields.map(Types.TUPLE),
        fields.map(Types.ROW),
        fields.map(_named),
        inner.map(Types.LIST),
        inner.map(Types.OBJECT_ARRAY),
        PRIMITIVES.map(lambda kind: Types.PRIMITIVE_ARRAY(getattr(Types, kind)())),
        st.builds(Types.MAP, keys, inner),
        st.builds(Types.MAP, st.lists(KEYS, min_size=1, max_size=2).map(_named), inner),
    )


DECLARED_TYPES = st.recursive(BASIC, _compound, max_leaves=6)


def values_of(type_info: TypeInformation, null: bool = True) -> st.SearchStrategy[Any]:
    """Return values that fit the type; `null` mixes None in."""
    plain = _plain_values(type_info)
    return st.one_of(st.none(), plain) if null else plain


def _plain_values(type_info: TypeInformation) -> st.SearchStrategy[Any]:
    if type_info.kind in BASIC_VALUES:
        return BASIC_VALUES[type_info.kind]
    if isinstance(type_info, TupleTypeInfo):
        return st.tuples(*map(values_of, type_info.get_field_types()))
    if isinstance(type_info, RowTypeInfo):
        made = row_class(type_info.row_names)
        return st.tuples(*map(values_of, type_info.get_field_types())).map(made._of)
    if isinstance(type_info, MapTypeInfo):
        keys = values_of(type_info.key_type, null=False)
        return st.dictionaries(keys, values_of(type_info.value_type), max_size=3)
    element = type_info.elem_type
    if type_info.kind == "PRIMITIVE_ARRAY" and element.kind == "BYTE":
        return st.binary(max_size=20)
    return st.lists(values_of(element), max_size=3)


@st.composite
def typed_lists(draw: st.DrawFn) -> tuple[TypeInformation, list[Any]]:
    """Draw a type and a list of values of it."""
    type_info = draw(DECLARED_TYPES)
    return type_info, draw(st.lists(values_of(type_info), max_size=5))


def exact(value: Any) -> Any:
    """Return the value with the class of every part, to compare classes as well."""
    if isinstance(value, dict):
        return dict, [(exact(k), exact(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [exact(v) for v in value]
    if hasattr(value, "_values"):
        return type(value), [exact(v) for v in value]
    return type(value), value
