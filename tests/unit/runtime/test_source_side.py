"""Level 0: what sources say about time reaches the edges behind them."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment

from weir.clock import SystemClock
from weir.common.watermark_strategy import WatermarkStrategy
from weir.connector.decoder import END, Mark, Partition, Records
from weir.graph.plan import compile_plan
from weir.runtime.frame import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    PartitionMark,
    payload_kind,
    unpack_control,
    unpack_data,
)
from weir.runtime.operator import TaskFacts
from weir.runtime.source_side import SourceSide


def facts():
    return TaskFacts("job", "name", 0, 0, SystemClock(), lambda index, kind, values: None)


def plan_of(*, strategy=None):
    env = environment()
    stream = env.from_collection([1])
    if strategy is not None:
        stream = stream.assign_timestamps_and_watermarks(strategy)
    stream.key_by(lambda v: v).map(lambda v: v).print()
    return compile_plan(env.build_graph(), 1)


def node_and_facts():
    return plan_of().operators[0], facts()


def fed(plan, *decoded):
    """Feed source 0; return the records with timestamps, and the control data behind them."""
    side = SourceSide(plan, facts())
    for piece in decoded:
        side.take(0, piece)
    data, controls = [], []
    for frame in [*side.take_frames(), *side.finish()]:
        if payload_kind(frame.payload) == b"C":
            controls.append(unpack_control(frame.payload))
        else:
            chunk = unpack_data(frame.payload, plan.edges[frame.edge])
            data += zip(chunk.values, chunk.timestamps or [None] * len(chunk), strict=True)
    return data, controls


def said(controls):
    """Return what was said of partitions: watermark, whether it ends, whether it is idle."""
    marks = [mark for control in controls for mark in control.partitions]
    return {mark.partition: (mark.watermark, mark.ends, mark.idle) for mark in marks}


def test_records_keep_the_timestamps_that_their_source_gave_them():
    data, controls = fed(plan_of(), Records(["a", "b"], [10, None]), Records(["c"]))
    assert data == [("a", 10), ("b", None), ("c", None)]
    assert controls == []


@pytest.mark.parametrize(
    ("mark", "watermark", "idle"),
    [
        (Mark(7), 7, False),
        (Mark(7, idle=True), 7, True),
        (Mark(None, idle=True), MIN_WATERMARK, True),
    ],
)
def test_the_last_mark_of_a_source_goes_to_the_edges_behind_it(mark, watermark, idle):
    plan = plan_of()
    _, controls = fed(plan, Mark(3, idle=True), Records(["a"]), mark)
    assert said(controls) == {f"{plan.operators[0].id}:": (watermark, False, idle)}


def test_a_strategy_behind_the_source_replaces_timestamps_and_watermarks():
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, before: before + value
    )
    plan = plan_of(strategy=strategy)
    data, controls = fed(plan, Records([1, 2], [10, 20]), Mark(500, idle=True))
    assert data == [(1, 11), (2, 22)]
    assert list(said(controls).values()) == [(21, False, False)]


def test_a_strategy_passes_the_end_of_event_time_on():
    plan = plan_of(strategy=WatermarkStrategy.for_monotonous_timestamps())
    _, controls = fed(plan, Records([1], [10]), Mark(MAX_WATERMARK))
    assert list(said(controls).values()) == [(MAX_WATERMARK, False, False)]


def test_a_bounded_source_that_is_over_says_so_with_and_without_a_strategy():
    for strategy in (None, WatermarkStrategy.for_monotonous_timestamps()):
        plan = plan_of(strategy=strategy)
        _, controls = fed(plan, Partition("f", ends=True), Records([1], [10]), END)
        found = said(controls)
        assert found.pop(f"{plan.operators[0].id}:") == (MAX_WATERMARK, True, False)
        assert list(found.values()) == ([] if strategy is None else [(9, True, False)])


def test_every_partition_of_a_source_has_a_watermark_of_its_own():
    plan = plan_of(strategy=WatermarkStrategy.for_monotonous_timestamps())
    _, controls = fed(
        plan,
        Partition("a"),
        Records([1, 2], [10, 20]),
        Partition("b", ends=True),
        Records([3], [5]),
        Partition("a"),
        Records([4], [15]),
    )
    source = plan.operators[0].id
    assert said(controls) == {
        f"{source}:a": (19, False, False),
        f"{source}:b": (4, True, False),
    }


def test_a_partition_without_records_in_an_epoch_is_not_spoken_of():
    plan = plan_of(strategy=WatermarkStrategy.for_monotonous_timestamps())
    assert fed(plan, Partition("a"))[1] == []


def test_records_for_generators_of_the_user_go_by_partition_with_its_name():
    plan = plan_of(strategy=WatermarkStrategy.for_generator(lambda: None))
    side = SourceSide(plan, facts())
    for piece in (Partition("a"), Records([1, 2]), Partition("b"), Records([3])):
        side.take(0, piece)
    frames = side.take_frames()
    chunks = [unpack_data(frame.payload, plan.edges[frame.edge]) for frame in frames]
    source = plan.operators[0].id
    assert [(c.values, c.keys) for c in chunks] == [
        ([1, 2], [f"{source}:a"] * 2),
        ([3], [f"{source}:b"]),
    ]
    (control,) = [unpack_control(frame.payload) for frame in side.finish()]
    assert control.partitions == (
        PartitionMark(f"{source}:a", MIN_WATERMARK),
        PartitionMark(f"{source}:b", MIN_WATERMARK),
    )
