"""The little of Protocol Buffers that Arrow Flight SQL needs: texts, bytes and flags in fields.

Messages travel in an `Any`: the name of their type, and their bytes.
"""

from __future__ import annotations

from typing import Final

from weir.jobmanager.queries import QueryError

_TYPE: Final = "type.googleapis.com/arrow.flight.protocol.sql."
_BYTES, _VARINT = 2, 0
Fields = dict[int, list[bytes | int]]


def _varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        if not number:
            out.append(low)
            return bytes(out)
        out.append(low | 0x80)


def field(number: int, data: bytes) -> bytes:
    """Return a field of bytes."""
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def message(name: str, body: bytes) -> bytes:
    """Return a message of Flight SQL in an `Any`."""
    return field(1, (_TYPE + name).encode()) + field(2, body)


def read_message(data: bytes) -> tuple[str, Fields]:
    """Return the name and the fields of a message in an `Any`.

    Raises:
        QueryError: the bytes are none of Flight SQL.
    """
    outer = read_fields(data)
    name = text(outer, 1) or ""
    if not name.startswith(_TYPE):
        msg = f"expected a message of Arrow Flight SQL, found {name[:80]!r}"
        raise QueryError(msg)
    body = outer.get(2, [b""])[-1]
    return name.removeprefix(_TYPE), read_fields(body if isinstance(body, bytes) else b"")


def read_fields(data: bytes) -> Fields:
    """Return the fields of a message, each with all its values.

    Raises:
        QueryError: the bytes are no message.
    """
    found: Fields = {}
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        size, at = _read_varint(data, at)
        if wire == _VARINT:
            found.setdefault(number, []).append(size)
        elif wire == _BYTES and at + size <= len(data):
            found.setdefault(number, []).append(data[at : at + size])
            at += size
        else:
            msg = f"a message of Arrow Flight SQL cannot be read: field {number}, form {wire}"
            raise QueryError(msg)
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            msg = "a message of Arrow Flight SQL breaks off"
            raise QueryError(msg)
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return number, at
        shift += 7


def numbers(fields: Fields, number: int) -> list[int]:
    """Return the numbers of a repeated field, packed or one by one.

    Raises:
        QueryError: they break off.
    """
    found: list[int] = []
    for value in fields.get(number, ()):
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = _read_varint(value, at)
            found.append(one)
    return found


def texts(fields: Fields, number: int) -> list[str]:
    """Return the texts of a repeated field.

    Raises:
        QueryError: one is no text.
    """
    found = (text({number: [value]}, number) for value in fields.get(number, ()))
    return [value for value in found if value is not None]


def text(fields: Fields, number: int) -> str | None:
    """Return the last text of a field, None when it is not there.

    Raises:
        QueryError: it is no text.
    """
    value = fields.get(number, [None])[-1]
    if value is None:
        return None
    try:
        return value.decode() if isinstance(value, bytes) else None
    except UnicodeDecodeError as error:
        msg = f"a text of Arrow Flight SQL is not UTF-8: {error}"
        raise QueryError(msg) from error
