"""Footers of ORC files: good ones pass, and types that would end the process are refused."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from weir.common import Row
from weir.connector.formats import orc_footer
from weir.connector.formats.column_files import OrcBulkWriters, OrcColumnarRowInputFormat
from weir.connector.formats.orc_footer import check_types
from weir.connector.undecoded import Faults, OnError
from weir.errors import UsageError
from weir.table import DataTypes

MONEY = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.DECIMAL(9, 2))])
BOOLEAN, INT, LIST, MAP, STRUCT, UNION, DECIMAL, VARCHAR, CHAR = 0, 3, 10, 11, 12, 13, 14, 16, 17
CODECS = ["uncompressed", "zlib", "snappy", "lz4", "zstd"]


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[int, Callable[[bytes], bytes]] = {
    1: deflated,
    2: lambda data: pa.compress(data, "snappy", asbytes=True),
    4: lambda data: pa.compress(data, "lz4_raw", asbytes=True),
    5: lambda data: pa.compress(data, "zstd", asbytes=True),
}


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def num(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint(value)


def data(tag: int, value: bytes) -> bytes:
    return varint(tag << 3 | 2) + varint(len(value)) + value


def kind(number: int, children: Iterable[int] = (), names: int = 0, **more: int) -> bytes:
    """Return a type as bytes."""
    made = num(1, number) + data(2, b"".join(map(varint, children)))
    made += b"".join(data(3, b"%c" % (97 + n)) for n in range(names))
    tags = {"length": 4, "precision": 5, "scale": 6}
    return made + b"".join(num(tags[name], value) for name, value in more.items())


ROOT = kind(STRUCT, [1], 1)


def read_varint(read: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (read[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if read[at - 1] < 0x80:
            return number, at


def raw_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers of fields, and their bytes with what stands before them."""
    read, at = memoryview(message), 0
    while at < len(read):
        tag, value = read_varint(read, at)
        size, end = read_varint(read, value)
        end += size if tag & 7 == 2 else 0
        yield tag >> 3, message[at:end]
        at = end


def without(message: bytes, *tags: int) -> bytes:
    return b"".join(raw for tag, raw in raw_fields(message) if tag not in tags)


def made(table: pa.Table, compression: str = "uncompressed", **how: Any) -> bytes:
    stream = io.BytesIO()
    orc.write_table(table, stream, compression=compression, **how)
    return stream.getvalue()


def money() -> pa.Table:
    return pa.table({"a": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2))})


def parts(file: bytes) -> tuple[bytes, bytes, bytes]:
    """Return what comes before the footer, the footer, and the postscript."""
    at = len(file) - 1 - file[-1]
    postscript = file[at:-1]
    raw = next(raw for tag, raw in raw_fields(postscript) if tag == 1)
    length = read_varint(memoryview(raw), 1)[0]
    return file[: at - length], file[at - length : at], postscript


def assembled(before: bytes, footer: bytes, postscript: bytes) -> bytes:
    tail = num(1, len(footer)) + without(postscript, 1)
    return before + footer + tail + bytes([len(tail)])


def with_types(*types: bytes) -> bytes:
    """Return a file with a column of decimals that says that it has other types."""
    before, footer, postscript = parts(made(money()))
    footer = without(footer, 4) + b"".join(data(4, each) for each in types)
    return assembled(before, footer, postscript)


def packed(file: bytes, compression: int, blocks: bytes) -> bytes:
    before, _, postscript = parts(file)
    return assembled(before, blocks, num(2, compression) + without(postscript, 2))


def block(content: bytes, *, plain: bool = False) -> bytes:
    return (len(content) << 1 | plain).to_bytes(3, "little") + content


def refused(file: bytes, match: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=match):
        check_types(io.BytesIO(file))


def taken(file: bytes) -> Any:
    """Return Arrow's reader of a file whose types are good."""
    stream = io.BytesIO(file)
    check_types(stream)
    assert stream.tell() == 0
    return orc.ORCFile(stream)


def read(path: Path) -> list[Any]:
    pieces: Any = list(OrcColumnarRowInputFormat(MONEY).read(str(path), Faults(OnError.FAIL)))
    return [row for piece in pieces for row in piece.values]


# ---- good files --------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("count", [1, 2000])
def test_good_files_of_each_compression_pass(compression: str, count: int) -> None:
    columns: dict[str, Any] = {f"column {n}": [n, n + 1] for n in range(count)}
    columns["money"] = pa.array([Decimal("1.50"), None], pa.decimal128(38, 38 - 5))
    columns["deep"] = [[{"x": [1]}], None]
    columns["map"] = pa.array([[("k", [1])], None], pa.map_(pa.string(), pa.list_(pa.int64())))
    table = pa.table(columns)
    file = made(table, compression)
    # Arrow keeps footers as they are when it writes LZ4.
    if compression in ("zlib", "snappy", "zstd") and count > 1:
        assert not parts(file)[1][0] & 1
    assert taken(file).read().num_rows == 2


