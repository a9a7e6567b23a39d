"""A real browser, Debian's Chromium, and pages in it that fail a test by any error they log."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.brokers import refuse

NAMES = ("chromium", "chromium-browser", "google-chrome")
Open = Callable[..., Any]


@pytest.fixture(scope="module")  # its event loop must not outlive the file: tests of asyncio follow
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        refuse("the package playwright is not installed")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        refuse("no Chromium is installed: apt-get install chromium")
    with sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=found, headless=True, args=["--disable-dev-shm-usage"]
        )
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Open pages; what they log as an error fails the test, unless it is allowed."""
    contexts, errors, allowed = [], [], []

    def open_page(link: str | None = None, *, allow: str | None = None, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(20_000)
        contexts.append(context)
        allowed.extend([] if allow is None else [allow])
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        if link is not None:
            page.goto(link)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [e for e in errors if not any(text in e for text in allowed)] == []
