"""Names of PyFlink that Weir has not: importing one says what to use instead.

An `ImportError` is raised, because Python would replace the text of an `AttributeError` by
"cannot import name". Any other unknown name is an ordinary `AttributeError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

JAVA = "wraps an object of Java, of which there is none here"
INTERNAL = "is part of PyFlink's own machinery and has no counterpart here"
GENERATOR = (
    "wraps an object of Java: use WatermarkStrategy.for_generator() with a WatermarkGenerator"
)
_ROWS = "of Flink's own: use SimpleStringSchema() and {} in a map()"
FORMATS = {
    "JsonRowDeserializationSchema JsonRowSerializationSchema": "is a format "
    + _ROWS.format("json.loads() or json.dumps()"),
    "CsvRowDeserializationSchema CsvRowSerializationSchema": "is a format "
    + _ROWS.format("the csv module"),
    "AvroRowDeserializationSchema AvroRowSerializationSchema": "is a format of Flink's own: use "
    "ByteArraySchema() and fastavro in a map()",
    "BulkWriterFactory RowDataBulkWriterFactory": "is made by the formats: use "
    "ParquetBulkWriters or CsvBulkWriters of weir.datastream.connectors.file_system",
}


def absent(module: str, reasons: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a module; `reasons` say what to use instead of each name.

    Keys are single names, or several of them with spaces between.
    """
    known = {name: reason for names, reason in reasons.items() for name in names.split()}

    def missing(name: str) -> NoReturn:
        if name in known:
            msg = f"{module}.{name} is not in Weir: it {known[name]}"
            raise ImportError(msg, name=module)
        msg = f"module {module!r} has no attribute {name!r}"
        raise AttributeError(msg)

    return missing
