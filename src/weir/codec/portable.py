"""Values of any declared type as columns that other tools understand, and back.

Most types have an Arrow type of their own. Whole and decimal numbers without bounds and times of
day become text, instants become their seconds and nanoseconds, and what was not declared becomes
its pickle, a binary, so that reading a column runs no code. Who allows `unpickle` may get a text.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from weir.codec import pickled
from weir.codec.arrow import arrow_type, column_of
from weir.codec.arrow_read import read_column
from weir.codec.codec import Codec, codec_for
from weir.codec.plain import PlainCodec, loads_plain
from weir.codec.stamped import StampedCodec, StampedTypeInfo
from weir.common.time import Instant
from weir.common.typeinfo import (
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from weir.common.types import row_class
from weir.errors import UsageError

Convert = Callable[[Any], Any]


class _Form(NamedTuple):
    """A columnar type that stands for another one, and how values go there and back."""

    shown: TypeInformation
    down: Convert | None = None
    up: Convert | None = None


_BYTES: Final = Types.PRIMITIVE_ARRAY(Types.BYTE())
_INSTANT: Final = Types.ROW_NAMED(["seconds", "nanos"], [Types.LONG(), Types.INT()])
_instant_row = row_class(("seconds", "nanos"))._of


def _instant(row: Any) -> Instant:
    return Instant(row[0], row[1])


_FORMS: Final = {
    "BIG_INT": _Form(Types.STRING(), str, int),
    "BIG_DEC": _Form(Types.STRING(), str, decimal.Decimal),
    "SQL_TIME": _Form(
        Types.STRING(), datetime.time.isoformat, lambda text: datetime.time.fromisoformat(text)
    ),
    "INSTANT": _Form(_INSTANT, lambda i: _instant_row((i.seconds, i.nanos)), _instant),
}
_AS_PICKLE: Final = _Form(_BYTES, pickled.dumps, loads_plain)
_AS_STORED: Final = _Form(_BYTES)
_AS_TEXT: Final = _Form(Types.STRING(), repr)
_AS_LOADED: Final = _Form(_BYTES, pickled.dumps, pickled.loads)


@dataclass(frozen=True)
class Portable:
    """How values of one type are read, and look as a column.

    Attributes:
        type_info: the declared type.
        shown: the type of the column, which is columnar.
        codec: reads and writes the stored bytes; runs code only where that was allowed.
    """

    type_info: TypeInformation
    shown: TypeInformation
    codec: Codec
    _down: Convert | None
    _up: Convert | None

    @property
    def arrow(self) -> Any:
        """The Arrow type of the column."""
        return arrow_type(self.shown)

    def column(self, values: Sequence[Any], name: str) -> Any:
        """Return an Arrow array of values that the codec decoded."""
        down = self._down
        if down is not None:
            values = [None if value is None else down(value) for value in values]
        return column_of(values, self.shown, name)

    def values(self, array: Any) -> list[Any]:
        """Return the values of a column, as the codec encodes them.

        Raises:
            UsageError: the column's text is no number, or no time.
        """
        found = read_column(array, self.shown)
        up = self._up
        if up is None:
            return found
        try:
            return [None if value is None else up(value) for value in found]
        except (ValueError, decimal.DecimalException) as error:
            msg = f"a column does not hold values of {self.type_info!r}: {error}"
            raise UsageError(msg) from error


def plain_codec(type_info: TypeInformation) -> Codec:
    """Return a codec that runs no code: what was pickled is plain data, or stays its pickle inside.

    The bytes are those of the type.
    """
    if isinstance(type_info, StampedTypeInfo):
        return StampedCodec(type_info, plain_codec(type_info.value_type))
    if isinstance(type_info, PickledBytesTypeInfo):
        return PlainCodec()
    return codec_for(_with_bytes(type_info))


@lru_cache(maxsize=1024)
def portable(type_info: TypeInformation, unpickle: bool = False, as_text: bool = True) -> Portable:
    """Return how values of a type become columns; `unpickle` allows to run code for that.

    What was unpickled is a text for people, or else a pickle again, which can be written back.

    Raises:
        UsageError: the type has no values that a column could hold.
    """
    top = isinstance(type_info, PickledBytesTypeInfo)
    if unpickle:
        undeclared = _AS_TEXT if as_text else _AS_LOADED
        form, codec = _form(type_info, undeclared), codec_for(type_info)
    elif top:
        form, codec = _AS_PICKLE, plain_codec(type_info)
    else:
        form, codec = _form(type_info, _AS_STORED), plain_codec(type_info)
    if arrow_type(form.shown) is None:
        msg = f"{type_info!r} has no form as a column"
        raise UsageError(msg)
    return Portable(type_info, form.shown, codec, _down=form.down, _up=form.up)


def _with_bytes(type_info: TypeInformation) -> TypeInformation:
    """Return a type with the same bytes, in which pickled parts stay the pickles that they are."""
    if isinstance(type_info, PickledBytesTypeInfo):
        return _BYTES
    return _rebuilt(type_info, _with_bytes)


def _rebuilt(
    type_info: TypeInformation, change: Callable[[TypeInformation], TypeInformation]
) -> TypeInformation:
    """Return a type with other types inside, itself when they are the same."""
    if isinstance(type_info, RowTypeInfo):
        before = type_info.get_field_types()
        fields = list(map(change, before))
        return type_info if fields == before else RowTypeInfo(fields, type_info.field_names)
    if isinstance(type_info, TupleTypeInfo):
        before = type_info.get_field_types()
        fields = list(map(change, before))
        return type_info if fields == before else TupleTypeInfo(fields)
    if isinstance(type_info, MapTypeInfo):
        key, value = change(type_info.key_type), change(type_info.value_type)
        same = (key, value) == (type_info.key_type, type_info.value_type)
        return type_info if same else MapTypeInfo(key, value)
    element = getattr(type_info, "elem_type", None)
    if element is None:
        return type_info
    inner = change(element)
    return type_info if inner == element else Types.LIST(inner)


def _form(type_info: TypeInformation, undeclared: _Form) -> _Form:
    """Return the columnar form of a type; `undeclared` is that of pickled parts."""
    if isinstance(type_info, PickledBytesTypeInfo):
        return undeclared
    if type_info.kind in _FORMS:
        return _FORMS[type_info.kind]
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return _fields_form(type_info, undeclared)
    if isinstance(type_info, MapTypeInfo):
        return _map_form(type_info, undeclared)
    element = getattr(type_info, "elem_type", None)
    if element is None or type_info == _BYTES:
        return _Form(type_info)
    inner = _form(element, undeclared)
    shown = _rebuilt(type_info, lambda _: inner.shown)
    return _Form(shown, _each(inner.down), _each(inner.up))


def _each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    step = convert
    return lambda values: [None if value is None else step(value) for value in values]


def _fields_form(type_info: RowTypeInfo | TupleTypeInfo, undeclared: _Form) -> _Form:
    types = type_info.get_field_types()
    if not types:
        empty = type_info.check(())
        return _Form(Types.BOOLEAN(), lambda _: True, lambda _: empty)
    forms = [_form(t, undeclared) for t in types]
    shown = _rebuilt(type_info, dict(zip(types, (f.shown for f in forms), strict=True)).__getitem__)
    make: Convert = lambda values: values  # noqa: E731 - a tuple stays one
    if isinstance(type_info, RowTypeInfo):
        make = row_class(type_info.row_names)._of

    def convert(steps: list[Convert | None]) -> Convert | None:
        if not any(steps):
            return None

        def change(fields: Any) -> Any:
            pairs = zip(fields, steps, strict=True)
            return make(tuple(v if v is None or not step else step(v) for v, step in pairs))

        return change

    return _Form(shown, convert([f.down for f in forms]), convert([f.up for f in forms]))


def _map_form(type_info: MapTypeInfo, undeclared: _Form) -> _Form:
    key, value = (_form(t, undeclared) for t in (type_info.key_type, type_info.value_type))
    shown = MapTypeInfo(key.shown, value.shown)

    def convert(of_key: Convert | None, of_value: Convert | None) -> Convert | None:
        if of_key is None and of_value is None:
            return None
        same: Convert = lambda item: item  # noqa: E731 - the identity
        k, v = of_key or same, of_value or same
        return lambda entries: {
            (None if a is None else k(a)): (None if b is None else v(b)) for a, b in entries.items()
        }

    return _Form(shown, convert(key.down, value.down), convert(key.up, value.up))
