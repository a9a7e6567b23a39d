"""Tables as text or files: a table for people, JSON lines, CSV, Parquet.

Rows are written as they are read. A file appears whole or not at all, and replaces nothing.
"""

from __future__ import annotations

import base64
import csv
import datetime
import io
import json
import math
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from weir.errors import StorageError, UsageError
from weir.ids import unique_suffix
from weir.offline.tables import KEY_GROUP

FORMATS: Final = ("json", "csv", "parquet")


def json_lines(batches: Iterator[Any]) -> Iterator[str]:
    """Yield every row as one line of JSON; bytes are written in base 64.

    Numbers that JSON does not have are the texts "NaN", "Infinity" and "-Infinity".
    """
    for row in rows(batches):
        yield to_json(row)


def to_json(value: Any) -> str:
    """Return a value of a row as JSON; raises TypeError for what has no form there."""
    try:
        return json.dumps(value, default=_as_json, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_as_json, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    """Return a value with texts for the numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return list(map(_finite, value)) if isinstance(value, (list, tuple)) else value


def csv_lines(schema: Any, batches: Iterator[Any]) -> Iterator[str]:
    """Yield a header and every row as a line of CSV; lists, maps and structs as JSON."""
    yield _csv_line(schema.names)
    for row in rows(batches):
        yield _csv_line([_cell(value) for value in row.values()])


def rows(batches: Iterator[Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of batches as dicts."""
    for batch in batches:
        yield from batch.to_pylist()


def table_rows(batches: Iterator[Any], limit: int) -> tuple[list[list[str]], bool]:
    """Return up to `limit` rows as texts for people, and whether there are more."""
    found = list(islice(rows(batches), limit + 1))
    return [[_shown(value) for value in row.values()] for row in found[:limit]], len(found) > limit


def write_file(path: str, form: str, schema: Any, batches: Iterator[Any]) -> int:
    """Write all rows to a new file; returns how many there are.

    Raises:
        UsageError: a file of that name exists.
        StorageError: it cannot be written.
    """
    target = Path(path)
    if target.exists():
        msg = f"{path!r} exists: name a new file, or delete it first"
        raise UsageError(msg)
    hidden = target.with_name(f".{target.name}.{unique_suffix(6)}")
    try:
        count = _write(hidden, form, schema, batches)
        os.link(hidden, target)
    except FileExistsError as error:
        msg = f"{path!r} exists: name a new file, or delete it first"
        raise UsageError(msg) from error
    except OSError as error:
        msg = f"cannot write {path!r}: {error.strerror or error}"
        raise StorageError(msg) from error
    finally:
        hidden.unlink(missing_ok=True)
    return count


def _write(path: Path, form: str, schema: Any, batches: Iterator[Any]) -> int:
    count = 0

    def counted() -> Iterator[Any]:
        nonlocal count
        for batch in batches:
            count += batch.num_rows
            yield batch

    if form == "parquet":
        with pq.ParquetWriter(path, schema) as writer:
            for batch in counted():
                writer.write_batch(batch)
        return count
    lines = json_lines(counted()) if form == "json" else csv_lines(schema, counted())
    with path.open("w", encoding="utf-8", newline="") as out:
        for line in lines:
            out.write(line + "\n")
    return count


def read_file(path: str, form: str, schema: Any) -> Iterator[Any]:
    """Yield the rows of a file that `write_file` made, as batches of a schema.

    A column of key groups may be missing: they follow from the keys.

    Raises:
        UsageError: there is no such file, or its columns are not those of the schema.
    """
    schema = pa.schema([field for field in schema if field.name != KEY_GROUP])
    try:
        if form == "parquet":
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    batch.validate(full=True)  # texts in files of others may be none
                    yield conform(batch, schema)
            return
        with open(path, encoding="utf-8", newline="") as file:
            found = map(json.loads, file) if form == "json" else _csv_rows(file, schema)
            while part := list(islice(found, 1 << 14)):
                yield from_rows(part, schema)
    except FileNotFoundError as error:
        msg = f"there is no file {path!r}"
        raise UsageError(msg) from error
    except (pa.ArrowException, ValueError, OSError, csv.Error, RecursionError) as error:
        msg = f"{path!r} is no {form} file with rows of this state: {error}"
        raise UsageError(msg) from error


def conform(batch: Any, schema: Any) -> Any:
    """Return a batch with exactly the columns of a schema, in its order.

    Raises:
        UsageError: a column is missing, or of a type that does not fit.
    """
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing:
        found = ", ".join(batch.schema.names)
        msg = f"columns {', '.join(map(repr, missing))} are missing: found {found}"
        raise UsageError(msg)
    arrays = []
    for field in schema:
        column = batch.column(batch.schema.get_field_index(field.name))
        if pa.types.is_binary(field.type) and pa.types.is_string(column.type):
            msg = f"column {field.name!r} is text, expected {field.type}: a pickle, as it is read"
            raise UsageError(msg)
        try:
            arrays.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowException, ValueError) as error:
            msg = f"column {field.name!r} is {column.type}, expected {field.type}: {error}"
            raise UsageError(msg) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_rows(found: list[dict[str, Any]], schema: Any) -> Any:
    """Return rows of JSON as a batch; raises as `conform` does."""
    arrays = [_column(found, field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(found: list[dict[str, Any]], field: Any) -> Any:
    try:
        return pa.array([_from_json(row[field.name], field.type) for row in found], field.type)
    except KeyError as error:
        msg = f"column {field.name!r} is missing: found {', '.join(found[0])}"
        raise UsageError(msg) from error
    except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError) as error:
        msg = f"column {field.name!r} expects {field.type}: {error}"
        raise UsageError(msg) from error


def _csv_rows(file: Any, schema: Any) -> Iterator[dict[str, Any]]:
    types = {field.name: field.type for field in schema}
    for row in csv.DictReader(file):
        yield {name: _from_cell(text, types[name]) for name, text in row.items() if name in types}


def _from_cell(text: str, arrow: Any) -> Any:
    """Return what `_cell` wrote; an empty cell is null, an empty text is two quotes."""
    if not text:
        return None
    if pa.types.is_string(arrow):
        return json.loads(text) if text.startswith('"') else text
    if pa.types.is_nested(arrow) or pa.types.is_boolean(arrow):
        return json.loads(text)
    if pa.types.is_integer(arrow):
        return int(text)
    return float(text) if pa.types.is_floating(arrow) else text


def _from_json(value: Any, arrow: Any) -> Any:
    """Return a value that `json_lines` wrote, as Arrow takes it."""
    if value is None:
        return None
    if pa.types.is_binary(arrow):
        return base64.b64decode(value, validate=True)
    if pa.types.is_timestamp(arrow):
        return datetime.datetime.fromisoformat(value)
    if pa.types.is_date(arrow):
        return datetime.date.fromisoformat(value)
    if pa.types.is_floating(arrow):
        return float(value)
    if pa.types.is_map(arrow):
        return [(_from_json(k, arrow.key_type), _from_json(v, arrow.item_type)) for k, v in value]
    if pa.types.is_list(arrow):
        return [_from_json(item, arrow.value_type) for item in value]
    if pa.types.is_struct(arrow):
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        return {f.name: _from_json(value[f.name], f.type) for f in fields}
    return value


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    msg = f"{type(value).__name__} has no form in JSON"
    raise TypeError(msg)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) if not value or value[0] == '"' else value
    if isinstance(value, (bool, list, dict, tuple)):
        return to_json(value)
    return str(_as_json(value)) if isinstance(value, (bytes, datetime.date)) else str(value)


def _csv_line(cells: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue()


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes {value[:16].hex()}" + ("…" if len(value) > 16 else "")
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    text = json.dumps(value, default=_as_json, ensure_ascii=False)
    return text.strip('"') if isinstance(value, datetime.date) else text
