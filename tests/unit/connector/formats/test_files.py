"""Files of CSV, Parquet, ORC and Avro: what is written is read, and what is not theirs is named."""

from __future__ import annotations

import io
import pickle
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from weir.codec.arrow import batch_to_rows
from weir.common import Row, Types
from weir.common.configuration import Configuration
from weir.common.time import Instant
from weir.connector.decoder import Columns, Records, Undecoded
from weir.connector.file_reader import ReaderFormat, WholeFiles, local_path
from weir.connector.undecoded import DEAD_LETTERS, OnError
from weir.datastream.connectors.file_system import FileSource
from weir.datastream.formats.avro import AvroBulkWriters, AvroInputFormat, AvroSchema
from weir.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from weir.datastream.formats.orc import OrcBulkWriters, OrcColumnarRowInputFormat
from weir.datastream.formats.parquet import (
    AvroParquetReaders,
    AvroParquetWriters,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)
from weir.errors import StorageError, UsageError
from weir.table import DataTypes


def pieces(form: Any, *paths: Path, on_error: OnError = OnError.FAIL) -> list[Any]:
    decoder = pickle.loads(pickle.dumps(WholeFiles(form, on_error)))
    names = pa.record_batch({"path": pa.array([f"file:{path}" for path in paths])})
    return list(decoder.decode(names))


def rows(found: list[Any]) -> list[Any]:
    made: list[Any] = []
    for piece in found:
        if isinstance(piece, Columns):
            made += batch_to_rows(piece.batch, piece.type_info)
        elif isinstance(piece, Records):
            made += piece.values
    return made


def written(path: Path, form: Any, values: list[Any], type_info: Any = None) -> Path:
    part = pickle.loads(pickle.dumps(form)).bind(type_info)
    with path.open("wb") as stream:
        writer = part(stream)
        try:
            writer.write(values[:1])
            writer.write(values[1:])
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        assert not stream.closed
    return path


# ---- CSV ---------------------------------------------------------------------------------------


def primitive() -> CsvSchema:
    builder = CsvSchema.builder().add_number_column("tiny", DataTypes.TINYINT())
    builder.add_number_column("small", DataTypes.SMALLINT()).add_number_column("big")
    builder.add_number_column("real", DataTypes.DOUBLE())
    return builder.add_boolean_column("yes").add_string_column("text").build()


def read_csv(tmp_path: Path, schema: CsvSchema, text: str | bytes, **how: Any) -> list[Any]:
    path = tmp_path / "in.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return pieces(CsvReaderFormat.for_schema(schema), path, **how)


def test_plain_csv_is_read_as_columns(tmp_path: Path) -> None:
    found = read_csv(tmp_path, primitive(), '127,-32767,1,3e38,true,a\n1,2,3,4,false,"b, c"\n\n')
    assert [type(piece) for piece in found] == [Columns]
    assert rows(found) == [
        Row(tiny=127, small=-32767, big=1, real=3e38, yes=True, text="a"),
        Row(tiny=1, small=2, big=3, real=4.0, yes=False, text="b, c"),
    ]


def test_csv_that_arrow_reads_otherwise_is_read_line_by_line(tmp_path: Path) -> None:
    found = read_csv(tmp_path, primitive(), "1,2,3,4,yes,a\n 1 ,2,3,NaN,TRUE,b\n")
    assert [type(piece) for piece in found] == [Records]
    assert [row.yes for row in rows(found)] == [False, True]
    with pytest.raises(UsageError, match=r"line 1 of .*in.csv' is no row .*'0x1' is no BYTE"):
        read_csv(tmp_path, primitive(), "0x1,2,3,4,true,a\n")


@pytest.mark.slow
def test_what_columns_gave_does_not_come_again(tmp_path: Path) -> None:
    line = "1,2,{},4,true,a\n"
    text = "".join(line.format(i) for i in range(150_000))
    found = read_csv(tmp_path, primitive(), text + "\n" + line.format("+7"))
    assert {type(piece) for piece in found} == {Columns, Records}
    assert [row.big for row in rows(found)] == [*range(150_000), 7]


