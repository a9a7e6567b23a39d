"""A job over time: nothing is counted twice or lost, memory is bounded, events are found once."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from weir.jobmanager.epoch_times import EpochParts, EpochTimesView, Spread
from weir.jobmanager.history import CheckpointEntry, HistoryView
from weir.jobmanager.timeline import (
    Observation,
    Point,
    SlotObservation,
    SlotPoint,
    Timeline,
    lag_ms,
    merge,
)

FIRST = Observation(1_000_000, "RUNNING")


def after(ms: int, **changes: object) -> Observation:
    return replace(FIRST, now_ms=FIRST.now_ms + ms, **changes)


def test_rates_are_what_was_counted_between_two_looks() -> None:
    line = Timeline()
    line.observe(replace(FIRST, records_in=100, records_out=10))
    line.observe(after(2_000, records_in=500, records_out=30))
    (point,) = line.view().recent
    assert (point.span_ms, point.records_in, point.records_out) == (2_000, 400, 20)


def test_a_new_attempt_counts_from_zero() -> None:
    line = Timeline()
    line.observe(replace(FIRST, records_in=100))
    line.observe(after(1_000, attempt=1, records_in=30, failure="slot 1 was lost"))
    assert line.view().recent[0].records_in == 30
    assert [(e.kind, e.text) for e in line.view().events] == [
        ("restart", "attempt 1: slot 1 was lost")
    ]


def test_a_look_that_comes_too_soon_adds_nothing_but_is_not_lost() -> None:
    line = Timeline()
    line.observe(FIRST)
    line.observe(after(100, records_in=5))
    assert line.view().recent == ()
    line.observe(after(1_000, records_in=7))
    assert [p.records_in for p in line.view().recent] == [7]


def test_an_epoch_shows_its_duration_and_a_quiet_stretch_shows_none() -> None:
    line = Timeline()
    line.observe(FIRST)
    ran = EpochTimesView(Spread(3), last_ms=80, parts=EpochParts(7, 20, 8, 50))
    line.observe(after(1_000, epochs=ran))
    line.observe(after(2_000, epochs=ran))
    shown = [
        (p.epochs, p.epoch_ms, p.spark_ms, p.level_0_ms, p.shuffle_ms, p.slot_ms)
        for p in line.view().recent
    ]
    assert shown == [(3, 85, 7, 20, 8, 50), (0, None, None, None, None, None)]


def test_a_commit_shows_its_duration_and_latency_where_it_ended() -> None:
    line = Timeline()
    line.observe(FIRST)
    done = EpochTimesView(latency=Spread(2), latency_ms=900, commit_ms=30)
    line.observe(after(1_000, epochs=done))
    line.observe(after(2_000, epochs=done))
    longer = replace(done, latency=Spread(3), latency_ms=1_200, commit_ms=20)
    line.observe(after(3_000, epochs=longer))
    points = line.view().recent
    assert [(p.commit_ms, p.latency_ms) for p in points] == [(30, 900), (None, None), (20, 1_200)]
    together = merge(merge(points[0], points[1]), points[2])
    assert (together.commit_ms, together.latency_ms) == (30, 1_200)


def test_slots_have_shares_of_the_time_since_the_last_look() -> None:
    line = Timeline()
    line.observe(replace(FIRST, slots=(SlotObservation(0, 10, 1_000, 500),)))
    line.observe(after(1_000, slots=(SlotObservation(0, 20, 1_500, 2_500),)))
    assert line.view().recent[0].slots == (SlotPoint(0, 20, 0.5, 1.0),)


def test_a_slot_of_a_new_attempt_begins_at_zero() -> None:
    line = Timeline()
    line.observe(replace(FIRST, slots=(SlotObservation(0, 10, 9_000, 9_000),)))
    line.observe(after(1_000, attempt=1, slots=(SlotObservation(0, 20, 300, 100),)))
    assert line.view().recent[0].slots == (SlotPoint(0, 20, 0.0, 0.0),)


def checkpoint(number: int, status: str, **changes: object) -> CheckpointEntry:
    return CheckpointEntry(number, 1_000_000, 2, status=status, **changes)


def test_savepoints_and_failed_checkpoints_are_told_once() -> None:
    line = Timeline()
    line.observe(FIRST)
    begun = HistoryView(entries=(checkpoint(2, "IN_PROGRESS", is_savepoint=True),))
    line.observe(after(1_000, history=begun))
    done = checkpoint(2, "COMPLETED", is_savepoint=True, duration_ms=7, path="file:///s")
    failed = checkpoint(3, "FAILED", failure="the disk is full", failure_ms=1_000_500)
    ended = HistoryView(entries=(failed, done))
    line.observe(after(2_000, history=ended))
    line.observe(after(3_000, history=ended))
    assert [(e.at_ms, e.kind, e.text) for e in line.view().events] == [
        (1_000_007, "savepoint", "savepoint 2: file:///s"),
        (1_000_500, "checkpoint failed", "checkpoint 3: the disk is full"),
    ]


def test_a_rescaling_is_no_restart_and_the_end_is_told_at_once() -> None:
    line = Timeline()
    line.observe(replace(FIRST, parallelism=2))
    line.observe(after(1_000, parallelism=3, attempt=1))
    line.observe(after(1_100, parallelism=3, attempt=1, status="FINISHED"))
    assert [(e.kind, e.text) for e in line.view().events] == [
        ("rescale", "parallelism 2 became 3"),
        ("status", "RUNNING became FINISHED"),
    ]


def test_texts_of_events_are_bounded() -> None:
    line = Timeline()
    line.observe(FIRST)
    line.observe(after(1_000, attempt=1, failure="x" * 100_000))
    assert len(line.view().events[0].text) == 500


@given(st.lists(st.tuples(st.integers(900, 5_000), st.integers(0, 1_000)), max_size=300))
def test_both_lines_are_bounded_and_the_whole_one_loses_no_record(steps) -> None:
    line = Timeline(points=10)
    now, total = FIRST, 0
    line.observe(now)
    for span, count in steps:
        total += count
        now = replace(now, now_ms=now.now_ms + span, records_in=total)
        line.observe(now)
    view = line.view()
    assert len(view.recent) <= 10
    assert len(view.whole) <= 11
    assert sum(point.records_in for point in view.whole) == total
    assert sum(point.span_ms for point in view.whole) == now.now_ms - FIRST.now_ms
    ends = [point.at_ms for point in view.whole]
    assert ends == sorted(ends)


def test_merged_points_have_the_longest_epoch_and_the_mean_of_shares() -> None:
    first = Point(1_000, 1_000, 1, 2, 3, 80, 70, 9, 9, 5, (SlotPoint(0, 10, 1.0, 0.5),))
    second = Point(4_000, 3_000, 10, 20, 30, 60, 10, 4, 8, None, (SlotPoint(0, 5, 0.0, 0.5),))
    both = merge(first, second)
    assert (both.at_ms, both.span_ms, both.records_in, both.epochs) == (4_000, 4_000, 11, 33)
    assert (both.epoch_ms, both.slot_ms, both.state_entries, both.lag_ms) == (80, 70, 4, 5)
    assert both.slots == (SlotPoint(0, 10, 0.25, 0.5),)


def test_a_watermark_at_an_end_of_time_has_no_lag() -> None:
    assert lag_ms(900, 1_000) == 100
    assert lag_ms(None, 1_000) is None
    assert lag_ms(-(2**63), 1_000) is None
    assert lag_ms(2**63 - 1, 1_000) is None
