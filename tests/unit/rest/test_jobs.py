"""What Flink's documentation promises about jobs, asked over a real socket."""

import http.client

import pytest
from tests.unit.rest.client import Client
from tests.unit.rest.samples import COUNT, JOB_ID, SOURCE, START

from weir.jobmanager.operations import ExceptionView
from weir.rest import RestServer
from weir.testing.manual_job import ManualJob

UNKNOWN = "f" * 32


def test_jobs_are_listed_with_id_and_status(client: Client) -> None:
    assert client.json("/jobs") == {"jobs": [{"id": JOB_ID, "status": "RUNNING"}]}


def test_every_path_is_served_with_and_without_the_version(client: Client) -> None:
    assert client.json("/v1/jobs") == client.json("/jobs")
    assert client.get("/v2/jobs").status == 404


def test_the_overview_counts_subtasks_by_state(client: Client) -> None:
    (entry,) = client.json("/jobs/overview")["jobs"]
    assert entry["jid"] == JOB_ID
    assert entry["state"] == "RUNNING"
    assert (entry["start-time"], entry["end-time"], entry["duration"]) == (START, -1, 60_000)
    # Two subtasks in Spark, a slot that is ready and one that is not.
    assert entry["tasks"]["total"] == 4
    assert (entry["tasks"]["running"], entry["tasks"]["initializing"]) == (3, 1)


def test_a_job_is_told_with_its_operators_and_its_plan(client: Client) -> None:
    job = client.json(f"/jobs/{JOB_ID}")
    assert job["name"] == 'words "today"\n'
    assert (job["now"], job["maxParallelism"], job["isStoppable"]) == (START + 60_000, 128, True)
    source, count = job["vertices"]
    assert (source["id"], source["status"]) == (SOURCE, "RUNNING")
    assert (count["id"], count["status"]) == (COUNT, "INITIALIZING")
    assert count["metrics"]["read-records"] == 50
    assert count["metrics"]["write-records"] == 40
    # What runs in Spark's workers is not counted, and says so.
    complete = [v["metrics"]["read-records-complete"] for v in (source, count)]
    assert complete == [False, True]
    assert count["tasks"]["RUNNING"] == 1
    assert job["status-counts"]["RUNNING"] == 1
    assert job["plan"] == client.json(f"/jobs/{JOB_ID}/plan")["plan"]
    assert job["plan"]["nodes"][1]["inputs"][0]["ship_strategy"] == "HASH"
    assert job["plan"]["nodes"][1]["inputs"][0]["id"] == SOURCE


def test_the_status_alone_can_be_asked_for(client: Client, job: ManualJob) -> None:
    job.change(status="RESTARTING")
    assert client.json(f"/jobs/{JOB_ID}/status") == {"status": "RESTARTING"}


def test_settings_are_shown_without_secrets(client: Client, job: ManualJob) -> None:
    job.change(
        configuration={
            "s3.secret-key": "hush",
            "weir.rest.token": "hush",
            "a": "1",
            "pipeline.global-job-parameters": "user:ann",
        }
    )
    config = client.json(f"/jobs/{JOB_ID}/config")
    assert config["jid"] == JOB_ID
    assert config["execution-config"]["job-parallelism"] == 2
    assert config["execution-config"]["user-config"]["user"] == "ann"
    assert {"key": "a", "value": "1"} in client.json("/jobmanager/config")
    for path in (f"/jobs/{JOB_ID}/config", "/jobmanager/config"):
        assert b"hush" not in client.get(path).raw


def test_failures_come_newest_first_and_as_many_as_asked_for(
    client: Client, job: ManualJob
) -> None:
    job.change(exceptions=tuple(ExceptionView(START + i, "E", f"no {i}", i) for i in range(5)))
    answer = client.json(f"/jobs/{JOB_ID}/exceptions?maxExceptions=2")
    assert [e["stacktrace"] for e in answer["exceptionHistory"]["entries"]] == ["no 4", "no 3"]
    assert answer["exceptionHistory"]["truncated"] is True
    assert answer["root-exception"] == "no 4"
    whole = client.json(f"/jobs/{JOB_ID}/exceptions")["exceptionHistory"]
    assert (len(whole["entries"]), whole["truncated"]) == (5, False)
    assert client.get(f"/jobs/{JOB_ID}/exceptions?maxExceptions=x").status == 400


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("FINISHED", "SUCCEEDED"), ("FAILED", "FAILED"), ("CANCELED", "CANCELED")],
)
def test_the_result_of_a_job_is_there_when_it_has_ended(
    client: Client, job: ManualJob, status: str, outcome: str
) -> None:
    path = f"/jobs/{JOB_ID}/execution-result"
    assert client.json(path) == {"status": {"id": "IN_PROGRESS"}}
    job.change(status=status, end_ms=START + 70_000)
    answer = client.json(path)
    assert answer["status"]["id"] == "COMPLETED"
    assert answer["job-execution-result"]["application-status"] == outcome
    assert answer["job-execution-result"]["net-runtime"] == 70_000
    assert ("failure-cause" in answer["job-execution-result"]) == (status == "FAILED")