def test_lists_decimals_and_separators(tmp_path: Path) -> None:
    builder = CsvSchema.builder().add_array_column("n", ";", DataTypes.INT())
    builder.add_array_column("b", ":", DataTypes.BOOLEAN()).add_array_column("s", ",")
    builder.add_number_column("d", DataTypes.DECIMAL(2, 0))
    schema = builder.set_column_separator("|").disable_quote_char().build()
    assert len(schema) == schema.size() == len(builder) == builder.size() == 4
    [row] = rows(read_csv(tmp_path, schema, "1;2;3|true:false|a,b|1.5\n"))
    assert row == Row(n=[1, 2, 3], b=[True, False], s=["a", "b"], d=Decimal(2))
    assert schema.get_type_info().check(row) == row
    form = CsvBulkWriters.for_schema(schema)
    assert written(tmp_path / "out", form, [row]).read_text() == "1;2;3|true:false|a,b|2\n"


def test_decimals_of_every_length_are_read_and_no_others(tmp_path: Path) -> None:
    """Python's own context has 28 digits."""
    schema = CsvSchema.builder().add_number_column("d", DataTypes.DECIMAL(38, 18)).build()
    longest = "12345678901234567890.123456789012345678"
    assert rows(read_csv(tmp_path, schema, f"{longest}\n-{longest}5\n")) == [
        Row(d=Decimal(longest)),
        Row(d=Decimal("-12345678901234567890.123456789012345679")),
    ]
    with pytest.raises(UsageError, match=r"line 1 of .* no decimal with 18 digits behind the"):
        read_csv(tmp_path, schema, "1E+400\n")


def test_comments_headers_and_copies_of_columns(tmp_path: Path) -> None:
    plain = CsvSchema.builder().add_string_column("s").add_number_column("n").build()
    builder = CsvSchema.builder().add_columns_from(plain)
    assert rows(read_csv(tmp_path, builder.set_allow_comments().build(), "a,1\n# x\nb,2\n")) == [
        Row(s="a", n=1),
        Row(s="b", n=2),
    ]
    header = CsvSchema.builder().add_columns_from(plain).set_use_header()
    assert rows(read_csv(tmp_path, header.build(), "h1,h2\na,1\n")) == [Row(s="a", n=1)]
    strict = header.set_strict_headers().build()
    assert rows(read_csv(tmp_path, strict, "\ufeffs,n\na,1\n")) == [Row(s="a", n=1)]
    with pytest.raises(UsageError, match=r"its header names \['h1', 'h2'\]"):
        read_csv(tmp_path, strict, "h1,h2\na,1\n")
    skipping = header.set_strict_headers(False).set_skip_first_data_row().build()
    assert rows(read_csv(tmp_path, skipping, "s,n\na,1\nb,2\n")) == [Row(s="b", n=2)]
    form = CsvBulkWriters.for_schema(strict)
    assert written(tmp_path / "out", form, [("a", 1)]).read_text() == "s,n\na,1\n"
    assert not form.can_be_concatenated


def test_quotes_escapes_and_null(tmp_path: Path) -> None:
    two = CsvSchema.builder().add_string_column("a").add_string_column("b")
    escaped = two.set_escape_char("\\").set_null_value("-").build()
    [row, none] = rows(read_csv(tmp_path, escaped, 'x\\,,"\\"y\\""\n-,z\n'))
    assert (row, none) == (Row(a="x,", b='"y"'), Row(a=None, b="z"))
    form = CsvBulkWriters.for_schema(escaped)
    text = written(tmp_path / "out", form, [row, none]).read_text()
    assert text == '"x,","""y"""\n-,z\n'
    ticks = CsvSchema.builder().add_columns_from(escaped).set_quote_char("`")
    assert rows(read_csv(tmp_path, ticks.build(), "`x,`,`y\nz`\n")) == [Row(a="x,", b="y\nz")]


def test_bad_lines_fail_are_left_out_or_become_letters(tmp_path: Path) -> None:
    schema = (
        CsvSchema.builder().add_number_column("n", DataTypes.INT()).add_string_column("s").build()
    )
    text = b'1,a\nx,b\n2,"c\nd"\n3\n4,\xff\n5,e\n'
    with pytest.raises(UsageError, match=r"line 2 of .*'x' is no INT; it begins with b'x,b"):
        read_csv(tmp_path, schema, text)
    good = [Row(n=1, s="a"), Row(n=2, s="c\nd"), Row(n=5, s="e")]
    skipped = read_csv(tmp_path, schema, text, on_error=OnError.SKIP)
    assert rows(skipped) == good
    assert skipped[-1] == Undecoded(3, [])
    found = read_csv(tmp_path, schema, text, on_error=OnError.DEAD_LETTER)
    assert rows(found) == good
    letters = found[-1].letters
    assert [(letter.offset, letter.value) for letter in letters] == [
        (2, b"x,b"),
        (5, b"3"),
        (6, b"4,\xff"),
    ]
    assert all(letter.topic == str(tmp_path / "in.csv") for letter in letters)
    assert [letter.reason.split(":")[0] for letter in letters][:1] == ["ValueError"]
    for letter in letters:
        DEAD_LETTERS.type_info.check(letter)


