"""Metrics of functions on real Spark, as REST and Prometheus tell them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from tests.spark.scenario import wait_until

from weir.common import Configuration
from weir.datastream import MapFunction
from weir.jobmanager import directory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


class Counting(MapFunction):
    def open(self, runtime_context):
        group = runtime_context.get_metrics_group().add_group("side", "left")
        self.seen = group.counter("seen")

    def map(self, value):
        self.seen.inc()
        return value


def fetched(entry, path):
    request = urllib.request.Request(f"{entry.url}{path}")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=10)
    request.add_header("Authorization", f"Bearer {entry.token}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("direct", ["1 mb", "0"], ids=["through the driver", "by Spark"])
def test_counters_of_all_levels_are_told_by_rest_and_prometheus(
    env, spark, tmp_path, monkeypatch, direct
):
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    env.configure(Configuration().set_string("weir.epoch.direct-size", direct))
    first = env.from_dataframe(spark.range(1000)).map(Counting()).name("First one")
    first.key_by(lambda row: row.id % 7).map(Counting()).name("second")
    job = env.execute_async("metrics")
    wait_until(directory.entries, 30, "the job's announcement")
    (entry,) = directory.entries()
    job.get_job_execution_result().result()
    vertices = json.loads(fetched(entry, f"/jobs/{entry.job_id}"))["vertices"]
    for name in ("First one", "second"):
        vertex = next(v["id"] for v in vertices if v["name"] == name)
        metric = f"{name.replace(' ', '_')}.side.left.seen"
        path = f"/jobs/{entry.job_id}/vertices/{vertex}/subtasks/metrics?get={metric}&agg=sum"
        assert json.loads(fetched(entry, path)) == [{"id": metric, "sum": 1000.0}]
    page = fetched(entry, "/metrics").splitlines()
    samples = [x for x in page if x.startswith("flink_taskmanager_job_task_operator_side_seen{")]
    mine = [x for x in samples if entry.job_id in x]
    assert len(mine) == 4
    assert all('side="left"' in x and 'subtask_index="' in x for x in mine)
    assert sum(float(x.rpartition(" ")[2]) for x in mine) == 2000
