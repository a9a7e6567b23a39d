"""Watermark generators of the user."""

from __future__ import annotations

import logging

import pytest
from tests.harness.overtaking import Overtake, job
from tests.harness.programs import environment, started
from tests.harness.test_partitions_in_time import (
    MIN,
    Judge,
    Stage,
    by_second,
    file_of,
    late,
    log_partition,
    watermark,
)

from weir import notices
from weir.common import Duration
from weir.common.watermark_strategy import (
    Watermark,
    WatermarkGenerator,
    WatermarkStrategy,
)
from weir.errors import UsageError, UserFunctionError
from weir.testing.harness import collect


class Bounded(WatermarkGenerator):
    """Flink's own rule once more, with state: the greatest timestamp, said at the end of epochs."""

    def __init__(self):
        self.greatest = None

    def on_event(self, event, event_timestamp, output):
        self.greatest = max(event_timestamp, self.greatest or event_timestamp)

    def on_periodic_emit(self, output):
        if self.greatest is not None:
            output.emit_watermark(Watermark(self.greatest - 1))


class Punctuated(WatermarkGenerator):
    """Says what records say."""

    def on_event(self, event, event_timestamp, output):
        if len(event) > 2:
            getattr(output, event[2])(*event[3:])

    def on_periodic_emit(self, output):
        pass


def strategy(supplier=Bounded):
    return WatermarkStrategy.for_generator(supplier).with_timestamp_assigner(by_second)


def judged(env, chosen, records=None):
    stream = env.from_collection([]) if records is None else records
    stream = stream.assign_timestamps_and_watermarks(chosen)
    collect(stream.key_by(lambda v: 0).process(Judge()).uid("judge"))


def test_generators_keep_their_state_from_epoch_to_epoch():
    env = environment()
    judged(env, strategy())
    harness = started(env, 3)
    harness.run_epoch([("k", 1000)])
    assert watermark(harness) == 999
    harness.run_epoch([("k", 500)])
    assert watermark(harness) == 999
    assert harness.collected() == [("k", 1000, "in time", MIN), ("k", 500, "late", 999)]


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_every_partition_has_a_generator_and_the_slowest_counts(parallelism):
    env = environment()
    judged(env, strategy())
    harness = started(env, parallelism, partition_of=log_partition)
    for n in range(4):
        harness.run_epoch([("a", 1000 * n + 999), ("b", n), ("c", 50 * n)])
        assert watermark(harness) == n - 1
    assert late(harness) == []


def test_files_have_generators_that_end_with_them():
    env = environment()
    judged(env, strategy())
    harness = started(env, 2, partition_of=file_of)
    harness.run_epoch([("a", 1000), ("b", 10)])
    assert watermark(harness) == 9
    harness.run_epoch([("c", 3000)])
    assert watermark(harness) == 2999


def test_punctuated_watermarks_count_at_the_end_of_the_epoch():
    env = environment()
    judged(env, strategy(Punctuated))
    harness = started(env, 2)
    harness.run_epoch([("k", 5, "emit_watermark", 70), ("k", 6, "emit_watermark", 60), ("k", 1)])
    assert watermark(harness) == 70
    assert late(harness) == []


def test_generators_mark_themselves_idle_and_active():
    env = environment()
    judged(env, strategy(Punctuated))
    harness = started(env, 2, partition_of=log_partition)
    harness.run_epoch([("a", 5, "emit_watermark", 70), ("b", 6, "emit_watermark", 10)])
    assert watermark(harness) == 10
    harness.run_epoch([("b", 7, "mark_idle"), ("a", 8, "emit_watermark", 80)])
    assert watermark(harness) == 80
    harness.run_epoch([("b", 9, "mark_active")])
    harness.run_epoch([("a", 10, "emit_watermark", 90)])
    assert watermark(harness) == 80


def test_a_generator_that_sees_nothing_is_idle_by_itself():
    env = environment()
    judged(env, strategy().with_idleness(Duration.of_millis(100)))
    harness = started(env, 2, partition_of=log_partition)
    harness.run_epoch([("a", 1000), ("b", 10)])
    harness.clock.advance(101)
    harness.turn()
    assert watermark(harness) == 999


@pytest.mark.parametrize("parallelism", [2, 3])
def test_after_a_restore_generators_are_new_and_nothing_is_lost(parallelism):
    env = environment()
    judged(env, strategy())
    first = started(env, 2, partition_of=log_partition)
    first.run_epoch([("fast", 1000), ("slow", 10)], checkpoint=True)
    second = first.restart(parallelism)
    second.run_epoch([("fast", 5000)])
    # The new generator of the slow partition has not said anything yet.
    assert watermark(second) == 9
    second.run_epoch([("slow", 11)])
    assert late(second) == []
    assert watermark(second) == 10


def test_behind_an_exchange_there_is_one_generator_for_each_subtask():
    env = environment()
    behind = env.from_collection([]).key_by(lambda v: v[0]).process(Stage())
    behind = behind.assign_timestamps_and_watermarks(strategy())
    collect(behind.key_by(lambda v: 0).process(Judge()).uid("judge"))
    harness = started(env, 1)
    harness.run_epoch([("a", 1000), ("b", 10)])
    assert watermark(harness) == 999


