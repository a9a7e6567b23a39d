"""One job with everything to show, served on loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.rest.client import Client
from tests.unit.rest.samples import sample_job

from weir.rest import RestServer
from weir.testing.manual_job import ManualJob


@pytest.fixture(autouse=True)
def _run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))


@pytest.fixture
def job() -> ManualJob:
    return sample_job()


@pytest.fixture
def server(job: ManualJob) -> Iterator[RestServer]:
    server = RestServer(ports=(0,))
    server.register(job)
    server.start()
    yield server
    server.close()


@pytest.fixture
def client(server: RestServer) -> Client:
    return Client(server.url, server.token)
