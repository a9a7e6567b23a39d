"""Delta Lake and Iceberg take every row once, by their real jars and a Spark that these fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import lakes

from weir.datastream.connectors.spark import DeltaTarget, IcebergTarget
from weir.errors import UsageError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(540)]
PROGRAM = Path(__file__).parent / "programs" / "lakes.py"
FILES, ROWS, KEYS = 4, 50, 5


def run(tmp_path: Path, source: str, variables: dict[str, str]) -> dict:
    folders = [str(tmp_path / name) for name in ("checkpoints", "logs")]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), source, *folders],
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_lost_answer_and_a_killed_slot_lose_and_repeat_no_row(tmp_path):
    variables = lakes.with_lakes(tmp_path, fitting=True)
    source = tmp_path / "source"
    source.mkdir()
    for n in range(FILES):
        ids = pa.table({"id": pa.array(range(n * ROWS, (n + 1) * ROWS), pa.int64())})
        pq.write_table(ids, source / f"{n}.parquet")
    found = run(tmp_path, str(source), variables)
    assert found["spark"] == lakes.SPARK
    once = [3, 3, 3, 6]
    assert found["by hand"] == {"path": once, "table": once, "iceberg": once}
    assert found["by contract"] == {"path": 7, "table": 7, "iceberg": 6}
    assert found["faults"] == ["answer lost", "slot killed"]
    every = {"distinct": FILES * ROWS, "again": 0, "keys": KEYS}
    assert found["job"] == {"path": every, "table": every, "iceberg": every}


def test_jars_for_another_spark_are_refused_before_the_job_starts(tmp_path):
    found = run(tmp_path, "-", lakes.with_lakes(tmp_path, fitting=False))
    delta, iceberg = found["refused"]
    spark = found["spark"]
    assert f"Delta Lake {lakes.DELTA} was not built for Spark {spark}" in delta
    assert "io.delta:delta-spark_4.2_2.13:4.4.0" in delta
    assert f"Iceberg's jars were not built for Spark {spark} (java.lang.Incompatible" in iceberg
    assert "iceberg-spark-runtime-4.1_2.13:1.12.0" in iceberg


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (DeltaTarget("nowhere"), "the session has no Delta Lake"),
        (IcebergTarget("lake.db.t"), "cannot look up the table 'lake.db.t'"),
    ],
)
def test_a_session_without_the_jars_refuses_the_job(env, target, said):
    env.from_collection([1, 2]).foreach_batch(target)
    with pytest.raises(UsageError, match=said):
        env.execute("refused")