def test_an_operator_names_the_slot_of_each_subtask(client: Client) -> None:
    vertex = client.json(f"/jobs/{JOB_ID}/vertices/{COUNT}")
    first, second = vertex["subtasks"]
    assert (first["endpoint"], first["taskmanager-id"]) == ("host-a:4711", f"{JOB_ID[:8]}-0")
    assert (first["status"], second["status"]) == ("RUNNING", "INITIALIZING")
    in_spark = client.json(f"/jobs/{JOB_ID}/vertices/{SOURCE}")["subtasks"]
    assert {s["taskmanager-id"] for s in in_spark} == {"(unassigned)"}


def test_slots_are_task_managers_with_host_and_process(client: Client, job: ManualJob) -> None:
    listed = client.json("/taskmanagers")["taskmanagers"]
    assert [t["id"] for t in listed] == [f"{JOB_ID[:8]}-0", f"{JOB_ID[:8]}-1"]
    assert (listed[0]["host"], listed[0]["pid"], listed[0]["slotsNumber"]) == ("host-a", 4711, 1)
    assert listed[0]["timeSinceLastHeartbeat"] == START + 60_000 - 12
    one = client.json(f"/taskmanagers/{JOB_ID[:8]}-0")
    assert one["allocatedSlots"][0]["jobId"] == JOB_ID
    assert (one["watermark"], one["stateEntries"]) == (1000, 3)
    assert client.get("/taskmanagers/00000000-0").status == 404
    job.change(status="FINISHED", end_ms=START)
    assert client.json("/taskmanagers") == {"taskmanagers": []}


def test_the_cluster_counts_jobs_and_slots(client: Client, server: RestServer) -> None:
    server.register(ManualJob("other"))
    ended = ManualJob("ended")
    ended.cancel()
    server.register(ended)
    answer = client.json("/overview")
    assert (answer["taskmanagers"], answer["slots-total"], answer["slots-available"]) == (2, 2, 0)
    assert (answer["jobs-running"], answer["jobs-cancelled"], answer["jobs-failed"]) == (2, 1, 0)
    assert client.json("/config")["features"]["web-submit"] is False


def test_old_jobs_are_pushed_out_only_when_they_have_ended(
    client: Client, server: RestServer
) -> None:
    ended = [ManualJob(f"ended {i}") for i in range(22)]
    for job in ended:
        job.cancel()
        server.register(job)
    server.register(ManualJob("new"))
    ids = [entry["id"] for entry in client.json("/jobs")["jobs"]]
    assert JOB_ID in ids
    assert ended[0].job_id not in ids
    assert {job.job_id for job in ended[2:]} <= set(ids)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/config",
        "/plan",
        "/status",
        "/exceptions",
        "/execution-result",
        "/metrics",
        "/checkpoints",
        "/checkpoints/config",
        "/checkpoints/details/1",
        f"/vertices/{COUNT}",
        f"/savepoints/{UNKNOWN}",
        f"/rescaling/{UNKNOWN}",
        "/resource-requirements",
    ],
)
def test_an_unknown_job_is_not_found_anywhere(client: Client, path: str) -> None:
    answer = client.get(f"/jobs/{UNKNOWN}{path}")
    assert answer.status == 404
    assert UNKNOWN in answer.errors[0]


def test_an_unknown_operator_is_not_found(client: Client) -> None:
    assert client.get(f"/jobs/{JOB_ID}/vertices/{UNKNOWN}").status == 404


def test_two_requests_share_a_connection(server: RestServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    for _ in range(2):
        connection.request("GET", "/jobs")
        assert connection.getresponse().read()
    connection.close()