def test_csv_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="needs columns"):
        CsvSchema.builder().add_string_column("a").clear_columns().build()
    with pytest.raises(UsageError, match="different names"):
        CsvSchema.builder().add_string_column("a").add_string_column("a").build()
    with pytest.raises(ValueError, match="single character"):
        CsvSchema.builder().set_column_separator("||")
    with pytest.raises(UsageError, match="declared columns only"):
        CsvSchema.builder().set_any_property_name("rest")
    with pytest.raises(UsageError, match="expected a CsvSchema"):
        CsvReaderFormat.for_schema(None)  # type: ignore[arg-type]


# ---- Parquet and ORC ---------------------------------------------------------------------------

TYPES: dict[str, tuple[Any, Any]] = {
    "char": (DataTypes.CHAR(10), "char"),
    "bytes": (DataTypes.VARBINARY(10), b"ab"),
    "yes": (DataTypes.BOOLEAN(), True),
    "decimal": (DataTypes.DECIMAL(5, 2), Decimal("1.50")),
    "tiny": (DataTypes.TINYINT(), 1),
    "small": (DataTypes.SMALLINT(), 2),
    "int": (DataTypes.INT(), 3),
    "big": (DataTypes.BIGINT(), 2**40),
    "float": (DataTypes.FLOAT(), 0.5),
    "double": (DataTypes.DOUBLE(), 1.5),
    "date": (DataTypes.DATE().bridged_to("java.sql.Date"), date(2024, 1, 31)),
    "timestamp": (DataTypes.TIMESTAMP(3), datetime(2024, 1, 31, 1, 2, 3, 4000)),
    "moment": (DataTypes.TIMESTAMP_LTZ(3), Instant(1, 5_000_000)),
    "list": (DataTypes.ARRAY(DataTypes.INT()), [1, None]),
    "map": (DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()), {"a": 1}),
    "row": (DataTypes.ROW([DataTypes.FIELD("x", DataTypes.INT())]), Row(x=1)),
}
ALL = DataTypes.ROW([DataTypes.FIELD(name, t) for name, (t, _) in TYPES.items()])
FULL = Row(**{name: value for name, (_, value) in TYPES.items()})
NONE = Row(**dict.fromkeys(TYPES))
FLAT = DataTypes.ROW(
    [DataTypes.FIELD("id", DataTypes.BIGINT()), DataTypes.FIELD("name", DataTypes.STRING())]
)


def test_all_types_of_parquet_are_read_as_they_were_written(tmp_path: Path) -> None:
    with_time = DataTypes.ROW([*ALL.fields, DataTypes.FIELD("time", DataTypes.TIME(3))])
    full, none = Row(**FULL.as_dict(), time=time(1, 2, 3)), Row(**NONE.as_dict(), time=None)
    form = ParquetBulkWriters.for_row_type(with_time, Configuration(), utc_timestamp=True)
    path = written(tmp_path / "p", form, [full, none], with_time.type_info())
    reader = ParquetColumnarRowInputFormat(with_time, Configuration(), 10, True, False)
    assert rows(pieces(reader, path)) == [full, none]
    assert reader.get_produced_type().check(full) == full


def test_flat_parquet_stays_columns_both_ways(tmp_path: Path) -> None:
    form = ParquetBulkWriters.for_row_type(FLAT)
    path = written(tmp_path / "p", form, [(1, "a"), {"id": 2, "name": None}])
    [piece] = pieces(ParquetColumnarRowInputFormat(FLAT), path)
    assert isinstance(piece, Columns)
    assert rows([piece]) == [Row(id=1, name="a"), Row(id=2, name=None)]
    assert form.column_schema(None) == piece.batch.schema
    with (tmp_path / "q").open("wb") as stream:
        part = form.bind(None)(stream)
        part.write([(0, "z")])
        part.write_columns(piece.batch)
        part.write([(3, "c")])
        part.finish()
    table = pq.read_table(tmp_path / "q")
    assert table.column("id").to_pylist() == [0, 1, 2, 3]


