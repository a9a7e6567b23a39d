"""A program of `weir run` is stopped on its page, and started again on the page of the host.

Everything is as users have it: `weir run -d`, `weir page`, Chromium, Spark, and output in files,
which has to be exact over both jobs.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from tests.browsing import browser, opened
from tests.page.test_actions import note, press
from tests.page.test_views import rows, tab
from tests.spark.feeding import PROGRAM, WEIR, Feed
from tests.spark.scenario import wait_until

from weir.jobmanager import directory

__all__ = ["browser", "opened"]
pytestmark = [pytest.mark.spark, pytest.mark.browser, pytest.mark.timeout(300)]
MASTER = "local[2]"


@pytest.fixture
def fed(feed: Feed) -> Iterator[Feed]:
    """Only the command line says where Spark is; whatever still runs ends with the test."""
    feed.environment.pop("SPARK_MASTER")
    yield feed
    for entry in directory.running():
        feed.weir("cancel", entry.job_id)


@pytest.fixture
def host(fed: Feed) -> Iterator[str]:
    """The link that `weir page` prints."""
    process = subprocess.Popen(
        [str(WEIR), "page", "--no-open"],
        env=fed.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=30)
    finally:
        process.kill()  # unless it has ended


def stop_by_its_page(page: Any) -> None:
    """From the list of the host to the page of the job, and stop it there."""
    rows(page, "Running jobs").get_by_role("link", name="feed").click()
    page.locator("g.box", has_text="100 records").first.wait_for(timeout=60_000)
    press(page, "Stop").get_by_role("button", name="Stop the job").click()
    page.get_by_role("status").get_by_text(re.compile("has stopped with|has ended")).wait_for(
        timeout=60_000
    )


def start_again_by_the_hosts(page: Any, parallelism: int) -> str:
    """Start the job that has ended from its savepoint; return the link to the new one."""
    rows(page, "Jobs that have ended").get_by_role("link", name="feed").click()
    page.locator("h1 + .badge", has_text="FINISHED").wait_for()
    tab(page, "Checkpoints")
    savepoint = rows(page, "History of checkpoints").filter(has_text="savepoint")
    savepoint.get_by_role("button", name=re.compile("Start again")).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Parallelism").fill(str(parallelism))
    dialog.get_by_role("button", name="Start it").click()
    note(page, r"Start again: under way for \d+ s")
    shown = page.get_by_role("link", name="Show it")
    shown.wait_for(timeout=120_000)
    return str(shown.get_attribute("href"))


def test_a_program_of_weir_run_goes_on_from_its_savepoint(fed: Feed, host: str, opened) -> None:
    first = fed.start("-p", "2", "--master", MASTER)["job_id"]
    # The process of the job ends with it, and whoever asks it then gets no answer.
    page = opened(host, allow="ERR_")
    stop_by_its_page(page)
    wait_until(lambda: not directory.running(), 60, "the end of the job")
    (ended,) = directory.known()
    assert (ended.status, ended.savepoint is not None) == ("FINISHED", True)

    page.goto(host)
    link = start_again_by_the_hosts(page, 3)
    (second,) = directory.running()
    assert second.job_id != first
    assert (second.program, second.arguments) == (str(PROGRAM), ended.arguments)
    assert (second.work_dir, second.master) == (ended.work_dir, MASTER)
    page.goto(link)
    assert page.url.startswith(second.url)
    page.get_by_label("Job", exact=True).filter(has_text=re.compile(r"parallelism\s*3")).wait_for()
    tab(page, "Checkpoints")
    page.get_by_label("Counts").get_by_text(str(ended.savepoint)).wait_for()

    # Sums that go on prove that state came along, and each row once that positions did.
    fed.add()
    fed.settle()
    assert fed.committed() == fed.expected()
    fed.weir("stop", second.job_id)
    fed.assert_over()
