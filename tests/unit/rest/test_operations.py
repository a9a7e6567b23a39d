"""Triggers and their outcomes, by Flink's conventions for asynchronous operations."""

import json
import zlib
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rest.client import Client
from tests.unit.rest.samples import COUNT, JOB_ID, SOURCE

from weir.checkpoint.metadata import CheckpointMetadata, FileRecord
from weir.checkpoint.store import write_metadata
from weir.errors import CorruptStateError, StorageError, UsageError
from weir.jobmanager.history import CheckpointEntry, HistoryView
from weir.rest.operations import KEPT_MAX, KEPT_MS, Operations
from weir.rest.routing import RefusedError
from weir.storage import LocalStorage
from weir.storage.base import MissingFileError
from weir.testing import ManualClock
from weir.testing.manual_job import ManualJob

JOB = f"/jobs/{JOB_ID}"
TRIGGER = "1234" * 8


def started(client: Client, path: str, body: Any = None, method: str = "POST") -> str:
    answer = client.request(method, path, body)
    assert answer.status == 202, answer.raw
    assert set(answer.json) == {"request-id"}
    return answer.json["request-id"]


def test_a_savepoint_is_in_progress_until_it_is_there(client: Client, job: ManualJob) -> None:
    job.autocomplete = False
    trigger = started(client, f"{JOB}/savepoints", {"target-directory": "/sp"})
    outcome = f"{JOB}/savepoints/{trigger}"
    assert client.json(outcome) == {"status": {"id": "IN_PROGRESS"}, "operation": None}
    job.last.future.set_result("/sp/savepoint-1")
    assert client.json(outcome) == {
        "status": {"id": "COMPLETED"},
        "operation": {"location": "/sp/savepoint-1"},
    }
    assert job.last.arguments == {"directory": "/sp", "form": "CANONICAL"}


def test_without_a_directory_the_default_one_is_used(client: Client, job: ManualJob) -> None:
    started(client, f"{JOB}/savepoints", {"formatType": "NATIVE"})
    assert job.last.arguments == {"directory": None, "form": "NATIVE"}
    started(client, f"{JOB}/savepoints")
    assert job.last.arguments == {"directory": None, "form": "CANONICAL"}


@pytest.mark.parametrize("path", ["savepoints", "stop"])
def test_without_any_directory_nothing_is_started(
    client: Client, job: ManualJob, path: str
) -> None:
    job.change(savepoint_dir=None)
    answer = client.request("POST", f"{JOB}/{path}", {})
    assert answer.status == 400
    assert "directory" in answer.errors[0]
    assert job.calls == []


def test_cancel_job_cancels_with_the_savepoint(client: Client, job: ManualJob) -> None:
    trigger = started(client, f"{JOB}/savepoints", {"cancel-job": True})
    assert job.last.name == "cancel_with_savepoint"
    assert "location" in client.json(f"{JOB}/savepoints/{trigger}")["operation"]
    assert client.json(f"{JOB}/status") == {"status": "CANCELED"}


def test_stop_is_asked_about_where_savepoints_are(client: Client, job: ManualJob) -> None:
    body = {"drain": True, "targetDirectory": "/sp", "formatType": "NATIVE"}
    trigger = started(client, f"{JOB}/stop", body)
    assert job.last.name == "stop"
    assert job.last.arguments == {"directory": "/sp", "drain": True, "form": "NATIVE"}
    outcome = client.json(f"{JOB}/savepoints/{trigger}")
    assert outcome["operation"]["location"].startswith("/sp/savepoint-012345-")


def test_a_known_trigger_id_starts_nothing_again(client: Client, job: ManualJob) -> None:
    job.autocomplete = False
    for _ in range(2):
        assert started(client, f"{JOB}/savepoints", {"triggerId": TRIGGER}) == TRIGGER
    assert len(job.calls) == 1
    assert started(client, f"{JOB}/checkpoints", {"triggerId": TRIGGER}) == TRIGGER
    assert [call.name for call in job.calls] == ["savepoint", "checkpoint"]


