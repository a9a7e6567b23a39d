"""Modes of checkpoints on real Spark: one key has most of the rows, and its function is slow.

The function notes for every row which checkpoint was the newest complete one when the row was
handled. The input is one epoch, and a barrier closes it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest
from tests.spark.scenario import wait_until

from weir.common import Types
from weir.datastream import KeyedProcessFunction
from weir.datastream.connectors.file_system import FileSink
from weir.datastream.state import ValueStateDescriptor

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

ROWS = 400
ROW_S = 0.005
PREFIX = "execution.checkpointing."
MODES = {
    "aligned": {},
    "unaligned": {
        PREFIX + "unaligned.enabled": "true",
        PREFIX + "aligned-checkpoint-timeout": "100 ms",
    },
    "at-least-once": {PREFIX + "mode": "AT_LEAST_ONCE"},
}


class Slow(KeyedProcessFunction):
    """Running totals, slowly, with a diary."""

    def __init__(self, checkpoints: Path, diary: Path) -> None:
        self.checkpoints = checkpoints
        self.diary = diary

    def open(self, runtime_context):
        self.pause = threading.Event()
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        name = f"{runtime_context.get_attempt_number()}-{os.getpid()}"
        self.lines = (self.diary / name).open("a", buffering=1)

    def process_element(self, value, ctx):
        self.pause.wait(ROW_S)
        complete = self.checkpoints.glob("*/chk-*/_metadata")
        newest = max((int(p.parent.name.removeprefix("chk-")) for p in complete), default=0)
        self.lines.write(f"{value} {newest}\n")
        total = (self.total.value() or 0) + 1
        self.total.update(total)
        yield f"{ctx.get_current_key()},{value},{total}"

    def close(self):
        self.lines.close()


class Job:
    """The skewed job in one mode."""

    def __init__(self, env, path, mode):
        self.path = path
        self.checkpoints, self.diary, self.out = (path / n for n in ("chk", "diary", "out"))
        self.diary.mkdir()
        settings = env._configuration
        settings.set_string(PREFIX + "interval", "50 ms")
        settings.set_string(PREFIX + "dir", f"file://{self.checkpoints}")
        settings.set_string("restart-strategy.type", "fixed-delay")
        settings.set_string("restart-strategy.fixed-delay.delay", "0 s")
        for key, value in MODES[mode].items():
            settings.set_string(key, value)
        numbers = env.from_collection(list(range(ROWS)), Types.LONG()).uid("numbers")
        skewed = numbers.key_by(lambda n: n % 7 if n % 20 == 0 else 0)
        totals = skewed.process(Slow(self.checkpoints, self.diary), Types.STRING()).uid("slow")
        passed = totals.rebalance().map(lambda line: line, Types.STRING()).uid("pass")
        passed.sink_to(FileSink.text(str(self.out))).uid("files")
        self.client = env.execute_async(f"skewed {mode}")

    @property
    def history(self):
        return self.client.control.history()

    def diary_of(self, attempt):
        lines = [x for p in self.diary.glob(f"{attempt}-*") for x in p.read_text().splitlines()]
        return [tuple(map(int, line.split())) for line in lines]

    def overtaking(self):
        """Return the checkpoint whose barrier overtook rows of the input, when one of them saw it.

        Before the input there may have been epochs without any, with checkpoints of their own.
        """
        seen = {newest for _, newest in self.diary_of(0)}
        entries = [e for e in self.history.entries if e.checkpoint_id in seen - {min(seen)}]
        return next((e for e in entries if e.overtook), None)

    def kill_slots_after_the_barrier_overtook(self):
        wait_until(
            lambda: self.diary_of(0) and self.overtaking(),
            60,
            "a row that is handled after its epoch's checkpoint",
        )
        found = self.overtaking()
        for slot in self.client.progress()["slots"]:
            os.kill(slot["pid"], signal.SIGKILL)
        return found

    def finish(self):
        self.client.get_job_execution_result().result()
        files = [p for p in self.out.rglob("*") if p.is_file() and not p.name.startswith(".")]
        lines = [x for p in files for x in p.read_text().splitlines()]
        return Counter(int(line.split(",")[1]) for line in lines), lines


def expected_lines():
    totals, lines = Counter(), []
    for n in range(ROWS):
        key = n % 7 if n % 20 == 0 else 0
        totals[key] += 1
        lines.append(f"{key},{n},{totals[key]}")
    return Counter(lines)


def test_an_aligned_checkpoint_waits_for_every_row(env, tmp_path):
    job = Job(env, tmp_path, "aligned")
    _, lines = job.finish()
    assert Counter(lines) == expected_lines()
    assert len({newest for _, newest in job.diary_of(0)}) == 1
    assert not any(entry.overtook for entry in job.history.entries)


def test_an_unaligned_checkpoint_completes_while_rows_wait_and_restores_exactly(env, tmp_path):
    job = Job(env, tmp_path, "unaligned")
    checkpoint = job.kill_slots_after_the_barrier_overtook()
    _, lines = job.finish()
    assert sum(ack.in_flight_records for ack in checkpoint.acks.values()) > ROWS // 2
    assert job.client.progress()["attempt"] == 1
    assert Counter(lines) == expected_lines()


def test_at_least_once_loses_nothing_and_repeats_some(env, tmp_path):
    job = Job(env, tmp_path, "at-least-once")
    job.kill_slots_after_the_barrier_overtook()
    values, lines = job.finish()
    assert set(values) == set(range(ROWS))
    assert Counter(lines) != expected_lines()
    assert sum(values.values()) > ROWS
