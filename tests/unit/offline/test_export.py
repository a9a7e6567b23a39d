"""Rows as JSON and CSV: what is written is what these formats allow, and is read back."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weir.errors import UsageError
from weir.offline.export import json_lines, read_file, write_file

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.float64()),
        ("many", pa.list_(pa.float64())),
        ("named", pa.struct([("x", pa.float32())])),
        ("by_name", pa.map_(pa.string(), pa.float64())),
    ]
)
NAN, INFINITY = math.nan, math.inf
COLUMNS = [
    ["NaN", "b", "c"],
    [NAN, -INFINITY, 1.5],
    [[NAN, 1.0], [INFINITY], None],
    [{"x": INFINITY}, {"x": NAN}, None],
    [[("a", NAN), ("b", -INFINITY)], [], None],
]


def batch():
    arrays = [pa.array(c, f.type) for c, f in zip(COLUMNS, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def refused(word):
    raise AssertionError(word)


def test_json_has_texts_for_numbers_that_it_does_not_have():
    first, second, third = (
        json.loads(line, parse_constant=refused) for line in json_lines(iter([batch()]))
    )
    assert first == {
        "key": "NaN",
        "value": "NaN",
        "many": ["NaN", 1.0],
        "named": {"x": "Infinity"},
        "by_name": [["a", "NaN"], ["b", "-Infinity"]],
    }
    assert (second["value"], second["many"]) == ("-Infinity", ["Infinity"])
    assert third["value"] == 1.5


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_numbers_that_are_none_are_read_back(tmp_path, form):
    file = str(tmp_path / f"rows.{form}")
    assert write_file(file, form, SCHEMA, iter([batch()])) == 3
    found = pa.Table.from_batches(read_file(file, form, SCHEMA))
    assert repr(found.to_pylist()) == repr(batch().to_pylist())


def test_texts_of_a_parquet_file_that_are_none_are_refused(tmp_path):
    made = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xd0f"))
    schema = pa.schema([pa.field("value", pa.string())])
    path = str(tmp_path / "rows")
    pq.write_table(pa.table([made], schema=schema), path)
    with pytest.raises(UsageError, match=r"no parquet file with rows of this state: .*UTF8"):
        list(read_file(path, "parquet", schema))