@pytest.mark.parametrize(("kind", "full"), [("CONFIGURED", False), ("FULL", True)])
def test_a_checkpoint_gives_its_id(client: Client, job: ManualJob, kind: str, full: bool) -> None:
    trigger = started(client, f"{JOB}/checkpoints", {"checkpointType": kind})
    assert job.last.arguments == {"full": full}
    answer = client.json(f"{JOB}/checkpoints/{trigger}")
    assert answer == {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": 1}}


def test_an_incremental_checkpoint_cannot_be_asked_for(client: Client, job: ManualJob) -> None:
    answer = client.request("POST", f"{JOB}/checkpoints", {"checkpointType": "INCREMENTAL"})
    assert (answer.status, job.calls) == (400, [])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StorageError("disk full"), "StorageError"),
        (CorruptStateError("torn file"), "CorruptStateError"),
        (MissingFileError("no such directory"), "StorageError"),
    ],
)
def test_a_failure_is_told_by_kind_and_message_without_a_trace(
    client: Client, job: ManualJob, error: Exception, kind: str
) -> None:
    job.fail("savepoint", error)
    trigger = started(client, f"{JOB}/savepoints")
    answer = client.json(f"{JOB}/savepoints/{trigger}")
    assert answer["status"]["id"] == "COMPLETED"
    assert answer["operation"] == {
        "failure-cause": {
            "class": f"weir.errors.{kind}",
            "stack-trace": str(error),
        }
    }


def test_an_operation_that_was_given_up_has_failed(client: Client, job: ManualJob) -> None:
    job.autocomplete = False
    trigger = started(client, f"{JOB}/checkpoints")
    assert job.last.future.cancel()
    assert "failureCause" in client.json(f"{JOB}/checkpoints/{trigger}")["operation"]


@pytest.mark.parametrize(
    ("error", "status"),
    [(UsageError("no"), 400), (CorruptStateError("no"), 409), (StorageError("no"), 500)],
)
def test_what_a_job_refuses_at_once_is_an_error_of_the_request(
    client: Client, job: ManualJob, error: Exception, status: int
) -> None:
    job.refuse("savepoint", error)
    answer = client.request("POST", f"{JOB}/savepoints")
    assert (answer.status, answer.errors) == (status, ["no"])


def test_a_mistake_of_the_program_shows_no_trace(client: Client, job: ManualJob) -> None:
    job.refuse("savepoint", ZeroDivisionError("private detail"))
    answer = client.request("POST", f"{JOB}/savepoints")
    assert answer.status == 500
    assert b"private" not in answer.raw
    assert b"Traceback" not in answer.raw


@pytest.mark.parametrize(
    "path", [f"{JOB}/savepoints", f"{JOB}/checkpoints", f"{JOB}/rescaling", "/savepoint-disposal"]
)
def test_an_unknown_operation_is_not_found(client: Client, path: str) -> None:
    answer = client.get(f"{path}/{TRIGGER}")
    assert answer.status == 404
    assert TRIGGER in answer.errors[0]


@pytest.mark.parametrize("query", ["", "?mode=cancel"])
def test_cancel_cancels(client: Client, job: ManualJob, query: str) -> None:
    answer = client.request("PATCH", JOB + query)
    assert (answer.status, answer.json) == (202, {})
    assert job.last.name == "cancel"


@pytest.mark.parametrize("mode", ["stop", "nonsense"])
def test_other_modes_of_ending_are_refused(client: Client, job: ManualJob, mode: str) -> None:
    assert client.request("PATCH", f"{JOB}?mode={mode}").status == 400
    assert job.calls == []


def test_a_canceled_job_can_be_canceled_again_but_not_a_finished_one(
    client: Client, job: ManualJob
) -> None:
    job.change(status="CANCELED")
    assert client.request("PATCH", JOB).status == 202
    job.change(status="FINISHED")
    assert client.request("PATCH", JOB).status == 409
    assert job.calls == []


def test_rescaling_gives_nothing_but_its_end(client: Client, job: ManualJob) -> None:
    job.autocomplete = False
    trigger = started(client, f"{JOB}/rescaling?parallelism=3", method="PATCH")
    assert job.last.arguments == {"parallelism": 3}
    assert client.json(f"{JOB}/rescaling/{trigger}")["status"]["id"] == "IN_PROGRESS"
    job.last.future.set_result(3)
    answer = client.json(f"{JOB}/rescaling/{trigger}")
    assert answer == {"status": {"id": "COMPLETED"}, "operation": {}}


