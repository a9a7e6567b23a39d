"""CSV files: what is written here, and what to use instead of PyFlink's other names."""

from weir.common._absent import FORMATS, absent
from weir.connector.file_sink import CsvBulkWriters

__all__ = ["CsvBulkWriters"]

__getattr__ = absent(
    __name__,
    {
        **FORMATS,
        "CsvSchema CsvSchemaBuilder": "is a schema of Flink's own: give CsvBulkWriters.for_schema()"
        " a Types.ROW_NAMED(…)",
        "CsvReaderFormat": "reads in Java: use env.from_dataframe(spark.read.csv(…))",
    },
)
