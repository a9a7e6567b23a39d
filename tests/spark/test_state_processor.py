"""State of jobs on Spark: savepoints as DataFrames, and queries of a job that runs."""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.request
from ast import literal_eval
from itertools import accumulate

import pytest
from tests.harness.state_programs import every_kind, released, restore_point, run_job
from tests.harness.test_bootstrap import History, Totals, later

from weir.common import Configuration
from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from weir.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from weir.errors import JobExecutionError, UsageError
from weir.jobmanager import directory
from weir.offline import read_snapshot
from weir.queryable import QueryableStateClient, QueryError
from weir.state_processor import (
    OperatorIdentifier,
    OperatorTransformation,
    SavepointReader,
    SavepointWriter,
    new_savepoint,
    savepoint,
)
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
    totals = {key: [] for key in range(7)}
    for record in outcome(tmp_path, place):
        if record[1] == "record":
            totals[record[0]].append(record[2])
    assert {key: sorted(own) for key, own in totals.items()} == {
        key: [*accumulate(range(key or 7, 41, 7), initial=sum(range(key, 21, 7)))][1:]
        for key in range(7)
    }, "the history, and all numbers up to each"


def test_keys_of_any_type_choose_rows(spark, tmp_path):
    pair = Types.TUPLE([Types.STRING(), Types.PRIMITIVE_ARRAY(Types.BYTE())])
    given = spark.createDataFrame(
        [(("a", b"x"), 1), (("b", b"y"), 2)], "key struct<f0: string, f1: binary>, value long"
    )
    edit = new_savepoint().with_operator("pairs", parallelism=2, max_parallelism=8)
    edit.with_rows("pairs", ValueStateDescriptor("n", Types.LONG()), given, key_type=pair)
    found = savepoint(spark, edit.write(str(tmp_path / "savepoint-pairs")))
    rows = found.keyed_state("pairs", "n", keys=[("b", b"y"), ("c", b"z")]).collect()
    assert [(row.key.f0, row.value) for row in rows] == [("b", 2)]
    with pytest.raises(UsageError, match="b'x' cannot be asked for among keys of"):
        found.keyed_state("pairs", "n", keys=[b"x"])


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


class Raises(History):
    def process_element(self, value, ctx):
        raise ValueError(value.id)


def test_functions_make_state_of_dataframes_and_read_it(spark, env, tmp_path):
    history = env.from_dataframe(spark.range(1, 21)).map(lambda row: row.id, Types.LONG())
    keyed = OperatorTransformation.bootstrap_with(history).key_by(lambda n: n % 7, Types.LONG())
    writer = SavepointWriter.new_savepoint(env, 16)
    writer.with_operator(OperatorIdentifier.for_uid("kinds"), keyed.transform(History()))
    place = writer.write(str(tmp_path / "savepoint-made"))
    harness = run_job(later(21, 40), tmp_path, 2, restore_point(tmp_path, place)).run()
    whole = run_job(every_kind(max_parallelism=16), tmp_path, 2).run()
    seen = [r for r in released(whole) if r[1] != "record" or literal_eval(r[-1])["last"] > 20]
    assert released(harness) == seen
    assert len([r for r in seen if r[1] == "record"]) == 20
    reader = SavepointReader.read(env, place)
    described = reader.read_keyed_state("kinds", ValueStateDescriptor("total", Types.LONG()))
    shown = sorted(
        reader.read_keyed_state("kinds", Totals()).union(described).execute_and_collect()
    )
    found = [record for record in shown if len(record) > 2]
    assert [record for record in shown if len(record) == 2] == [r[:2] for r in found]
    assert [r[0] for r in found] == [*range(7)]
    assert found[3] == (3, 3 + 10 + 17, [1.5, 5.0, 8.5], "307", [1003, 1010, 1017])
    bad = OperatorTransformation.bootstrap_with(env.from_dataframe(spark.range(3)))
    writer = SavepointWriter.new_savepoint(env, 16)
    writer.with_operator("bad", bad.key_by("id").transform(Raises()))
    with pytest.raises(JobExecutionError, match="operator 'KEYED PROCESS' failed at record"):
        writer.write(str(tmp_path / "savepoint-bad"))
    assert not (tmp_path / "savepoint-bad").exists()


