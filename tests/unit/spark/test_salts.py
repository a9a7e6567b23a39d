"""Salts land on the partition they stand for."""

from __future__ import annotations

import pytest

from weir.spark.salts import salts, spark_hash_int


@pytest.mark.parametrize(("value", "hashed"), [(0, 933211791), (1, -559580957), (2, 1765031574)])
def test_the_hash_is_sparks(value, hashed):
    assert spark_hash_int(value) == hashed


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 64])
def test_there_is_one_salt_for_every_partition(partitions):
    found = salts(partitions)
    assert [spark_hash_int(s) % partitions for s in found] == list(range(partitions))