def test_decimals_are_rounded_half_up_and_others_refused(tmp_path: Path) -> None:
    money = DataTypes.ROW([DataTypes.FIELD("d", DataTypes.DECIMAL(2, 0))])
    form = ParquetBulkWriters.for_row_type(money)
    path = written(tmp_path / "p", form, [(Decimal("1.5"),), (Decimal("-1.5"),)])
    assert pq.read_table(path).column("d").to_pylist() == [Decimal(2), Decimal(-2)]
    with pytest.raises(UsageError, match=r"field 'd' .*cannot hold"):
        written(tmp_path / "q", form, [(Decimal(100),)])
    with pytest.raises(UsageError, match="cannot hold"):
        written(tmp_path / "q", form, [("x",)])


READERS: list[Any] = [
    (ParquetColumnarRowInputFormat, pq.write_table, "Parquet"),
    (OrcColumnarRowInputFormat, orc.write_table, "ORC"),
]


@pytest.mark.parametrize(("reader", "write", "_name"), READERS)
def test_columns_are_found_by_name_and_missing_ones_are_none(
    tmp_path: Path, reader: Any, write: Any, _name: str
) -> None:
    path = tmp_path / "p"
    write(pa.table({"NAME": ["a"], "more": [1], "id": pa.array([1], pa.int32())}), path)
    exact = reader(FLAT)
    assert rows(pieces(exact, path)) == [Row(id=1, name=None)]
    folded = reader(FLAT, is_case_sensitive=False)
    assert rows(pieces(folded, path)) == [Row(id=1, name="a")]
    write(pa.table({"id": ["x"]}), path)
    with pytest.raises(UsageError, match="column 'id' is of type string and does not fit"):
        pieces(exact, path)
    write(pa.table({"other": [1, 2]}), path)
    assert rows(pieces(exact, path)) == [Row(id=None, name=None)] * 2
    write(pa.table({"ID": [1], "Id": [2]}), path)
    with pytest.raises(UsageError, match="differ in case alone"):
        pieces(folded, path)


@pytest.mark.parametrize("contents", [b"", b"PAR1", b"ORC", b"nonsense" * 10])
@pytest.mark.parametrize(("reader", "_write", "name"), READERS)
def test_a_file_of_another_format_is_named(
    tmp_path: Path, contents: bytes, reader: Any, _write: Any, name: str
) -> None:
    path = tmp_path / "bad.file"
    path.write_bytes(contents)
    with pytest.raises(UsageError, match=rf"bad\.file' cannot be read as {name}"):
        pieces(reader(FLAT), path)
    with pytest.raises(StorageError, match="not there any more"):
        pieces(reader(FLAT), tmp_path / "none")


def test_all_types_of_orc_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = written(tmp_path / "o", OrcBulkWriters.for_row_type(ALL), [FULL, NONE], ALL.type_info())
    reader = OrcColumnarRowInputFormat(ALL)
    assert rows(pieces(reader, path)) == [FULL, NONE]
    assert reader.get_produced_type().check(FULL) == FULL


def test_orc_stays_columns_stripe_by_stripe(tmp_path: Path) -> None:
    path, count = tmp_path / "o", 200_000
    table = pa.table({"id": pa.array(range(count), pa.int64()), "name": ["x" * 20] * count})
    orc.write_table(table, path, stripe_size=1 << 20, compression="uncompressed")
    assert orc.ORCFile(path).nstripes > 1
    found = pieces(OrcColumnarRowInputFormat(FLAT), path)
    assert all(isinstance(piece, Columns) for piece in found)
    assert pa.Table.from_batches([piece.batch for piece in found]).equals(table)
    orc.write_table(table.slice(0, 0), path)
    assert rows(pieces(OrcColumnarRowInputFormat(FLAT), path)) == []


def test_orc_holds_what_was_written(tmp_path: Path) -> None:
    properties = Configuration().set_string("orc.compress", "LZ4")
    form = OrcBulkWriters.for_row_type(ALL, properties)
    path = written(tmp_path / "o", form, [FULL, NONE], ALL.type_info())
    file = orc.ORCFile(path)
    assert file.compression == "LZ4"
    found = file.read().to_pylist()
    assert found[0]["decimal"] == Decimal("1.50")
    assert found[0]["list"] == [1, None]
    assert found[0]["date"] == date(2024, 1, 31)
    assert found[1] == dict.fromkeys(TYPES)
    with pytest.raises(UsageError, match=r"orc\.compress is 'RAR'"):
        OrcBulkWriters.for_row_type(ALL, {"orc.compress": "rar"})


