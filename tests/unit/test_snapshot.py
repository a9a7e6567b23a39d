"""The snapshot file: ranges come back as written, and no altered byte gets through."""

from __future__ import annotations

import io
import random
import zlib

import pytest

from weir.errors import CorruptStateError
from weir.snapshot import MAGIC, VERSION, FileFacts, Section, SnapshotReader, SnapshotWriter

SEED = 20240611


def written() -> tuple[bytes, FileFacts]:
    out = io.BytesIO()
    writer = SnapshotWriter(out)
    groups = {str(g): [[*writer.section(bytes([g]) * (g * 7)), g, 0]] for g in range(1, 9)}
    elements = [list(s) for s in writer.slices([b"one", b"", b"three" * 50])]
    facts = writer.finish(
        {
            "operators": {
                "op": {
                    "keyed": {"s": {"kind": "VALUE", "type": {}, "groups": groups}},
                    "operator": {"l": {"mode": "SPLIT", "type": {}, "elements": elements}},
                }
            }
        }
    )
    return out.getvalue(), facts


def reader_of(data: bytes, name: str = "chk-7/file") -> SnapshotReader:
    return SnapshotReader(lambda offset, length: data[offset : offset + length], len(data), name)


def read_everything(data: bytes) -> list[bytes]:
    reader = reader_of(data)
    part = reader.operator("op")
    groups = [part for parts in part["keyed"]["s"]["groups"].values() for part in parts]
    return reader.sections(groups) + reader.sections(part["operator"]["l"]["elements"])


def test_sections_come_back_as_written() -> None:
    data, _ = written()
    expected = [bytes([g]) * (g * 7) for g in range(1, 9)] + [b"one", b"", b"three" * 50]
    assert read_everything(data) == expected


def test_the_layout_is_the_documented_one() -> None:
    out = io.BytesIO()
    writer = SnapshotWriter(out)
    assert writer.section(b"abc") == Section(9, 3, zlib.crc32(b"abc"))
    writer.finish({})
    footer = b"\x80"
    header = MAGIC + bytes([VERSION, 0])
    assert out.getvalue() == (
        header
        + b"abc"
        + footer
        + (1).to_bytes(4, "little")
        + zlib.crc32(header + footer).to_bytes(4, "little")
        + MAGIC
    )


def test_a_compressed_file_is_smaller_and_reads_the_same() -> None:
    data = b"all alike " * 1000
    sizes = []
    for compress in (False, True):
        out = io.BytesIO()
        writer = SnapshotWriter(out, compress=compress)
        sections = [writer.section(data), *writer.slices([b"x", b""])]
        writer.finish({})
        stored = out.getvalue()
        reader = SnapshotReader(lambda o, n, s=stored: s[o : o + n], len(stored), "f")
        assert reader.sections(sections) == [data, b"x", b""]
        sizes.append(len(stored))
    assert sizes[1] < sizes[0] / 10


def test_the_facts_describe_the_whole_file() -> None:
    data, facts = written()
    assert facts == FileFacts(len(data), zlib.crc32(data))


def test_neighbouring_sections_are_fetched_with_one_read() -> None:
    data, _ = written()
    reads: list[tuple[int, int]] = []

    def read_at(offset: int, length: int) -> bytes:
        reads.append((offset, length))
        return data[offset : offset + length]

    reader = SnapshotReader(read_at, len(data), "f")
    groups = reader.operator("op")["keyed"]["s"]["groups"]
    reads.clear()
    reader.sections(groups[g][0] for g in "2347")
    assert len(reads) == 2
    assert sum(length for _, length in reads) == (2 + 3 + 4 + 7) * 7


def test_an_operator_without_state_has_empty_parts() -> None:
    assert reader_of(written()[0]).operator("other") == {"keyed": {}, "operator": {}}


def test_every_flipped_bit_is_detected_before_use() -> None:
    data, _ = written()
    rng = random.Random(SEED)
    regions = list(range(9)) + list(range(len(data) - 15, len(data)))
    places = regions + [rng.randrange(len(data)) for _ in range(400)]
    for place in places:
        altered = bytearray(data)
        altered[place] ^= 1 << rng.randrange(8)
        with pytest.raises(CorruptStateError, match="chk-7/file"):
            read_everything(bytes(altered))


def test_every_truncation_is_detected_before_use() -> None:
    data, _ = written()
    for length in range(len(data)):
        with pytest.raises(CorruptStateError, match="chk-7/file"):
            read_everything(data[:length])


def test_inserted_removed_and_swapped_bytes_are_detected_before_use() -> None:
    data, _ = written()
    rng = random.Random(SEED)
    for _ in range(200):
        place = rng.randrange(len(data))
        kind = rng.randrange(3)
        if kind == 0:
            altered = data[:place] + bytes([rng.randrange(256)]) + data[place:]
        elif kind == 1:
            altered = data[:place] + data[place + 1 :]
        else:
            altered = data[:place] + data[place:][::-1]
        if altered == data:
            continue
        with pytest.raises(CorruptStateError, match="chk-7/file"):
            read_everything(altered)


def test_a_file_that_shrinks_while_it_is_read_is_detected() -> None:
    data, _ = written()
    size = len(data)
    reader = SnapshotReader(lambda offset, length: data[offset : offset + length], size, "f")
    groups = reader.operator("op")["keyed"]["s"]["groups"]
    data = data[:20]
    with pytest.raises(CorruptStateError, match="could be read"):
        reader.section(groups["8"][0])


@pytest.mark.parametrize(
    "address", [[0, 4, 0], [8, 10**9, 0], [8, -1, 0], [8, 4], ["8", 4, 0], [-5, 2, 0]]
)
def test_an_address_outside_the_data_is_refused(address: list[int]) -> None:
    with pytest.raises(CorruptStateError):
        reader_of(written()[0]).section(address)


def test_a_footer_that_is_not_a_map_is_refused() -> None:
    out = io.BytesIO()
    writer = SnapshotWriter(out)
    writer.finish([1, 2])  # type: ignore[arg-type]
    with pytest.raises(CorruptStateError, match="not in the known form"):
        reader_of(out.getvalue())


@pytest.mark.parametrize(
    "part",
    [
        [],
        {"keyed": []},
        {"keyed": {"s": {"kind": "VALUE", "type": {}}}},
        {"keyed": {"s": {"kind": "VALUE", "type": [], "groups": {}}}},
        {"keyed": {"s": {"kind": "VALUE", "type": {}, "groups": {"x": []}}}},
        {"keyed": {"s": {"kind": "VALUE", "type": {}, "groups": {"1": [9, 0, 0, 1, 0]}}}},
        {"keyed": {"s": {"kind": "VALUE", "type": {}, "groups": {"1": [[9, -1, 0, 1, 0]]}}}},
        {"keyed": {"s": {"kind": "VALUE", "type": {}, "groups": {"1": [[9, 0, 0, 1, 2]]}}}},
        {"operator": {"l": {"mode": "OTHER", "type": {}, "elements": []}}},
        {"operator": {"l": {"mode": "SPLIT", "type": {}, "elements": [[9, 0]]}}},
        {"raw_keyed": {"groups": {"1": 9}}},
    ],
)
def test_a_footer_of_another_form_is_refused_although_its_checksum_is_right(part: object) -> None:
    out = io.BytesIO()
    SnapshotWriter(out).finish({"operators": {"op": part}})
    with pytest.raises(CorruptStateError, match="not in the known form"):
        reader_of(out.getvalue())
