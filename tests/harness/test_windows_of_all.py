"""Windows of a whole stream: what its functions keep, fields, and windows by number."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, run, started
from tests.harness.test_windows import AB, PAIR, AllSum, SumPairs, ms, reducing, timed

from weir.common import Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import ProcessAllWindowFunction
from weir.datastream.state import ListStateDescriptor, ValueStateDescriptor
from weir.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    NeverTrigger,
    TumblingEventTimeWindows,
)
from weir.errors import WeirError
from weir.testing.harness import collect

OVER = []


class Firings(ProcessAllWindowFunction):
    """(start, records, firings of the window, firings of all windows); `OVER` has what ended."""

    def __init__(self):
        self.fired = ValueStateDescriptor("fired", Types.LONG())
        self.starts = ListStateDescriptor("starts", Types.LONG())

    def process(self, context, elements):
        start = context.window().start
        for store in (context.window_state(), context.global_state()):
            state = store.get_state(self.fired)
            state.update((state.value() or 0) + 1)
            store.get_list_state(self.starts).add(start)
        assert set(context.window_state().get_list_state(self.starts).get()) == {start}
        yield (
            start,
            len(list(elements)),
            context.window_state().get_state(self.fired).value(),
            context.global_state().get_state(self.fired).value(),
        )

    def clear(self, context):
        own = context.window_state()
        shared = list(context.global_state().get_list_state(self.starts).get())
        OVER.append((context.window().start, own.get_state(self.fired).value(), shared))
        own.get_state(self.fired).clear()
        own.get_list_state(self.starts).clear()


def firings(records, trigger=None):
    env = environment()
    windowed = timed(env, records).window_all(TumblingEventTimeWindows.of(ms(5)))
    if trigger is not None:
        windowed.trigger(trigger)
    collect(windowed.process(Firings()).uid("windows"))
    OVER.clear()
    return env


def test_windows_of_a_whole_stream_have_states_of_their_own_and_share_others():
    found = run(firings(AB), take=1, partitions=1).collected()
    assert found == [(0, 3, 1, 1), (5, 3, 1, 2), (15, 1, 1, 3)]
    assert OVER == [(0, 1, [0]), (5, 1, [0, 5]), (15, 1, [0, 5, 15])]


def test_the_state_of_a_window_lasts_from_firing_to_firing_until_it_is_cleared():
    found = run(firings(AB, CountTrigger.of(1)), take=1, partitions=1).collected()
    assert found == [
        *[(0, 1, 1, 1), (0, 2, 2, 2), (0, 3, 3, 3)],
        *[(5, 1, 1, 4), (5, 2, 2, 5), (5, 3, 3, 6)],
        (15, 1, 1, 7),
    ]
    assert [(start, own) for start, own, _ in OVER] == [(0, 3), (5, 3), (15, 1)]


def test_clear_is_called_once_for_a_window_that_never_fired():
    assert run(firings(AB, NeverTrigger()), take=1, partitions=1).collected() == []
    assert OVER == [(0, None, []), (5, None, []), (15, None, [])]


def test_states_of_windows_of_a_whole_stream_survive_a_failure_and_rescaling():
    env = firings(AB, CountTrigger.of(1))
    first = started(env, 2, wait_for_checkpoints=True, partitions=1)
    first.run_epoch(take=5, checkpoint=True)
    first.kill_slot(0)
    first.fail_over()
    second = first.restart(3)
    second.run(take=1)
    found = [*first.collected(), *second.collected()]
    assert found[5:] == [(5, 3, 3, 6), (15, 1, 1, 7)]
    assert [(start, own) for start, own, _ in OVER][-2:] == [(5, 3), (15, 1)]


def test_sessions_of_a_whole_stream_have_no_states_of_their_own():
    env = environment()
    sessions = timed(env, AB).window_all(EventTimeSessionWindows.with_gap(ms(2)))
    collect(sessions.process(Firings()))
    with pytest.raises(WeirError, match="Per-window state is not allowed"):
        run(env)


# ---- fields

ROWS = [("a", 2, 1), ("b", 1, 2), ("c", 3, 3), ("d", 1, 4), ("e", 3, 4), ("f", 5, 7), ("g", 4, 8)]
ROW = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
BY_FIELD = {
    "sum": [("a", 10, 1), ("f", 9, 7)],
    "min": [("a", 1, 1), ("f", 4, 7)],
    "max": [("a", 3, 1), ("f", 5, 7)],
    "min_by": [("b", 1, 2), ("g", 4, 8)],
    "max_by": [("c", 3, 3), ("f", 5, 7)],
}


@pytest.mark.parametrize("take", [None, 2])
@pytest.mark.parametrize("declared", [ROW, None], ids=["declared", "pickled"])
@pytest.mark.parametrize(
    "assigner",
    [TumblingEventTimeWindows.of(5), EventTimeSessionWindows.with_gap(2)],
    ids=["tumbling", "sessions"],
)
@pytest.mark.parametrize("op", BY_FIELD)
def test_aggregates_of_a_field_are_of_all_keys_together(op, assigner, declared, take):
    env = environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, _: value[2]
    )
    stream = env.from_collection(ROWS, declared).assign_timestamps_and_watermarks(strategy)
    collect(getattr(stream.window_all(assigner), op)(1))
    assert run(env, take=take, partitions=1).collected() == BY_FIELD[op]


# ---- by number


class Values(ProcessAllWindowFunction):
    def process(self, context, elements):
        yield context.window().id, tuple(v for _, v in elements)


NUMBERED = [("k", n) for n in range(1, 8)]


@pytest.mark.parametrize("take", [None, 1])
@pytest.mark.parametrize(
    ("size", "ending", "expected"),
    [
        ((3,), lambda w: w.process(Values()), [(0, (1, 2, 3)), (1, (4, 5, 6))]),
        (
            (3, 2),
            lambda w: w.process(Values()),
            [(0, (1, 2, 3)), (1, (3, 4, 5)), (2, (5, 6, 7))],
        ),
        ((2, 3), lambda w: w.process(Values()), [(0, (1, 2)), (1, (4, 5))]),
        ((3,), lambda w: w.apply(AllSum()), [6, 15]),
        ((3,), lambda w: w.reduce(reducing), [("k", 6), ("k", 15)]),
        ((3,), lambda w: w.aggregate(SumPairs()), [("k", 6), ("k", 15)]),
        ((3,), lambda w: w.sum(1), [("k", 6), ("k", 15)]),
        ((3,), lambda w: w.min(1), [("k", 1), ("k", 4)]),
        ((3, 2), lambda w: w.max_by(1), [("k", 3), ("k", 5), ("k", 7)]),
    ],
)
def test_windows_by_number_count_the_whole_stream(size, ending, expected, take):
    env = environment()
    collect(ending(env.from_collection(NUMBERED, PAIR).count_window_all(*size)))
    assert run(env, take=take, partitions=1).collected() == expected


def test_the_number_of_a_whole_stream_survives_a_restart_at_another_parallelism():
    env = environment()
    stream = env.from_collection(NUMBERED, PAIR).uid("numbers")
    collect(stream.count_window_all(3, 2).process(Values()).uid("w"))
    first = started(env, 2, wait_for_checkpoints=True, partitions=1)
    first.run_epoch(take=4, checkpoint=True)
    second = first.restart(1)
    second.run()
    found = [*first.collected(), *second.collected()]
    assert found == [(0, (1, 2, 3)), (1, (3, 4, 5)), (2, (5, 6, 7))]