def test_suppliers_get_a_context_when_they_take_one():
    seen = []

    def supplier(context):
        seen.append(context.get_metric_group().counter("generators"))
        return Bounded()

    env = environment()
    judged(env, strategy(supplier))
    harness = started(env, 1)
    harness.run_epoch([("k", 7)])
    assert watermark(harness) == 6
    assert len(seen) == 0  # the program is shipped: the slot has a copy


def test_a_generator_that_raises_is_named_with_its_record():
    class Broken(Punctuated):
        def on_event(self, event, event_timestamp, output):
            raise ValueError(event)

    env = environment()
    judged(env, strategy(Broken))
    harness = started(env, 1)
    with pytest.raises(UserFunctionError, match=r"Timestamps/Watermarks.*\('k', 7\)"):
        harness.run_epoch([("k", 7)])


@pytest.mark.parametrize("bad", [None, 3, "soon", True, 1 << 63, Watermark(-(1 << 63) - 1)])
def test_a_watermark_that_is_no_number_is_refused(bad):
    class Odd(Punctuated):
        def on_event(self, event, event_timestamp, output):
            output.emit_watermark(bad)

    env = environment()
    judged(env, strategy(Odd))
    harness = started(env, 1)
    if bad == 3 and bad is not True:
        harness.run_epoch([("k", 7)])
        assert watermark(harness) == 3
        return
    with pytest.raises(UsageError, match=r"emit_watermark.*expected a Watermark or .*64 bits"):
        harness.run_epoch([("k", 7)])


def test_a_supplier_that_gives_no_generator_is_refused():
    env = environment()
    judged(env, strategy(lambda: "nothing"))
    harness = started(env, 1)
    with pytest.raises(UsageError, match=r"'nothing', which has no on_event and no on_periodic"):
        harness.run_epoch([("k", 7)])


def test_what_is_no_supplier_is_refused_at_once():
    with pytest.raises(UsageError, match="for_generator needs a function"):
        WatermarkStrategy.for_generator(Bounded())


def orders():
    def assigner(s):
        return s.with_timestamp_assigner(by_second)

    def idleness(s):
        return s.with_idleness(Duration.of_seconds(3))

    def alignment(s):
        return s.with_watermark_alignment("group", Duration.of_seconds(1))

    return [
        [assigner, idleness, alignment],
        [idleness, alignment, assigner],
        [alignment, assigner, idleness],
    ]


@pytest.mark.parametrize("steps", orders())
@pytest.mark.parametrize(
    "begin",
    [
        WatermarkStrategy.no_watermarks,
        WatermarkStrategy.for_monotonous_timestamps,
        lambda: WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2)),
        lambda: WatermarkStrategy.for_generator(Bounded),
    ],
)
def test_the_parts_of_a_strategy_keep_each_other_in_every_order(begin, steps):
    found = start = begin()
    for step in steps:
        found = step(found)
    assert found.timestamp_assigner.extract_timestamp(("k", 5), 0) == 5
    assert found.idleness_ms == 3000
    assert found.alignment.group == "group"
    assert found.out_of_orderness_ms == start.out_of_orderness_ms
    assert found.generator is start.generator


def test_alignment_is_accepted_with_a_warning(caplog, monkeypatch):
    monkeypatch.setattr(notices, "_said", set())
    with caplog.at_level(logging.WARNING, "weir.time"):
        WatermarkStrategy.no_watermarks().with_watermark_alignment("g", Duration.of_seconds(1))
    assert "with_watermark_alignment('g') has no effect" in caplog.text


@pytest.mark.parametrize(("drift", "interval"), [(-1, 1000), (0, 0)])
def test_an_alignment_that_cannot_be_is_refused(drift, interval):
    with pytest.raises(UsageError, match="drift of at least zero and an interval above zero"):
        WatermarkStrategy.no_watermarks().with_watermark_alignment(
            "g", Duration.of_millis(drift), Duration.of_millis(interval)
        )


def test_a_union_of_levels_has_one_generator_for_each_subtask():
    env = environment()
    beside = env.from_collection([])
    behind = env.from_collection([]).key_by(lambda v: v[0]).process(Stage())
    judged(env, strategy(), beside.union(behind))
    harness = started(env, 1)
    harness.run_epoch({0: [("a", 1000)], 1: [("b", 10)]})
    assert watermark(harness) == 999
    harness.run_epoch({1: [("b", 2000)]})
    assert watermark(harness) == 1999


@pytest.mark.parametrize("parallelism", [2, 3, 1])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_rows_for_generators_that_a_barrier_overtakes_are_seen_by_one_of_them(parallelism, at):
    env = environment()
    judged(env, strategy())
    hooks = Overtake(at=at)
    first = job(env, hooks, partition_of=log_partition)
    first.run_epoch([("fast", 1000), ("slow", 10), ("fast", 1001), ("slow", 11)], checkpoint=True)
    assert hooks.settled
    second = first.restart(parallelism)
    second.run_epoch([("fast", 5000)])
    assert watermark(second) <= 10
    second.run_epoch([("slow", 12)])
    second.run_epoch([("slow", 13)])
    assert watermark(second) == 12
    second.checkpoint()
    found = sorted(r[:2] for r in second.collected())
    assert found == [("fast", 1000), ("fast", 1001), ("fast", 5000)] + [
        ("slow", n) for n in (10, 11, 12, 13)
    ]
    assert late(second) == []
