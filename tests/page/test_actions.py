"""Every action of the page in a real browser: it asks first, and shows how it goes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import Open
from tests.live_job import LiveJob
from tests.page.test_views import rows, tab

pytestmark = pytest.mark.browser


def press(page: Any, name: str) -> Any:
    page.get_by_role("group", name="Actions").get_by_role("button", name=name).click()
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    return dialog


def note(page: Any, text: str) -> None:
    page.get_by_role("status").get_by_text(re.compile(text)).wait_for()


def test_whoever_leaves_it_has_asked_for_nothing(opened: Open, link: str, live: LiveJob) -> None:
    page = opened(link)
    press(page, "Cancel").get_by_role("button", name="Leave it").click()
    press(page, "Stop")
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert page.locator(".note").count() == 0
    assert live.control.view().status == "RUNNING"


def test_who_answers_by_keyboard_is_where_the_question_came_from(opened: Open, link: str) -> None:
    page = opened(link)
    button = page.get_by_role("group", name="Actions").get_by_role("button", name="Cancel")
    button.focus()
    for key in ("Escape", "Enter"):  # Enter presses what has the focus first: "Leave it"
        page.keyboard.press("Enter")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press(key)
        page.get_by_role("dialog").wait_for(state="detached")
        assert page.evaluate("document.activeElement.textContent") == "Cancel"


def test_a_checkpoint_is_taken(opened: Open, link: str) -> None:
    page = opened(link)
    dialog = press(page, "Checkpoint")
    dialog.get_by_role("checkbox").check()
    dialog.get_by_role("button", name="Take it").click()
    note(page, r"Checkpoint \d+ is complete")


def test_a_savepoint_is_taken_and_deleted(opened: Open, link: str, tmp_path: Path) -> None:
    page = opened(link)
    press(page, "Savepoint").get_by_role("button", name="Take it").click()
    note(page, "Savepoint: file:///")
    folder = tmp_path / "job" / "savepoints"
    assert len(list(folder.iterdir())) == 1
    tab(page, "Checkpoints")
    page.get_by_role("button", name=re.compile("Dispose savepoint")).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete it").click()
    note(page, "The savepoint was deleted")
    assert list(folder.iterdir()) == []
    gone = rows(page, "History of checkpoints").filter(has_text="savepoint, canonical")
    gone.filter(has_text="DELETED").wait_for()
    assert gone.get_by_role("button").count() == 0


def test_what_fails_says_why(opened: Open, link: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    page = opened(link, allow="400")
    dialog = press(page, "Savepoint")
    dialog.get_by_label("Directory for the savepoint").fill(f"{tmp_path}/file")
    dialog.get_by_role("button", name="Take it").click()
    note(page, "Savepoint: .*file")
    page.locator(".note.failed").wait_for()
    page.get_by_role("button", name="Dismiss this message").click()
    assert page.locator(".note").count() == 0


def test_the_parallelism_is_changed(opened: Open, link: str, live: LiveJob) -> None:
    page = opened(link)
    dialog = press(page, "Rescale")
    dialog.get_by_label("New parallelism").fill("3")
    dialog.get_by_role("button", name="Rescale").click()
    note(page, "The job runs with parallelism 3")
    rows(page, "Events").filter(has_text="parallelism 2 became 3").wait_for()
    assert live.control.view().parallelism == 3


@pytest.mark.parametrize("drain", [False, True])
def test_the_job_is_stopped(opened: Open, link: str, live: LiveJob, drain: bool) -> None:
    page = opened(link)
    dialog = press(page, "Stop")
    if drain:
        dialog.get_by_role("checkbox").check()
    dialog.get_by_role("button", name="Stop the job").click()
    note(page, "The job has stopped with savepoint file:///")
    page.locator("h1 + .badge", has_text="FINISHED").wait_for()
    assert page.get_by_role("group", name="Actions").get_by_role("button").count() == 0


def test_the_job_is_cancelled(opened: Open, link: str, live: LiveJob) -> None:
    page = opened(link)
    press(page, "Cancel").get_by_role("button", name="Cancel the job").click()
    note(page, "The job was cancelled")
    page.locator("h1 + .badge", has_text="CANCELED").wait_for()
