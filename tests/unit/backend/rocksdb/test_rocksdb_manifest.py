"""The catalogue of a database's files is whole, or refused before RocksDB sees it."""

from pathlib import Path

import pytest
import rocksdict
from hypothesis import given
from hypothesis import strategies as st

from weir.backend.rocksdb.manifest import check_catalogue, masked_crc32c
from weir.errors import CorruptStateError

BLOCK = 32 * 1024


def record(payload: bytes, kind: int = 1) -> bytes:
    body = bytes([kind]) + payload
    return masked_crc32c(body).to_bytes(4, "little") + len(payload).to_bytes(2, "little") + body


def catalogue(log: bytes) -> dict[str, bytes]:
    return {"CURRENT": b"MANIFEST-000005\n", "MANIFEST-000005": log}


def test_the_checksum_is_the_one_of_rocksdb() -> None:
    # The check value of CRC-32C for these digits is 0xE3069283; RocksDB rotates it and adds.
    crc = 0xE3069283
    assert masked_crc32c(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_catalogues_of_real_databases_are_taken(tmp_path: Path) -> None:
    # Long names of column families fill more than one block.
    options = rocksdict.Options(raw_mode=True)
    database = rocksdict.Rdict(str(tmp_path / "db"), options)
    for number in range(20):
        database.create_column_family(f"{number:02000d}", options)
    rocksdict.Checkpoint(database).create_checkpoint(str(tmp_path / "copy"))
    database.close()
    small = [p for p in (tmp_path / "copy").iterdir() if p.name.startswith(("CURRENT", "MANIFEST"))]
    files = {path.name: path.read_bytes() for path in small}
    assert max(len(data) for data in files.values()) > BLOCK
    check_catalogue(files, "a file")


def test_records_over_several_blocks_are_taken() -> None:
    first = record(b"a" * (BLOCK - 7), 2)
    middle, last = record(b"b" * (BLOCK - 7), 3), record(b"c" * (BLOCK - 11), 4)
    assert len(first + middle + last) == 3 * BLOCK - 4
    check_catalogue(catalogue(first + middle + last + bytes(4) + record(b"next")), "a file")


@pytest.mark.parametrize(
    ("log", "what"),
    [
        (b"", "ends inside"),
        (record(b"edit", 2), "ends inside"),
        (record(b"edit", 4), "half of a record"),
        (record(b"a", 2) + record(b"b"), "half of a record"),
        (record(b"edit")[:-1], "beyond its block"),
        (record(b"edit") + b"\0", "beyond its block"),
        (record(b"edit") + bytes(7), "unknown kind"),
        (record(b"edit", 9), "unknown kind"),
        (b"\1" + record(b"edit")[1:], "another checksum"),
        (record(b"a" * (BLOCK - 10)) + b"\0\0\1" + record(b"b"), "other bytes than zeros"),
    ],
)
def test_what_is_not_a_row_of_whole_records_is_refused(log: bytes, what: str) -> None:
    with pytest.raises(CorruptStateError, match=what):
        check_catalogue(catalogue(log), "a file")


@pytest.mark.parametrize(
    "current", [b"", b"MANIFEST-000005", b"MANIFEST-000006\n", b"CURRENT\n", b"../db\n", b"\xff\n"]
)
def test_a_current_that_names_no_catalogue_is_refused(current: bytes) -> None:
    with pytest.raises(CorruptStateError, match="CURRENT"):
        check_catalogue({**catalogue(record(b"edit")), "CURRENT": current}, "a file")


def test_files_without_current_are_refused() -> None:
    with pytest.raises(CorruptStateError, match="no file 'CURRENT'"):
        check_catalogue({}, "a file")


@given(st.data())
def test_no_piece_can_be_cut_out_of_a_catalogue(data: st.DataObject) -> None:
    log = b"".join(record(bytes([n]) * 20) for n in range(8))
    start = data.draw(st.integers(0, len(log) - 1))
    end = data.draw(st.integers(start + 1, len(log)))
    if start % 27 == 0 and end % 27 == 0 and end - start < len(log):
        return  # whole records: what is left is a log
    with pytest.raises(CorruptStateError):
        check_catalogue(catalogue(log[:start] + log[end:]), "a file")
