"""The snapshot data file: state of one slot, or what changed in it; checked before use.

Layout, byte by byte::

    0        7   magic            b"WEIRSNP"
    7        1   version          2
    8        1   compression      0 none, 1 Zstandard
    9        …   sections         back to back, no padding
    F        n   footer           MessagePack map, see below
    F+n      4   footer length n  unsigned, little-endian
    F+n+4    4   CRC-32           of the first 9 bytes and the footer; unsigned, little-endian
    F+n+8    7   magic            b"WEIRSNP"

A section is addressed by `[offset, length, crc32]`; several small ones may be written at once.
In a compressed file a section is the length of its contents (8 bytes, little-endian) and the
compressed contents; checksums are over what is stored. The footer names every section::

    {"operators": {operator_id: {
        "keyed":    {state_name: {"kind": …, "type": {…}, "groups": {str(key_group):
                                  [[offset, length, crc32, count, delta], …]}}},
        "operator": {state_name: {"mode": "SPLIT" | "UNION" | "BROADCAST", "type": {…},
                                  "elements": [[offset, length, crc32], …]}},
        "raw_keyed": {"groups": {str(key_group): [offset, length, crc32]}}}}}

A key group is a list of parts to apply in order: `delta` is 0 for all entries of the group, which
replace what came before, and 1 for changes to it. State may be spread over several files; see
`weir.backend.base.RestoreSource`.

Invariant: no byte of a file reaches a caller before the checksum over it was right, and no footer
that is not in this form. Every deviation is a `CorruptStateError` that names the file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple, NoReturn, TypedDict

import msgspec
import pyarrow as pa

from weir.errors import CorruptStateError

MAGIC = b"WEIRSNP"
VERSION = 2
_HEADER_LENGTH = len(MAGIC) + 2
_PLAIN, _ZSTD = 0, 1
_TRAILER_LENGTH = 8 + len(MAGIC)
_READ_AT_ONCE = 8 << 20

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_KeyGroup = Annotated[str, msgspec.Meta(pattern="^(0|[1-9][0-9]{0,4})$")]
_Address = tuple[_Number, _Number, _Number]


class _Keyed(TypedDict):
    kind: str
    type: dict[str, dict[str, Any]]
    groups: dict[_KeyGroup, list[tuple[_Number, _Number, _Number, _Number, Literal[0, 1]]]]


class _Elements(TypedDict):
    mode: Literal["SPLIT", "UNION", "BROADCAST"]
    type: dict[str, dict[str, Any]]
    elements: list[_Address]


class _RawKeyed(TypedDict, total=False):
    groups: dict[_KeyGroup, _Address]


class _Operator(TypedDict, total=False):
    keyed: dict[str, _Keyed]
    operator: dict[str, _Elements]
    raw_keyed: _RawKeyed


class _Footer(TypedDict, total=False):
    operators: dict[str, _Operator]


_decode_footer = msgspec.msgpack.Decoder(dict[str, Any]).decode
# Entries may have more than is named here, so this one only tells whether the form is right.
_check_footer = msgspec.msgpack.Decoder(_Footer).decode


class Section(NamedTuple):
    """Where some bytes are and what their checksum is; stored in footers as a list."""

    offset: int
    length: int
    crc32: int


class FileHandle(msgspec.Struct, frozen=True):
    """A finished file of a checkpoint.

    `path` is relative to the checkpoint's directory (`../shared/…` for files that several
    checkpoints use). A small file may be kept in the checkpoint's metadata instead: then `data`
    are its bytes and `path` is only a name.
    """

    path: str
    size: int
    crc32: int
    data: bytes | None = None


@dataclass(frozen=True)
class FileFacts:
    """What a checkpoint records about a finished file."""

    size: int
    crc32: int


class SnapshotWriter:
    """Writes one snapshot file front to back; nothing is valid before `finish` returned.

    Not thread-safe: one writer per file and thread.
    """

    def __init__(self, out: BinaryIO, *, compress: bool = False) -> None:
        """Begin the file on a fresh binary stream, which stays the caller's to close."""
        self._out = out
        self._size = 0
        self._crc = 0
        self._compress = compress
        self._header = MAGIC + bytes([VERSION, _ZSTD if compress else _PLAIN])
        self._append(self._header)

    @property
    def size(self) -> int:
        """Return how many bytes the file has so far."""
        return self._size

    def section(self, data: bytes) -> Section:
        """Append one section."""
        data = self._stored(data)
        section = Section(self._size, len(data), zlib.crc32(data))
        self._append(data)
        return section

    def slices(self, parts: Iterable[bytes]) -> list[Section]:
        """Append many small sections with one write, each with its own checksum."""
        offset = self._size
        sections, data = [], []
        for part in map(self._stored, parts):
            sections.append(Section(offset, len(part), zlib.crc32(part)))
            data.append(part)
            offset += len(part)
        self._append(b"".join(data))
        return sections

    def finish(self, footer: dict[str, Any]) -> FileFacts:
        """Append footer and trailer; the stream still has to be made durable by its owner."""
        data = msgspec.msgpack.encode(footer)
        self._append(data)
        self._append(len(data).to_bytes(4, "little"))
        self._append(zlib.crc32(self._header + data).to_bytes(4, "little"))
        self._append(MAGIC)
        return FileFacts(self._size, self._crc)

    def _stored(self, data: bytes) -> bytes:
        if not self._compress:
            return data
        compressed: bytes = pa.compress(data, "zstd", asbytes=True)
        return len(data).to_bytes(8, "little") + compressed

    def _append(self, data: bytes) -> None:
        self._out.write(data)
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)


