"""A job in this process, its server, and the link to its page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browsing import Open, browser, opened
from tests.live_job import LiveJob, counting, some_words

from weir.rest import RestServer
from weir.rest.assets import page_link

__all__ = ["Open", "browser", "opened"]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveJob]:
    job = LiveJob(tmp_path / "job", counting(), some_words).start()
    yield job
    job.close()


@pytest.fixture
def server(live: LiveJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestServer]:
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    server = RestServer(ports=(0,))
    server.register(live.control)
    server.start()
    yield server
    server.close()


@pytest.fixture
def link(server: RestServer, live: LiveJob) -> str:
    return page_link(server.url, server.token, live.control.job_id)
