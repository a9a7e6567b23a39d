"""Checkpoints that fail because the storage does or time is over: tolerated or not, all is exact.

The storage fails on demand: the system lets the slots write no more than a few bytes to any file,
so that uploads break off in the middle, for every user and on every file system. Or its directory
is not where it was.
"""

from __future__ import annotations

import resource
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.spark.scenario import wait_until

from weir.common import Types
from weir.datastream import KeyedProcessFunction, RuntimeContext
from weir.datastream.state import ValueStateDescriptor

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
LIMIT = 64 << 10
C = "execution.checkpointing."


class Heavy(KeyedProcessFunction):
    """Totals beside a weight that makes the state larger than what may be written.

    Elements wait as long as the gate, a file, is there.
    """

    def __init__(self, gate, weight):
        self.gate = gate
        self.bytes = weight

    def open(self, runtime_context: RuntimeContext):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.weight = runtime_context.get_state(
            ValueStateDescriptor("weight", Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value, ctx):
        while Path(self.gate).exists():
            threading.Event().wait(0.02)
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        self.weight.update(bytes(self.bytes))
        yield value.seq, value.key, total


class Run:
    """The job in this process, on input that the test feeds."""

    def __init__(self, feed, spark, weight=32 << 10, **settings):
        self.feed = feed
        self.gate = feed.root / "gate"
        often = {
            C + "interval": "200 ms",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "50 ms",
            **settings,
        }
        self.job = feed.submit(spark, Heavy(str(self.gate), weight), often)

    def limit(self, size):
        """Let the slots write no file beyond a size."""
        for slot in self.job.control.view().slots:
            resource.prlimit(slot.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def settle(self):
        """Wait until all rows so far are committed, exactly."""
        expected = self.feed.expected()
        wait_until(lambda: self.feed.committed() == expected, 120, "the commit of all rows")

    @property
    def history(self):
        return self.job.control.history()

    def fail_checkpoints(self, number):
        before = self.history.failed
        wait_until(lambda: self.history.failed >= before + number, 60, "failing checkpoints")

    def hold_a_barrier(self):
        """Hold rows at the gate until a checkpoint has failed.

        An epoch right behind a checkpoint carries no barrier: then other rows are held.
        """
        before = self.history.failed
        while self.history.failed == before:
            self.gate.unlink(missing_ok=True)
            self.settle()
            self.gate.touch()
            self.feed.add()
            with suppress(AssertionError):
                wait_until(lambda: self.history.failed > before, 10, "a failing checkpoint")

    @property
    def attempt(self):
        return self.job.control.view().attempt

    def end(self):
        """Stop with a savepoint; nothing but the savepoint is left."""
        self.job.control.stop().result(60)
        assert self.feed.committed() == self.feed.expected()
        assert list(self.feed.checkpoints.rglob("*")) == []
        left = [p.name for p in self.feed.savepoints.rglob("*") if p.is_file()]
        assert "_metadata" in left
        assert [name for name in left if name != "_metadata" and "state-" not in name] == []

    def half_written(self):
        """Return files that no checkpoint knows, in directories of checkpoints that failed."""
        return [
            path
            for directory in self.feed.checkpoints.glob("*/chk-*")
            if not (directory / "_metadata").exists()
            for path in directory.iterdir()
        ]


@pytest.fixture
def start(feed, spark):
    runs = []

    def make(**settings):
        runs.append(Run(feed, spark, **settings))
        return runs[-1]

    yield make
    for run in runs:
        run.gate.unlink(missing_ok=True)
        run.job.cancel()


def test_a_tolerated_failure_of_storage_costs_checkpoints_and_nothing_else(start, feed):
    run = start(**{C + "tolerable-failed-checkpoints": "1000"})
    run.settle()
    run.limit(LIMIT)
    feed.add()
    run.fail_checkpoints(3)
    assert not feed.committed() - feed.expected()
    run.limit(resource.RLIM_INFINITY)
    feed.add()
    run.settle()
    assert run.attempt == 0
    assert run.job.control.view().exceptions == ()
    wait_until(lambda: run.half_written() == [], 10, "a moment without a checkpoint under way")
    run.end()


def test_a_checkpoint_directory_that_is_away_for_a_while_is_used_again(start, feed):
    tolerant = {C + "tolerable-failed-checkpoints": "1000"}
    # So little state is part of the metadata, which the driver writes.
    run = start(weight=0, **tolerant, **{"weir.work-dir": str(feed.root / "work")})
    run.settle()
    away = feed.checkpoints.rename(feed.root / "away")
    feed.checkpoints.write_text("in its place")
    feed.add()
    run.fail_checkpoints(3)
    feed.checkpoints.unlink()
    away.rename(feed.checkpoints)
    feed.add()
    run.settle()
    assert run.attempt == 0
    run.end()


def test_an_untolerated_failure_of_storage_restarts_the_job_from_its_last_checkpoint(start, feed):
    run = start(**{C + "tolerable-failed-checkpoints": "0"})
    run.settle()
    run.limit(LIMIT)
    feed.add()
    wait_until(lambda: run.attempt == 1, 60, "a second attempt")
    feed.add()
    run.settle()
    messages = [one.message for one in run.job.control.view().exceptions]
    assert len(messages) == 1
    assert "checkpoint" in messages[0].lower()
    run.end()


def test_a_checkpoint_whose_time_is_over_is_given_up_while_its_rows_are_still_on_their_way(
    start, feed
):
    run = start(**{C + "tolerable-failed-checkpoints": "1000", C + "timeout": "2 s"})
    run.settle()
    run.hold_a_barrier()
    assert "timeout" in run.job.control.history().latest("FAILED").failure
    run.gate.unlink()
    feed.add()
    run.settle()
    assert run.attempt == 0
    run.end()