class SnapshotReader:
    """Reads the ranges of a snapshot file that somebody needs, each checked against its CRC.

    `read_at(offset, length)` fetches bytes; short answers count as corruption.
    """

    def __init__(self, read_at: Callable[[int, int], bytes], size: int, name: str) -> None:
        """Read and check header, trailer and footer.

        Raises:
            CorruptStateError: the file is not a whole snapshot file of a known version.
        """
        self.name = name
        self._read_at = read_at
        self._size = size
        if size < _HEADER_LENGTH + _TRAILER_LENGTH:
            self._refuse(f"it has {size} bytes, too few for a snapshot file")
        header = self._read(0, _HEADER_LENGTH)
        if header[:-2] != MAGIC:
            self._refuse(f"it begins with {header[:-2]!r}, expected {MAGIC!r}")
        if header[-2] != VERSION:
            self._refuse(f"its format version is {header[-2]}, expected {VERSION}")
        if header[-1] not in (_PLAIN, _ZSTD):
            self._refuse(f"its compression is {header[-1]}, expected {_PLAIN} or {_ZSTD}")
        self._compressed = header[-1] == _ZSTD
        trailer = self._read(size - _TRAILER_LENGTH, _TRAILER_LENGTH)
        if trailer[8:] != MAGIC:
            self._refuse(f"it ends with {trailer[8:]!r}, expected {MAGIC!r}")
        length = int.from_bytes(trailer[:4], "little")
        self._footer_offset = size - _TRAILER_LENGTH - length
        if self._footer_offset < _HEADER_LENGTH:
            self._refuse(f"its footer claims {length} bytes of a file of {size}")
        data = self._read(self._footer_offset, length)
        if zlib.crc32(header + data) != int.from_bytes(trailer[4:8], "little"):
            self._refuse("the checksum of its header and footer is wrong")
        try:
            _check_footer(data)
            self.footer = _decode_footer(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
            self._refuse(f"its footer is not in the known form ({e})")

    def section(self, address: Iterable[int]) -> bytes:
        """Return the bytes of one section; see `sections`."""
        return self.sections([address])[0]

    def sections(self, addresses: Iterable[Iterable[int]]) -> list[bytes]:
        """Return the bytes of sections; numbers after the first three of an address are ignored.

        Neighbours in the file are fetched together, so many small sections cost few reads.

        Raises:
            CorruptStateError: an address is not one of this file, or the bytes are not those
                that were written.
        """
        wanted = [self._address(address) for address in addresses]
        found: list[bytes] = []
        start = 0
        while start < len(wanted):
            first, stop = wanted[start].offset, start + 1
            end = first + wanted[start].length
            while (
                stop < len(wanted)
                and wanted[stop].offset == end
                and end + wanted[stop].length - first <= _READ_AT_ONCE
            ):
                end += wanted[stop].length
                stop += 1
            data = self._read(first, end - first)
            found += [self._checked(data, first, section) for section in wanted[start:stop]]
            start = stop
        return found

    def _address(self, address: Iterable[int]) -> Section:
        numbers = list(address)[:3]
        if len(numbers) != 3 or not all(isinstance(n, int) for n in numbers):
            self._refuse(f"{numbers!r} is not a section address")
        section = Section(*numbers)
        end = section.offset + section.length
        if section.offset < _HEADER_LENGTH or section.length < 0 or end > self._footer_offset:
            self._refuse(f"{section!r} lies outside its data")
        return section

    def _checked(self, data: bytes, first: int, section: Section) -> bytes:
        begin = section.offset - first
        part = data[begin : begin + section.length]
        if zlib.crc32(part) != section.crc32:
            self._refuse(f"the checksum of {section!r} is wrong")
        return self._contents(part, section) if self._compressed else part

    def _contents(self, stored: bytes, section: Section) -> bytes:
        size = int.from_bytes(stored[:8], "little")
        try:
            contents: bytes = pa.decompress(
                stored[8:], decompressed_size=size, codec="zstd", asbytes=True
            )
        except (OSError, ValueError, OverflowError, MemoryError) as e:
            self._refuse(f"{section!r} cannot be decompressed ({e})")
        if len(contents) != size:
            self._refuse(f"{section!r} has {len(contents)} bytes, expected {size}")
        return contents

    def operator(self, operator_id: str) -> dict[str, Any]:
        """Return the footer part of one operator: `{"keyed": {…}, "operator": {…}}`."""
        part = self.footer.get("operators", {}).get(operator_id, {})
        return {"keyed": part.get("keyed", {}), "operator": part.get("operator", {})}

    def _read(self, offset: int, length: int) -> bytes:
        data = self._read_at(offset, length)
        if len(data) != length:
            self._refuse(f"{len(data)} of {length} bytes could be read at {offset}")
        return data

    def _refuse(self, what: str) -> NoReturn:
        msg = f"snapshot file {self.name!r} is corrupt: {what}; restore another checkpoint"
        raise CorruptStateError(msg)
