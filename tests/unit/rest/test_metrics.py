"""Metrics: Flink's names for Flink's clients, and a page that Prometheus can read."""

import re

import pytest
from tests.unit.rest.client import Client
from tests.unit.rest.samples import COUNT, JOB_ID, SOURCE, START

from weir.jobmanager.epoch_times import Arrivals, EpochTimesView, Spread
from weir.jobmanager.history import CheckpointEntry, HistoryView, SubtaskEntry
from weir.rest import RestServer
from weir.rest.latency_metrics import LATENCY
from weir.testing.manual_job import ManualJob

SAMPLE = re.compile(r'([a-zA-Z_]+)\{((?:[a-z0-9_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (-?[0-9.e+-]+)')
LABEL = re.compile(r'([a-z0-9_]+)="((?:[^"\\\n]|\\[\\"n])*)"')
Samples = dict[str, list[tuple[dict[str, str], float]]]


def parsed(text: str) -> tuple[dict[str, str], Samples]:
    """Read the text format 0.0.4; anything that is not of it fails."""
    kinds: dict[str, str] = {}
    samples: Samples = {}
    described: set[str] = set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in described
            described.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name in described
            assert name not in kinds
            assert kind in {"counter", "gauge", "histogram", "summary"}
            kinds[name], current = kind, name
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            parts = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("", "_count")}
            assert match[1] in {current + part for part in parts.get(kinds[current], ("",))}
            labels = {
                k: re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), v)
                for k, v in LABEL.findall(match[2])
            }
            samples.setdefault(match[1], []).append((labels, float(match[3])))
    return kinds, samples


def page(client: Client) -> tuple[dict[str, str], Samples]:
    answer = client.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parsed(answer.raw.decode())


def test_the_page_names_the_job_in_every_sample(client: Client) -> None:
    _, samples = page(client)
    assert samples
    for found in samples.values():
        for labels, _value in found:
            assert labels["job_id"] == JOB_ID
            assert labels["job_name"] == 'words "today"\n'


def test_counters_and_only_counters_end_in_total(client: Client) -> None:
    kinds, _ = page(client)
    assert {n for n, k in kinds.items() if k == "counter"} == {
        n for n in kinds if n.endswith("_total")
    }
    own = ("weir_job_", "weir_checkpoint_", "weir_slot_")
    assert all(n.startswith((*own, "flink_")) for n in kinds)


def test_numbers_are_those_of_the_job(client: Client) -> None:
    _, samples = page(client)

    def one(name: str) -> float:
        ((_, value),) = samples[name]
        return value

    assert one("weir_job_restarts_total") == 1
    assert one("weir_job_uptime_seconds") == 60
    assert one("weir_checkpoint_triggered_total") == 9
    assert one("weir_checkpoint_failed_total") == 2
    assert one("weir_checkpoint_last_id") == 1
    assert one("weir_checkpoint_last_duration_seconds") == 0.04
    assert one("weir_checkpoint_last_completed_timestamp_seconds") == (START + 1040) / 1000
    records = {x["operator_id"]: v for x, v in samples["weir_job_records_in_total"]}
    assert records == {SOURCE: 0, COUNT: 50}
    names = {x["operator"] for x, _ in samples["weir_job_records_in_total"]}
    assert 'Count "words"\\' in names
    assert [v for _, v in samples["weir_slot_ready"]] == [1, 0]
    assert len(samples["weir_slot_watermark_milliseconds"]) == 1
    states = {x["status"]: v for x, v in samples["weir_job_status"]}
    assert (states["RUNNING"], states["FAILED"]) == (1, 0)


def test_jobs_share_the_head_of_a_metric(client: Client, server: RestServer) -> None:
    other = ManualJob("other")
    server.register(other)
    _, samples = page(client)
    ids = [labels["job_id"] for labels, _ in samples["weir_checkpoint_completed_total"]]
    assert ids == [JOB_ID, other.job_id]
    # Nothing completed yet, so there is no last one.
    assert len(samples["weir_checkpoint_last_id"]) == 1


def test_a_process_without_jobs_has_a_page(client: Client) -> None:
    bare = RestServer(ports=(0,))
    bare.start()
    assert page(Client(bare.url, bare.token))[1] == {}
    bare.close()


