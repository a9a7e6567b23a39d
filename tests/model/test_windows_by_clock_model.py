"""Windows by the clock, by number and with evictors against plain models, restored and rescaled.

The models keep lists in dicts. Time goes on between epochs, also by nothing at all; whatever the
epochs and restores, both give the same results, and nothing is left that should be gone.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.databases import scratch_directory
from tests.examples import examples
from tests.window_driver import Driver

from weir.backend.factory import BackendSettings
from weir.common import Types
from weir.datastream import ProcessWindowFunction
from weir.datastream.window import (
    CountEvictor,
    CountTrigger,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingProcessingTimeWindows,
    TumblingProcessingTimeWindows,
)

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Values(ProcessWindowFunction):
    """Yields key and values of a window, with the bounds of one that has them."""

    def process(self, key, context, elements):
        window = context.window()
        bounds = (window.start, window.end) if hasattr(window, "start") else ()
        yield key, *bounds, tuple(value for _, value in elements)


class Clocked:
    """Aligned windows and sessions by the clock."""

    def __init__(self, name, *numbers):
        self.name, self.numbers = name, numbers
        self.open = defaultdict(dict)
        self.results, self.now = [], 0

    def declare(self, stream):
        if self.name == "session":
            return stream.window(ProcessingTimeSessionWindows.with_gap(*self.numbers))
        size, slide = self.numbers
        if size == slide:
            return stream.window(TumblingProcessingTimeWindows.of(size))
        return stream.window(SlidingProcessingTimeWindows.of(size, slide))

    def advance(self, now):
        self.now = now
        for key, windows in self.open.items():
            for window in sorted(w for w in windows if w[1] - 1 <= now):
                self.results.append((key, *window, tuple(windows.pop(window))))

    def add(self, key, value):
        windows = self.open[key]
        if self.name == "session":
            new = (self.now, self.now + self.numbers[0])
            touching = sorted(w for w in windows if w[1] >= new[0])
            whole = (min(w[0] for w in [new, *touching]), max(w[1] for w in [new, *touching]))
            windows[whole] = [*(v for w in touching for v in windows.pop(w)), value]
            return
        size, slide = self.numbers
        latest = self.now - self.now % slide
        for start in range(latest, self.now - size, -slide):
            windows.setdefault((start, start + size), []).append(value)

    def left(self):
        """Return whether a window is still open."""
        return any(self.open.values())


class Counted:
    """Windows by number: each fires when it is full."""

    def __init__(self, size, slide):
        self.size, self.slide = size, slide
        self.seen, self.open = defaultdict(int), defaultdict(dict)
        self.results = []

    def declare(self, stream):
        return stream.count_window(self.size, 0 if self.size == self.slide else self.slide)

    def advance(self, now):
        """Numbers know no time."""

    def add(self, key, value):
        number, windows = self.seen[key], self.open[key]
        self.seen[key] += 1
        for index in range(number // self.slide, -1, -1):
            if index * self.slide <= number < index * self.slide + self.size:
                windows.setdefault(index, []).append(value)
                if len(windows[index]) == self.size:
                    self.results.append((key, tuple(windows.pop(index))))

    def left(self):
        return True


class Evicted:
    """The last records of a key, at every so many."""

    def __init__(self, every, kept, after):
        self.every, self.kept, self.after = every, kept, after
        self.seen, self.held = defaultdict(int), defaultdict(list)
        self.results = []

    def declare(self, stream):
        windows = stream.window(GlobalWindows.create()).trigger(CountTrigger.of(self.every))
        return windows.evictor(CountEvictor.of(self.kept, self.after))

    def advance(self, now):
        """Numbers know no time."""

    def add(self, key, value):
        self.held[key].append(value)
        self.seen[key] += 1
        if self.seen[key] % self.every == 0:
            shown = self.held[key] if self.after else self.held[key][-self.kept :]
            self.results.append((key, tuple(shown)))
            self.held[key] = self.held[key][-self.kept :]

    def left(self):
        return True


MODELS = st.one_of(
    st.builds(Clocked, st.just("aligned"), st.integers(1, 9), st.integers(1, 9)),
    st.builds(Clocked, st.just("session"), st.integers(1, 9)),
    st.builds(Counted, st.integers(1, 4), st.integers(1, 4)),
    st.builds(Evicted, st.integers(1, 4), st.integers(1, 4), st.booleans()),
)
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99)), max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("now"), st.integers(0, 12)),
        st.tuples(st.just("restore"), st.integers(1, 4)),
    ),
    max_size=14,
)


def compare(model, steps, backends=None, directory=None):
    driver = Driver(
        lambda stream: model.declare(stream).process(Values()), types=PAIR, directory=directory
    )
    now = restored = 0
    for step, given_ in [*steps, ("now", 100)]:
        if step == "rows":
            # What is due comes before records, in every subtask.
            driver.now(now)
            model.advance(now)
            driver.epoch(*((key, value, None) for key, value in given_))
            for row in given_:
                model.add(*row)
        elif step == "restore":
            restored += 1
            driver.restore(given_, backends and backends[restored % len(backends)])
        else:
            now += given_
            driver.now(now)
            model.advance(now)
        found, model.results = model.results, []
        assert sorted(value for value, _ in driver.take()) == sorted(found), (step, given_)
    if not model.left():
        assert (driver.entries, driver.timers) == (0, 0)
    driver.close()


@settings(max_examples=examples(300), deadline=None)
@given(MODELS, STEPS)
def test_windows_without_event_time_give_what_the_rules_say(model, steps):
    compare(model, steps)


@pytest.mark.parametrize("tracked", [False, True])
@settings(max_examples=examples(25), deadline=None)
@given(MODELS, STEPS)
def test_windows_without_event_time_move_between_backends(tracked, model, steps):
    backends = [BackendSettings("rocksdb"), BackendSettings(incremental=tracked)]
    with scratch_directory() as directory:
        compare(model, steps, backends, directory)
