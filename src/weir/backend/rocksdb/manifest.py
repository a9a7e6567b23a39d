"""Looking over the catalogue of a database's files before RocksDB opens it.

Owns the check that CURRENT names a file that is there and that this file, the MANIFEST, is whole: a
log of records in blocks of 32 KiB, each with a checksum. RocksDB checks that too, but does not
always come back from a log whose records do not follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from weir.errors import CorruptStateError

CURRENT = "CURRENT"
_BLOCK = 32 * 1024
_HEADER = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MASK_DELTA = 0xA282EAD8


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1
        table.append(crc)
    return tuple(table)


_TABLE = _crc_table()


def masked_crc32c(data: bytes) -> int:
    """Return the CRC-32C of bytes as logs of RocksDB store it."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def check_catalogue(files: Mapping[str, bytes], place: str) -> None:
    """Refuse files of a database whose catalogue RocksDB could not read to its end.

    Raises:
        CorruptStateError: CURRENT or the file that it names is missing or damaged.
    """
    current = files.get(CURRENT)
    if current is None:
        msg = f"{place!r} is damaged: its database has no file {CURRENT!r}"
        raise CorruptStateError(msg)
    name = current[:-1].decode("ascii", "replace")
    if current[-1:] != b"\n" or not name.startswith("MANIFEST-") or name not in files:
        msg = f"{place!r} is damaged: {CURRENT!r} of its database names {name!r}, expected its log"
        raise CorruptStateError(msg)
    fault = _fault(files[name])
    if fault is not None:
        msg = f"{place!r} is damaged: {name!r} of its database {fault}; restore another checkpoint"
        raise CorruptStateError(msg)


def _fault(log: bytes) -> str | None:
    """Return what is wrong with a log, None when it consists of whole records."""
    at, inside = 0, False
    while at < len(log):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER:
            if any(log[at : at + left]):
                return f"has a block that ends in other bytes than zeros at {at}"
            at += left
            continue
        length, kind = int.from_bytes(log[at + 4 : at + 6], "little"), log[at + 6 : at + 7]
        end = at + _HEADER + length
        if end > min(len(log), at + left):
            return f"has a record at {at} that goes beyond its block"
        if not kind or kind[0] not in (_FULL, _FIRST, _MIDDLE, _LAST):
            return f"has a record of an unknown kind at {at}"
        if inside != (kind[0] in (_MIDDLE, _LAST)):
            return f"has half of a record at {at}"
        if masked_crc32c(log[at + 6 : end]) != int.from_bytes(log[at : at + 4], "little"):
            return f"has a record with another checksum at {at}"
        inside = kind[0] in (_FIRST, _MIDDLE)
        at = end
    return "ends inside of a record" if inside or not log else None
