"""Targets of `foreach_batch` by their contract: whoever dies where, every row is there once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from weir.datastream.connectors.spark import DirectoryTarget
from weir.testing.spark_target_conformance import Given, SparkTargetConformance

pytestmark = pytest.mark.spark


class Files(SparkTargetConformance):
    """Rows in Parquet files below a folder of the test."""

    @pytest.fixture(autouse=True)
    def _places(self, spark: Any, tmp_path: Path) -> None:
        self.spark = spark
        self.output = tmp_path / "output"
        self.output.mkdir()

    def session(self) -> Any:
        return self.spark

    def visible(self) -> Iterable[Any]:
        for mark in self.output.rglob("_SUCCESS"):
            for part in mark.parent.glob("*.parquet"):
                table = pq.read_table(part)
                yield from zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True)


class TestDirectories(Files):
    def make_target(self) -> Given:
        return DirectoryTarget(str(self.output))


class TestFunctions(Files):
    checkpoints = 1
    knows_jobs = False

    def make_target(self) -> Given:
        def write(rows: Any, checkpoint: int) -> None:
            rows.write.mode("overwrite").parquet(str(self.output / str(checkpoint)))

        return write


class Forgetful(TestDirectories):
    """A function that appends: what the suite has to find out."""

    def make_target(self) -> Given:
        return lambda rows, _: rows.write.mode("append").parquet(str(self.output / "all"))


@pytest.mark.parametrize("after", [False, True])
def test_a_function_that_appends_is_found_out_behind_the_write_alone(
    spark: Any, tmp_path: Path, after: bool
) -> None:
    suite = Forgetful()
    suite.spark, suite.output, suite.checkpoints = spark, tmp_path / "output", 1
    run = suite.test_a_driver_that_dies_at_any_call_loses_and_repeats_nothing
    if after:
        with pytest.raises(AssertionError):
            run(tmp_path, after)
    else:
        run(tmp_path, after)
