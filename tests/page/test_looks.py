"""How the page is to everybody: dark, narrow, by keyboard, by name, large, and all day long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.browsing import Open
from tests.page.test_views import rows, tab
from tests.unit.rest.samples import COUNT, JOB_ID, START, sample_history, sample_job, sample_view

from weir.jobmanager.history import CheckpointEntry, HistoryView, SubtaskEntry
from weir.jobmanager.timeline import Event, Point, SlotPoint, TimelineView
from weir.rest import RestServer
from weir.rest.assets import page_link
from weir.testing.manual_job import ManualJob

pytestmark = pytest.mark.browser
LITTLE, MUCH = 400, 2_500
PAINTS, FIRST_PAINT_MS = 20, 300
CONTENT = {
    "Checkpoints": "[aria-label='History of checkpoints'] tbody tr",
    "State": "[aria-label='Positions of sources'] tbody tr",
    "Exceptions": "main > p",
    "Logs": "main pre",
    "Configuration": "[aria-label=Execution]",
    "Threads": "main summary",
    "Job": "g.box",
}
"""What each view shows once its answers are there."""
VIEWS = tuple(CONTENT)


@pytest.fixture
def crowd() -> Iterator[RestServer]:
    """A hundred jobs, one of which remembers a thousand checkpoints."""
    server = RestServer(ports=(0,))
    for number in range(99):
        view = replace(sample_view(), job_id=f"{number:032x}", name=f"job {number}")
        job = ManualJob(view=view)
        job.checkpoints = sample_history()
        server.cluster._jobs[job.job_id] = job
    acks = {i: SubtaskEntry(i, START, 1, 2, 3, 4, {COUNT: 5}) for i in range(2)}
    many = tuple(
        CheckpointEntry(n, START + n, 2, status="COMPLETED", acks=acks, path=f"file:///chk-{n}")
        for n in range(1000, 0, -1)
    )
    job = sample_job()
    job.checkpoints = HistoryView(1000, 1000, entries=many)
    server.register(job)
    server.start()
    yield server
    server.close()


def test_a_hundred_jobs_and_a_thousand_checkpoints_are_usable(
    opened: Open, crowd: RestServer
) -> None:
    page = opened(page_link(crowd.url, crowd.token))
    rows(page, "Running jobs").nth(99).wait_for()
    page.goto(f"{crowd.url}/#/jobs/{JOB_ID}/checkpoints")
    history = rows(page, "History of checkpoints")
    history.nth(24).wait_for()
    assert history.count() == 25
    page.get_by_role("button", name="Show all 1000").click()
    history.nth(999).wait_for()


def test_dark_and_light_differ_and_both_can_be_read(opened: Open, link: str) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page = opened(link, color_scheme=scheme)
        page.locator("g.box").first.wait_for()
        colours[scheme] = page.evaluate(
            "(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))"
        )
        assert contrast(*colours[scheme]) > 7
    assert colours["light"] != colours["dark"]


def contrast(ink: str, paper: str) -> float:
    def light(text: str) -> float:
        parts = [int(n) / 255 for n in text.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(ink), light(paper)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_a_phone_shows_all_views_without_scrolling_sideways(opened: Open, link: str) -> None:
    page = opened(link, viewport={"width": 390, "height": 800})
    page.locator("g.box").first.wait_for()
    for view in VIEWS:
        tab(page, view)
        page.locator(CONTENT[view]).first.wait_for()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, view
    for action in ("Checkpoint", "Savepoint", "Rescale", "Stop", "Cancel"):
        page.get_by_role("group", name="Actions").get_by_role("button", name=action).click()
        box = page.get_by_role("dialog").bounding_box()
        assert box["x"] >= 0, action
        assert box["x"] + box["width"] <= 390, action
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")


def test_whatever_can_be_pressed_or_filled_has_a_name(opened: Open, link: str) -> None:
    page = opened(link)
    for view in VIEWS:
        tab(page, view)
        page.locator("main > *").first.wait_for()
        nameless = page.evaluate(
            """() => [...document.querySelectorAll(
                'button, a, input, select, [role=button], [role=img], meter, dialog')]
            .filter(e => !(e.textContent.trim() || e.ariaLabel
                || e.getAttribute('aria-labelledby') || (e.labels && e.labels.length)))
            .map(e => e.outerHTML)"""
        )
        assert nameless == [], view


def test_everything_is_reached_by_the_tab_key(opened: Open, link: str) -> None:
    page = opened(link)
    page.locator("g.box").first.wait_for()
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent.trim().slice(0, 20)"))
    assert {"Checkpoint", "Savepoint", "Stop", "Cancel", "Checkpoints", "State"} <= reached


def test_the_first_paint_comes_soon(opened: Open, link: str) -> None:
    page = opened(link)
    took = []
    # Tests share their machine, so one of several has to be as fast as all are on an idle one.
    while len(took) < PAINTS and not any(ms < FIRST_PAINT_MS for ms in took):
        page.reload()
        page.locator("g.box").first.wait_for()
        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        took.append(page.evaluate(paint))
    assert min(took) < FIRST_PAINT_MS, took


def test_a_page_that_is_open_for_long_keeps_nothing(opened: Open, link: str) -> None:
    page = opened(link)
    page.locator("g.box").first.wait_for()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def round_trip() -> dict[str, float]:
        for view in VIEWS:
            tab(page, view)
            page.locator("main > *").first.wait_for()
        page.locator("g.box").first.wait_for()
        session.send("HeapProfiler.collectGarbage")
        found: Any = session.send("Performance.getMetrics")["metrics"]
        return {metric["name"]: metric["value"] for metric in found}

    for _ in range(3):
        before = round_trip()
    for _ in range(10):
        after = round_trip()
    assert after["JSEventListeners"] <= before["JSEventListeners"] * 1.2 + 50
    assert after["Nodes"] <= before["Nodes"] * 1.3 + 500
    assert page.locator(".uplot").count() <= 10


POLLS = """
const wait = window.setTimeout.bind(window), ask = window.fetch.bind(window);
const kept = new Map();
window.polls = 0;
window.setTimeout = (f, ms, ...rest) => wait(f, ms >= 1000 ? 1 : ms, ...rest);
window.fetch = async (path, options) => {
  window.polls += 1;
  if (!kept.has(path)) kept.set(path, await (await ask(path, options)).text());
  const later = (moment) => String(Number(moment) + window.polls);
  return new Response(kept.get(path).replaceAll(/\\b17000000\\d{5}\\b/g, later));
};
"""
"""The clock of the page runs as fast as it can: answers are the first ones, later by a bit."""


def test_a_page_that_is_open_all_day_stays_as_small_as_it_was(opened: Open) -> None:
    job = sample_job()
    points = tuple(
        Point(
            START + n * 1_000,
            1_000,
            records_in=n,
            epochs=1,
            epoch_ms=90 + n % 7,
            spark_ms=20,
            level_0_ms=30,
            shuffle_ms=15,
            slot_ms=25 + n % 7,
            latency_ms=900 + n % 50,
            slots=tuple(SlotPoint(i, 5_000_000 + n, 0.5, (n % 10) / 10) for i in range(2)),
        )
        for n in range(60)
    )
    events = tuple(Event(START + n * 1_000, "restart", f"attempt {n}") for n in range(20))
    job.times = TimelineView(points, points, events)
    server = RestServer(ports=(0,))
    server.register(job)
    server.start()
    page = opened()
    page.add_init_script(POLLS)
    page.goto(page_link(server.url, server.token, JOB_ID))
    page.locator(".uplot").nth(4).wait_for()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def after(polls: int) -> dict[str, float]:
        page.wait_for_function("n => window.polls >= n", arg=polls, timeout=60_000)
        session.send("HeapProfiler.collectGarbage")
        found: Any = session.send("Performance.getMetrics")["metrics"]
        return {metric["name"]: metric["value"] for metric in found}

    early, late = after(LITTLE), after(MUCH)
    server.close()
    assert late["Nodes"] <= early["Nodes"] * 1.2 + 300
    assert late["JSEventListeners"] <= early["JSEventListeners"] * 1.2 + 50
    assert late["JSHeapUsedSize"] <= early["JSHeapUsedSize"] * 1.25 + 1_000_000
    assert late["Documents"] <= early["Documents"] + 1
