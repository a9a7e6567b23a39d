"""What the footer of an ORC file says of its types, looked at before Arrow builds a schema of it.

Arrow does not report all types that cannot be: on some its checks end the process, and so do types
that are nested without end or that belong to several others. Such files are refused here, with
the error that Arrow raises for other damaged files.

This reads Protocol Buffers more strictly than Arrow does, so that both see the same types: what
could be read in two ways, such as a precision that is there twice, is refused. (The reader of
Flight SQL's messages, in layers above, leaves such things to choice.)
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final, NoReturn

import pyarrow as pa

_MAGIC: Final = b"ORC"
_FOOTER_MAX: Final = 64 << 20
_BLOCK_DEFAULT: Final = 256 << 10
_DEPTH_MAX: Final = 100
_TYPES_MAX: Final = 1 << 20
_PRECISION_MAX: Final = 38
_LENGTH_MAX: Final = (1 << 31) - 1
_CHILDREN_MAX: Final = 128  # a union's, which Arrow numbers in a signed byte

# The numbers of fields and of values, as ORC's specification has them.
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_SIZE = 1, 2, 3
_TYPES = 4
_KIND, _SUBTYPES, _FIELD_NAMES, _MAXIMUM_LENGTH, _PRECISION, _SCALE = range(1, 7)
_DECIMAL, _UNION, _VARCHAR, _CHAR = 14, 13, 16, 17
_NONE, _ZLIB, _SNAPPY, _LZO, _LZ4, _ZSTD = range(6)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Value = int | memoryview


def check_types(stream: BinaryIO) -> None:
    """Refuse a file with types that would end the process; the stream is at its beginning then.

    What is no ORC file, or has a footer that only Arrow can unpack, is left to Arrow.

    Raises:
        pa.ArrowInvalid: there are such types, or the footer is damaged.
    """
    footer = _footer(stream)
    stream.seek(0)
    if footer is not None:
        _check_tree(_type(data) for data in _messages(footer, _TYPES))


# ---- where the footer is -----------------------------------------------------------------------


def _footer(stream: BinaryIO) -> memoryview | None:
    """Return the footer unpacked, None if this is no ORC file or is packed in an unknown way."""
    size = stream.seek(0, os.SEEK_END)
    tail = _read(stream, max(0, size - 256), size)
    if len(tail) < 4:
        return None
    # Hive 0.11 wrote the name of the format at the beginning alone.
    if tail[-4:-1] != _MAGIC and _read(stream, 0, 3) != _MAGIC:
        return None
    length = tail[-1]
    if length >= len(tail):
        _refuse("its postscript breaks off")
    facts = _numbers(
        memoryview(tail)[-1 - length : -1], (_FOOTER_LENGTH, _COMPRESSION, _BLOCK_SIZE)
    )
    end = size - 1 - length
    packed = facts.get(_FOOTER_LENGTH, 0)
    if packed > min(end, _FOOTER_MAX):
        _refuse(f"its footer is said to have {packed} bytes")
    data = memoryview(_read(stream, end - packed, end))
    kind = facts.get(_COMPRESSION)
    if kind is None:
        return _refuse("its postscript names no compression")
    return data if kind == _NONE else _unpack(data, kind, facts.get(_BLOCK_SIZE, _BLOCK_DEFAULT))


def _read(stream: BinaryIO, start: int, end: int) -> bytes:
    stream.seek(start)
    return stream.read(end - start)


# ---- blocks ------------------------------------------------------------------------------------


def _unpack(data: memoryview, kind: int, block_size: int) -> memoryview | None:
    """Return what blocks hold, None if one is packed in an unknown way."""
    found = bytearray()
    at = 0
    while at < len(data):
        header = int.from_bytes(data[at : at + 3], "little")
        start, at = at + 3, at + 3 + (header >> 1)
        if at > len(data):
            _refuse("its footer breaks off")
        block = data[start:at]
        # A block that would grow by being packed is kept as it is.
        plain = block if header & 1 else _unpack_block(block, kind, min(block_size, _FOOTER_MAX))
        if plain is None:
            return None
        found += plain
        if len(found) > _FOOTER_MAX:
            _refuse(f"its footer has more than {_FOOTER_MAX} bytes")
    return memoryview(bytes(found))


def _unpack_block(block: memoryview, kind: int, most: int) -> bytes | None:
    if kind == _ZLIB:
        return _inflate(block, most)
    if kind == _SNAPPY:
        return _decompress(block, "snappy", _varint(block, 0)[0], most)
    if kind == _LZ4:
        return _decompress(block, "lz4_raw", _lz4_length(block), most)
    if kind == _ZSTD:
        with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as unpacked:
            found: bytes = unpacked.read(most + 1)
        return found if len(found) <= most else _too_long(most)
    return None


def _inflate(block: memoryview, most: int) -> bytes:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        found = inflate.decompress(block, most + 1)
    except zlib.error as error:
        msg = f"its footer cannot be unpacked: {error}"
        raise pa.ArrowInvalid(msg) from error
    if len(found) > most:
        _too_long(most)
    return found if inflate.eof else _refuse("a block of its footer breaks off")


def _decompress(block: memoryview, codec: str, length: int, most: int) -> bytes:
    """Return an unpacked block; Arrow has to be told its length."""
    if length > most:
        _too_long(most)
    found: bytes = pa.decompress(block, length, codec, asbytes=True)
    return found


def _lz4_length(block: memoryview) -> int:
    """Return how long a block of LZ4 is when it is unpacked, which it does not say itself."""
    at = total = 0
    try:
        while True:
            token = block[at]
            literals, at = _lz4_run(block, at + 1, token >> 4)
            at, total = at + literals, total + literals
            if at >= len(block):
                return total
            copied, at = _lz4_run(block, at + 2, token & 15)
            total += copied + 4
    except IndexError:
        return _refuse("a block of its footer breaks off")


def _lz4_run(block: memoryview, at: int, short: int) -> tuple[int, int]:
    """Return a length, whose first part is `short`, and where it ends."""
    length = short
    more = 255 if short == 15 else 0
    while more == 255:
        more, at = block[at], at + 1
        length += more
    return length, at


# ---- Protocol Buffers --------------------------------------------------------------------------


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte, at = data[at], at + 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    return _refuse("a number in its footer breaks off")


def _fields(data: memoryview) -> Iterator[tuple[int, Value]]:
    """Yield the numbers and values of fields, those of fixed size as bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        form = tag & 7
        if form == _VARINT:
            number, at = _varint(data, at)
            yield tag >> 3, number
            continue
        if form == _BYTES:
            size, at = _varint(data, at)
        elif form in (_FIXED32, _FIXED64):
            size = 4 if form == _FIXED32 else 8
        else:
            _refuse(f"field {tag >> 3} in its footer is of form {form}")
        if size > len(data) - at:
            _refuse("a field in its footer breaks off")
        yield tag >> 3, data[at : at + size]
        at += size


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, value in _fields(data):
        if number == wanted:
            yield value if isinstance(value, memoryview) else _refuse(f"field {wanted} is a number")