@pytest.mark.parametrize("query", ["", "?parallelism=0", "?parallelism=-1", "?parallelism=x"])
def test_a_parallelism_that_cannot_be_is_refused(
    client: Client, job: ManualJob, query: str
) -> None:
    assert client.request("PATCH", f"{JOB}/rescaling{query}").status == 400
    assert job.calls == []


def bounds(**upper: int) -> dict[str, Any]:
    ids = {"source": SOURCE, "count": COUNT}
    return {
        ids[name]: {"parallelism": {"lowerBound": 1, "upperBound": value}}
        for name, value in upper.items()
    }


def test_requirements_rescale_all_operators_together(client: Client, job: ManualJob) -> None:
    path = f"{JOB}/resource-requirements"
    assert client.json(path) == bounds(source=2, count=2)
    same = client.request("PUT", path, bounds(source=2, count=2))
    assert (same.status, same.json, job.calls) == (200, {}, [])
    assert client.request("PUT", path, bounds(source=3, count=3)).status == 200
    assert job.last.arguments == {"parallelism": 3}


@pytest.mark.parametrize(
    "body",
    [
        bounds(count=3),
        bounds(source=2, count=3),
        {**bounds(source=3, count=3), "c" * 32: {"parallelism": {"upperBound": 3}}},
        {v: {"parallelism": {"lowerBound": 4, "upperBound": 3}} for v in (SOURCE, COUNT)},
        {v: {"parallelism": {"lowerBound": 0, "upperBound": 0}} for v in (SOURCE, COUNT)},
    ],
)
def test_requirements_that_cannot_be_met_are_refused(
    client: Client, job: ManualJob, body: dict[str, Any]
) -> None:
    assert client.request("PUT", f"{JOB}/resource-requirements", body).status == 400
    assert job.calls == []


def disposed(client: Client, path: str) -> dict[str, Any]:
    """Dispose of a path and return how it went."""
    trigger = started(client, "/savepoint-disposal", {"savepoint-path": path})
    for _ in range(5000):
        answer = client.json(f"/savepoint-disposal/{trigger}")
        if answer["status"]["id"] == "COMPLETED":
            return answer["operation"]
    raise AssertionError(answer)


def savepoint_in(folder: Path) -> Path:
    storage, name = LocalStorage(str(folder)), "savepoint-012345-0123456789ab"
    storage.create(f"{name}/state-s0-a0-01", b"state")
    own = FileRecord("state-s0-a0-01", 5, zlib.crc32(b"state"), 0)
    metadata = CheckpointMetadata(
        checkpoint_id=7,
        job_id="e" * 32,
        job_name="old",
        timestamp_ms=0,
        kind="savepoint",
        epoch=3,
        files=(own,),
    )
    write_metadata(storage, name, metadata)
    return folder / name


def test_a_disposed_savepoint_is_gone_and_cannot_be_disposed_of_again(
    client: Client, job: ManualJob, tmp_path: Path
) -> None:
    job.change(savepoint_dir=str(tmp_path))
    path = savepoint_in(tmp_path)
    assert disposed(client, str(path)) == {}
    assert not (path / "_metadata").exists()
    assert disposed(client, str(path))["failure-cause"]["class"] == "weir.errors.UsageError"


def test_a_savepoint_that_the_job_took_elsewhere_can_be_disposed_of(
    client: Client, job: ManualJob, tmp_path: Path
) -> None:
    path = savepoint_in(tmp_path)
    taken = CheckpointEntry(7, 1, 1, is_savepoint=True, status="COMPLETED", path=f"file://{path}")
    job.checkpoints = HistoryView(entries=(taken,))
    assert disposed(client, str(path)) == {}
    assert not path.exists()


