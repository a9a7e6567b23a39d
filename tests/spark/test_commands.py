"""Every command against a running job in another process: what it does, and that the job goes on.

One job lives through all of it, because starting Spark takes longer than all commands together. It
is detached, and many options have one dash, as people know them from Flink.
"""

from __future__ import annotations

import json

import pytest
from tests.spark.feeding import PROGRAM, Feed
from tests.spark.scenario import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def feed(tmp_path):
    made = Feed(tmp_path)
    made.add()
    made.add()
    yield made
    for job in json.loads(made.weir("list", "--json").stdout):
        made.weir("cancel", job["job_id"])


def test_commands_steer_a_running_job_and_its_output_stays_exact(feed, spark):
    job = feed.start("-parallelism", "2")["job_id"]
    check_list(feed, job)
    feed.settle()
    check_savepoints(feed, job)
    check_refusals(feed, job)
    check_twin(feed, job)
    check_rescaling(feed, job)
    feed.add()
    savepoint = feed.told("stop", "-savepointPath", feed.savepoints, "-type", "native", job)
    savepoint = savepoint["savepoint"]
    assert feed.committed() - feed.expected() == {}
    ended = json.loads(feed.weir("list", "-all", "--json").stdout)
    assert [(one["job_id"], one["status"]) for one in ended] == [(job, "FINISHED")]
    listed = feed.weir("list", "-all").stdout
    assert f"{job}  feed (FINISHED)  {PROGRAM.name}" in listed
    assert f"savepoint: {savepoint}" in listed
    moved = feed.root / "moved"
    feed.savepoints.joinpath(savepoint.rpartition("/")[2]).rename(moved)
    check_resumed(feed, moved)


def check_list(feed, job):
    text = feed.weir("list", "-running").stdout
    assert f"{job}  feed (RUNNING)  {PROGRAM.name}" in text
    found = json.loads(feed.weir("list", "--json").stdout)
    told = [(one["job_id"], one["name"], one["status"], one["program"]) for one in found]
    assert told == [(job, "feed", "RUNNING", str(PROGRAM))]


def check_savepoints(feed, job):
    """A savepoint in a directory of choice, one in the configured one, and what is in them."""
    chosen = feed.root / "chosen"
    given = feed.told("savepoint", job, chosen, "-yid", "application_1")["savepoint"]
    assert given.startswith(f"file://{chosen}/savepoint-{job[:6]}-")
    default = feed.told("savepoint", "feed")["savepoint"]
    assert default.startswith(f"file://{feed.savepoints}/savepoint-{job[:6]}-")
    shown = feed.told("state", "show", "--verify", given)
    keyed = next(op for op in shown["operators"] if op["uid"] == "totals")
    states = {state["name"]: state["entries"] for state in keyed["states"]}
    assert states["total"] == len({row["key"] for row in feed.rows})
    assert [source["uid"] for source in shown["sources"]] == ["payments"]
    assert "uid 'totals'): parallelism 2 of at most 8" in feed.weir("state", "show", default).stdout
    assert feed.told("savepoint", "-dispose", given) == {"disposed": given}
    assert list(chosen.iterdir()) == []


def check_refusals(feed, job):
    """What cannot be done is said clearly, and the job goes on as if nobody had asked."""
    unknown = feed.weir("savepoint", "fed", code=2).stderr
    assert f"{job} 'feed' (RUNNING)" in unknown
    assert "did you mean 'feed'?" in unknown
    blocked = feed.root / "file"
    blocked.write_text("no directory")
    refused = feed.weir("savepoint", job, blocked / "below", code=5)
    assert refused.stdout == ""
    assert str(blocked) in refused.stderr
    assert "Traceback" not in refused.stderr
    assert blocked.read_text() == "no directory"
    feed.add()
    feed.settle()
    assert [one["status"] for one in json.loads(feed.weir("list", "--json").stdout)] == ["RUNNING"]


def check_twin(feed, job):
    """The same program once more, detached as well: with the same directory it is refused."""
    settings = (*feed.settings(), PROGRAM, feed.input, feed.output)
    refused = feed.weir("run", "-detached", *settings, code=2)
    assert refused.stdout == ""
    assert "started no job" in refused.stderr
    assert "job 'feed' is running already with checkpoints in" in refused.stderr
    assert f"weir stop {job}" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert [one["job_id"] for one in json.loads(feed.weir("list", "--json").stdout)] == [job]


def check_rescaling(feed, job):
    feed.add()
    assert feed.told("rescale", job, 3) == {"job_id": job, "parallelism": 3}
    feed.add()
    feed.settle()
    refused = feed.weir("rescale", job, 9, code=2).stderr
    assert "parallelism 9 is above its max parallelism 8" in refused
    feed.add()
    assert feed.told("rescale", job, 1) == {"job_id": job, "parallelism": 1}
    shown = feed.told("state", "show", feed.told("savepoint", job)["savepoint"])
    keyed = next(op for op in shown["operators"] if op["uid"] == "totals")
    assert (keyed["parallelism"], keyed["max_parallelism"]) == (1, 8)
    feed.add()
    feed.settle()


def check_resumed(feed, moved):
    """The twin may run now, from a moved savepoint; drained, timers have the last word."""
    words = ("-fromSavepoint", moved, "-claimMode", "no_claim", "--n", "-parallelism", "3")
    job = feed.start(*words)["job_id"]
    refused = feed.weir("savepoint", "-dispose", moved, code=2).stderr
    assert f"is in use: the running job 'feed' ({job}) was started from it" in refused
    assert (moved / "_metadata").exists()
    feed.add()
    feed.settle()
    feed.told("checkpoint", "-full", job)
    feed.weir("savepoint", "-dispose", moved)
    assert not moved.exists()
    feed.add()
    last = feed.told("stop", "-drain", "feed")["savepoint"]
    shown = feed.told("state", "show", last)
    keyed = next(op for op in shown["operators"] if op["uid"] == "totals")
    assert keyed["parallelism"] == 3
    wait_until(lambda: feed.committed() == feed.expected(drained=True), 30, "the last commit")
    feed.assert_over()
