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
_AT = "is in weir.datastream.formats.{}, where newer versions of PyFlink have it: import it there"
MOVED = {
    "JsonRowDeserializationSchema JsonRowSerializationSchema": _AT.format("json"),
    "CsvRowDeserializationSchema CsvRowSerializationSchema": _AT.format("csv"),
    "AvroRowDeserializationSchema AvroRowSerializationSchema": _AT.format("avro"),
}
FORMATS = {
    "BulkWriterFactory RowDataBulkWriterFactory": "is made by the formats: use ParquetBulkWriters, "
    "CsvBulkWriters and their like of weir.datastream.formats",
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
