"""Small epochs that the driver hands to the slots: exact, and no different when they fail."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest
from tests.spark.scenario import processes, wait_until

from weir.common import Types
from weir.common.job_status import JobStatus
from weir.datastream import FlatMapFunction, KeyedProcessFunction
from weir.datastream.state import ValueStateDescriptor
from weir.errors import UserFunctionError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
C = "execution.checkpointing."
SIZE = "weir.epoch.direct-size"
RESTART = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "10 ms",
}


class Totals(KeyedProcessFunction):
    """Running totals; slow from some row on, as long as the gate, a file, is there."""

    def __init__(self, gate="", first=0):
        self.gate = gate
        self.first = first

    def open(self, runtime_context):
        self.pause = threading.Event()
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        if self.gate and value.seq >= self.first and Path(self.gate).exists():
            Path(self.gate).with_name("begun").touch()
            self.pause.wait(0.02)
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        yield value.seq, value.key, total


@pytest.fixture
def ways(caplog):
    """Return how epochs were run so far, by number."""
    caplog.set_level(logging.DEBUG, logger="weir.epochs")
    kinds = {"was direct": "direct", "was too large": "tried", "was run by Spark": "spark"}

    def read():
        found = {}
        for record in caplog.records:
            match = re.fullmatch(r"epoch (\d+) (.*)", record.getMessage())
            if record.name == "weir.epochs" and match:
                found.setdefault(int(match[1]), []).append(kinds[match[2]])
        return found

    return read


def await_rows(job, rows):
    """Wait until the current attempt has handled some rows."""
    wait_until(lambda: job.progress()["records_in"].get("totals", 0) >= rows, 60, f"{rows} rows")


def settle(job, feed):
    """Finish with a savepoint once all rows are handled; the output must be exact."""
    if job.progress()["attempt"] == 0:
        await_rows(job, len(feed.rows))
    else:
        wait_until(lambda: feed.committed() == feed.expected(), 60, "all rows")
    job.stop_with_savepoint(False).result()
    assert feed.committed() == feed.expected()
    feed.assert_over()


def configure(env, **settings):
    for key, value in settings.items():
        env._configuration.set_string(key, value)


def collect(stream):
    with stream.execute_and_collect() as records:
        return list(records)


def test_small_and_large_epochs_alternate_exactly(spark, feed, ways):
    for rows in (100, 200_000, 100, 100, 10_000, 10_000):  # the second in many batches
        feed.add(rows)
    job = feed.submit(spark, Totals(), {SIZE: "64 kb"})
    settle(job, feed)
    seen = ways()
    assert [seen[n] for n in range(1, 8)] == [
        ["spark"],  # nothing is known yet
        ["direct"],
        ["tried", "spark"],
        ["spark"],
        ["direct"],
        ["tried", "spark"],
        ["spark"],
    ]
    assert seen[8] == ["direct"], "the epoch of the savepoint has no input"
    assert job.progress()["attempt"] == 0


def test_without_a_size_every_epoch_is_left_to_spark(spark, feed, ways):
    feed.add()
    job = feed.submit(spark, Totals(), {SIZE: "0"})
    settle(job, feed)
    assert {way for epoch in ways().values() for way in epoch} == {"spark"}


class Many(FlatMapFunction):
    def flat_map(self, value):
        return [(value[0] + n, 1) for n in range(5000 if value[1] == 5 else 3)]


@pytest.mark.parametrize(
    ("size", "exchanges"), [("1 mb", 2), ("2 kb", 2), ("2 kb", 3), ("0", 2), ("1 mb", 3)]
)
def test_several_exchanges_in_one_epoch(env, ways, size, exchanges):
    """With the smallest size slots of the last but one level send more than is handed on."""
    configure(env, **{SIZE: size, "weir.source.batch-rows": "1"})
    numbers = env.from_collection(
        [(n % 3, n) for n in range(8)], Types.TUPLE([Types.LONG(), Types.LONG()])
    )
    for _ in range(2, exchanges):
        numbers = numbers.key_by(lambda pair: pair[1]).map(lambda pair: pair)
    spread = numbers.key_by(lambda pair: pair[0]).flat_map(Many())
    counted = spread.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    found = collect(counted)
    expected, sums = Counter(), Counter()
    for n in range(8):
        for key, one in Many().flat_map((n % 3, n)):
            sums[key] += one
            expected[(key, sums[key])] += 1
    assert Counter(found) == expected
    seen = {tuple(epoch) for epoch in ways().values()}
    assert (
        seen
        == {
            "1 mb": {("spark",), ("direct",)},
            "2 kb": {("spark",), ("direct",), ("tried", "spark")},
            "0": {("spark",)},
        }[size]
    )


class FailAt(KeyedProcessFunction):
    """Raises at one record: always, or once if there is a place for a mark."""

    def __init__(self, record, mark=None):
        self.record = record
        self.mark = mark

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        if value == self.record and (self.mark is None or not self.mark.exists()):
            if self.mark is not None:
                self.mark.touch()
            msg = "no such record"
            raise ValueError(msg)
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()


@pytest.mark.parametrize("size", ["1 mb", "0"], ids=["direct", "by Spark"])
@pytest.mark.parametrize("where", ["slot", "level 0"])
def test_an_exception_of_the_program_is_the_same(env, ways, size, where):
    configure(env, **{SIZE: size, "weir.source.batch-rows": "1"})
    configure(env, **{"restart-strategy.type": "none"})
    numbers = env.from_collection(list(range(5)), Types.LONG())
    if where == "level 0":
        numbers = numbers.map(lambda n: 1 // (3 - n), Types.LONG())
    keyed = numbers.key_by(lambda n: 0)
    with pytest.raises(UserFunctionError) as raised:
        collect(keyed.process(FailAt(3)))
    text = str(raised.value)
    assert ("ValueError: no such record" if where == "slot" else "ZeroDivisionError") in text
    assert "3" in raised.value.record
    assert (["direct"] in ways().values()) is (size != "0")


def test_the_restart_strategy_is_asked_after_an_exception(env, ways, tmp_path):
    configure(env, **{"weir.source.batch-rows": "1", C + "interval": "50 ms"}, **RESTART)
    numbers = env.from_collection(list(range(8)), Types.LONG())
    found = collect(numbers.key_by(lambda n: 0).process(FailAt(5, tmp_path / "mark")))
    assert sorted(found) == [(n, n + 1) for n in range(8)]
    assert (tmp_path / "mark").exists()
    assert ["direct"] in ways().values()


class Held:
    """A job in the middle of a direct epoch, whose rows are slow."""

    def __init__(self, spark, feed, ways, settings):
        self.feed = feed
        self.gate = feed.root / "gate"
        self.gate.touch()
        feed.add()
        self.job = feed.submit(spark, Totals(str(self.gate), len(feed.rows)), settings)
        await_rows(self.job, len(feed.rows))
        assert ["direct"] in ways().values()
        feed.add(1000)
        wait_until((feed.root / "begun").exists, 60, "the slow epoch")

    def kill(self, slots):
        for slot in self.job.progress()["slots"][:slots]:
            os.kill(slot["pid"], signal.SIGKILL)
        self.gate.unlink()


def test_a_slot_killed_in_the_middle_of_an_epoch_loses_nothing(spark, feed, ways):
    held = Held(spark, feed, ways, {C + "interval": "100 ms", **RESTART})
    held.kill(1)
    wait_until(lambda: held.job.progress()["attempt"] == 1, 60, "the next attempt")
    settle(held.job, feed)
    assert "slot" in held.job.control.view().exceptions[0].message


def test_a_slot_killed_between_epochs_loses_nothing(spark, feed, ways):
    feed.add()
    job = feed.submit(spark, Totals(), {C + "interval": "100 ms", **RESTART})
    await_rows(job, len(feed.rows))
    os.kill(job.progress()["slots"][0]["pid"], signal.SIGKILL)
    feed.add()
    wait_until(lambda: job.progress()["attempt"] == 1, 60, "the next attempt")
    settle(job, feed)
    assert ["direct"] in ways().values()


def test_a_job_is_canceled_in_the_middle_of_an_epoch(spark, feed, ways):
    held = Held(spark, feed, ways, {})
    took = wait_until(lambda: held.job.cancel() is not None, 60, "canceling")
    assert took < 15
    assert held.job.get_job_status().result() is JobStatus.CANCELED
    wait_until(lambda: not processes(str(feed.root / "logs")), 30, "slots leaving")


def test_a_barrier_overtakes_rows_of_a_direct_epoch(spark, feed, ways):
    unaligned = {C + "unaligned.enabled": "true", C + "interval": "100 ms"}
    held = Held(spark, feed, ways, {**unaligned, **RESTART})
    history = held.job.control.history
    wait_until(lambda: any(e.overtook for e in history().entries), 60, "a cut")
    held.kill(2)
    wait_until(lambda: held.job.progress()["attempt"] == 1, 60, "the next attempt")
    restored = history().restored
    assert restored is not None
    settle(held.job, feed)


class Remind(KeyedProcessFunction):
    """Says something some time after the first row, when nothing else happens."""

    def open(self, runtime_context):
        self.asked = runtime_context.get_state(ValueStateDescriptor("asked", Types.BOOLEAN()))

    def process_element(self, value, ctx):
        if not self.asked.value():
            self.asked.update(True)
            service = ctx.timer_service()
            service.register_processing_time_timer(service.current_processing_time() + 200)
        return ()

    def on_timer(self, timestamp, ctx):
        yield -1, ctx.get_current_key(), 0


def test_timers_fire_without_input(spark, feed, ways):
    job = feed.submit(spark, Remind(), {C + "interval": "100 ms"})
    expected = Counter((-1, row["key"], 0) for row in feed.rows)
    expected = Counter(dict.fromkeys(expected, 1))
    wait_until(lambda: feed.committed() == expected, 60, "the timers")
    job.stop_with_savepoint(False).result()
    assert feed.committed() == expected
    assert ["direct"] in ways().values()
    feed.assert_over()
