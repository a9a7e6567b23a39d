"""The page of a host: jobs that ended or died from what they left, others by a link."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live_job import counting, some_words
from tests.unit.rest.client import Client

from weir.errors import JobExecutionError
from weir.jobmanager.directory import JobEntry, publish
from weir.jobmanager.logs import DriverLog
from weir.jobmanager.past import PastRecord, keep
from weir.rest import RestServer
from weir.rest.host import HostCluster
from weir.storage.local import LocalStorage
from weir.storage.processes import process_started
from weir.testing.clock import ManualClock
from weir.testing.harness import HarnessOptions, JobHarness

Started = list[tuple[str, str, int | None]]


class Starts:
    """Starts nothing, and notes what was asked for."""

    def __init__(self) -> None:
        self.asked: Started = []
        self.fails = False

    def __call__(
        self, entry: JobEntry, record: PastRecord, savepoint: str, parallelism: int | None
    ) -> str:
        self.asked.append((str(entry.program), savepoint, parallelism))
        if self.fails:
            msg = "the program has a hole"
            raise JobExecutionError(msg)
        return "e" * 32


@pytest.fixture
def starts() -> Starts:
    return Starts()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def host(starts: Starts, clock: ManualClock) -> Iterator[Client]:
    server = RestServer(ports=(0,), cluster=HostCluster(starts, clock))
    server.start()
    yield Client(server.url, server.token)
    server.close()


@pytest.fixture
def ended(tmp_path: Path) -> JobHarness:
    """A job whose process died: its last checkpoint is younger than what it wrote down."""
    storage = LocalStorage(str(tmp_path / "checkpoints"))
    job = JobHarness(counting().build_graph("words"), 2, HarnessOptions(storage=storage)).start()
    job.run_epoch(some_words(1))
    job.checkpoint()
    keep(job.control)
    job.run_epoch(some_words(2))
    job.checkpoint()
    announce(job, storage.uri, process="1")
    return job


def announce(job: JobHarness, place: str, **fields: object) -> None:
    known = {"process": process_started(os.getpid()), "program": __file__, **fields}
    publish(
        JobEntry(
            job_id=job.job_id,
            name="words",
            pid=os.getpid(),
            url="http://localhost:1",
            token="t",
            started_ms=1,
            checkpoint_dir=place,
            **known,
        )
    )


def test_a_job_that_died_can_still_be_looked_at(host: Client, ended: JobHarness) -> None:
    (job,) = host.json("/jobs/overview")["jobs"]
    assert (job["jid"], job["name"], job["state"]) == (ended.job_id, "words", "FAILED")
    found = host.json(f"/jobs/{ended.job_id}")
    assert [v["uid"] for v in found["vertices"] if v["uid"]] == ["words", "count"]
    text = host.json(f"/jobs/{ended.job_id}/exceptions")["root-exception"]
    assert "is gone" in text


def test_checkpoints_after_its_last_words_are_found_in_its_directory(
    host: Client, ended: JobHarness
) -> None:
    history = host.json(f"/jobs/{ended.job_id}/checkpoints")["history"]
    assert [(c["id"], c["status"], c.get("discarded")) for c in history] == [
        (2, "COMPLETED", False),
        (1, "COMPLETED", True),
    ]
    contents = host.json(f"/jobs/{ended.job_id}/checkpoints/details/2/contents")
    assert contents["job_name"] == "words"


def test_a_job_that_runs_is_a_link_to_its_own_page(host: Client, ended: JobHarness) -> None:
    announce(ended, "file:///nowhere")
    page = host.json("/page")
    assert page["host"] is True
    assert [job["link"] for job in page["elsewhere"]] == [
        f"http://localhost:1/#/jobs/{ended.job_id}?token=t"
    ]
    assert page["programs"] == {}
    assert host.get(f"/jobs/{ended.job_id}").status == 404


def test_jobs_that_end_later_appear(host: Client, ended: JobHarness, clock: ManualClock) -> None:
    announce(ended, "file:///nowhere")
    assert host.json("/jobs/overview")["jobs"] == []
    announce(ended, "file:///nowhere", status="FINISHED", ended_ms=5)
    clock.advance(1_000)
    assert [job["state"] for job in host.json("/jobs/overview")["jobs"]] == ["FINISHED"]


def test_the_log_of_a_driver_is_its_own_and_not_that_of_the_host(
    host: Client, ended: JobHarness
) -> None:
    log = DriverLog()
    log.handle(logging.LogRecord("weir.job", logging.WARNING, "f", 1, "last words", (), None))
    keep(ended.control, driver_log=log)
    logging.getLogger("weir.test").warning("words of the host")
    told = host.get(f"/jobs/{ended.job_id}/driver-log")
    assert told.raw.decode().endswith("WARNING weir.job: last words\n")
    end = host.get(f"/jobs/{ended.job_id}/driver-log?start=-6")
    assert (end.raw, end.headers["Weir-Start"]) == (b"words\n", str(len(told.raw) - 6))
    assert host.get(f"/jobs/{'f' * 32}/driver-log").status == 404


def newest(host: Client, ended: JobHarness) -> str:
    history = host.json(f"/jobs/{ended.job_id}/checkpoints")["history"]
    return next(c["external_path"] for c in history if not c["discarded"])


def outcome(host: Client, ended: JobHarness, body: dict[str, object]) -> dict:
    answer = host.request("POST", f"/jobs/{ended.job_id}/start-again", body)
    assert answer.status == 202
    path = f"/jobs/{ended.job_id}/start-again/{answer.json['request-id']}"
    waiter = threading.Event()
    for _ in range(500):
        found = host.json(path)
        if found["status"]["id"] == "COMPLETED":
            return found["operation"]
        waiter.wait(0.01)
    msg = "it never ends"
    raise AssertionError(msg)


def test_it_can_be_started_again_from_a_checkpoint(
    host: Client, ended: JobHarness, starts: Starts
) -> None:
    path = newest(host, ended)
    body = {"savepoint-path": path, "parallelism": 3}
    assert outcome(host, ended, body) == {"job-id": "e" * 32}
    assert starts.asked == [(__file__, path, 3)]


def test_a_start_that_fails_says_why(host: Client, ended: JobHarness, starts: Starts) -> None:
    starts.fails = True
    failed = outcome(host, ended, {"savepoint-path": newest(host, ended)})
    assert "hole" in failed["failure-cause"]["stack-trace"]


def test_nothing_is_started_from_a_place_that_is_not_the_jobs(
    host: Client, ended: JobHarness, starts: Starts
) -> None:
    body = {"savepoint-path": "file:///etc"}
    answer = host.request("POST", f"/jobs/{ended.job_id}/start-again", body)
    assert (answer.status, starts.asked) == (409, [])


def test_a_job_of_a_notebook_has_no_program_to_start(host: Client, ended: JobHarness) -> None:
    announce(ended, ended.options.storage.uri, process="1", program=None)
    body = {"savepoint-path": newest(host, ended)}
    answer = host.request("POST", f"/jobs/{ended.job_id}/start-again", body)
    assert (answer.status, "not known" in answer.errors[0]) == (409, True)


def test_a_program_that_is_gone_is_not_started(
    host: Client, ended: JobHarness, starts: Starts, tmp_path: Path
) -> None:
    gone = str(tmp_path / "gone.py")
    announce(ended, ended.options.storage.uri, process="1", program=gone)
    body = {"savepoint-path": newest(host, ended)}
    answer = host.request("POST", f"/jobs/{ended.job_id}/start-again", body)
    assert (answer.status, "not there any more" in answer.errors[0]) == (409, True)
    assert starts.asked == []


@pytest.mark.parametrize(
    ("headers", "method", "status"),
    [
        ({"Origin": "https://elsewhere.example"}, "POST", 403),
        ({"Authorization": "Bearer wrong"}, "POST", 401),
        ({}, "GET", 405),
    ],
)
def test_strangers_start_nothing(
    host: Client,
    ended: JobHarness,
    starts: Starts,
    headers: dict[str, str],
    method: str,
    status: int,
) -> None:
    body = {"savepoint-path": newest(host, ended)} if method == "POST" else None
    path = f"/jobs/{ended.job_id}/start-again"
    answer = host.request(method, path, body, headers=headers)
    assert (answer.status, starts.asked) == (status, [])


def test_nothing_but_a_checkpoint_and_the_parallelism_can_be_chosen(
    host: Client, ended: JobHarness, starts: Starts
) -> None:
    body = {"savepoint-path": newest(host, ended), "program": "/bin/sh"}
    answer = host.request("POST", f"/jobs/{ended.job_id}/start-again", body)
    assert (answer.status, starts.asked) == (400, [])
