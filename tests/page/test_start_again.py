"""A job is stopped on its page, and started again from its savepoint on the page of the host.

Everything is real but Spark: the programs are processes that `weir run -d` starts, and the new one
restores the state that the old one left.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import Open
from tests.live_job import counting, some_words
from tests.page.counting_program import ROOT
from tests.page.test_actions import note, press
from tests.page.test_views import rows, tab
from tests.spark.scenario import wait_until
from tests.unit.rest.test_host import announce

from weir.cli.host_page import start_program
from weir.jobmanager import directory
from weir.jobmanager.past import keep
from weir.rest import RestServer
from weir.rest.assets import page_link
from weir.rest.host import HostCluster
from weir.storage.local import LocalStorage
from weir.testing.harness import HarnessOptions, JobHarness

pytestmark = pytest.mark.browser
PROGRAM = ROOT / "tests" / "page" / "counting_program.py"


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of jobs of our own; whatever still runs in it ends with the test."""
    folder = tmp_path / "run"
    monkeypatch.setenv("WEIR_RUN_DIR", str(folder))
    yield folder
    for entry in directory.running():
        os.kill(entry.pid, signal.SIGKILL)


@pytest.fixture
def host(run_dir: Path) -> Iterator[RestServer]:
    server = RestServer(ports=(0,), cluster=HostCluster(start_program))
    server.start()
    yield server
    server.close()


def started(folder: Path) -> directory.JobEntry:
    """Start the program as a user does; return its job."""
    process = subprocess.Popen([sys.executable, str(PROGRAM), str(folder)], cwd=ROOT)
    wait_until(directory.running, 60, "the start of the program")
    process.returncode = 0  # nobody waits for it: it ends with its job
    return directory.running()[0]


def told(page: Any, text: str) -> None:
    """Wait for what takes a new process some time."""
    page.get_by_role("status").get_by_text(re.compile(text)).wait_for(timeout=60_000)


def test_a_job_is_started_again_from_its_savepoint(
    opened: Open, host: RestServer, tmp_path: Path
) -> None:
    first = started(tmp_path / "job with a blank")
    # The process of the job ends with it, and whoever asks it then gets no answer.
    page = opened(page_link(first.url, first.token, first.job_id), allow="ERR_")
    page.locator("g.box", has_text=re.compile(r"in [1-9]")).first.wait_for()
    press(page, "Stop").get_by_role("button", name="Stop the job").click()
    note(page, "has stopped with savepoint|process of the job has ended")

    page = opened(page_link(host.url, host.token))
    rows(page, "Jobs that have ended").get_by_role("link").click()
    page.locator("h1 + .badge", has_text="FINISHED").wait_for()
    tab(page, "Checkpoints")
    savepoint = rows(page, "History of checkpoints").filter(has_text="savepoint").first
    savepoint.get_by_role("button", name=re.compile("Start again")).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("counting_program.py").wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert [entry.job_id for entry in directory.known()] == [first.job_id]

    savepoint.get_by_role("button", name=re.compile("Start again")).click()
    dialog.get_by_label("Parallelism").fill("3")
    dialog.get_by_role("button", name="Start it").click()
    told(page, r"Start again: under way for \d+ s")
    told(page, r"Job [0-9a-f]{32} has started")
    (second,) = directory.running()
    assert second.job_id != first.job_id
    assert (second.program, second.arguments) == (str(PROGRAM), first.arguments)
    link = page.get_by_role("link", name="Show it").get_attribute("href")
    page.get_by_role("link", name="Jobs").click()
    rows(page, "Running jobs").filter(has_text=second.job_id).wait_for()

    page.goto(link)
    page.get_by_label("Job", exact=True).get_by_text("parallelism").wait_for()
    assert page.url.startswith(second.url)
    tab(page, "Checkpoints")
    left = next(e for e in directory.known() if e.job_id == first.job_id).savepoint
    page.get_by_label("Counts").get_by_text(str(left)).wait_for()
    tab(page, "Configuration")
    press(page, "Cancel").get_by_role("button", name="Cancel the job").click()


def test_a_program_that_fails_says_so_on_the_page(
    opened: Open, host: RestServer, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('the program has a <b>hole</b>')")
    storage = LocalStorage(str(tmp_path / "dead"))
    job = JobHarness(counting().build_graph("dead"), 2, HarnessOptions(storage=storage)).start()
    job.run_epoch(some_words(1))
    job.checkpoint()
    keep(job.control)
    announce(job, storage.uri, process="1", program=str(broken), work_dir=str(tmp_path))
    page = opened(page_link(host.url, host.token, job.job_id))
    tab(page, "Checkpoints")
    page.get_by_role("button", name="Start again from 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Start it").click()
    told(page, "has a <b>hole</b>")
    assert directory.running() == []
