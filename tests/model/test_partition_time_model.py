"""The event time of a source, for any partitions: it never goes back, and leaves nobody behind.

A partition that is heard, and is neither idle nor over, holds the watermark at its own: nothing of
what it brings in order is ever late, however far others are, whenever it came and whoever ended.
Idle is who was silent for too long up to a look at the sources: time passes between a look and its
epoch, and some epochs have none.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from weir.runtime.frame import MIN_WATERMARK, PartitionMark
from weir.runtime.looks import Looks
from weir.runtime.partition_time import SourceTime
from weir.testing.clock import ManualClock

ALLOWED_MS = 10
LOGS = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.lists(st.tuples(st.sampled_from(LOGS), st.integers(0, 50)), max_size=4),
        st.lists(st.integers(0, 300), max_size=2),
        st.booleans(),
        st.one_of(st.none(), st.integers(0, 30)),
    ),
    max_size=25,
)


class Partitions:
    """Three logs whose records are in order, and files that are read once."""

    def __init__(self, idleness_ms):
        self.clock = ManualClock()
        self.idleness_ms = idleness_ms
        self.looks = Looks()
        self.time = SourceTime(self.looks, idleness_ms)
        self.looked = 0
        self.reached = {}
        self.heard = {}
        self.behind = {}
        self.files = 0
        self.restored_logs = set()

    def is_counted(self, name):
        silent = self.looked - self.heard[name]
        return self.idleness_ms is None or silent <= self.idleness_ms

    def epoch(self, logs, files, lasts=0):
        """Let logs go on by so much and files be read; return the watermark of the source.

        The epoch begins so long after the look at the sources; None if nobody looked.
        """
        if lasts is not None:
            self.looked = self.clock.monotonic_ms()
        self.clock.advance(lasts or 0)
        self.looks.begin_epoch(None if lasts is None else self.looked, self.clock.monotonic_ms())
        self.heard |= dict.fromkeys(self.restored_logs, self.clock.monotonic_ms())
        self.restored_logs.clear()
        counted = {name for name in self.reached if self.is_counted(name)}
        before = self.time.value
        marks = [PartitionMark(f"file {self.files + n}", t, ends=True) for n, t in enumerate(files)]
        self.files += len(files)
        for name, further in logs:
            self.reached[name] = self.reached.get(name, 0) + further
            self.heard[name] = self.clock.monotonic_ms()
            if name not in counted:
                self.behind[name] = before  # it comes, or comes back, where time is by now
            marks.append(PartitionMark(name, self.reached[name]))
        self.time.begin()
        for mark in marks:
            self.time.add([mark])
        self.time.settle()
        return self.time.value

    def restored(self):
        """Go on with what a checkpoint would hold; silence is counted anew."""
        stored, value = self.time.watermarks(replayed=False), self.time.value
        self.looks = Looks()
        self.time = SourceTime(self.looks, self.idleness_ms)
        self.time.restore(stored)
        for name in self.reached:
            if name not in dict(stored):
                continue
            # The first epoch of the attempt is the next one.
            self.restored_logs.add(name)
            self.behind[name] = max(self.behind[name], value)
        return value


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(st.sampled_from([None, ALLOWED_MS]), STEPS)
def test_no_partition_that_counts_is_left_behind(idleness_ms, steps):
    found, last = Partitions(idleness_ms), MIN_WATERMARK
    for passed, logs, files, restores, lasts in steps:
        found.clock.advance(passed)
        value = found.epoch(logs, files, lasts)
        assert value >= last
        for name, reached in found.reached.items():
            if found.is_counted(name):
                assert value <= max(found.behind[name], reached), name
        last = value
        if restores:
            found.restored()
            # Operators keep their own watermark; the source may say a lower one again.
            last = MIN_WATERMARK


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=3), min_size=1, max_size=8))
def test_of_files_the_slowest_of_an_epoch_counts(epochs):
    found, last = Partitions(None), MIN_WATERMARK
    for files in epochs:
        last = max(last, min(files))
        assert found.epoch([], files) == last
