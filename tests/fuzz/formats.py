"""Targets for records from outside: messages of Kafka in every format, and files that workers read.

A message that cannot be decoded is a dead letter, or the `UsageError` that names it: nothing else
may come out of a decoder. Decoding as columns gives what reading one by one gives, and every record
fits the type that its schema declares. ORC is written and not read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.fuzz.target import Target, require
from tests.fuzz.texts import scratch

from weir.codec.arrow import batch_to_rows
from weir.common import Row, Types
from weir.common.serialization import ByteArraySchema, SimpleStringSchema
from weir.connector.decoder import Columns, Piece, Records, Undecoded
from weir.connector.file_reader import ReaderFormat
from weir.connector.formats.avro import AvroFormat, AvroInputFormat
from weir.connector.formats.csv_files import CsvSchemaFormat
from weir.connector.kafka.decoder import KafkaRecords
from weir.connector.kafka.reader import PARTITION, SCHEMA, TOPIC
from weir.connector.undecoded import Faults, OnError
from weir.datastream.connectors.kafka import KafkaRecordDeserializationSchema
from weir.datastream.formats.avro import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    AvroSchema,
)
from weir.datastream.formats.csv import (
    CsvReaderFormat,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
)
from weir.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from weir.datastream.formats.orc import OrcBulkWriters, OrcColumnarRowInputFormat
from weir.datastream.formats.parquet import (
    AvroParquetReaders,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)
from weir.errors import StorageError, UsageError
from weir.table import DataTypes

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
# Types of which columns are made, and types that have texts of their own.
FLAT = Types.ROW_NAMED(
    ["id", "name", "ok", "x", "n", "f", "s", "b"],
    [
        Types.LONG(),
        Types.STRING(),
        Types.BOOLEAN(),
        Types.DOUBLE(),
        Types.INT(),
        Types.FLOAT(),
        Types.SHORT(),
        Types.BYTE(),
    ],
)
DEEP = Types.ROW_NAMED(
    ["price", "big", "day", "clock", "at", "data", "tags", "inner"],
    [
        Types.BIG_DEC(),
        Types.BIG_INT(),
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
        _BYTES,
        Types.LIST(Types.LONG()),
        Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.STRING()]),
    ],
)
FLAT_ROW = Row(id=2**40, name='a,"b', ok=True, x=1.5, n=-7, f=0.5, s=3, b=-1)
DEEP_ROW = Row(
    price=Decimal("1.50"),
    big=2**70,
    day=date(2024, 1, 31),
    clock=time(1, 2, 3),
    at=datetime(2024, 1, 31, 1, 2, 3),
    data=b"ab",
    tags=[1, 2],
    inner=Row(x=1, y="z"),
)
ROWS = [(FLAT, FLAT_ROW), (DEEP, DEEP_ROW)]


def kafka_batch(messages: list[bytes | None]) -> pa.RecordBatch:
    """Return messages as the reader of Kafka's records does."""
    count = len(messages)
    columns = [
        pa.array([b"key"] * count, pa.binary()),
        pa.array(messages, pa.binary()),
        pa.array(range(count), pa.int64()),
        pa.array([1000 + n for n in range(count)], pa.int64()),
        pa.array([[{"key": "h", "value": m}] for m in messages], SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(
        columns, schema=SCHEMA.with_metadata({TOPIC: b"t", PARTITION: b"0"})
    )


def records_of(pieces: Iterable[Piece]) -> tuple[list[Any], int, int]:
    """Return the records, how many were left out, and how many of these as letters."""
    rows: list[Any] = []
    left_out = letters = 0
    for piece in pieces:
        if isinstance(piece, Columns):
            rows += batch_to_rows(piece.batch, piece.type_info)
        elif isinstance(piece, Records):
            rows += piece.values
        elif isinstance(piece, Undecoded):
            left_out += piece.count
            letters += len(piece.letters)
    return rows, left_out, letters


def _decode_all(schema: Any, good: bytes, data: bytes) -> None:
    """Decode a message, alone and beside a good one, in every way that a job may choose."""
    type_info = schema.get_produced_type()
    for messages in ([data], [good, data], [data, None, good]):
        batch = kafka_batch(messages)
        ways = [
            records_of(KafkaRecords(schema, OnError.DEAD_LETTER, columnar).decode(batch))
            for columnar in (True, False)
        ]
        require(repr(ways[0]) == repr(ways[1]), f"columns are not the records: {ways}")
        rows, left_out, letters = ways[1]
        ignores = getattr(schema, "ignores_errors", False)
        require(left_out == letters or ignores, "a record was left out without a letter")
        require(len(rows) + left_out <= len(messages), "records came from nowhere")
        for row in rows:
            type_info.check(row)
        skipped = records_of(KafkaRecords(schema, OnError.SKIP, True).decode(batch))
        require(repr(skipped[:2]) == repr(ways[0][:2]), "what is skipped depends on letters")
    failing = KafkaRecords(schema, OnError.FAIL, True)
    if letters:
        try:
            list(failing.decode(batch))
        except UsageError:
            return
        require(False, "a record that cannot be decoded did not fail the job")
    require(repr(records_of(failing.decode(batch))[0]) == repr(rows), "another result")


def _messages(schemas: list[Any], good: Callable[[Any], bytes]) -> Callable[[bytes], None]:
    pairs = [(schema, good(schema)) for schema in schemas]

    def run(data: bytes) -> None:
        for schema, message in pairs:
            _decode_all(schema, message, data)

    return run


def _row_of(schema: Any) -> tuple[Any, Row]:
    return next((t, row) for t, row in ROWS if t == schema.get_produced_type())


# ---- messages ----------------------------------------------------------------------------------


def _json_message(type_info: Any, row: Row) -> bytes:
    return JsonRowSerializationSchema.builder().with_type_info(type_info).build().serialize(row)


def _json_schemas() -> list[Any]:
    def made(type_info: Any, *choices: str) -> Any:
        builder = JsonRowDeserializationSchema.builder().type_info(type_info)
        for choice in choices:
            getattr(builder, choice)()
        return builder.build()

    return [
        made(type_info, *choices)
        for type_info, _ in ROWS
        for choices in ((), ("fail_on_missing_field",), ("ignore_parse_errors",))
    ]


def _csv_message(type_info: Any, row: Row) -> bytes:
    return CsvRowSerializationSchema.Builder(type_info).build().serialize(row)


def _csv_schemas() -> list[Any]:
    found = []
    for type_info, _ in ROWS:
        found.append(CsvRowDeserializationSchema.Builder(type_info).build())
        odd = CsvRowDeserializationSchema.Builder(type_info).set_escape_character("\\")
        found.append(odd.set_null_literal("null").set_allow_comments(True).build())
        lenient = CsvRowDeserializationSchema.Builder(type_info).set_null_literal("")
        found.append(lenient.set_ignore_parse_errors(True).build())
    return found


_AVRO = json.dumps(
    {
        "type": "record",
        "name": "All",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "f", "type": "float"},
            {"name": "ok", "type": "boolean"},
            {"name": "data", "type": "bytes"},
            {"name": "suit", "type": {"type": "enum", "name": "S", "symbols": ["A", "B"]}},
            {"name": "place", "type": {"type": "record", "name": "P", "fields": [
                {"name": "x", "type": "double"}]}},
            {"name": "way", "type": {"type": "array", "items": "P"}},
            {"name": "sums", "type": {"type": "map", "values": "int"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal",
                                       "precision": 9, "scale": 2}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)  # fmt: skip
_AVRO_ROW = (
    *(2**40, "ann", 0.5, True, b"ab", "B", Row(x=1.5), [Row(x=1.0)], {"a": 1}, Decimal("1.50")),
    *(date(2024, 1, 31), time(1, 2, 3), datetime(2024, 1, 31, 1, 2, 3)),
)


def _avro_message(_: Any = None) -> bytes:
    return AvroRowSerializationSchema(avro_schema_string=_AVRO).serialize(_AVRO_ROW)


def _avro_schemas() -> list[Any]:
    return [AvroRowDeserializationSchema(avro_schema_string=_AVRO)]


def _text_schemas() -> list[Any]:
    return [
        SimpleStringSchema(),
        SimpleStringSchema("utf-16"),
        ByteArraySchema(),
        KafkaRecordDeserializationSchema(),
    ]


# ---- files -------------------------------------------------------------------------------------


def _written(form: Any, values: list[Any], type_info: Any) -> bytes:
    path = scratch() / "made"
    with path.open("wb") as stream:
        part = form.bind(type_info)(stream)
        part.write(values)
        part.finish()
    return path.read_bytes()


def _csv_file_schemas() -> list[CsvSchema]:
    plain = CsvSchema.builder().add_number_column("id").add_string_column("name")
    plain = plain.add_boolean_column("ok")
    odd = CsvSchema.builder().add_number_column("id", DataTypes.DECIMAL(9, 2))
    odd = odd.add_array_column("tags", "#", DataTypes.INT()).add_string_column("name")
    odd = odd.set_use_header(True).set_strict_headers(True).set_null_value("null")
    return [plain.build(), odd.set_escape_char("\\").set_allow_comments().build()]


def _csv_files() -> list[bytes]:
    plain, odd = _csv_file_schemas()
    rows = [(1, 'a "b"', True), (2, "c,d", False)]
    found = [_written(CsvSchemaFormat(plain), rows, plain.get_type_info())]
    others = [(Decimal("1.50"), [1, 2], "x"), (None, [], "y\nz")]
    return [*found, _written(CsvSchemaFormat(odd), others, odd.get_type_info()), b'1,"a\nb",true\n']


def _read(form: ReaderFormat, path: Path, on_error: OnError) -> tuple[list[Any], int, int]:
    def pieces() -> Iterator[Piece]:
        faults = Faults(on_error)
        yield from form.read(str(path), faults)
        left_out = faults.take()
        if left_out is not None:
            yield left_out

    return records_of(pieces())


def _prepare_csv_files() -> Callable[[bytes], None]:
    path = scratch() / "file.csv"
    forms = [CsvReaderFormat.for_schema(schema) for schema in _csv_file_schemas()]

    def run(data: bytes) -> None:
        path.write_bytes(data)
        taken = 0
        for form in forms:
            try:
                letters = _read(form, path, OnError.DEAD_LETTER)
            except UsageError:
                continue  # its header is another one
            taken += 1
            skipped = _read(form, path, OnError.SKIP)
            require(repr(letters[:2]) == repr(skipped[:2]), "what is skipped depends on letters")
            require(letters[1] == letters[2], "a line was left out without a letter")
            careful = records_of(form._rows(str(path), 0, Faults(OnError.SKIP)))
            require(repr(careful[0]) == repr(letters[0]), "columns are not the lines")
            for row in letters[0]:
                form.get_produced_type().check(row)
            try:
                strict = _read(form, path, OnError.FAIL)
            except UsageError:
                require(bool(letters[1]), "a file failed, and nothing of it is left out")
            else:
                require(repr(strict[0]) == repr(letters[0]), "another result")
        if not taken:
            msg = "no schema took it"
            raise UsageError(msg)

    return run


_PARQUET = DataTypes.ROW(
    [
        DataTypes.FIELD("id", DataTypes.BIGINT()),
        DataTypes.FIELD("name", DataTypes.STRING()),
        DataTypes.FIELD("price", DataTypes.DECIMAL(9, 2)),
        DataTypes.FIELD("at", DataTypes.TIMESTAMP(3)),
        DataTypes.FIELD("tags", DataTypes.ARRAY(DataTypes.INT())),
    ]
)
_SMALL = json.dumps(
    {
        "type": "record",
        "name": "Small",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
    }
)


_COLUMNS = [
    Row(id=1, name="a", price=Decimal("1.50"), at=datetime(2024, 1, 31), tags=[1, None]),
    Row(id=2, name=None, price=None, at=None, tags=None),
]


def _parquet_files() -> list[bytes]:
    made = []
    for codec in ("snappy", "uncompressed"):
        form = ParquetBulkWriters.for_row_type(_PARQUET, {"parquet.compression": codec}, True)
        made.append(_written(form, _COLUMNS, _PARQUET.type_info()))
    return made


def _orc_files() -> list[bytes]:
    made = []
    for codec in ("SNAPPY", "NONE"):
        form = OrcBulkWriters.for_row_type(_PARQUET, {"orc.compress": codec})
        made.append(_written(form, _COLUMNS, _PARQUET.type_info()))
    return made


def _prepare_files(suffix: str, *forms: ReaderFormat) -> Callable[[bytes], None]:
    path = scratch() / f"file.{suffix}"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        refused: Exception | None = None
        for form in forms:
            try:
                for row in _read(form, path, OnError.FAIL)[0]:
                    form.get_produced_type().check(row)
            except (UsageError, StorageError) as error:  # noqa: PERF203 - each form may refuse
                refused = error
        if refused is not None:
            raise refused

    return run


def _prepare_parquet_files() -> Callable[[bytes], None]:
    rows = ParquetColumnarRowInputFormat(_PARQUET, None, 10, True, False)
    dicts: Any = AvroParquetReaders.for_generic_record(AvroSchema.parse_string(_SMALL))
    return _prepare_files("parquet", rows, dicts)


def _prepare_orc_files() -> Callable[[bytes], None]:
    return _prepare_files("orc", OrcColumnarRowInputFormat(_PARQUET, is_case_sensitive=False))


def _avro_files() -> list[bytes]:
    schema = AvroSchema.parse_string(_SMALL)
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    return [_written(AvroFormat(schema, codec), rows, None) for codec in ("null", "deflate")]


def _prepare_avro_files() -> Callable[[bytes], None]:
    source: Any = AvroInputFormat("unused", AvroSchema.parse_string(_SMALL)).source()
    return _prepare_files("avro", source.form)


TARGETS = [
    Target(
        "json-rows",
        "json",
        lambda: [_json_message(type_info, row) for type_info, row in ROWS],
        lambda: _messages(_json_schemas(), lambda schema: _json_message(*_row_of(schema))),
    ),
    Target(
        "csv-rows",
        "text",
        lambda: [_csv_message(type_info, row) for type_info, row in ROWS],
        lambda: _messages(_csv_schemas(), lambda schema: _csv_message(*_row_of(schema))),
    ),
    Target(
        "avro-rows",
        "bytes",
        lambda: [_avro_message()],
        lambda: _messages(_avro_schemas(), _avro_message),
    ),
    Target(
        "text-rows",
        "bytes",
        lambda: [b"text", "t\u00e9xt".encode("utf-16")],
        lambda: _messages(_text_schemas(), lambda schema: b"good"),
    ),
    Target("csv-files", "text", _csv_files, _prepare_csv_files, (UsageError,)),
    Target("avro-files", "bytes", _avro_files, _prepare_avro_files, (UsageError,)),
    Target(
        "parquet-files", "bytes", _parquet_files, _prepare_parquet_files, (UsageError, StorageError)
    ),
    Target("orc-files", "bytes", _orc_files, _prepare_orc_files, (UsageError, StorageError)),
]