@pytest.mark.parametrize("compression", PACKERS)
def test_a_footer_of_several_blocks_is_unpacked(compression: int) -> None:
    footer = parts(with_types(ROOT, kind(DECIMAL, precision=9, scale=2)))[1]
    blocks = block(PACKERS[compression](footer[:30])) + block(footer[30:50], plain=True)
    found = packed(made(money()), compression, blocks + block(PACKERS[compression](footer[50:])))
    assert str(taken(found).schema.field("a").type) == "decimal128(9, 2)"


def test_lengths_of_lz4_are_found() -> None:
    for text in (b"", b"a", b"ab" * 1000, bytes(range(256)) * 3, bytes(range(256)), b"x" * 273):
        assert orc_footer._lz4_length(memoryview(PACKERS[4](text))) == len(text)


@pytest.mark.parametrize("more", [{}, {"precision": 0}, {"scale": 2}])
def test_decimals_of_old_files_have_no_precision(tmp_path: Path, more: dict[str, int]) -> None:
    file = with_types(ROOT, kind(DECIMAL, **more))
    assert taken(file).schema.field("a").type == pa.decimal128(38, 6)
    (tmp_path / "old").write_bytes(file)
    assert read(tmp_path / "old") == [Row(a=Decimal("1.50")), Row(a=None)]


def test_what_only_arrow_understands_is_left_to_it() -> None:
    good = made(money())
    footer = parts(good)[1]
    for file in (
        b"",
        b"ORC",
        b"nonsense" * 10,
        packed(good, 3, block(b"x")),
        packed(good, 99, b""),
    ):
        stream = io.BytesIO(file)
        check_types(stream)
        with pytest.raises(OSError, match=r".") as found:
            orc.ORCFile(stream)
        assert found.value.errno is None
    # Blocks that are not packed are seen in spite of that.
    bad = parts(with_types(ROOT, kind(DECIMAL, precision=73)))[1]
    check_types(io.BytesIO(packed(good, 3, block(footer, plain=True))))
    refused(packed(good, 3, block(bad, plain=True)), "precision 73")


# ---- types that would end the process ----------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "scale"),
    [(39, 2), (73, 2), (2**32 - 1, 0), (9, 10), (38, 39), (9, 2**31), (9, 2**32 - 1), (0, 39)],
)
def test_decimals_that_cannot_be_are_refused(precision: int, scale: int) -> None:
    file = with_types(ROOT, kind(DECIMAL, precision=precision, scale=scale))
    refused(file, f"precision {precision} and scale {scale}, expected at most 38 digits")


@pytest.mark.parametrize("compression", PACKERS)
def test_they_are_found_in_each_compression(compression: int) -> None:
    footer = parts(with_types(ROOT, kind(DECIMAL, precision=73, scale=2)))[1]
    for blocks in (block(PACKERS[compression](footer)), block(footer, plain=True)):
        refused(packed(made(money()), compression, blocks), "precision 73")


def test_the_error_names_the_file_and_the_process_lives(tmp_path: Path) -> None:
    path = tmp_path / "bad.orc"
    path.write_bytes(with_types(ROOT, kind(DECIMAL, precision=73, scale=2)))
    with pytest.raises(UsageError, match=r"bad\.orc' cannot be read as ORC: a decimal has prec"):
        read(path)
    form = OrcBulkWriters.for_row_type(MONEY)
    with pytest.raises(pa.ArrowInvalid, match="a decimal has precision 73"):
        form.rewrite([io.BytesIO(path.read_bytes())], io.BytesIO())
    path.write_bytes(made(money()))
    assert read(path) == [Row(a=Decimal("1.50")), Row(a=None)]


def lists(depth: int) -> list[bytes]:
    return [ROOT, *(kind(LIST, [n + 2]) for n in range(depth)), kind(INT)]


def test_types_are_nested_in_a_hundred_levels_at_most() -> None:
    assert taken(with_types(*lists(99))).schema.names == ["a"]
    for depth in (100, 20_000):
        refused(with_types(*lists(depth)), "nested in more than 100 levels")


def test_types_are_a_tree() -> None:
    shared = [kind(STRUCT, [n + 1, n + 2], 2) for n in range(60)]
    refused(with_types(*shared, kind(INT), kind(INT)), "type 2 cannot be a part of type 1")
    for child in (0, 1):
        refused(with_types(ROOT, kind(LIST, [child])), f"type {child} cannot be a part of type 1")
    for child in (2, 7, 2**31, 2**32 + 1):
        refused(with_types(kind(STRUCT, [child], 1), kind(INT)), f"type {child} .*is not there")
    one_by_one = num(1, STRUCT) + num(2, 2) + num(2, 2)
    refused(with_types(one_by_one, kind(INT), kind(INT)), "type 2 cannot be a part of type 0")


