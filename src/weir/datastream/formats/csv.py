"""CSV rows and files, at PyFlink's path."""

from weir.common._absent import FORMATS, absent
from weir.connector.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from weir.connector.formats.csv_files import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvSchema,
    CsvSchemaBuilder,
)

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]

__getattr__ = absent(__name__, FORMATS)
