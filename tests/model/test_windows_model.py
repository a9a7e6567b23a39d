"""Windows against a plain model: random streams, out of order and late, restored and rescaled.

The model keeps lists in dicts and knows nothing of state, timers, chunks or folding. Whatever the
epochs, both give the same results, the same late records, and nothing is left at the end.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.databases import scratch_directory
from tests.examples import examples
from tests.window_driver import MAX, MIN, Driver

from weir.backend.factory import BackendSettings
from weir.common import Types
from weir.datastream import ProcessWindowFunction
from weir.datastream.output_tag import OutputTag
from weir.datastream.window import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from weir.runtime import session_folding, window_folding, window_operator

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class All(ProcessWindowFunction):
    """Yields key, bounds and the values of a window."""

    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, tuple(v for _, v in elements)


def fold(a, b):
    """Neither associative nor commutative: records must come in order, one by one."""
    return a[0], (a[1] * 31 + b[1]) % 1_000_003


@dataclass
class Model:
    """What windows give, by the rules alone."""

    kind: tuple
    lateness: int
    purging: bool
    watermark: int = MIN
    open: dict = field(default_factory=lambda: defaultdict(dict))
    results: list = field(default_factory=list)
    late: list = field(default_factory=list)

    def windows(self, time):
        name, *numbers = self.kind
        if name == "session":
            return [(time, time + numbers[0])]
        size, slide, offset = numbers
        latest = time - (time - offset) % slide
        return [(s, s + size) for s in range(latest, latest - size, -slide) if s <= time < s + size]

    def over(self, end):
        return min(end - 1 + self.lateness, MAX) <= self.watermark

    def fire(self, key, window):
        held = self.open[key][window]
        if held:
            self.results.append(((key, *window, tuple(held)), window[1] - 1))
        if self.purging:
            self.open[key][window] = []

    def add(self, key, value, time):
        taken = False
        for window in self.windows(time):
            if self.kind[0] == "session":
                window = self.merged(key, window)
            if self.over(window[1]):
                self.open[key].pop(window, None)
                continue
            taken = True
            self.open[key].setdefault(window, []).append(value)
            if window[1] - 1 <= self.watermark:
                self.fire(key, window)
        if not taken and time + self.lateness <= self.watermark:
            self.late.append(((key, value), time))

    def merged(self, key, new):
        windows = self.open[key]
        touching = [w for w in windows if w[0] <= new[1] and w[1] >= new[0]]
        if not touching:
            return new
        result = (min(new[0], *(w[0] for w in touching)), max(new[1], *(w[1] for w in touching)))
        windows[result] = [v for w in touching for v in windows.pop(w)]
        return result

    def advance(self, watermark):
        before, self.watermark = self.watermark, watermark
        for key, windows in self.open.items():
            for window in sorted(windows):
                if before < window[1] - 1 <= watermark:
                    self.fire(key, window)
            for window in [w for w in windows if self.over(w[1])]:
                del windows[window]


KINDS = st.one_of(
    st.integers(1, 12).flatmap(
        lambda size: st.tuples(
            st.just("aligned"), st.just(size), st.just(size), st.integers(1 - size, size - 1)
        )
    ),
    st.tuples(st.just("aligned"), st.integers(1, 12), st.integers(1, 8), st.just(0)),
    st.tuples(st.just("session"), st.integers(1, 8)),
)
ROWS = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(0, 99), st.integers(-10, 60)), max_size=12
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("watermark"), st.integers(0, 15)),
        st.tuples(st.just("restore"), st.integers(1, 4)),
    ),
    max_size=14,
)


def declare(kind, lateness, purging, ending):
    name, *numbers = kind
    if name == "session":
        assigner = EventTimeSessionWindows.with_gap(numbers[0])
    elif numbers[0] == numbers[1]:
        assigner = TumblingEventTimeWindows.of(numbers[0], numbers[2])
    else:
        assigner = SlidingEventTimeWindows.of(*numbers)

    def declared(stream):
        windowed = stream.window(assigner).allowed_lateness(lateness)
        windowed.side_output_late_data(OutputTag("late", PAIR))
        if purging:
            windowed.trigger(PurgingTrigger.of(EventTimeTrigger.create()))
        if ending == "process":
            windowed.process(All())
        else:
            windowed.reduce(fold if ending == "fold" else add, All())

    return declared


def add(a, b):
    return a[0], a[1] + b[1]


def reduced(values, ending):
    """What a reduce function makes of the values that the model has."""
    total = values[0]
    for value in values[1:]:
        total = (total * 31 + value) % 1_000_003 if ending == "fold" else total + value
    return (total,)


def expected(model, ending):
    """The model's results, as the program gives them; sessions hold records in any order."""
    found, model.results = model.results, []
    if ending != "process":
        return sorted(((*r[:3], reduced(r[3], ending)), t) for r, t in found)
    return sorted(((*r[:3], tuple(sorted(r[3]))), t) for r, t in found)


def taken(driver, ending):
    found = driver.take()
    if ending == "process":
        found = [((*r[:3], tuple(sorted(r[3]))), t) for r, t in found]
    return sorted(found)


def compare(kind, lateness, purging, ending, steps, backends=None, directory=None):
    model = Model(kind, lateness, purging)
    driver = Driver(declare(kind, lateness, purging, ending), types=PAIR, directory=directory)
    restored, before = 0, 0
    for step, given_ in [*steps, ("end", None)]:
        if step == "rows":
            driver.epoch(*given_)
            for row in given_:
                model.add(*row)
        elif step == "restore":
            restored += 1
            backend = None if backends is None else backends[restored % len(backends)]
            driver.restore(given_, backend)
        else:
            before = MAX if step == "end" else before + given_
            driver.watermark(before)
            model.advance(before)
        assert taken(driver, ending) == expected(model, ending), (step, given_)
        assert sorted(driver.take_late()) == sorted(model.late)
        model.late.clear()
    assert (driver.entries, driver.timers) == (0, 0)
    driver.close()


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(KINDS, st.integers(0, 9), st.booleans(), st.sampled_from(["process", "add"]), STEPS)
def test_windows_give_what_the_rules_say(kind, lateness, purging, ending, steps):
    compare(kind, lateness, purging, ending, steps)


@settings(max_examples=examples(150), deadline=None)
@given(KINDS.filter(lambda k: k[0] == "aligned"), st.integers(0, 9), st.booleans(), STEPS)
def test_records_are_reduced_one_by_one_in_their_order(kind, lateness, purging, steps):
    compare(kind, lateness, purging, "fold", steps)


@settings(max_examples=examples(60), deadline=None)
@given(KINDS, st.integers(0, 9), st.booleans(), st.sampled_from(["process", "add"]), STEPS)
def test_it_does_not_matter_how_much_waits_to_be_written(kind, lateness, purging, ending, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_folding, "PENDING_MAX", 2)
        patch.setattr(window_operator, "SETS_MAX", 2)
        patch.setattr(session_folding, "KEYS_MAX", 2)
        compare(kind, lateness, purging, ending, steps)


@pytest.mark.parametrize("tracked", [False, True])
@settings(max_examples=examples(25), deadline=None)
@given(KINDS, st.integers(0, 9), st.booleans(), st.sampled_from(["process", "add"]), STEPS)
def test_windows_move_between_backends(tracked, kind, lateness, purging, ending, steps):
    backends = [BackendSettings("rocksdb"), BackendSettings(incremental=tracked)]
    with scratch_directory() as directory:
        compare(kind, lateness, purging, ending, steps, backends, directory)
