"""Rows for windows are combined before they travel: when, to what, and when not."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.harness.programs import environment

from weir.common import Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import AggregateFunction, CountAggregate, OutputTag
from weir.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from weir.graph.plan import compile_plan
from weir.runtime import combining
from weir.runtime.columnar import ColumnInput, number_keys
from weir.runtime.combining import CombiningWriter, can_combine
from weir.runtime.exchange import EdgeWriter
from weir.runtime.frame import Chunk, unpack_data

LONG = Types.LONG()
BID = Types.TUPLE([LONG, LONG, LONG])
LATE = OutputTag("late", BID)
TUMBLING = TumblingEventTimeWindows.of(10)
SLIDING = SlidingEventTimeWindows.of(15, 10)


class OwnCount(CountAggregate):
    """May do anything, as far as Weir knows."""


class Kinds(AggregateFunction):
    """An aggregate of the user's own."""

    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator | value[1]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a | acc_b


def summed(windowed):
    return windowed.sum(1)


def planned(ending=summed, window=TUMBLING, declared=BID, key=lambda r: r[0]):
    """Return the plan of a program with windows, and the edge into them."""
    env = environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(2)
    stream = env.from_collection([], declared).assign_timestamps_and_watermarks(strategy)
    ending(stream.key_by(key).window(window))
    plan = compile_plan(env.build_graph(), 2)
    node = next(op for op in plan.operators if op.kind == "window")
    [edge] = plan.inputs_of(node.index)
    return plan, edge


@pytest.mark.parametrize(
    ("ending", "window"),
    [
        (summed, TUMBLING),
        (summed, SLIDING),
        (summed, TumblingProcessingTimeWindows.of(10)),
        (lambda w: w.min(1), TUMBLING),
        (lambda w: w.max_by(1), TUMBLING),
        (lambda w: w.aggregate(CountAggregate()), SLIDING),
        (lambda w: w.side_output_late_data(LATE).sum(1), TUMBLING),
        (lambda w: w.allowed_lateness(5).sum(1), TumblingProcessingTimeWindows.of(10)),
    ],
)
def test_what_is_exact_is_combined(ending, window):
    assert can_combine(*planned(ending, window))


@pytest.mark.parametrize(
    ("ending", "window"),
    [
        (lambda w: w.allowed_lateness(5).sum(1), TUMBLING),
        (lambda w: w.side_output_late_data(LATE).sum(1).get_side_output(LATE).print(), TUMBLING),
        (lambda w: w.max_by(1), SLIDING),
        (summed, SlidingEventTimeWindows.of(5, 10)),
        (summed, EventTimeSessionWindows.with_gap(5)),
        (lambda w: w.trigger(CountTrigger(2)).sum(1), TUMBLING),
        (lambda w: w.reduce(lambda a, b: a), TUMBLING),
        (lambda w: w.aggregate(OwnCount()), TUMBLING),
        (lambda w: w.aggregate(CountAggregate(), accumulator_type=Types.INT()), TUMBLING),
        (lambda w: w.aggregate(Kinds()), TUMBLING),
    ],
)
def test_windows_that_need_every_record_get_every_record(ending, window):
    assert not can_combine(*planned(ending, window))


def test_batch_mode_and_keys_that_are_computed_combine_nothing():
    plan, edge = planned(key=lambda r: r[0] + 1)
    assert not can_combine(plan, edge)
    plan, edge = planned()
    plan.batch = True
    assert not can_combine(plan, edge)


def writer_of(plan, edge):
    spec = plan.operators[edge.target].options["window"]
    return CombiningWriter(edge, 0, ("windows", "source"), spec)


def sent(writer, *chunks):
    """Return what the two subtasks get, as columns."""
    for records in chunks:
        writer.write(Chunk(list(records), [r[2] for r in records]))
    writer.flush()
    found = defaultdict(list)
    for frame in writer.take_frames():
        found[frame.target].append(frame.payload)
    return [ColumnInput.of(payloads) for _, payloads in sorted(found.items())]


def rows_of(inputs):
    return [
        (*row.values(), weight)
        for given in inputs
        for row, weight in zip(
            given.batch.to_pylist(),
            [None] * given.batch.num_rows if given.weights is None else given.weights.tolist(),
            strict=True,
        )
    ]


RECORDS = [(1, 10, 1), (2, 20, 2), (1, 30, 3), (1, 40, 12), (2, 50, 9), (1, 60, 2)]


def test_rows_of_a_key_and_slice_are_one_with_their_number():
    found = rows_of(sent(writer_of(*planned()), RECORDS))
    assert sorted(found) == [(1, 40, 12, 1), (1, 100, 1, 3), (2, 70, 2, 2)]


def test_rows_wait_for_those_of_later_batches():
    plan, edge = planned()
    writer = writer_of(plan, edge)
    writer.write(Chunk(RECORDS[:4], [r[2] for r in RECORDS[:4]]))
    assert writer.take_frames() == []
    assert sorted(rows_of(sent(writer, RECORDS[4:]))) == [
        (1, 40, 12, 1),
        (1, 100, 1, 3),
        (2, 70, 2, 2),
    ]
    assert writer.records == len(RECORDS)


