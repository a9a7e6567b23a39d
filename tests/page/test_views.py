"""Every view of the page in a real browser, against a job that runs in this process."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import Open
from tests.live_job import LiveJob, counting, some_words
from tests.spark.scenario import wait_until

from weir.backend.factory import BackendSettings
from weir.rest import RestServer
from weir.rest.assets import page_link

pytestmark = pytest.mark.browser


def tab(page: Any, name: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()


def rows(page: Any, caption: str) -> Any:
    return page.locator(f"[role=region][aria-label='{caption}'] tbody tr")


def test_the_link_shows_the_job_and_the_token_leaves_the_address(
    opened: Open, link: str, live: LiveJob
) -> None:
    page = opened(link)
    page.get_by_role("heading", name="words", exact=True).wait_for()
    assert "token" not in page.url
    assert page.title() == "words · Weir"
    page.reload()
    page.get_by_role("heading", name="words", exact=True).wait_for()
    page.get_by_role("link", name="Jobs").click()
    page.get_by_role("heading", name="Jobs").wait_for()
    assert rows(page, "Running jobs").count() == 1


def test_the_graph_shows_operators_with_their_exchange_and_states(opened: Open, link: str) -> None:
    page = opened(link)
    box = page.locator("g.box", has_text="Count words")
    box.wait_for()
    assert page.locator("g.box").count() == 3
    page.locator("g.edge", has_text="HASH").wait_for()
    page.locator("g.box", has_text="state: last, total").wait_for()
    page.locator("g.box", has_text=re.compile(r"in [1-9][\d,]*/s")).first.wait_for()
    box.click()
    page.get_by_role("heading", name="Count words").wait_for()
    assert rows(page, "Subtasks of Count words").count() == 2
    assert box.get_attribute("aria-pressed") == "true"


OFTEN = """
const wait = window.setTimeout.bind(window);
window.setTimeout = (f, ms, ...rest) => wait(f, ms >= 1000 ? 60 : ms, ...rest);
"""
LOST = """() => new Promise((resolve) => {
  let [looks, lost] = [0, 0];
  const look = () => {
    const boxes = [...document.querySelectorAll("g.box")].map((box) => box.textContent);
    lost += boxes.some((text) => text.includes("in \\u2013"));
    looks += 1;
    if (looks < 60) requestAnimationFrame(look); else resolve(lost);
  };
  look();
})"""


def test_rates_stay_while_other_things_are_asked_for(opened: Open, link: str) -> None:
    page = opened()
    page.add_init_script(OFTEN)
    page.goto(link)
    page.locator("g.box", has_text=re.compile(r"in [1-9][\d,]*/s")).first.wait_for()
    assert page.evaluate(LOST) == 0


def test_an_operator_is_chosen_by_keyboard(opened: Open, link: str) -> None:
    page = opened(link)
    box = page.locator("g.box", has_text="Count words")
    box.focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Count words").wait_for()
    page.keyboard.press(" ")
    page.get_by_text("Choose an operator").wait_for()


def test_time_lines_are_drawn_and_named(opened: Open, link: str) -> None:
    page = opened(link)
    chart = page.get_by_role("img", name=re.compile("Records per second: now into slots [1-9]"))
    chart.wait_for()
    assert chart.locator("canvas").count() == 1
    page.get_by_role("img", name=re.compile("Entries of keyed state: now entries [1-9]")).wait_for()
    page.get_by_role("checkbox", name=re.compile("since the job began")).check()
    chart.wait_for()


def test_checkpoints_have_a_history_details_and_settings(opened: Open, link: str) -> None:
    page = opened(link)
    tab(page, "Checkpoints")
    history = rows(page, "History of checkpoints")
    history.nth(2).wait_for()
    # What can be pressed is in sight, however long paths are.
    button = history.last.get_by_role("link", name=re.compile("State in")).bounding_box()
    assert button["x"] + button["width"] <= 1280
    history.filter(has_text="COMPLETED").first.get_by_role(
        "link", name=re.compile("Details")
    ).click()
    page.get_by_role("heading", name=re.compile(r"Checkpoint \d+")).wait_for()
    page.get_by_role("button", name="Count words").click()
    subtasks = rows(page, "Subtasks of Count words")
    subtasks.nth(1).wait_for()
    assert subtasks.count() == 2
    head = page.get_by_role("region", name="Subtasks of Count words").locator("th")
    assert head.all_inner_texts()[3:] == ["sync", "async", "written", "in flight", "alignment"]
    assert subtasks.first.locator("td").count() == head.count()
    page.get_by_text("5.0 s").first.wait_for()
    page.get_by_text("retained when the job is cancelled").wait_for()
    page.get_by_role("img", name=re.compile("Size of checkpoints")).wait_for()


def test_state_is_described_spread_looked_up_and_compared(opened: Open, link: str) -> None:
    page = opened(link)
    tab(page, "Checkpoints")
    rows(page, "History of checkpoints").filter(has_text="COMPLETED").nth(1).wait_for()
    tab(page, "State")
    page.get_by_role("button", name="total").click()
    page.get_by_role("img", name=re.compile("Entries by key group")).wait_for()
    found = rows(page, "Rows of total")
    found.nth(7).wait_for()
    page.get_by_label("Key", exact=True).fill("often")
    page.get_by_role("button", name="Look up").click()
    found.nth(1).wait_for(state="detached")
    assert "often" in found.first.inner_text()
    assert rows(page, "Positions of sources").count() == 1
    assert rows(page, "Files").count() >= 1


def test_two_savepoints_are_compared(opened: Open, link: str, live: LiveJob) -> None:
    page = opened(link)
    page.locator("g.box", has_text=re.compile(r"in [1-9]")).first.wait_for()
    live.control.savepoint().result(20)
    since = live.control.view().epoch
    wait_until(lambda: live.control.view().epoch > since + 1, 30, "another epoch")
    live.control.savepoint().result(20)
    newer, older = (e for e in live.control.history().entries if e.is_savepoint)
    tab(page, "State")
    page.locator("select[name=from]").select_option(str(older.checkpoint_id))
    page.locator("select[name=to]").select_option(str(newer.checkpoint_id))
    page.get_by_role("button", name="Compare").click()
    total = rows(page, "Differences").filter(has_text="total").first
    # Operator, state, kind, added, removed, changed, same: all eight words were counted on.
    cells = total.locator("td")
    cells.first.wait_for()
    assert cells.all_inner_texts()[3:7] == ["0", "0", "8", "0"]
    example = rows(page, "Examples of differences").filter(has_text="total").first
    entry = example.locator("td").all_inner_texts()
    assert int(entry[4]) < int(entry[5])


def test_hot_key_groups_of_an_operator_are_shown_when_asked_for(opened: Open, link: str) -> None:
    page = opened(link)
    tab(page, "Checkpoints")
    rows(page, "History of checkpoints").filter(has_text="COMPLETED").first.wait_for()
    tab(page, "Job")
    page.locator("g.box", has_text="state: last, total").click()
    assert page.get_by_role("img", name=re.compile("Entries by key group")).count() == 0
    page.get_by_role("button", name="Show hot key groups").click()
    page.get_by_role("img", name=re.compile("Entries by key group")).nth(1).wait_for()
    page.get_by_text(re.compile(r"total, entries by key group: 8 in \d of 128")).wait_for()


def test_a_failure_is_shown_with_operator_record_and_traceback(
    opened: Open, link: str, live: LiveJob
) -> None:
    page = opened(link)
    tab(page, "Exceptions")
    page.get_by_text("Nothing has failed.").wait_for()
    with live.lock:
        live.harness.sources.arrive([("broken", 4711)])
    page.get_by_role("heading", name="UserFunctionError in Count words").first.wait_for()
    page.get_by_text("('broken', 4711)").first.wait_for()
    assert "no word: 4711" in page.locator("pre").first.inner_text()


def test_a_killed_slot_is_seen_as_it_happens(opened: Open, link: str, live: LiveJob) -> None:
    page = opened(link)
    facts = page.get_by_label("Job", exact=True).first
    facts.get_by_text("attempt").wait_for()
    live.kill_slot(1)
    rows(page, "Events").filter(has_text="attempt 1: ").wait_for()
    tab(page, "Exceptions")
    page.locator("article.failure").first.wait_for()


def test_logs_are_followed_searched_and_downloaded(opened: Open, link: str) -> None:
    page = opened(link)
    tab(page, "Logs")
    page.get_by_label("Log driver.log").wait_for()
    logging.getLogger("weir.test").warning("something <b>odd</b>")
    page.get_by_text("something <b>odd</b>").wait_for()
    page.get_by_label("Search").fill("ODD")
    page.get_by_text(re.compile(r"^1 of")).wait_for()
    page.get_by_label("Search").fill("nothing like this")
    page.get_by_text(re.compile(r"^0 of")).wait_for()
    with page.expect_download() as told:
        page.get_by_role("button", name="Download").click()
    assert told.value.suggested_filename == "driver.log"
    assert "something <b>odd</b>" in Path(told.value.path()).read_text()


def test_threads_are_shown_and_looked_into_by_keyboard(opened: Open, link: str) -> None:
    page = opened(link)
    tab(page, "Threads")
    page.get_by_text("MainThread").wait_for()
    page.locator("main select").select_option("0")
    page.get_by_role("button", name="Flame graph").click()
    page.get_by_role("group", name=re.compile("Flame graph of all threads")).wait_for()
    box = page.get_by_role("button", name=re.compile("Look into ")).first
    thread = str(box.get_attribute("aria-label")).removeprefix("Look into ")
    box.focus()
    page.keyboard.press("Enter")
    page.get_by_role("group", name=f"Flame graph of {thread}").wait_for()
    page.get_by_role("button", name="All threads").click()
    page.get_by_role("group", name=re.compile("Flame graph of all threads")).wait_for()


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[str]:
    """The link to a job with event time and incremental checkpoints."""
    backend = BackendSettings(incremental=True)
    job = LiveJob(tmp_path / "timed", counting(timed=True), some_words, backend=backend).start()
    server = RestServer(ports=(0,))
    server.register(job.control)
    server.start()
    yield page_link(server.url, server.token, job.control.job_id)
    server.close()
    job.close()


def test_boxes_show_watermarks_and_charts_where_the_time_goes(opened: Open, timed: str) -> None:
    page = opened(timed)
    mark = re.compile(r"watermark \d\d:\d\d:\d\d \(.\d")
    for name in ("Count words", "Timestamps", "Sink"):
        page.locator("g.box", has_text=name).filter(has_text=mark).first.wait_for()
    for chart in (
        "Duration of epochs: now the longest .*Spark .*level 0 .*shuffles .*slots .*commit",
        "Latency from reading to commit: now the longest",
        "Size by state, in checkpoints: now Count words: (last|total) [1-9]",
    ):
        page.get_by_role("img", name=re.compile(chart)).wait_for()


def test_checkpoints_are_marked_full_or_incremental(opened: Open, timed: str) -> None:
    page = opened(timed)
    tab(page, "Checkpoints")
    history = rows(page, "History of checkpoints")
    history.filter(has_text="checkpoint, full").first.wait_for()
    history.filter(has_text="checkpoint, incremental").first.get_by_role("link").first.click()
    page.get_by_text(re.compile("are in files of earlier checkpoints")).wait_for()
    page.get_by_role("img", name=re.compile("Size by state")).wait_for()
    page.get_by_role("button", name="Show which checkpoints hold which file").click()
    files = rows(page, "Files of checkpoints")
    # A file of a chain, and the checkpoints that refer to it.
    files.filter(has_text=re.compile(r"shared/.*\d+, \d+")).first.wait_for()