def _numbers(data: memoryview, wanted: Iterable[int]) -> dict[int, int]:
    """Return the numbers that are there, each once."""
    found: dict[int, int] = {}
    for number, value in _fields(data):
        if number in wanted:
            _keep(found, number, value)
    return found


def _keep(found: dict[int, int], number: int, value: Value) -> None:
    if number in found or not isinstance(value, int):
        _refuse(f"field {number} is there twice, or is no number")
    found[number] = value


# ---- types -------------------------------------------------------------------------------------


@dataclass
class _Type:
    numbers: dict[int, int] = field(default_factory=dict)
    subtypes: list[int] = field(default_factory=list)


def _type(data: memoryview) -> _Type:
    """Return a type that is possible by itself."""
    found = _Type()
    for number, value in _fields(data):
        if number in (_KIND, _MAXIMUM_LENGTH, _PRECISION, _SCALE):
            _keep(found.numbers, number, value)
        elif number == _SUBTYPES and isinstance(value, int):
            found.subtypes.append(value)
        elif number == _SUBTYPES and isinstance(value, memoryview):
            at = 0
            while at < len(value):
                one, at = _varint(value, at)
                found.subtypes.append(one)
                if len(found.subtypes) > _TYPES_MAX:
                    _refuse(f"a type has more than {_TYPES_MAX} parts")
    # Of longer ones Arrow would take a part.
    if any(number >= 1 << 32 for number in found.numbers.values()):
        _refuse("a number of a type has more than 32 bits")
    _check_alone(found)
    return found


def _check_alone(found: _Type) -> None:
    kind = found.numbers.get(_KIND, 0)
    if kind == _DECIMAL:
        precision, scale = found.numbers.get(_PRECISION, 0), found.numbers.get(_SCALE, 0)
        # Hive 0.11 and 0.12 wrote no precision, by which Arrow knows the greatest.
        if precision > _PRECISION_MAX or scale > (precision or _PRECISION_MAX):
            _refuse(
                f"a decimal has precision {precision} and scale {scale}, expected at most "
                f"{_PRECISION_MAX} digits and a scale within them"
            )
    elif kind in (_CHAR, _VARCHAR):
        length = found.numbers.get(_MAXIMUM_LENGTH, 0)
        if length > _LENGTH_MAX:
            _refuse(f"a text of limited length has a limit of {length}, at most {_LENGTH_MAX}")
    elif kind == _UNION and len(found.subtypes) > _CHILDREN_MAX:
        _refuse(f"a union has {len(found.subtypes)} types, at most {_CHILDREN_MAX}")


def _check_tree(types: Iterable[_Type]) -> None:
    """Refuse types that are no trees, and those that are nested too deeply.

    Types stand behind those that they are part of, so that there are no cycles. Types with several
    parents would be built once for each way to them.
    """
    depths: dict[int, int] = {}
    count = 0
    for index, each in enumerate(types):
        count = index + 1
        depth = depths.get(index, 0) + 1
        if each.subtypes and depth > _DEPTH_MAX:
            _refuse(f"types are nested in more than {_DEPTH_MAX} levels")
        for child in each.subtypes:
            if child <= index or child in depths:
                _refuse(f"type {child} cannot be a part of type {index}")
            depths[child] = depth
        if max(count, len(depths)) > _TYPES_MAX:
            _refuse(f"it has more than {_TYPES_MAX} types")
    last = max(depths, default=0)
    if last >= max(count, 1):
        _refuse(f"type {last} is part of another one and is not there")


def _too_long(most: int) -> NoReturn:
    _refuse(f"a block of its footer has more than {most} bytes")


def _refuse(message: str) -> NoReturn:
    raise pa.ArrowInvalid(message)
