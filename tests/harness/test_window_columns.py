"""Windows over columns in whole jobs: when they are taken, what is late, and what survives."""

from __future__ import annotations

import pytest
from tests.harness.overtaking import Overtake, job
from tests.harness.programs import environment, started

from weir.common import Time, Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import OutputTag
from weir.datastream.window import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from weir.errors import WeirError
from weir.runtime.window_operator import WindowOperator
from weir.testing.harness import collect

LONG = Types.LONG()
BID = Types.TUPLE([LONG, LONG, LONG])
LATE = OutputTag("late", BID)
BIG = (1 << 63) - 1


def totals(env, records, declared=BID, window=None, op="sum", field=1):
    """Records of (key, number, time): an aggregate of the numbers per key and window."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(2)
    stream = env.from_collection(records, declared).assign_timestamps_and_watermarks(strategy)
    windowed = stream.key_by(lambda r: r[0]).window(window or TumblingEventTimeWindows.of(10))
    result = getattr(windowed.side_output_late_data(LATE), op)(field).uid("totals")
    return collect(result), result


@pytest.fixture
def taken(monkeypatch):
    """Whether columns were taken, for every epoch of a slot that had some."""
    found = []
    process = WindowOperator.process_columns

    def noting(self, given, edge):
        found.append(process(self, given, edge))
        return found[-1]

    monkeypatch.setattr(WindowOperator, "process_columns", noting)
    return found


def by_hand(records, size=10, slide=10):
    sums = {}
    for key, number, time in records:
        for start in range(time - time % slide, time - size, -slide):
            sums[key, start] = sums.get((key, start), 0) + number
    return sorted((key, total) for (key, _), total in sums.items())


RECORDS = [(n % 5, n, n // 3) for n in range(90)]


@pytest.mark.parametrize("take", [None, 7, 30])
def test_tumbling_sums_are_made_of_columns(taken, take):
    env = environment()
    totals(env, RECORDS)
    found = started(env).run(take).collected()
    assert sorted(r[:2] for r in found) == by_hand(RECORDS)
    assert set(taken) == {True}


def test_sliding_sums_are_made_of_columns(taken):
    env = environment()
    totals(env, RECORDS, window=SlidingEventTimeWindows.of(12, 4))
    found = started(env).run(20).collected()
    assert sorted(r[:2] for r in found) == by_hand(RECORDS, 12, 4)
    assert set(taken) == {True}


def test_windows_of_processing_time_take_columns(taken):
    env = environment()
    totals(env, RECORDS, window=TumblingProcessingTimeWindows.of(Time.seconds(5)))
    harness = started(env)
    harness.run_epoch()
    harness.clock.advance(10_000)
    harness.run_epoch()
    sums = {}
    for key, number, _ in RECORDS:
        sums[key] = sums.get(key, 0) + number
    assert sorted(r[:2] for r in harness.collected()) == sorted(sums.items())
    assert set(taken) == {True}


def test_late_records_are_counted_or_shown_while_the_others_stay_columns(taken):
    records = [(1, 1, 5), (1, 2, 25), (1, 4, 26), (2, 8, 3), (1, 16, 27), (1, 32, 9)]
    for shown in (False, True):
        env = environment()
        _, result = totals(env, records)
        late = collect(result.get_side_output(LATE)) if shown else None
        harness = started(env, parallelism=1)
        harness.run_epoch(take=3)
        harness.run_epoch()
        assert harness.metrics("totals")["numLateRecordsDropped"] == [0 if shown else 2]
        if shown:
            assert harness.collected(late) == [(2, 8, 3), (1, 32, 9)]
    assert set(taken) == {True}


@pytest.mark.parametrize(
    ("declared", "records", "found"),
    [
        (Types.TUPLE([LONG, Types.DOUBLE(), LONG]), [(1, 0.1, 1), (1, 0.2, 2)], [(1, 0.1 + 0.2)]),
        (BID, [(1, BIG - 5, 1), (1, 3, 2)], [(1, BIG - 2)]),
    ],
)
def test_what_columns_cannot_add_exactly_goes_record_by_record(taken, declared, records, found):
    env = environment()
    totals(env, records, declared)
    assert [r[:2] for r in started(env).run().collected()] == found
    assert False in taken


def test_a_sum_that_its_type_cannot_hold_is_refused():
    env = environment()
    declared = Types.TUPLE([LONG, Types.INT(), LONG])
    totals(env, [(1, (1 << 31) - 1, 1), (1, 5, 2)], declared)
    with pytest.raises(WeirError, match="2147483652"):
        started(env).run()


@pytest.mark.parametrize(
    "window", [TumblingEventTimeWindows.of(10), SlidingEventTimeWindows.of(12, 4)]
)
def test_windows_go_on_from_a_checkpoint_with_another_parallelism(taken, window):
    env = environment()
    totals(env, RECORDS, window=window)
    harness = started(env)
    harness.run_epoch(take=33)
    harness.checkpoint()
    before = list(harness.collected())
    later = harness.restart(3).run(take=10)
    found = sorted(r[:2] for r in [*before, *later.collected()])
    assert found == by_hand(RECORDS, window.size, window.slide)
    assert set(taken) == {True}


@pytest.mark.parametrize("at", [1, 4, 9])
def test_a_barrier_overtakes_rows_that_would_have_been_columns(taken, at):
    env = environment()
    totals(env, RECORDS)
    hooks = Overtake(at=at)
    harness = job(env, hooks)
    harness.run_epoch(take=40)
    harness.run_epoch(take=20, checkpoint=True)
    assert hooks.settled
    harness.fail_over()
    harness.run(take=20)
    assert sorted(r[:2] for r in harness.collected()) == by_hand(RECORDS)
    assert True in taken