def test_metrics_of_a_job_are_listed_and_read_by_flinks_names(client: Client) -> None:
    path = f"/jobs/{JOB_ID}/metrics"
    names = {metric["id"] for metric in client.json(path)}
    assert {
        "uptime",
        "numRestarts",
        "lastCheckpointDuration",
        "lastCheckpointSize",
        "numberOfCompletedCheckpoints",
        "numberOfFailedCheckpoints",
        "numRecordsIn",
    } <= names
    wanted = "numRestarts,lastCheckpointDuration,lastCheckpointSize,unknown,uptime,numRecordsIn"
    assert client.json(f"{path}?get={wanted}") == [
        {"id": "numRestarts", "value": "1"},
        {"id": "lastCheckpointDuration", "value": "40"},
        {"id": "lastCheckpointSize", "value": "200"},
        {"id": "uptime", "value": "60000"},
        {"id": "numRecordsIn", "value": "50"},
    ]


@pytest.mark.parametrize(
    ("status", "downtime"), [("RUNNING", "0"), ("RESTARTING", "55000"), ("FAILED", "-1")]
)
def test_downtime_counts_from_the_failure(
    client: Client, job: ManualJob, status: str, downtime: str
) -> None:
    job.change(status=status)
    answer = client.json(f"/jobs/{JOB_ID}/metrics?get=downtime")
    assert answer == [{"id": "downtime", "value": downtime}]


def test_metrics_of_subtasks_are_aggregated_as_asked(client: Client) -> None:
    path = f"/jobs/{JOB_ID}/vertices/{COUNT}/subtasks/metrics"
    assert {"id": "numRecordsIn"} in client.json(path)
    assert client.json(f"{path}?get=numRecordsIn") == [{"id": "numRecordsIn", "sum": 50.0}]
    answer = client.json(f"{path}?get=currentInputWatermark&agg=min,MAX")
    assert answer == [{"id": "currentInputWatermark", "min": 1000.0, "max": 1000.0}]
    assert client.get(f"{path}?get=numRecordsIn&agg=median").status == 400


def test_metrics_of_the_process_count_slots(client: Client) -> None:
    answer = client.json("/jobmanager/metrics?get=taskSlotsTotal,numRunningJobs")
    assert answer == [
        {"id": "taskSlotsTotal", "value": "2"},
        {"id": "numRunningJobs", "value": "1"},
    ]


def test_latency_has_flinks_name_and_our_own(client: Client, job: ManualJob) -> None:
    window = tuple(range(1, 101))
    job.change(
        arrivals=(Arrivals(1, 0, window), Arrivals(1, 1, (7,)), Arrivals(2, 0, (9,))),
        epochs=EpochTimesView(latency=Spread().with_one(40).with_one(2_000)),
    )
    _, samples = page(client)
    found = samples[LATENCY]
    assert {(x["source_id"], x["operator_id"]) for x, _ in found} == {(SOURCE, COUNT)}
    first = {x["quantile"]: v for x, v in found if x["operator_subtask_index"] == "0"}
    assert first == {"0.5": 50, "0.75": 75, "0.95": 95, "0.98": 98, "0.99": 99, "0.999": 100}
    assert {v for x, v in found if x["operator_subtask_index"] == "1"} == {7}
    assert [v for _, v in samples[f"{LATENCY}_count"]] == [100, 1]
    ours = {x["le"]: v for x, v in samples["weir_job_latency_seconds_bucket"]}
    assert (ours["0.025"], ours["0.05"], ours["2.5"]) == (0, 1, 2)


def test_the_newest_checkpoint_tells_the_size_of_each_state(client: Client, job: ManualJob) -> None:
    acks = {
        i: SubtaskEntry(i, START, state_sizes={COUNT: {"total": 10 + i, "": 5}}) for i in range(2)
    }
    done = CheckpointEntry(9, START, 2, status="COMPLETED", acks=acks, path="file:///c")
    job.checkpoints = HistoryView(1, 1, entries=(done,))
    _, samples = page(client)
    found = {x["state"]: v for x, v in samples["weir_checkpoint_state_size_bytes"]}
    assert found == {"total": 21, "": 10}
