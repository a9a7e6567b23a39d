"""Parquet files: what is written here, and what to use instead of PyFlink's other names."""

from weir.common._absent import absent
from weir.connector.file_sink import ParquetBulkWriters

__all__ = ["ParquetBulkWriters"]

__getattr__ = absent(
    __name__,
    {
        "AvroParquetReaders ParquetColumnarRowInputFormat": "reads in Java: use "
        "env.from_dataframe(spark.read.parquet(…))",
        "AvroParquetWriters": "writes in Java: use ParquetBulkWriters.for_row_type()",
    },
)
