"""Level 0: what sources say about time reaches the edges behind them."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment

from weir.clock import SystemClock
from weir.common.watermark_strategy import WatermarkStrategy
from weir.connector.decoder import Mark, Records
from weir.graph.plan import compile_plan
from weir.runtime.frame import (
    IDLE_NOW,
    MAX_WATERMARK,
    MIN_WATERMARK,
    Control,
    payload_kind,
    unpack_control,
    unpack_data,
)
from weir.runtime.operator import TaskFacts
from weir.runtime.source_side import SourceSide
from weir.runtime.watermarks import EdgeWatermark
from weir.testing.clock import ManualClock


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


def test_records_keep_the_timestamps_that_their_source_gave_them():
    data, controls = fed(plan_of(), Records(["a", "b"], [10, None]), Records(["c"]))
    assert data == [("a", 10), ("b", None), ("c", None)]
    assert controls == []


@pytest.mark.parametrize(
    ("mark", "watermark", "idle"),
    [
        (Mark(7), 7, None),
        (Mark(7, idle=True), 7, IDLE_NOW),
        (Mark(None, idle=True), MIN_WATERMARK, IDLE_NOW),
    ],
)
def test_the_last_mark_of_a_source_goes_to_the_edges_behind_it(mark, watermark, idle):
    _, controls = fed(plan_of(), Mark(3, idle=True), Records(["a"]), mark)
    assert controls == [Control(0, watermark, idle)]


def test_a_strategy_behind_the_source_replaces_timestamps_and_watermarks():
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, before: before + value
    )
    plan = plan_of(strategy=strategy)
    data, controls = fed(plan, Records([1, 2], [10, 20]), Mark(500, idle=True))
    assert data == [(1, 11), (2, 22)]
    assert [(c.watermark, c.idle_after_ms) for c in controls] == [(21, None)]


def test_a_strategy_passes_the_end_of_event_time_on():
    plan = plan_of(strategy=WatermarkStrategy.for_monotonous_timestamps())
    _, controls = fed(plan, Records([1], [10]), Mark(MAX_WATERMARK))
    assert [c.watermark for c in controls] == [MAX_WATERMARK]


def control(upstream, watermark, idle=None):
    return Control(upstream, watermark, idle)


def test_an_upstream_that_rests_holds_nothing_back():
    edge = EdgeWatermark([0, 1], ManualClock())
    edge.add(control(0, 10))
    assert edge.value == MIN_WATERMARK
    edge.add(control(1, MIN_WATERMARK, IDLE_NOW))
    assert edge.value == 10
    assert not edge.idle()
    edge.add(control(1, 5))
    edge.add(control(0, 30))
    assert edge.value == 10
    edge.add(control(1, 20))
    assert edge.value == 20


def test_an_edge_is_idle_when_all_its_upstreams_rest():
    edge = EdgeWatermark([0, 1], ManualClock())
    edge.add(control(0, 10, IDLE_NOW))
    assert not edge.idle()
    edge.add(control(1, 20, IDLE_NOW))
    assert edge.idle()
    edge.add(control(0, 15))
    assert not edge.idle()
    assert edge.value == 20


def test_a_silent_edge_is_idle_when_every_upstream_allows_it():
    clock = ManualClock()
    edge = EdgeWatermark([0, 1, 2], clock)
    edge.add(control(0, 10, 50))
    edge.add(control(2, 10, IDLE_NOW))
    clock.advance(1000)
    assert not edge.idle()
    edge.add(control(1, 10, 2000))
    assert not edge.idle()
    clock.advance(1000)
    assert edge.idle()
    edge.saw_records()
    assert not edge.idle()
