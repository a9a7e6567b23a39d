"""Level 0: what sources say about time reaches the edges behind them."""

from __future__ import annotations

from datetime import datetime

import pytest
from tests.harness.programs import environment

from weir.clock import SystemClock
from weir.codec.arrow import rows_to_batch
from weir.common import Row, Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.connector.decoder import END, Columns, Mark, Partition, Records
from weir.errors import UsageError
from weir.graph.plan import compile_plan
from weir.runtime import source_side
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


ROWS = Types.ROW_NAMED(["key", "at"], [Types.LONG(), Types.SQL_TIMESTAMP()])
NUMBERED = Types.TUPLE([Types.LONG(), Types.LONG()])
MOMENTS = [datetime(1970, 1, 1, 0, 0, 1, 999), datetime(1969, 12, 31, 23, 59, 59, 999_999)]


def timed_plan(declared, field, *, function=False):
    """A plan in which a field of the records has their timestamps, before a column key."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(field)
    env = environment()
    stream = env.from_collection([], declared).assign_timestamps_and_watermarks(strategy)
    if function:
        stream = stream.map(lambda r: r, declared)
    stream.key_by(lambda r: r[0]).map(lambda v: v).print()
    return compile_plan(env.build_graph(), 1)


@pytest.mark.parametrize(
    ("declared", "field", "values", "stamps"),
    [
        (ROWS, "at", [(7, moment) for moment in MOMENTS], [1000, -1]),
        (NUMBERED, 1, [(7, 3), (8, -9)], [3, -9]),
    ],
)
def test_timestamps_of_columns_are_those_of_their_records(declared, field, values, stamps):
    records = values if declared is NUMBERED else [Row(key=k, at=t) for k, t in values]
    batch = rows_to_batch(records, declared)
    results = [
        fed(timed_plan(declared, field, function=function), piece)
        for piece in (Columns(batch, declared), Records(records))
        for function in (False, True)
    ]
    for data, controls in results:
        assert [t for _, t in data] == stamps
        assert [tuple(r) for r, _ in data] == values
        assert [mark[0] for mark in said(controls).values()] == [max(stamps) - 1]


def test_columns_with_timestamps_make_no_python_records(monkeypatch):
    monkeypatch.setattr(source_side, "batch_to_rows", None)
    batch = rows_to_batch([(1, 5), (2, 6)], NUMBERED)
    data, _ = fed(timed_plan(NUMBERED, 1), Columns(batch, NUMBERED))
    assert data == [((1, 5), 5), ((2, 6), 6)]


@pytest.mark.parametrize("piece", ["columns", "records"])
def test_a_record_whose_field_has_no_time_is_named(piece):
    rows = [(1, 5), (2, None)]
    given = (
        Columns(rows_to_batch(rows, NUMBERED), NUMBERED) if piece == "columns" else Records(rows)
    )
    with pytest.raises(UsageError, match=r"\(2, None\).*field 1 .* holds None"):
        fed(timed_plan(NUMBERED, 1), given)


@pytest.mark.parametrize(
    ("declared", "field", "message"),
    [
        (ROWS, "when", "has the fields"),
        (NUMBERED, 2, "has the fields"),
        (Types.TUPLE([Types.LONG(), Types.STRING()]), 1, "holds Types.STRING"),
    ],
)
def test_a_field_that_cannot_hold_timestamps_is_refused_before_the_job(declared, field, message):
    with pytest.raises(UsageError, match=message):
        timed_plan(declared, field)


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


def test_a_partition_that_is_over_says_so_with_and_without_records_or_a_strategy():
    for strategy in (None, WatermarkStrategy.for_monotonous_timestamps()):
        plan = plan_of(strategy=strategy)
        source = plan.operators[0].id
        _, controls = fed(
            plan,
            Partition("a", over=True),
            Records([1], [10]),
            Partition("b", over=True),
            Partition("c"),
            Records([2], [5]),
        )
        over = (MAX_WATERMARK, True, False)
        # Nobody makes watermarks of the partitions of a source without a strategy.
        others = {} if strategy is None else {f"{source}:c": (4, False, False)}
        assert said(controls) == {f"{source}:a": over, f"{source}:b": over, **others}


def test_a_partition_without_records_in_an_epoch_is_not_spoken_of():
    plan = plan_of(strategy=WatermarkStrategy.for_monotonous_timestamps())
    assert fed(plan, Partition("a"))[1] == []


@pytest.mark.parametrize(
    ("strategy", "other"),
    [
        (WatermarkStrategy.for_monotonous_timestamps(), 9),
        (WatermarkStrategy.for_generator(lambda: None), MIN_WATERMARK),
    ],
    ids=["bound", "generator"],
)
def test_a_partition_that_is_awaited_stands_at_the_minimum(strategy, other):
    plan = plan_of(strategy=strategy)
    _, controls = fed(plan, Partition("a"), Records([1], [10]), Partition("b", awaited=True))
    source = plan.operators[0].id
    assert said(controls) == {
        f"{source}:a": (other, False, False),
        f"{source}:b": (MIN_WATERMARK, False, False),
    }


def test_a_partition_is_awaited_right_behind_its_source_only():
    """What is in between might leave all of its records out, for ever."""
    env = environment()
    filtered = env.from_collection([1]).filter(lambda v: v > 5)
    timed = filtered.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps())
    timed.key_by(lambda v: v).map(lambda v: v).print()
    plan = compile_plan(env.build_graph(), 1)
    assert fed(plan, Partition("b", awaited=True))[1] == []


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
