"""How many source rows go into one Arrow batch."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from weir.spark.batches import SAFE, UNBOUNDED, BatchLimits, fixed_width, limits


def row(*types: DataType) -> StructType:
    return StructType([StructField(f"f{i}", t) for i, t in enumerate(types)])


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        (row(LongType(), LongType()), 17),
        (row(IntegerType(), DoubleType(), BooleanType(), TimestampType()), 22),
        (row(DecimalType(20, 2)), 17),
        (row(LongType(), row(LongType())), 18),
        (row(LongType(), StringType()), None),
        (row(BinaryType()), None),
        (row(ArrayType(LongType())), None),
        (row(LongType(), row(StringType())), None),
    ],
)
def test_widths_follow_from_types_only_if_all_are_fixed(kind: DataType, width: int | None) -> None:
    assert fixed_width(kind) == width


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (None, SAFE),
        (17, BatchLimits(65_536, UNBOUNDED)),
        (64, BatchLimits(65_536, UNBOUNDED)),
        (1024, BatchLimits(4096, UNBOUNDED)),
        (0.5, BatchLimits(65_536, UNBOUNDED)),
        (16_384, BatchLimits(256, UNBOUNDED)),
        (16_385, SAFE),
        (1_000_000, SAFE),
    ],
)
def test_batches_of_narrow_rows_are_bounded_by_rows_and_others_by_bytes(
    width: float | None, expected: BatchLimits
) -> None:
    assert limits(width) == expected


def test_wide_rows_never_make_a_batch_longer_than_expected() -> None:
    for width in range(1, 20_000, 7):
        chosen = limits(width)
        assert chosen == SAFE or chosen.rows * width <= 4 << 20
