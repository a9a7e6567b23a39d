"""Many messages at once as Arrow columns, where that gives what reading one by one would give.

Every function here either returns exactly the rows that the schema makes of each message, or None:
then the caller reads them one by one, which also finds out which of them is bad. So whatever Arrow
would read otherwise than Flink's format does is left to that: types with texts of their own,
numbers that are not plain, messages of several lines.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from weir.codec.arrow import arrow_schema_for
from weir.common.typeinfo import RowTypeInfo

_FLAT = frozenset({"BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "STRING", "BOOLEAN"})
_BLOCK_MIN = 1 << 20


def is_flat(type_info: Any) -> bool:
    """Tell whether all fields of a row type are numbers, texts and truth values."""
    if not isinstance(type_info, RowTypeInfo):
        return False
    types = type_info.get_field_types()
    return bool(types) and all(t.kind in _FLAT for t in types)


def has_integers(type_info: RowTypeInfo) -> bool:
    """Tell whether a field is a whole number."""
    return any(t.kind in ("BYTE", "SHORT", "INT", "LONG") for t in type_info.get_field_types())


def text_column(values: pa.Array) -> pa.Array | None:
    """Return bytes as text; None if one of them is none in UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _joined(texts: pa.Array) -> pa.Buffer:
    """Return texts, each with a line feed behind it, as they lie one behind the other in memory."""
    lines = pc.binary_join_element_wise(texts, "", "\n")
    _, offsets, data = lines.buffers()
    ends = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, offsets], offset=lines.offset)
    start, end = ends[0].as_py(), ends[len(lines)].as_py()
    return data.slice(start, end - start)


def _all(mask: Any) -> bool:
    return bool(pc.all(mask).as_py())


def _any(mask: Any) -> bool:
    return bool(pc.any(mask).as_py())


def json_columns(
    values: pa.Array, type_info: RowTypeInfo, *, nulls_allowed: bool
) -> pa.RecordBatch | None:
    """Return the rows of JSON objects, one message each; None where they are not that plain."""
    if not is_flat(type_info) or not len(values):
        return None
    texts = text_column(values)
    if texts is None or _any(pc.match_substring(texts, "\n")):
        return None
    # A message that begins and ends like this is at least one object. If there are as many rows as
    # messages in the end, then each is exactly one.
    if not _all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))):
        return None
    schema = arrow_schema_for(type_info)
    whole = _joined(texts)
    try:
        table = pa_json.read_json(
            pa.BufferReader(whole),
            pa_json.ReadOptions(use_threads=False, block_size=max(whole.size + 1, _BLOCK_MIN)),
            pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return _batch(table, schema, len(values), nulls_allowed=nulls_allowed)


def csv_columns(
    values: pa.Array,
    type_info: RowTypeInfo,
    parse: pa_csv.ParseOptions,
    null_literal: str | None,
) -> pa.RecordBatch | None:
    """Return the rows of CSV lines, one message each; None where they are not that plain."""
    if not is_flat(type_info) or not len(values):
        return None
    texts = text_column(values)
    if texts is None:
        return None
    lines = pc.replace_substring_regex(texts, r"\r?\n$", "")
    if _any(pc.match_substring_regex(lines, r"[\r\n]")):
        return None
    if not _quotes_close(lines, parse):
        return None
    # Arrow reads hexadecimal digits, which Java does not.
    if has_integers(type_info) and _any(pc.match_substring(lines, "0x", ignore_case=True)):
        return None
    schema = arrow_schema_for(type_info)
    whole = _joined(lines)
    read = pa_csv.ReadOptions(
        column_names=schema.names, use_threads=False, block_size=max(whole.size + 1, _BLOCK_MIN)
    )
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(whole), read, parse, csv_conversion(schema, null_literal)
        )
    except pa.ArrowInvalid:
        return None
    return _batch(table, schema, len(values), nulls_allowed=True)


def _quotes_close(lines: pa.Array, parse: pa_csv.ParseOptions) -> bool:
    """Tell whether every line closes the quotes that it opens: else Arrow reads on behind it."""
    if parse.quote_char is False:
        return True
    if parse.escape_char is not False and _any(pc.match_substring(lines, parse.escape_char)):
        return False
    odd = pc.bit_wise_and(pc.count_substring(lines, parse.quote_char), 1)
    return not _any(pc.equal(odd, 1))


def csv_conversion(schema: pa.Schema, null_literal: str | None) -> pa_csv.ConvertOptions:
    """Return how fields are read: as Flink's format does, or not at all."""
    nulls = [] if null_literal is None else [null_literal]
    return pa_csv.ConvertOptions(
        column_types=schema,
        null_values=nulls,
        strings_can_be_null=bool(nulls),
        quoted_strings_can_be_null=True,
        true_values=["true", "True", "TRUE"],
        false_values=["false", "False", "FALSE"],
    )


def _batch(
    table: pa.Table, schema: pa.Schema, rows: int, *, nulls_allowed: bool
) -> pa.RecordBatch | None:
    if table.num_rows != rows:
        return None
    whole = table.select(schema.names).combine_chunks().to_batches()[0]
    if not nulls_allowed and any(column.null_count for column in whole.columns):
        return None
    if not is_finite(whole):
        return None
    return pa.RecordBatch.from_arrays(whole.columns, schema=schema)


def is_finite(batch: pa.RecordBatch) -> bool:
    """Tell whether all numbers are finite: the texts of others are not the same in Java."""
    real = [column for column in batch.columns if pa.types.is_floating(column.type)]
    return all(_all(pc.fill_null(pc.is_finite(column), True)) for column in real)