# ---- queries of a running job --------------------------------------------------------------------


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.set_queryable("counts")
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)


def counting_job(spark, tmp_path):
    """Start a job that counts rows of Spark's rate source, by digit."""
    configuration = Configuration()
    for key, value in {
        "weir.log.dir": str(tmp_path / "logs"),
        "queryable-state.enable": "true",
        "queryable-state.proxy.ports": "0",
        "weir.queryable-state.sql": "true",
        "rest.port": "0",
        "execution.checkpointing.interval": "300 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "1 s",
    }.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    rate = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    numbers = env.from_dataframe(rate.selectExpr("value")).map(lambda row: row.value, Types.LONG())
    numbers.key_by(lambda n: n % 10, Types.LONG()).process(Count()).uid("counting")
    return env.execute_async("queried")


def by_sql(entry, sql):
    """Ask as a driver of Flight SQL does."""
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
    options = {"adbc.flight.sql.authorization_header": f"Bearer {entry.query_token}"}
    with (
        dbapi.connect(entry.query_url, db_kwargs=options, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(sql)
        return cursor.fetchall()


def by_rest(entry, job_id, level):
    url = f"{entry.url}/jobs/{job_id}/state/counts?key=3&level={level}"
    head = {"Authorization": f"Bearer {entry.query_token}"}
    with urllib.request.urlopen(urllib.request.Request(url, headers=head), timeout=30) as answer:
        found = json.load(answer)
    return found["rows"][0]["value"], found["checkpoint-id"]


def until(reached, what):
    """Ask until it is so, or for a minute."""
    pause = threading.Event()
    for _ in range(600):
        try:
            found = reached()
        except QueryError:
            found = None
        if found:
            return found
        pause.wait(0.1)
    raise AssertionError(what)


@pytest.mark.timeout(240)
def test_a_running_job_answers_through_every_door_also_while_a_slot_is_dead(
    spark, tmp_path, monkeypatch
):
    pytest.importorskip("duckdb")
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    job = counting_job(spark, tmp_path)
    job_id = str(job.get_job_id())
    descriptor = ValueStateDescriptor("count", Types.LONG())
    try:
        with QueryableStateClient.of(job_id) as client:

            def count(level):
                terms = {"level": level}
                found = client.get_kv_state(job_id, "counts", 3, Types.LONG(), descriptor, **terms)
                return found.result(30)

            old = until(lambda: count("committed"), "nothing was committed")
            live = until(lambda: count("live"), "nothing was counted")
            assert live.value() >= old.value() > 0
            assert (old.facts.level, live.facts.level) == ("committed", "live")
            (entry,) = [e for e in directory.running() if e.job_id == job_id]
            assert by_rest(entry, job_id, "committed")[0] >= old.value()
            assert by_rest(entry, job_id, "live")[0] >= live.value()
            found = by_sql(entry, 'SELECT value FROM "counting"."count" WHERE key = 3')
            assert found[0][0] >= old.value()
            every = client.get(job_id, "counts", range(10), Types.LONG(), descriptor)
            assert len(every.states) == 10

            before = count("committed")
            victim = directory_slot(job, subtask=1)
            os.kill(victim, signal.SIGKILL)
            # Committed answers go on, and never go back, until the job is live again.
            newest, answers = before.value(), 0
            attempt = before.facts.attempt
            while answers < 20 or count_attempt(count) == attempt:
                during = count("committed").value()
                assert during >= newest
                newest, answers = during, answers + 1
                assert by_rest(entry, job_id, "committed")[0] >= newest
                if answers % 5 == 0:
                    sums = by_sql(entry, 'SELECT sum(value) FROM "counting"."count"')
                    assert sums[0][0] >= newest
                assert answers < 5000
            again = until(lambda: count("live"), "the job did not come back")
            assert again.value() >= newest
    finally:
        job.cancel().result()


def directory_slot(job, subtask):
    """Return the process of a slot."""
    return next(s["pid"] for s in job.progress()["slots"] if s["subtask"] == subtask)


def count_attempt(count):
    """Return which attempt answers live, the last one while none does."""
    try:
        return count("live").facts.attempt
    except QueryError:
        return count("committed").facts.attempt
