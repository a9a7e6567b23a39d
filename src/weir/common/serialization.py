"""Schemas: records to bytes of an external system and back."""

from __future__ import annotations

import abc
import codecs
from typing import Any

from weir.common._absent import FORMATS, MOVED, absent
from weir.common.typeinfo import TypeInformation, Types
from weir.errors import UsageError

__all__ = [
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]


class SerializationSchema(abc.ABC):
    """Turns records into bytes.

    Example:
        class Json(SerializationSchema):
            def serialize(self, element):
                return dumps(element).encode()
    """

    @abc.abstractmethod
    def serialize(self, element: Any) -> bytes:
        """Return the bytes of a record."""


class DeserializationSchema(abc.ABC):
    """Turns bytes into records.

    Example:
        class Json(DeserializationSchema):
            def deserialize(self, message):
                return loads(message)
    """

    @abc.abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """Return the record of a message."""

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the records."""
        return Types.PICKLED_BYTE_ARRAY()


def _charset(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError as error:
        msg = f"unknown character set {name!r}: use a name such as 'UTF-8'"
        raise UsageError(msg) from error


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Strings, in UTF-8 unless told otherwise.

    Example:
        schema = SimpleStringSchema("UTF-8")
        schema.deserialize(schema.serialize("text"))
    """

    def __init__(self, charset: str = "UTF-8") -> None:
        self.charset = _charset(charset)

    def serialize(self, element: str) -> bytes:
        """Return the encoded string."""
        return element.encode(self.charset)

    def deserialize(self, message: bytes) -> str:
        """Return the decoded string."""
        return message.decode(self.charset)

    def get_produced_type(self) -> TypeInformation:
        """Return the string type."""
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes, as they are.

    Example:
        ByteArraySchema().deserialize(b"as it came")
    """

    def serialize(self, element: bytes) -> bytes:
        """Return the bytes."""
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        """Return the bytes."""
        return bytes(message)

    def get_produced_type(self) -> TypeInformation:
        """Return the type of bytes."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """One field of a row, which holds bytes already: the key or the value of a message.

    Example:
        >>> RowFieldExtractorSchema(1).serialize(("key", b"value"))
        b'value'
    """

    def __init__(self, field_index: int) -> None:
        """Name the field by its place, from 0.

        Raises:
            ValueError: the place is negative.
        """
        if field_index < 0:
            msg = f"Field index must be non-negative, got: {field_index}"
            raise ValueError(msg)
        self.field_index = field_index

    def serialize(self, element: Any) -> bytes:
        """Return the bytes in the field; none where the field is empty.

        Raises:
            UsageError: there is no such field, or it holds something else.
        """
        if self.field_index >= len(element):
            msg = f"RowFieldExtractorSchema({self.field_index}): no such field in {element!r}"
            raise UsageError(msg)
        found = element[self.field_index]
        if found is None:
            return b""
        if not isinstance(found, (bytes, bytearray)):
            msg = f"RowFieldExtractorSchema({self.field_index}): expected bytes, found {found!r}"
            raise UsageError(msg)
        return bytes(found)


class Encoder:
    """Turns records into the lines of a file.

    Example:
        FileSink.for_row_format("/out", Encoder.simple_string_encoder()).build()
    """

    def __init__(self, charset: str = "UTF-8") -> None:
        self.charset = _charset(charset)

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Return an encoder that writes `str(record)` and a line feed."""
        return Encoder(charset_name)

    def encode(self, element: Any) -> bytes:
        """Return the line of a record."""
        return f"{element}\n".encode(self.charset)


__getattr__ = absent(__name__, {**MOVED, **FORMATS})
