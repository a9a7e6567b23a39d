"""What slots staged is handed over on the driver: in order, and nobody waits for it."""

from __future__ import annotations

import threading

import pytest

from weir.jobmanager.background import BackgroundThread, Inline
from weir.jobmanager.driver_commits import DriverCommits
from weir.jobmanager.network import Reception
from weir.jobmanager.registry import SlotRegistry
from weir.jobmanager.surroundings import Surroundings
from weir.slot.messages import Hello, Register
from weir.testing import ManualClock

ROWS = [("op", [b"rows"])]
RESTORED = 5


class Job:
    """As much of a job as hands over; `steps` is what it did."""

    def __init__(self, commit, background):
        self.steps = []
        self.registry = SlotRegistry(ManualClock(), 10_000)
        self.registry.begin_attempt(0)
        surroundings = Surroundings(background=background, commit=commit)
        self.commits = DriverCommits(
            surroundings,
            self.registry,
            committed=lambda checkpoint: self.steps.append(("committed", checkpoint)),
            failed=lambda why: self.steps.append(("failed", why)),
        )
        self.reception = Reception(
            self.registry,
            checkpoints=None,
            assignment=None,
            failed=None,
            staged=lambda attempt, staged: self.commits.restored(attempt, RESTORED, staged),
        )

    def register(self):
        """Let a slot of the current attempt begin, which hands over what it has restored."""
        attempt = self.registry.attempt
        self.registry.locate(attempt, 0, 0)
        self.registry.hello(Hello(attempt, 0, 1, "host", ""))
        self.reception.register(Register(attempt, 0, "unix", "", ROWS))


@pytest.fixture
def background():
    thread = BackgroundThread("test")
    yield thread
    thread.close()


def test_a_slot_begins_while_what_it_restored_is_handed_over_before_later_commits(background):
    handed, gate, begun = [], threading.Event(), threading.Event()

    def slow(checkpoint, staged):
        begun.set()
        assert gate.wait(60)
        handed.append(checkpoint)

    job = Job(slow, background)
    registering = threading.Thread(target=job.register, daemon=True)
    registering.start()
    registering.join(30)
    assert not registering.is_alive()
    assert begun.wait(30)
    assert [slot.ready for slot in job.registry.all()] == [True]
    background.run(lambda: job.commits.completed(RESTORED + 1, ROWS), "committing checkpoint 6")
    assert (handed, job.steps) == ([], [])
    gate.set()
    background.settle()
    assert handed == [RESTORED, RESTORED + 1]
    assert job.steps == [("committed", RESTORED), ("committed", RESTORED + 1)]


def test_what_waits_when_its_attempt_is_over_is_handed_over_by_the_next_one(background):
    handed, gate = [], threading.Event()
    job = Job(lambda checkpoint, staged: handed.append(checkpoint), background)
    background.run(gate.wait, "something that takes long")
    job.register()
    job.registry.begin_attempt(1)
    gate.set()
    background.settle()
    assert (handed, job.steps) == ([], [])
    job.register()
    background.settle()
    assert handed == [RESTORED]


@pytest.mark.parametrize("error", [OSError("the table is locked"), SystemExit("gone")])
def test_what_cannot_be_handed_over_fails_the_job_and_stays_prepared(error):
    def fails(checkpoint, staged):
        raise error

    job = Job(fails, Inline())
    job.register()
    ((what, why),) = job.steps
    assert what == "failed"
    assert why == f"committing checkpoint {RESTORED} on the driver failed: {error}"