@pytest.mark.parametrize("maker", [ParquetBulkWriters, OrcBulkWriters])
def test_columns_need_a_row_type(maker: Any) -> None:
    with pytest.raises(UsageError, match="needs columns"):
        maker.for_row_type(None).bind(Types.PICKLED_BYTE_ARRAY())
    for reader in (ParquetColumnarRowInputFormat, OrcColumnarRowInputFormat):
        with pytest.raises(UsageError, match=f"{reader.__name__} needs a row type"):
            reader(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "read"),
    [
        (ParquetBulkWriters.for_row_type(FLAT), lambda p: pq.read_table(p).to_pylist()),
        (OrcBulkWriters.for_row_type(FLAT), lambda p: orc.read_table(p).to_pylist()),
    ],
)
def test_files_of_columns_are_rewritten_into_one(tmp_path: Path, form: Any, read: Any) -> None:
    paths = [written(tmp_path / str(n), form, [(n, "a"), (n + 10, "b")]) for n in range(3)]
    with (tmp_path / "one").open("wb") as stream:
        form.rewrite([io.BytesIO(path.read_bytes()) for path in paths], stream)
    assert [row["id"] for row in read(tmp_path / "one")] == [0, 10, 1, 11, 2, 12]


# ---- Avro --------------------------------------------------------------------------------------

AVRO = AvroSchema.parse_string(
    '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, '
    '{"name": "tags", "type": {"type": "array", "items": "string"}}, '
    '{"name": "sums", "type": {"type": "map", "values": "long"}}, '
    '{"name": "at", "type": ["null", "double"]}]}'
)
DICTS = [
    {"id": 1, "tags": ["a", "b"], "sums": {"x": 1}, "at": 0.5},
    {"id": 2, "tags": [], "sums": {}, "at": None},
]


def test_avro_files_hold_dicts(tmp_path: Path) -> None:
    form = AvroBulkWriters.for_generic_record(AVRO)
    path = written(tmp_path / "a.avro", form, DICTS)
    with path.open("rb") as stream:
        assert list(fastavro.reader(stream)) == DICTS
    source = AvroInputFormat(str(path), AVRO).source()
    assert rows(pieces(source.form, path)) == DICTS  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="does not fit the Avro schema"):
        written(tmp_path / "b", form, [{"id": "x"}])
    path.write_bytes(b"Obj\x01 nonsense")
    with pytest.raises(UsageError, match=r"a\.avro' cannot be read as Avro"):
        pieces(source.form, path)  # type: ignore[attr-defined]
    copies = [written(tmp_path / str(n), form, DICTS) for n in range(2)]
    with (tmp_path / "one").open("wb") as stream:
        form.rewrite([io.BytesIO(copy.read_bytes()) for copy in copies], stream)
    with (tmp_path / "one").open("rb") as stream:
        assert list(fastavro.reader(stream)) == [*DICTS, *DICTS]


def test_parquet_files_hold_dicts(tmp_path: Path) -> None:
    path = written(tmp_path / "p", AvroParquetWriters.for_generic_record(AVRO), DICTS)
    reader = AvroParquetReaders.for_generic_record(AVRO)
    assert isinstance(reader, ReaderFormat)
    assert rows(pieces(reader, path)) == DICTS


# ---- the source --------------------------------------------------------------------------------


def test_names_of_the_engine_are_paths() -> None:
    assert local_path("file:/a b/c") == local_path("file:///a b/c") == "/a b/c"
    assert local_path("rel/x") == "rel/x"


def test_a_source_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="for_bulk_file_format"):
        FileSource.for_bulk_file_format("parquet", "/in")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="for_record_stream_format"):
        FileSource.for_record_stream_format("csv", "/in")  # type: ignore[arg-type]
    builder = FileSource.for_bulk_file_format(
        ParquetColumnarRowInputFormat(FLAT), str(tmp_path / "none")
    )
    with pytest.raises(UsageError, match="expected one of 'fail', 'skip', 'dead-letter'"):
        builder.set_on_deserialization_error("ignore")
    [part] = builder.build().parts()
    with pytest.raises(UsageError, match="does not exist"):
        part.check()
