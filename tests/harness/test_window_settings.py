"""Sizes, lateness and the like, in the words of PyFlink's programs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.harness.programs import environment, run, started
from tests.harness.test_windows import Bounds, keyed, ms

from weir.common import Duration, Time, Types
from weir.datastream import WindowFunction
from weir.datastream.window import TumblingEventTimeWindows
from weir.testing.harness import collect


def test_the_count_windows_of_pyflinks_example():
    words = ["hi", "hello", "hi", "hello", "hi", "hello", "hello"]
    env = environment()
    stream = env.from_collection(
        list(zip((1, 2, 3, 4, 5, 6, 6), words, strict=True)),
        Types.TUPLE([Types.INT(), Types.STRING()]),
    )
    collect(stream.key_by(lambda v: v[1]).count_window(2).apply(SumFirst()))
    found = run(env, partitions=1).collected()
    assert sorted(found) == [("hello", 6), ("hello", 12), ("hi", 4)]


class SumFirst(WindowFunction):
    def apply(self, key, window, inputs):
        yield key, sum(v for v, _ in inputs)


@pytest.mark.parametrize(
    "length", [Time.milliseconds(3), Duration.of_millis(3), timedelta(milliseconds=3), 3], ids=repr
)
def test_lateness_may_be_any_length_of_time(length):
    env = environment()
    windowed = keyed(env, []).window(TumblingEventTimeWindows.of(ms(5)))
    collect(windowed.allowed_lateness(length).process(Bounds()))
    harness = started(env, 1)
    # The watermarks are at 6, 7 and 8 when the late ones come: the window lives until 7.
    for n in (0, 7, 1, 8, 2):
        harness.run_epoch([("a", n)])
    assert harness.collected() == [("a", 0, 5, 1), ("a", 0, 5, 2)]
