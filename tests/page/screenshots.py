"""Makes the screenshots of the documentation: `make screenshots`.

The job runs in this process, so they show what users see, with nothing of the machine that made
them.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.live_job import LiveJob, counting, some_words

from weir.backend.factory import BackendSettings
from weir.rest import RestServer
from weir.rest.assets import page_link

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "screenshots"
SIZE = {"width": 1200, "height": 900}


def show_job(page: Any) -> None:
    page.locator("g.box", has_text="state: last, total").click()
    page.locator(".chart canvas").nth(3).wait_for()
    page.wait_for_timeout(6_000)


def show_checkpoints(page: Any) -> None:
    page.get_by_role("img", name="Size by state").wait_for()


def show_state(page: Any) -> None:
    page.get_by_label("Key to ask for").fill("often")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_role("region", name="Answer").wait_for()
    page.get_by_role("button", name="total").click()
    page.get_by_role("region", name="Rows of total").wait_for()


PICTURES = {
    "job": ("", show_job),
    "checkpoints": ("/checkpoints", show_checkpoints),
    "state": ("/state", show_state),
}


def main() -> None:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("screenshots: no Chromium is installed: apt-get install chromium")
    FOLDER.mkdir(exist_ok=True)
    # The name of the directory is in the pictures.
    folder = Path(tempfile.mkdtemp(prefix="weir-"))
    backend = BackendSettings(incremental=True)
    job = LiveJob(folder, counting(timed=True), some_words, backend=backend, step_ms=4).start()
    job.take_queries()
    server = RestServer(ports=(0,))
    server.register(job.control)
    server.start()
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium)
            for name, (view, show) in PICTURES.items():
                page = browser.new_page(viewport=SIZE)
                link = page_link(server.url, server.token, job.control.job_id)
                page.goto(link.replace("?", f"{view}?"))
                show(page)
                page.screenshot(path=str(FOLDER / f"{name}.png"), full_page=name == "job")
                page.close()
            browser.close()
    finally:
        server.close()
        job.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