def test_limits_of_texts_and_of_unions() -> None:
    for text in (CHAR, VARCHAR):
        assert taken(with_types(ROOT, kind(text, length=2**31 - 1))).schema.names == ["a"]
        refused(with_types(ROOT, kind(text, length=2**31)), "has a limit of 2147483648")
    for count in (128, 129):
        file = with_types(ROOT, kind(UNION, range(2, 2 + count)), *[kind(INT)] * count)
        if count == 128:
            assert taken(file).schema.field("a").type.num_fields == count
        else:
            refused(file, "a union has 129 types, at most 128")


@pytest.mark.parametrize(
    "types",
    [[], [kind(INT)], [ROOT, kind(LIST)], [ROOT, kind(MAP, [2]), kind(INT)], [kind(STRUCT, [1])]],
)
def test_other_types_that_cannot_be_raise_in_arrow(types: list[bytes]) -> None:
    with pytest.raises((OSError, pa.ArrowException)):
        _ = taken(with_types(*types, *[kind(INT)] * (len(types) == 1))).schema


# ---- footers that could be read in two ways ----------------------------------------------------


@pytest.mark.parametrize(
    ("more", "match"),
    [
        (num(1, 99), "field 1 is there twice"),
        (num(5, 73), "field 5 is there twice"),
        (data(6, b"x"), "field 6 is there twice, or is no number"),
        (num(4, 2**32), "more than 32 bits"),
        (varint(40 << 3 | 3) + varint(40 << 3 | 4), "field 40 in its footer is of form 3"),
        (data(40, b"xyz")[:-1], "a field in its footer breaks off"),
        (varint(40 << 3 | 1) + b"1234567", "a field in its footer breaks off"),
        (varint(40 << 3), "a number in its footer breaks off"),
        (varint(40 << 3) + b"\x80" * 10 + b"\1", "a number in its footer breaks off"),
    ],
)
def test_types_that_could_be_read_in_two_ways_are_refused(more: bytes, match: str) -> None:
    refused(with_types(ROOT, kind(DECIMAL, precision=9, scale=2) + more), match)


def test_fields_that_are_not_known_are_passed_over() -> None:
    more = varint(40 << 3 | 1) + b"12345678" + varint(41 << 3 | 5) + b"1234" + num(42, 2**63)
    file = with_types(ROOT, kind(DECIMAL, precision=9, scale=2) + more + data(43, b"x"))
    assert taken(file).schema.field("a").type == pa.decimal128(9, 2)


def test_damaged_tails_are_refused() -> None:
    good = made(money())
    before, footer, postscript = parts(good)
    rest = without(postscript, 1)
    for tail, match in (
        (num(1, 10**6) + rest, "said to have 1000000 bytes"),
        (num(1, 1) + postscript, "field 1 is there twice"),
        (num(1, len(footer)) + without(rest, 2), "names no compression"),
    ):
        refused(before + footer + tail + bytes([len(tail)]), match)
    refused(b"ORC" + bytes([200]), "its postscript breaks off")
    refused(assembled(before, num(4, 1), postscript), "field 4 is a number")


def test_damaged_blocks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    good = made(money())
    footer = parts(good)[1]
    refused(packed(good, 1, block(b"x" * 9)[:-1]), "its footer breaks off")
    refused(packed(good, 1, block(b"\xff" * 9)), "cannot be unpacked")
    refused(packed(good, 1, block(deflated(footer)[:-2])), "a block of its footer breaks off")
    refused(packed(good, 4, block(b"\xff\xff")), "a block of its footer breaks off")
    for compression, packer in PACKERS.items():
        much = block(packer(bytes(1 << 20)))
        refused(packed(good, compression, much), "a block of its footer has more than 65536 bytes")
        with pytest.raises((pa.ArrowInvalid, OSError)):
            check_types(io.BytesIO(packed(good, compression, block(packer(footer)[:-3]))))
    monkeypatch.setattr(orc_footer, "_FOOTER_MAX", 100)
    refused(packed(good, 1, bytes(101)), "its footer is said to have 101 bytes")
    refused(packed(good, 1, block(deflated(bytes(90))) * 2), "its footer has more than 100 bytes")
    refused(packed(good, 1, block(deflated(bytes(101)))), "has more than 100 bytes")


def test_numbers_of_types_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orc_footer, "_TYPES_MAX", 5)
    wide = [kind(STRUCT, range(1, 5), 4), *[kind(BOOLEAN)] * 4]
    check_types(io.BytesIO(with_types(*wide)))
    refused(with_types(*wide, kind(BOOLEAN)), "it has more than 5 types")
    refused(with_types(kind(STRUCT, range(1, 8), 7)), "a type has more than 5 parts")
