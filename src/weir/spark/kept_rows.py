"""The kept rows of a bounded DataFrame as splits: workers read the files that Spark wrote.

What a worker reads is what Spark would have handed it: the same columns with the same types. Where
that is not certain (odd types, files of an earlier program with other columns, a compression that
Arrow lacks), or files are so large that Spark would share one among several tasks, or there is no
file at all, there are no splits, and Spark reads the rows.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from weir.connector.decoder import Decoder
from weir.connector.source import Splits
from weir.connector.spool import ParquetFiles, split_folder, write_split
from weir.spark.internals import arrow_schema

SPLIT_BYTES_MAX = 128 << 20
_PLAIN = (
    BinaryType,
    BooleanType,
    ByteType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
)
_REBASE = (
    "spark.sql.parquet.datetimeRebaseModeInWrite",
    "spark.sql.parquet.int96RebaseModeInWrite",
)


def kept_splits(
    spark: SparkSession, kept: Path, schema: StructType, decoder: Decoder, files_per_batch: int
) -> Splits | None:
    """Name the files to workers; None when Spark has to read them."""
    files = sorted(kept.glob("*.parquet"))
    legacy = any(str(spark.conf.get(name)).upper() == "LEGACY" for name in _REBASE)
    if not files or not reads_alike(schema, calendar=not legacy):
        return None
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    large = str(spark.conf.get("spark.sql.execution.arrow.useLargeVarTypes")) == "true"
    arrow = arrow_schema(schema, timezone=zone, prefers_large_types=large)
    if not all(path.stat().st_size <= SPLIT_BYTES_MAX and _fits(path, arrow) for path in files):
        return None
    folder = split_folder(kept)
    for number, path in enumerate(files):
        write_split(kept, path.name, number, last=number == len(files) - 1)
    reader = ParquetFiles(str(kept), arrow)
    return Splits(folder, reader, decoder, files_per_batch, partitioned=True)


def _fits(path: Path, schema: pa.Schema) -> bool:
    """Tell, from the footer, whether Arrow can read a file as columns of the schema."""
    try:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            empty = file.schema_arrow.empty_table()
            for field in schema:
                empty.column(field.name).cast(field.type)
            groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
            used = {g.column(n).compression for g in groups for n in range(g.num_columns)}
    except (KeyError, OSError, pa.ArrowException):
        return False
    return all(name == "UNCOMPRESSED" or pa.Codec.is_available(name.lower()) for name in used)


def reads_alike(kind: DataType, *, calendar: bool) -> bool:
    """Tell whether Arrow reads from Parquet what Spark wrote; days only of today's `calendar`."""
    if isinstance(kind, StructType):
        return all(reads_alike(field.dataType, calendar=calendar) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return reads_alike(kind.elementType, calendar=calendar)
    if isinstance(kind, (DateType, TimestampType)):
        return calendar
    return isinstance(kind, _PLAIN)
