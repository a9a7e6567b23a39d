"""How long epochs take: counted by bounds, split by who took the time, up to the commit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from weir.jobmanager.epoch_times import (
    BOUNDS_MS,
    UNCOMMITTED_MAX,
    WINDOW,
    EpochParts,
    EpochTimes,
    parts_of,
)
from weir.runtime.report import LevelZero, SourceReport, SubtaskReport
from weir.testing.clock import ManualClock

START = 1_000_000


def report(level: int, subtask: int, begun_ms: int, busy_ms: int) -> SubtaskReport:
    return SubtaskReport(
        level,
        subtask,
        epoch=0,
        rows=[],
        bytes_sent=0,
        records_in={},
        records_out={},
        entries=0,
        watermark=0,
        next_timer_ms=None,
        metrics={},
        busy_ms=busy_ms,
        begun_ms=begun_ms,
    )


def test_an_epoch_is_planned_read_moved_handled_and_collected() -> None:
    reports = [
        *LevelZero().reports(0, [source(0, 1_010, 20), source(1, 1_015, 35)]),
        report(1, 0, 1_070, 30),
        report(1, 1, 1_060, 10),
        report(2, 0, 1_105, 5),
    ]
    # Until 1,010 and from 1,110 on Spark; level 0 until 1,050; 10 and 5 on the way; 40 and 5.
    assert parts_of(reports, 1_000, 120) == EpochParts(20, 40, 15, 45)
    assert parts_of(reports, 1_000, 120, read_ms=980) == EpochParts(40, 40, 15, 45)


def source(partition: int, begun_ms: int, busy_ms: int) -> SourceReport:
    return SourceReport(partition, 0, 0, 0, busy_ms=busy_ms, begun_ms=begun_ms)


def test_an_epoch_of_which_nothing_is_told_is_all_the_engines() -> None:
    assert parts_of([], 1_000, 7) == EpochParts(7)
    # Records were left out before; this epoch had no input.
    level_0 = LevelZero()
    level_0.add({0: 3})
    reports = [*level_0.reports(0), report(1, 0, 1_001, 4)]
    assert parts_of(reports, 1_000, 7) == EpochParts(3, 0, 0, 4)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3_000), st.integers(0, 2_000))),
    st.integers(0, 500),
    st.none() | st.integers(1, 3_000),
)
@settings(max_examples=examples(200), deadline=None)
def test_whatever_clocks_say_the_parts_are_the_whole(
    told: list[tuple[int, int, int]], elapsed: int, read_ms: int | None
) -> None:
    reports = [report(level, 0, begun, busy) for level, begun, busy in told]
    parts = parts_of(reports, 1_000, elapsed, read_ms=read_ms)
    waited = 0 if read_ms is None else max(0, 1_000 - read_ms)
    assert parts.whole_ms == elapsed + waited
    assert min(parts.spark_ms, parts.level_0_ms, parts.shuffle_ms, parts.slot_ms) >= 0


def test_an_epoch_is_timed_and_counted_by_bounds() -> None:
    clock = ManualClock(START)
    times = EpochTimes(clock)
    for number, elapsed in enumerate((5, 6, 90_000)):
        with times.timing(number) as reports:
            reports.append(report(1, 0, clock.now_ms() + 1, 2))
            clock.advance(elapsed)
    view = times.view()
    assert (view.count, view.last_ms, view.parts) == (3, 90_000, EpochParts(89_998, 0, 0, 2))
    assert view.spread.sum_ms == 90_011
    counted = dict(view.spread.buckets())
    assert (counted["0.005"], counted["0.01"], counted["60"], counted["+Inf"]) == (1, 2, 2, 3)
    assert len(counted) == len(BOUNDS_MS) + 1


def test_an_epoch_that_fails_does_not_count() -> None:
    times = EpochTimes(ManualClock())
    with pytest.raises(ZeroDivisionError), times.timing(0, 1):
        _ = 1 / 0
    assert times.view().count == 0
    times.covered(1, 0)
    times.committed(1)
    assert times.view().latency.count == 0


def run(times: EpochTimes, clock: ManualClock, number: int, elapsed: int) -> None:
    with times.timing(number, clock.now_ms()):
        clock.advance(elapsed)


def test_latency_is_from_reading_to_the_commit_of_what_covers_it() -> None:
    clock = ManualClock(START)
    times = EpochTimes(clock)
    for number in (1, 2, 3):
        run(times, clock, number, 100)
    assert times.view().latency_ms is None
    times.covered(7, 2)
    clock.advance(40)
    times.committed(7)
    view = times.view()
    assert (view.latency.count, view.latency.sum_ms) == (2, 340 + 240)
    assert (view.latency_ms, view.commit_ms) == (340, 40)
    # Nobody was told of this one, and that one was committed before.
    times.committed(8)
    times.committed(7)
    assert times.view() == view


def test_without_checkpoints_an_epoch_is_committed_when_it_is_over() -> None:
    clock = ManualClock(START)
    times = EpochTimes(clock, at_once=True)
    run(times, clock, 1, 30)
    assert (times.view().latency.count, times.view().latency_ms) == (1, 30)


def test_what_a_failure_took_back_is_read_again() -> None:
    clock = ManualClock(START)
    times = EpochTimes(clock)
    run(times, clock, 1, 100)
    times.covered(1, 1)
    times.restart()
    run(times, clock, 1, 10)
    times.covered(2, 1)
    times.committed(2)
    assert (times.view().latency.count, times.view().latency_ms) == (1, 10)


def test_epochs_without_input_have_no_latency() -> None:
    clock = ManualClock(START)
    times = EpochTimes(clock, at_once=True)
    with times.timing(1):
        clock.advance(10)
    assert times.view().latency.count == 0


def test_arrivals_and_what_waits_for_a_commit_are_bounded() -> None:
    clock = ManualClock(START)
    times = EpochTimes(clock)
    for number in range(WINDOW + 10):
        with times.timing(number, clock.now_ms() - number) as reports:
            reports.append(report(1, 1, clock.now_ms(), 5))
            reports += LevelZero().reports(number, [source(0, clock.now_ms(), 1)])
    (arrivals,) = times.arrivals()
    assert (arrivals.level, arrivals.subtask, len(arrivals.latencies_ms)) == (1, 1, WINDOW)
    assert arrivals.latencies_ms[-1] == WINDOW + 9 + 5
    assert times._read.maxlen == UNCOMMITTED_MAX
    times.restart()
    assert times.arrivals() == ()
