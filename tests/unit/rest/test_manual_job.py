"""The steered job behaves as tests of commands need it, and can be found as a real one is."""

import os
import urllib.request
from pathlib import Path

import pytest

from weir.config import Settings
from weir.errors import StorageError, UsageError
from weir.jobmanager.directory import running
from weir.rest import RestServer, RestSettings, endpoint
from weir.rest import server as server_module
from weir.testing.manual_job import ManualJob, serve


def test_a_served_job_is_found_and_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEIR_RUN_DIR", raising=False)
    job = ManualJob("steered")
    with serve(job, tmp_path, token="secret") as server:
        (entry,) = running()
        assert (entry.job_id, entry.name, entry.pid) == (job.job_id, "steered", os.getpid())
        assert (entry.url, entry.token) == (server.url, "secret")
        request = urllib.request.Request(f"{entry.url}/jobs")
        request.add_header("Authorization", f"Bearer {entry.token}")
        with urllib.request.urlopen(request) as answer:
            assert job.job_id in answer.read().decode()
    assert list(tmp_path.iterdir()) == []
    assert "WEIR_RUN_DIR" not in os.environ


def test_operations_complete_by_themselves_or_by_the_test() -> None:
    job = ManualJob()
    assert job.rescale(4).result() == 4
    assert job.view().parallelism == 4
    assert job.stop("/sp", drain=True).result().startswith(f"/sp/savepoint-{job.job_id[:6]}-")
    assert (job.view().status, job.last.arguments["drain"]) == ("FINISHED", True)
    waiting = ManualJob(autocomplete=False)
    future = waiting.checkpoint(full=True)
    assert not future.done()
    waiting.last.future.set_result(7)
    assert future.result() == 7


def test_operations_fail_as_the_test_wants() -> None:
    job = ManualJob()
    with pytest.raises(UsageError, match="nothing was asked"):
        _ = job.last
    job.refuse("cancel", UsageError("no"))
    with pytest.raises(UsageError):
        job.cancel()
    job.fail("savepoint", StorageError("full"))
    with pytest.raises(StorageError):
        job.savepoint().result()
    assert job.view().status == "RUNNING"


def test_a_process_has_one_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_servers", {})
    first = endpoint(RestSettings(ports=(0,)))
    try:
        assert isinstance(first, RestServer)
        assert endpoint(RestSettings(ports=(0,))) is first
        assert endpoint(RestSettings.of(Settings([{"s3.region": "moon"}]))) is first
        assert first.cluster.storage_options.s3_region == "moon"
    finally:
        first.close()