def test_not_all_rows_of_a_large_partition_wait(monkeypatch):
    monkeypatch.setattr(combining, "HELD_ROWS", 4)
    writer = writer_of(*planned())
    writer.write(Chunk(RECORDS[:4], [r[2] for r in RECORDS[:4]]))
    assert writer.take_frames()


def test_sliding_windows_get_a_row_for_each_slice():
    found = rows_of(sent(writer_of(*planned(window=SLIDING)), RECORDS))
    # Slices are 5 long.
    assert sorted(found) == [(1, 40, 12, 1), (1, 100, 1, 3), (2, 20, 2, 1), (2, 50, 9, 1)]


def test_in_processing_time_an_epoch_has_one_row_for_each_key():
    window = TumblingProcessingTimeWindows.of(10)
    found = rows_of(sent(writer_of(*planned(window=window)), RECORDS))
    assert sorted(found) == [(1, 140, 1, 4), (2, 70, 2, 2)]


def test_the_best_records_are_sent_whole():
    found = rows_of(sent(writer_of(*planned(lambda w: w.max_by(1))), RECORDS))
    assert sorted(found) == [(1, 40, 12, 1), (1, 60, 2, 3), (2, 50, 9, 2)]


def test_counts_travel_beside_the_first_record_and_are_records_again_for_who_asks():
    plan, edge = planned(lambda w: w.aggregate(CountAggregate()))
    writer = writer_of(plan, edge)
    writer.write(Chunk(RECORDS, [r[2] for r in RECORDS]))
    writer.flush()
    frames = writer.take_frames()
    given = [ColumnInput.of([frame.payload]) for frame in frames]
    assert sorted(rows_of(given)) == [(1, 10, 1, 3), (1, 40, 12, 1), (2, 20, 2, 2)]
    chunks = [unpack_data(frame.payload, edge) for frame in frames]
    values = sorted(v for chunk in chunks for v in chunk.values)
    assert values == [(1, 10, 1)] * 3 + [(1, 40, 12)] + [(2, 20, 2)] * 2
    assert all(len(c.values) == len(c.keys) == len(c.groups) for c in chunks)


def test_merged_records_tell_how_many_they_were():
    plan, edge = planned()
    writer = writer_of(plan, edge)
    writer.write(Chunk(RECORDS, [r[2] for r in RECORDS]))
    writer.flush()
    chunks = [unpack_data(frame.payload, edge) for frame in writer.take_frames()]
    found = {v: n for chunk in chunks for v, n in zip(chunk.values, chunk.merged, strict=True)}
    assert found == {(1, 100, 1): 3, (1, 40, 12): 1, (2, 70, 2): 2}
    part = chunks[0].rows(1)
    assert len(part.merged) == len(part.values) == len(chunks[0].values) - 1


def test_rows_without_keys_in_common_are_sent_at_once_and_as_they_are():
    writer = writer_of(*planned())
    records = [(n, n, 1) for n in range(20)]
    writer.write(Chunk(records, [1] * 20))
    frames = writer.take_frames()
    assert frames
    given = [ColumnInput.of([frame.payload]) for frame in frames]
    assert all(one.weights is None for one in given)
    assert sum(one.records for one in given) == 20


@pytest.mark.parametrize(
    ("declared", "odd"),
    [
        (Types.TUPLE([LONG, Types.DOUBLE(), LONG]), (1, 0.5, 1)),
        (BID, (1, 1 << 62, 1)),
        (Types.TUPLE([LONG, Types.INT(), LONG]), (1, (1 << 31) - 1, 1)),
        (BID, (1, None, 1)),
    ],
)
def test_what_cannot_be_added_exactly_is_sent_as_it_is(declared, odd):
    number = 1.5 if isinstance(odd[1], float) else 1
    plain = [(1, number, n) for n in range(4)]
    for chunks in ([plain, [odd]], [[odd, *plain]]):
        found = rows_of(sent(writer_of(*planned(declared=declared)), *chunks))
        whole = [record for chunk in chunks for record in chunk]
        # What was sent before stays combined: the rest is refused together with the odd one.
        assert [row[:3] for row in found] == whole


def test_batches_with_and_without_weights_are_one_input():
    plan, edge = planned()
    combined, plain = writer_of(plan, edge), EdgeWriter(edge, 1, "windows")
    payloads = []
    for writer in (plain, combined):
        writer.write(Chunk([(1, 10, 1), (1, 5, 2)], [1, 2]))
        if writer is combined:
            writer.flush()
        payloads += [frame.payload for frame in writer.take_frames()]
    given = ColumnInput.of(payloads)
    assert given.batch.to_pydict() == {"f0": [1, 1, 1], "f1": [10, 5, 15], "f2": [1, 2, 1]}
    assert given.weights.tolist() == [1, 1, 2]
    assert (given.records, len(given.groups), len(given.timestamps)) == (4, 3, 3)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(-5, 5), st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 40])),
        min_size=1,
    )
)
def test_equal_keys_have_equal_numbers(keys):
    codes, bound = number_keys(pa.array(keys, pa.int64()))
    assert all(0 <= code < bound for code in codes.tolist())
    assert len(dict(zip(keys, codes.tolist(), strict=True))) == len(set(codes.tolist()))
    assert len({(k, c) for k, c in zip(keys, codes.tolist(), strict=True)}) == len(set(keys))
