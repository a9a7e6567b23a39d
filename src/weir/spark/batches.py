"""How many source rows go into one Arrow batch on their way to Python.

Spark can bound a batch by bytes, but then it adds up the sizes of all columns after every row,
which costs more than copying the row. So the bound is on rows wherever the bytes follow from it:
from the types when all of them have a fixed width, else from the rows of the epoch before. The
first epoch of an attempt with rows of unknown width is bounded by bytes; so is the one after rows
that were too wide. An attempt that met rows much wider than before, and failed, begins like that.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

# To Spark this number means "do not look".
UNBOUNDED = (1 << 31) - 1
ROWS_MIN = 1 << 8
# Far below the safe one, since a batch may hold wider rows than the epoch before had on average.
EXPECTED_BYTES = 4 << 20

_WIDTHS: dict[type[DataType], int] = {
    BooleanType: 1,
    ByteType: 1,
    ShortType: 2,
    IntegerType: 4,
    FloatType: 4,
    DateType: 4,
    LongType: 8,
    DoubleType: 8,
    TimestampType: 8,
    TimestampNTZType: 8,
    DecimalType: 16,
}


@dataclass(frozen=True)
class BatchLimits:
    """Spark's limits of one Arrow batch."""

    rows: int
    bytes: int


# For rows of any width, frames among them.
SAFE = BatchLimits(1 << 16, 64 << 20)


def fixed_width(kind: DataType) -> int | None:
    """Return the bytes of a value in Arrow, None when they depend on the value."""
    if isinstance(kind, StructType):
        widths = [fixed_width(field.dataType) for field in kind.fields]
        known = [width for width in widths if width is not None]
        return 1 + sum(known) if len(known) == len(widths) else None
    return _WIDTHS.get(type(kind))


def limits(width: float | None) -> BatchLimits:
    """Return the limits for rows of a width that is fixed or was seen, None when unknown."""
    if width is None or width * ROWS_MIN > EXPECTED_BYTES:
        return SAFE
    rows = int(EXPECTED_BYTES / max(width, 1))
    return BatchLimits(min(rows, SAFE.rows), UNBOUNDED)
