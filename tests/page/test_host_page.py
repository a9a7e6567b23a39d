"""The page of a host in a real browser: a job that died is looked at, and started again."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browsing import Open
from tests.live_job import counting, some_words
from tests.page.test_views import rows, tab
from tests.unit.rest.test_host import Starts, announce

from weir.jobmanager.logs import DriverLog
from weir.jobmanager.past import keep
from weir.rest import RestServer
from weir.rest.assets import page_link
from weir.rest.host import HostCluster
from weir.storage.local import LocalStorage
from weir.testing.harness import HarnessOptions, JobHarness

pytestmark = pytest.mark.browser


def spoken(text: str) -> DriverLog:
    """The log of a driver that said one thing."""
    log = DriverLog()
    log.handle(logging.LogRecord("weir.job", logging.WARNING, "f", 1, text, (), None))
    return log


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[JobHarness]:
    """A job whose driver is gone, and one that runs elsewhere."""
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    made = []
    for name, process in (("dead", {"process": "1"}), ("alive", {})):
        storage = LocalStorage(str(tmp_path / name))
        options = HarnessOptions(storage=storage)
        job = JobHarness(counting().build_graph(name), 2, options).start()
        job.run_epoch(some_words(1))
        job.checkpoint()
        keep(job.control, driver_log=spoken("the last words of a driver"))
        announce(job, storage.uri, **process)
        made.append(job)
    return made


@pytest.fixture
def starts() -> Starts:
    return Starts()


@pytest.fixture
def host(jobs: list[JobHarness], starts: Starts) -> Iterator[RestServer]:
    server = RestServer(ports=(0,), cluster=HostCluster(starts))
    server.start()
    yield server
    server.close()


def test_a_job_that_died_is_looked_at_and_started_again(
    opened: Open, host: RestServer, jobs: list[JobHarness], starts: Starts
) -> None:
    alive = jobs[1]
    page = opened(page_link(host.url, host.token))
    link = rows(page, "Running jobs").get_by_role("link")
    link.wait_for()
    assert link.get_attribute("href") == f"http://localhost:1/#/jobs/{alive.job_id}?token=t"
    rows(page, "Jobs that have ended").get_by_role("link").click()
    page.locator("h1 + .badge", has_text="FAILED").wait_for()
    assert page.get_by_role("group", name="Actions").get_by_role("button").count() == 0
    page.locator("g.box", has_text="Count words").wait_for()
    tab(page, "Exceptions")
    page.get_by_text("is gone, and did not say why").first.wait_for()
    # The server of the host has a log and threads too, which are none of this job's.
    logging.getLogger("weir.test").warning("nobody's words")
    tab(page, "Logs")
    page.get_by_text("the last words of a driver").wait_for()
    assert page.get_by_text("nobody's words").count() == 0
    tab(page, "Threads")
    page.get_by_text("nothing of it runs").wait_for()
    tab(page, "State")
    page.get_by_role("button", name="total").click()
    rows(page, "Rows of total").nth(7).wait_for()
    tab(page, "Checkpoints")
    page.get_by_role("button", name="Start again from 1").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("test_host.py").wait_for()
    dialog.get_by_label("Parallelism").fill("4")
    dialog.get_by_role("button", name="Start it").click()
    page.get_by_role("status").get_by_text(re.compile(f"Job {'e' * 32} has started")).wait_for()
    assert [(Path(program).name, p) for program, _, p in starts.asked] == [("test_host.py", 4)]