@pytest.mark.parametrize("spelling", ["{}", "file://{}", "{}/../../elsewhere/{name}", "{}-link"])
def test_nothing_is_disposed_of_but_in_the_places_of_jobs(
    client: Client, job: ManualJob, tmp_path: Path, spelling: str
) -> None:
    known = tmp_path / "known"
    known.mkdir()
    job.change(savepoint_dir=str(known), checkpoint_dir="s3://bucket/c")
    path = savepoint_in(tmp_path / "elsewhere")
    (known / "x").mkdir()
    (known / "x-link").symlink_to(path)
    given = str(path) if "link" not in spelling and ".." not in spelling else str(known / "x")
    cause = disposed(client, spelling.format(given, name=path.name))["failure-cause"]
    assert cause["class"] == "weir.errors.UsageError"
    assert "does not lie in a directory that is configured" in cause["stack-trace"]
    assert (path / "_metadata").exists()


def test_disposing_of_what_is_no_savepoint_fails_and_deletes_nothing(
    client: Client, tmp_path: Path
) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("data")
    cause = disposed(client, str(tmp_path))["failure-cause"]
    assert cause["class"].startswith("weir.errors.")
    assert "Traceback" not in cause["stack-trace"]
    assert precious.read_text() == "data"


@pytest.mark.parametrize("body", [{}, {"savepoint-path": ""}, {"savepoint-path": 3}])
def test_a_disposal_needs_a_path(client: Client, body: dict[str, Any]) -> None:
    assert client.request("POST", "/savepoint-disposal", body).status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff\xfe",
        json.dumps({"unknown": 1}).encode(),
        json.dumps({"cancel-job": "yes"}).encode(),
        json.dumps({"formatType": "OTHER"}).encode(),
        json.dumps({"triggerId": "../../etc"}).encode(),
        b"[" * 30_000,
    ],
)
def test_a_body_of_another_shape_is_refused(client: Client, job: ManualJob, body: bytes) -> None:
    answer = client.request("POST", f"{JOB}/savepoints", body)
    assert answer.status == 400
    assert answer.errors
    assert job.calls == []


def done(value: object = None) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def test_while_one_operation_is_asked_for_others_go_on_and_it_is_not_asked_for_twice() -> None:
    operations = Operations(ManualClock())
    known = operations.start("c", JOB_ID, None, done)
    asked = []

    def slow() -> Future[Any]:
        asked.append(True)
        assert operations.find("c", JOB_ID, known).done()
        assert operations.start("c", JOB_ID, TRIGGER, slow) == TRIGGER
        assert not operations.find("c", JOB_ID, TRIGGER).done()
        return done("result")

    operations.start("c", JOB_ID, TRIGGER, slow)
    assert operations.find("c", JOB_ID, TRIGGER).result() == "result"
    assert asked == [True]


def test_an_operation_that_was_refused_can_be_asked_for_again() -> None:
    operations = Operations(ManualClock())

    def refuse() -> Future[Any]:
        msg = "no"
        raise UsageError(msg)

    with pytest.raises(UsageError):
        operations.start("c", JOB_ID, TRIGGER, refuse)
    operations.start("c", JOB_ID, TRIGGER, done)
    assert operations.find("c", JOB_ID, TRIGGER).done()


def test_results_are_forgotten_after_five_minutes() -> None:
    clock = ManualClock()
    operations = Operations(clock)
    trigger = operations.start("savepoint", JOB_ID, None, done)
    under_way = operations.start("savepoint", JOB_ID, None, Future)
    operations.find("savepoint", JOB_ID, trigger)
    clock.advance(KEPT_MS - 1)
    operations.find("savepoint", JOB_ID, trigger)
    clock.advance(1)
    with pytest.raises(RefusedError):
        operations.find("savepoint", JOB_ID, trigger)
    operations.find("savepoint", JOB_ID, under_way)


def test_a_thousand_results_are_kept_and_the_oldest_goes_first() -> None:
    operations = Operations(ManualClock())
    triggers = [operations.start("c", JOB_ID, f"{i:032x}", done) for i in range(KEPT_MAX + 1)]
    operations.find("c", JOB_ID, triggers[-1])
    with pytest.raises(RefusedError):
        operations.find("c", JOB_ID, triggers[0])


@pytest.mark.slow
def test_a_thousand_operations_under_way_are_enough() -> None:
    operations = Operations(ManualClock())
    for _ in range(KEPT_MAX):
        operations.start("c", JOB_ID, None, Future)
    with pytest.raises(RefusedError) as refused:
        operations.start("c", JOB_ID, None, Future)
    assert refused.value.status == 409
