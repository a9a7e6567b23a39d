"""Savepoints as DataFrames: read and written by Spark's workers, restored by a job."""

from __future__ import annotations

import pytest
from tests.harness.state_programs import every_kind, released, restore_point, run_job

from weir.common.typeinfo import Types
from weir.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from weir.errors import UsageError
from weir.offline import read_snapshot
from weir.state_processor import new_savepoint, savepoint
from weir.testing.campaign_backends import settings_of

pytestmark = pytest.mark.spark


def checkpoint_of(root, kind="hashmap-incremental"):
    harness = run_job(every_kind(), root, 2, backend=settings_of(kind))
    harness.run_epoch(take=5, checkpoint=True)
    harness.run_epoch(take=6, checkpoint=True)
    harness.end_slots()
    return root / harness.job_id / "chk-2"


def outcome(root, place):
    harness = run_job(every_kind(), root, 3, restore_point(root, place))
    harness.run()
    return released(harness)


def test_states_are_dataframes_views_and_a_format_and_go_back(spark, tmp_path):
    place = checkpoint_of(tmp_path)
    found = savepoint(spark, str(place))
    expected = [
        tuple(row.values())
        for batch in read_snapshot(str(place)).table("kinds", "total").batches()
        for row in batch.to_pylist()
    ]
    total = found.keyed_state("kinds", "total", splits=3)
    assert sorted(map(tuple, total.collect())) == sorted(expected)
    names = found.create_views()
    assert "kinds.by_name" in names
    [row] = spark.sql(
        "select count(*) n, max(value.at.seconds) at from `kinds.by_name` where key = 3"
    ).collect()
    assert (row.n, row.at) == (2, 10)
    assert {r.state for r in found.metadata().collect()} >= {"total", "many", "buffer"}
    assert [r.source for r in found.sources().collect()] == ["numbers"]
    chosen = spark.read.format("weir").options(operator="kinds", state="total", keys="[3, 5, 99]")
    frame = chosen.load(str(place))
    assert sorted(r.key for r in frame.collect()) == [3, 5]
    assert frame.where("key = 3").count() == 1
    assert frame.count() == 2, "a filter does not stay with the reader"
    edit = found.edit()
    for name in ("total", "by_name", "_timer.event"):
        edit.with_rows("kinds", name, found.keyed_state("kinds", name))
    copy = edit.write(str(tmp_path / "savepoint-copy"))
    assert outcome(tmp_path, copy) == outcome(tmp_path, place)


def test_dataframes_become_the_state_that_a_job_starts_from(spark, tmp_path):
    history = spark.range(1, 21).selectExpr("id % 7 key", "id").groupBy("key").sum("id")
    history = history.withColumnRenamed("sum(id)", "value")
    edit = new_savepoint().with_operator("kinds", parallelism=3, max_parallelism=128)
    total = ValueStateDescriptor("total", Types.LONG())
    edit.with_rows("kinds", total, history, key_type=Types.LONG())
    buffer = ListStateDescriptor("buffer", Types.LONG())
    edit.with_element_rows("kinds", buffer, spark.range(5).toDF("value"))
    rules = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
    given = spark.createDataFrame([("a", 1)], "map_key string, value long")
    edit.with_element_rows("kinds", rules, given, "BROADCAST")
    place = edit.write(str(tmp_path / "savepoint-history"))
    found = savepoint(spark, place)
    assert sorted(r.value for r in found.operator_state("kinds", "buffer").collect()) == [*range(5)]
    assert [tuple(r) for r in found.operator_state("kinds", "rules").collect()] == [("a", 1)]
    first = {}
    for record in outcome(tmp_path, place):
        first.setdefault(record[0], []).append(record[2])
    assert min(first[3]) == 3 + (3 + 10 + 17), "the history, and the first number"


def test_what_tasks_find_wrong_is_told_without_a_trace(spark, tmp_path):
    twice = spark.createDataFrame([(1, 1), (1, 2)], "key long, value long")
    edit = new_savepoint().with_operator("kinds", parallelism=2, max_parallelism=8)
    total = ValueStateDescriptor("total", Types.LONG())
    edit.with_rows("kinds", total, twice, key_type=Types.LONG())
    with pytest.raises(UsageError, match=r"^key 1 is there twice: a key has one value"):
        edit.write(str(tmp_path / "savepoint-bad"))
    assert not (tmp_path / "savepoint-bad").exists()
    with pytest.raises(UsageError, match="no operator 'x'"):
        savepoint(spark, str(checkpoint_of(tmp_path))).keyed_state("x", "total")
