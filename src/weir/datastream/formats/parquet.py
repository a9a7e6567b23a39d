"""Parquet files, at PyFlink's path."""

from weir.connector.formats.avro import AvroParquetReaders, AvroParquetWriters
from weir.connector.formats.column_files import ParquetBulkWriters, ParquetColumnarRowInputFormat

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]
