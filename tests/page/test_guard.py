"""Who may see the page, what strangers can do, and that hostile values are text."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from tests.browsing import Open
from tests.unit.rest.samples import JOB_ID, START, SampleQueries, sample_job

from weir.jobmanager.history import CheckpointEntry, HistoryView
from weir.jobmanager.operations import ExceptionView
from weir.jobmanager.queries import StateView
from weir.jobmanager.timeline import Event, Point, TimelineView
from weir.rest import RestServer
from weir.rest.assets import page_link
from weir.testing.manual_job import ManualJob

pytestmark = pytest.mark.browser
EVIL = "<img src=x onerror='window.hacked=1'><script>window.hacked=2</script>\"'&lt;${1}"


@pytest.fixture
def job() -> ManualJob:
    return sample_job()


@pytest.fixture
def served(job: ManualJob) -> Iterator[RestServer]:
    server = RestServer(ports=(0,))
    server.register(job)
    server.start()
    yield server
    server.close()


def test_a_wrong_token_shows_a_form_and_the_right_one_the_jobs(
    opened: Open, served: RestServer
) -> None:
    page = opened(page_link(served.url, "wrong"), allow="401")
    page.get_by_label("Token").wait_for()
    assert page.get_by_role("heading", name="Jobs").count() == 0
    page.get_by_label("Token").fill(served.token)
    page.get_by_role("button", name="Show the jobs").click()
    page.get_by_role("heading", name="Jobs").wait_for()
    assert page.context.cookies() == []


def test_another_tab_does_not_have_the_token(opened: Open, served: RestServer) -> None:
    page = opened(page_link(served.url, served.token))
    page.get_by_role("heading", name="Jobs").wait_for()
    second = page.context.new_page()
    second.goto(served.url)
    second.get_by_label("Token").wait_for()


@pytest.fixture
def stranger() -> Iterator[str]:
    """A web server of somebody else."""

    class Empty(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_strangers_page_can_neither_read_nor_steer(
    opened: Open, served: RestServer, job: ManualJob, stranger: str
) -> None:
    page = opened(stranger, allow="")
    attack = """async ([url, token, options]) => {
        try { const a = await fetch(url, options(token)); return [a.type, await a.text()]; }
        catch (e) { return ["refused", String(e)]; }
    }"""
    cancel = f"{served.url}/jobs/{JOB_ID}?mode=cancel"
    savepoint = f"{served.url}/jobs/{JOB_ID}/savepoints"
    for url, options in (
        (f"{served.url}/jobs", "t => ({headers: {Authorization: `Bearer ${t}`}})"),
        (f"{served.url}/", "t => ({})"),
        (cancel, "t => ({method: 'PATCH', headers: {Authorization: `Bearer ${t}`}})"),
        (savepoint, "t => ({method: 'POST', mode: 'no-cors', body: '{}'})"),
    ):
        code = attack.replace("options(token)", f"({options})(token)")
        kind, text = page.evaluate(code, [url, served.token, None])
        assert kind in ("refused", "opaque")
        assert JOB_ID not in text
    assert job.calls == []


def test_the_page_cannot_be_framed(opened: Open, served: RestServer, stranger: str) -> None:
    page = opened(stranger, allow="")
    page.evaluate(
        """url => new Promise(done => { const f = document.createElement('iframe');
        f.onload = done; f.src = url; document.body.append(f); })""",
        served.url,
    )
    texts = [frame.evaluate("document.body ? document.body.innerText : ''") for frame in
             page.frames[1:] if frame.url.startswith(served.url)]  # fmt: skip
    assert not any("token" in text for text in texts)


class HostileQueries(SampleQueries):
    """A state whose name and rows are markup."""

    rows_by_key: ClassVar[dict[str, str]] = {EVIL: EVIL}

    def states(self) -> list[StateView]:
        types = {EVIL: EVIL}
        return [StateView(EVIL, EVIL, EVIL, EVIL, types, (EVIL,), False, False)]


def hostile(job: ManualJob) -> None:
    job.queries = HostileQueries()
    view = job.view()
    vertices = tuple(
        replace(v, name=f"{EVIL} {i}", uid=EVIL, states=(EVIL,))
        for i, v in enumerate(view.vertices)
    )
    slots = tuple(replace(slot, host=EVIL) for slot in view.slots)
    raised = ExceptionView(START, EVIL, EVIL, 0, EVIL, EVIL, EVIL)
    job.change(
        name=EVIL,
        vertices=vertices,
        slots=slots,
        exceptions=(raised,),
        configuration={EVIL: EVIL},
        origins={EVIL: EVIL},
    )
    failed = CheckpointEntry(5, START, 2, status="FAILED", failure=EVIL, failure_ms=START)
    done = CheckpointEntry(6, START, 2, status="COMPLETED", path=EVIL)
    job.checkpoints = HistoryView(2, 1, 1, 0, None, (done, failed))
    point = Point(START + 1_000, 1_000, 5)
    job.times = TimelineView((point,), (point,), (Event(START, "restart", EVIL),))


def test_markup_in_names_and_values_is_text(
    opened: Open, served: RestServer, job: ManualJob
) -> None:
    hostile(job)
    # A path that is markup is no checkpoint, which the server says with 400.
    page = opened(page_link(served.url, served.token, JOB_ID), allow="400")
    for view in ("", "/checkpoints", "/checkpoints/5", "/state", "/exceptions", "/configuration"):
        page.goto(f"{served.url}/#/jobs/{JOB_ID}{view}")
        page.get_by_role("heading", name=EVIL, exact=True).wait_for()
        if view != "/state":
            shown = page.locator("main").get_by_text("window.hacked=2").filter(visible=True)
            shown.first.wait_for()
        else:
            page.get_by_role("alert").wait_for()
            page.get_by_role("button", name="Ask for the first rows").click()
            answer = page.get_by_role("region", name="Answer")
            answer.get_by_text("window.hacked=2").nth(1).wait_for()
        assert page.evaluate("window.hacked") is None
        assert page.locator("img, #app script, iframe").count() == 0
