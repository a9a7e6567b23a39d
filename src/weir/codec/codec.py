"""Codecs: values of a declared type to bytes and back, one by one and in bulk.

Layout: one MessagePack object per value, or one MessagePack array per list; pickled values are
plain pickles. Encoding refuses what the declared type cannot hold; decoding either returns exactly
typed values or raises CorruptStateError, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import GenericAlias
from typing import Any, NoReturn, Protocol

import msgspec

from weir.codec import pickled
from weir.codec.plan import CodecPlan, nullable_wire, plan_for
from weir.codec.stamped import StampedCodec, StampedTypeInfo
from weir.common._check import refuse
from weir.common.typeinfo import PickledBytesTypeInfo, TypeInformation, Types
from weir.errors import CorruptStateError, UsageError

_encode = msgspec.msgpack.Encoder().encode
_ENCODE_ERRORS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
_DECODE_ERRORS = (*_ENCODE_ERRORS, LookupError, MemoryError)


class Codec(Protocol):
    """Values of one type to bytes and back.

    Attributes:
        type_info: the declared type.
        safe: False when decoding unpickles anywhere, that is, may run code.
    """

    type_info: TypeInformation
    safe: bool

    def encode(self, value: Any) -> bytes:
        """Return the bytes of one value; UsageError when the type cannot hold it."""

    def decode(self, data: bytes | memoryview) -> Any:
        """Return the value; CorruptStateError when the bytes are not one."""

    def encode_many(self, values: Sequence[Any]) -> bytes:
        """Return the bytes of a whole list; UsageError when the type cannot hold an element."""

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        """Return the list; CorruptStateError when the bytes are not one."""

    def describe(self) -> dict[str, Any]:
        """Return the JSON description of the type."""


@lru_cache(maxsize=1024)
def codec_for(type_info: TypeInformation | None) -> Codec:
    """Return the codec of a declared type; None means any Python object, pickled."""
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return PickledCodec()
    if isinstance(type_info, StampedTypeInfo):
        return StampedCodec(type_info, codec_for(type_info.value_type))
    return TypedCodec(type_info)


class PickledCodec:
    """Any Python object; a list is one pickle, so objects shared inside it stay shared."""

    safe = False

    def __init__(self) -> None:
        self.type_info: TypeInformation = Types.PICKLED_BYTE_ARRAY()

    def encode(self, value: Any) -> bytes:
        """Return the pickle of one value."""
        return pickled.dumps(value)

    def decode(self, data: bytes | memoryview) -> Any:
        """Return the value; runs code."""
        return pickled.loads(data)

    def encode_many(self, values: Sequence[Any]) -> bytes:
        """Return one pickle of the whole list."""
        return pickled.dumps(values if values.__class__ is list else list(values))

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        """Return the list; runs code."""
        values = pickled.loads(data)
        if not isinstance(values, list):
            msg = f"expected a pickled list, found {type(values).__name__}"
            raise CorruptStateError(msg)
        return values

    def describe(self) -> dict[str, Any]:
        """Return the JSON description of the type."""
        return self.type_info.to_json()


class TypedCodec:
    """Values of a declared type as MessagePack."""

    def __init__(self, type_info: TypeInformation) -> None:
        plan: CodecPlan = plan_for(type_info)
        self.type_info = type_info
        self.safe = plan.safe
        self._plan = plan
        self._check = type_info.check
        one: Any = nullable_wire(plan)
        self._decode_one = msgspec.msgpack.Decoder(one).decode
        self._decode_list = msgspec.msgpack.Decoder(GenericAlias(list, (one,))).decode

    def encode(self, value: Any) -> bytes:
        """Return the bytes of one value; UsageError when the type cannot hold it."""
        checked = self._check(value)
        down = self._plan.down
        try:
            return _encode(checked if down is None or checked is None else down(checked))
        except _ENCODE_ERRORS as error:
            self._refuse([value], error)

    def encode_many(self, values: Sequence[Any]) -> bytes:
        """Return the bytes of a whole list; UsageError when the type cannot hold an element."""
        plan = self._plan
        if values.__class__ is not list:
            values = list(values)
        try:
            if not plan.clean(values):
                check = self._check
                values = [check(value) for value in values]
            down = plan.down
            if down is None:
                return _encode(values)
            return _encode([None if value is None else down(value) for value in values])
        except _ENCODE_ERRORS as error:
            self._refuse(values, error)

    def _refuse(self, values: Sequence[Any], error: Exception) -> NoReturn:
        """Name the first value that cannot be encoded."""
        if len(values) > 1:
            for value in values:
                self.encode(value)
        if values:
            refuse(repr(self.type_info), values[0], f"a value that can be encoded ({error})")
        msg = f"{self.type_info!r}: {error}"
        raise UsageError(msg) from error

    def decode(self, data: bytes | memoryview) -> Any:
        """Return the value; CorruptStateError when the bytes are not one."""
        up = self._plan.up
        try:
            value = self._decode_one(data)
            return value if up is None or value is None else up(value)
        except _DECODE_ERRORS as error:
            self._corrupt(data, error)

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        """Return the list; CorruptStateError when the bytes are not one."""
        plan = self._plan
        try:
            values: list[Any] = self._decode_list(data)
            if plan.up is None:
                return values
            if plan.up_many is not None and None not in values:
                return plan.up_many(values)
            up = plan.up
            return [None if value is None else up(value) for value in values]
        except _DECODE_ERRORS as error:
            self._corrupt(data, error)

    def _corrupt(self, data: bytes | memoryview, error: Exception) -> NoReturn:
        msg = f"{len(data)} bytes are not a value of {self.type_info!r}: {error}"
        raise CorruptStateError(msg) from error

    def describe(self) -> dict[str, Any]:
        """Return the JSON description of the type."""
        return self.type_info.to_json()
