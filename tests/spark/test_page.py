"""The page of a job on real Spark, in a real browser: slots, a kill as it happens, the end."""

from __future__ import annotations

import os
import re
import signal

import pytest
from tests.browsing import browser, opened
from tests.spark.scenario import wait_until

from weir.common import Configuration
from weir.connector.discard import DiscardingSink
from weir.jobmanager import directory
from weir.rest.assets import page_link
from weir.rest.host import HostCluster

__all__ = ["browser", "opened"]
pytestmark = [pytest.mark.spark, pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture
def job(env, spark, tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    configuration = Configuration()
    for key, value in {
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri(),
        "execution.checkpointing.savepoint-dir": (tmp_path / "savepoints").as_uri(),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "0 s",
    }.items():
        configuration.set_string(key, value)
    env.configure(configuration)
    frame = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
    keyed = env.from_dataframe(frame.selectExpr("value")).key_by("value")
    keyed.map(lambda row: row.value).name("Numbers").sink_to(DiscardingSink())
    job = env.execute_async("page")
    yield job
    if not job.supervisor.ended.done():
        job.cancel()


def slots(page):
    return page.locator("[role=region][aria-label='Slots'] tbody tr")


def points(job):
    return [p for p in job.control.timeline().recent if p.epochs]


def parts(point):
    return point.spark_ms, point.level_0_ms, point.shuffle_ms, point.slot_ms


def told(found):
    """Tell which parts of an epoch some points have time in: the first epochs have few rows."""
    yield any(p.spark_ms > 0 for p in found)
    yield any(p.level_0_ms > 0 and p.shuffle_ms > 0 for p in found)


def test_a_job_is_watched_killed_and_stopped_on_its_page(job, opened, tmp_path) -> None:
    wait_until(directory.entries, 60, "the job's announcement")
    (entry,) = directory.entries()
    link = page_link(entry.url, entry.token, entry.job_id)
    assert job.link == link
    page = opened(link)
    page.locator("g.box", has_text="Numbers").wait_for(timeout=60_000)
    slots(page).filter(has_text="READY").nth(1).wait_for(timeout=60_000)
    # What real slots say about themselves: shares and megabytes.
    slots(page).filter(has_text=re.compile(r"\d+ %.*\d+ MB")).nth(1).wait_for(timeout=60_000)
    page.get_by_role("img", name=re.compile("Memory of slots")).wait_for()
    # Spark tells when it began to read, workers and slots when they worked: together all of it.
    page.get_by_role("img", name=re.compile(r"Latency .* longest \d")).wait_for(timeout=60_000)
    page.get_by_text(re.compile(r"Spark's last batch: .*addBatch \d")).wait_for()
    wait_until(lambda: all(told(points(job))), 60, "an epoch that says where its time went")
    assert all(sum(parts(p)) == p.epoch_ms for p in points(job))

    page.get_by_role("navigation").get_by_role("link", name="Logs").click()
    log = f"taskmanagers/{entry.job_id[:8]}-0/logs/slot-0-attempt-0.log"
    page.locator("main select").select_option(log)
    page.get_by_text(re.compile("slot 0 of attempt 0 is ready")).wait_for()
    page.get_by_role("navigation").get_by_role("link", name="Threads").click()
    page.locator("main select").select_option("1")
    page.get_by_role("button", name="Flame graph").click()
    page.get_by_role("group", name=re.compile("Flame graph of all threads")).wait_for()

    page.get_by_role("navigation").get_by_role("link", name="Job", exact=True).click()
    victim = next(s.pid for s in job.control.view().slots if s.subtask == 1)
    os.kill(victim, signal.SIGKILL)
    events = page.locator("[role=region][aria-label='Events'] tbody tr")
    events.filter(has_text="attempt 1: ").first.wait_for(timeout=60_000)
    page.get_by_role("navigation").get_by_role("link", name="Exceptions").click()
    page.get_by_text(re.compile("slot 1 was lost")).first.wait_for()

    page.get_by_role("navigation").get_by_role("link", name="Job", exact=True).click()
    slots(page).filter(has_text="READY").nth(1).wait_for(timeout=60_000)
    page.get_by_role("group", name="Actions").get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop the job").click()
    stopped = page.get_by_role("status").get_by_text(re.compile("stopped with savepoint"))
    stopped.wait_for(timeout=60_000)
    page.locator("h1 + .badge", has_text="FINISHED").wait_for()

    # What the page of the host shows of it, when this process is long gone.
    host = HostCluster(lambda *_: "")
    past = host.job(entry.job_id)
    assert past.view().status == "FINISHED"
    assert [v.name for v in past.view().vertices if v.level][:1] == ["Numbers"]
    savepoints = [e for e in past.history().entries if e.is_savepoint and not e.discarded]
    assert len(savepoints) == 1
    assert len(past.logs()) >= 3
    assert any(event.kind == "restart" for event in past.timeline().events)
    host.close()
