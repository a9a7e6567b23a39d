"""What no job in this process has, in a real browser: sources of Spark, settings, marks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.browsing import Open
from tests.page.test_views import rows, tab
from tests.unit.rest.samples import JOB_ID, START, sample_job

from weir.jobmanager.backlog import Backlog, SourceBacklog
from weir.jobmanager.timeline import Event, Point, TimelineView
from weir.rest import RestServer
from weir.rest.assets import page_link
from weir.testing.manual_job import ManualJob

pytestmark = pytest.mark.browser


@pytest.fixture
def job() -> ManualJob:
    return sample_job()


@pytest.fixture
def page(job: ManualJob, opened: Open) -> Iterator[Any]:
    server = RestServer(ports=(0,))
    server.register(job)
    server.start()
    yield opened(page_link(server.url, server.token, JOB_ID))
    server.close()


def test_sources_tell_rows_and_time_behind_and_positions(page: Any, job: ManualJob) -> None:
    job.backlog = Backlog(
        (SourceBacklog("topic payments", 500, 900.0, 1_000.0, '{"0": 40}', '{"0": 2540}', 2_500),)
    )
    source = rows(page, "Sources")
    source.filter(has_text="2,500").wait_for()
    told = source.first.locator("td").all_inner_texts()
    assert told == [
        *("topic payments", "500", "900/s", "1,000/s", "2,500", "2.5 s"),
        *('{"0": 40}', '{"0": 2540}'),
    ]


def test_settings_tell_where_they_come_from_and_are_found(page: Any, job: ManualJob) -> None:
    job.change(
        configuration={"parallelism.default": "2", "state.backend.type": "rocksdb"},
        origins={"parallelism.default": "the command line", "state.backend.type": "weir-conf.yaml"},
    )
    tab(page, "Configuration")
    found = rows(page, "Settings")
    found.nth(1).wait_for()
    page.get_by_label("Find").fill("ROCKS")
    found.nth(1).wait_for(state="detached")
    told = found.first.locator("td").all_inner_texts()
    assert told == ["state.backend.type", "rocksdb", "weir-conf.yaml"]
    page.get_by_label("Find").fill("nobody set this")
    page.get_by_text("No setting has that in it.").wait_for()


RED = """() => {
  const name = getComputedStyle(document.documentElement).getPropertyValue("--bad").trim();
  const wanted = [1, 3, 5].map((at) => parseInt(name.slice(at, at + 2), 16));
  const canvas = document.querySelector(".chart canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    const near = wanted.every((part, i) => Math.abs(data[at + i] - part) < 40);
    found += near && data[at + 3] > 60;
  }
  return found;
}"""
"""How much of the first chart has the colour of marks for what went wrong."""


def test_a_restart_is_a_mark_on_the_time_lines(page: Any, job: ManualJob) -> None:
    points = tuple(Point(START + n * 1_000, 1_000, 50) for n in range(1, 60))
    job.times = TimelineView(points, points)
    page.locator(".chart canvas").first.wait_for()
    before = page.evaluate(RED)
    job.times = TimelineView(points, points, (Event(START + 30_000, "restart", "attempt 1"),))
    rows(page, "Events").first.wait_for()
    page.wait_for_function(f"before => ({RED})() > before + 20", arg=before)
