"""The state of a running job in a real browser: live and committed, switched off, by its token."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.browsing import Open
from tests.live_job import LiveJob
from tests.page.test_views import rows, tab

from weir.rest import RestServer
from weir.rest.assets import page_link

pytestmark = pytest.mark.browser


def ask(page: Any, state: str, key: str | None, level: str = "live") -> Any:
    """Ask for a key, or for the first rows; return what is said about the answer."""
    page.locator("select[name=state]").select_option(state)
    page.locator("select[name=level]").select_option(level)
    if key is not None:
        page.get_by_label("Key to ask for").fill(key)
    name = "Ask for the first rows" if key is None else "Ask"
    page.get_by_role("button", name=name, exact=True).click()
    facts = page.get_by_label("How true it is")
    facts.get_by_text(f"{level}: ").wait_for()
    return facts


def test_while_queries_are_off_the_page_says_how_to_turn_them_on(opened: Open, link: str) -> None:
    page = opened(link)
    tab(page, "State")
    page.get_by_text("queryable-state.enable: true").wait_for()
    page.get_by_text("weir.queryable-state.states: all").wait_for()
    assert page.get_by_role("button", name="Ask").count() == 0
    # What is committed can be looked at all the same.
    page.get_by_role("heading", name="In checkpoints").wait_for()


def test_a_key_is_looked_up_live_and_committed(opened: Open, link: str, live: LiveJob) -> None:
    live.take_queries()
    page = opened(link)
    tab(page, "Checkpoints")
    rows(page, "History of checkpoints").filter(has_text="COMPLETED").first.wait_for()
    tab(page, "State")
    facts = ask(page, "count.total", "often")
    (row,) = rows(page, "Answer").all()
    assert re.search(r"often\s+\d+", row.inner_text())
    assert re.search(r"epoch\s+[\d,]+", facts.inner_text())
    assert re.search(r"age\s+none", facts.inner_text())
    facts = ask(page, "count.total", "often", "committed")
    assert re.search(r"of checkpoint\s+\d+", facts.inner_text())
    assert re.search(r"age\s+\d", facts.inner_text())
    ask(page, "count.total", "nobody")
    page.get_by_text("Nothing is stored there.").wait_for()


def test_first_rows_are_shown_of_values_and_maps(opened: Open, link: str, live: LiveJob) -> None:
    live.take_queries()
    page = opened(link)
    page.locator("g.box", has_text=re.compile(r"in [1-9]")).first.wait_for()
    tab(page, "State")
    ask(page, "count.total", None)
    rows(page, "Answer").nth(7).wait_for()
    ask(page, "count.last", None)
    rows(page, "Answer").filter(has_text="number").nth(7).wait_for()


def test_a_state_token_is_asked_for_where_it_is_needed(
    opened: Open, link: str, live: LiveJob, server: RestServer
) -> None:
    live.take_queries()
    server.token, server.state_token = None, "for-state"
    page = opened(page_link(server.url, None, live.control.job_id), allow="401")
    tab(page, "State")
    token = page.get_by_label("Token for state")
    token.fill("wrong")
    page.get_by_role("button", name="Show the state").click()
    page.get_by_role("alert").wait_for()
    token.fill("for-state")
    page.get_by_role("button", name="Show the state").click()
    ask(page, "count.total", "often")
    assert rows(page, "Answer").count() == 1


def test_a_job_that_is_over_has_nothing_to_ask(opened: Open, link: str, live: LiveJob) -> None:
    live.take_queries()
    page = opened(link)
    live.control.cancel()
    page.locator("h1 + .badge", has_text="CANCELED").wait_for()
    tab(page, "State")
    page.get_by_role("heading", name="In checkpoints").wait_for()
    assert page.get_by_role("heading", name="Now").count() == 0
