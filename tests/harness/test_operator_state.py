"""Operator state of functions, checkpoint hooks, and how state moves when jobs are rescaled."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harness.programs import by_key, environment, started

from weir.common.typeinfo import Types
from weir.datastream import FlatMapFunction, KeyedProcessFunction, MapFunction
from weir.datastream.functions import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    CheckpointListener,
    ListCheckpointed,
    SinkFunction,
)
from weir.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from weir.testing.harness import collect

SCALES = [(2, 3), (3, 1), (4, 2)]


class BufferingSink(SinkFunction, CheckpointedFunction):
    """Writes records in batches of `threshold`; what waits is operator state."""

    def __init__(self, threshold, directory):
        self.threshold = threshold
        self.directory = directory
        self.buffered_elements = []

    def invoke(self, value, context):
        self.buffered_elements.append(value)
        if len(self.buffered_elements) >= self.threshold:
            with Path(self.directory, "out").open("a") as out:
                out.writelines(f"{element}\n" for element in self.buffered_elements)
            self.buffered_elements.clear()

    def snapshot_state(self, context):
        self.checkpointed_state.clear()
        for element in self.buffered_elements:
            self.checkpointed_state.add(element)

    def initialize_state(self, context):
        descriptor = ListStateDescriptor("buffered-elements", Types.LONG())
        self.checkpointed_state = context.get_operator_state_store().get_list_state(descriptor)
        if context.is_restored():
            self.buffered_elements.extend(self.checkpointed_state.get())


def test_a_buffering_sink_keeps_what_waits(tmp_path):
    env = environment()
    env.from_sequence(1, 6).add_sink(BufferingSink(5, str(tmp_path)))
    harness = started(env, 1)
    harness.run_epoch(take=3, checkpoint=True)
    harness.kill_slot(0)
    harness.fail_over()
    assert not (tmp_path / "out").exists()
    harness.run_epoch(take=3)
    assert (tmp_path / "out").read_text().split() == ["1", "2", "3", "4", "5"]


class CheckpointCount(FlatMapFunction, CheckpointedFunction):
    """Counts records per key in keyed state and per subtask in operator state."""

    def __init__(self):
        self.operator_count = 0

    def flat_map(self, value):
        keyed_count = (self.keyed_state.value() or 0) + 1
        self.keyed_state.update(keyed_count)
        self.operator_count += 1
        yield value[0], keyed_count, self.operator_count

    def initialize_state(self, context):
        self.keyed_state = context.get_keyed_state_store().get_state(
            ValueStateDescriptor("keyedState", Types.LONG())
        )
        self.operator_state = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("operatorState", Types.LONG())
        )
        if context.is_restored():
            self.operator_count = sum(self.operator_state.get())

    def snapshot_state(self, context):
        self.operator_state.clear()
        self.operator_state.add(self.operator_count)


def counted(env, records):
    keyed = env.from_collection(records).uid("source").key_by(lambda r: r[0])
    collect(keyed.flat_map(CheckpointCount()).uid("count"))


PAIRS = [(n % 7, n) for n in range(42)]


def test_counts_per_key_and_per_subtask_survive_a_failover():
    env = environment()
    counted(env, PAIRS)
    harness = started(env, 2, wait_for_checkpoints=True)
    harness.run_epoch(take=20, checkpoint=True)
    harness.run_epoch(take=10)
    harness.kill_slot(1)
    harness.fail_over()
    harness.run()
    found = by_key(harness.collected())
    assert {k: [r[1] for r in rows] for k, rows in found.items()} == {
        k: [1, 2, 3, 4, 5, 6] for k in range(7)
    }


@pytest.mark.parametrize(("before", "after"), SCALES)
def test_keyed_counts_move_with_their_keys_and_operator_counts_are_dealt_out(before, after):
    env = environment()
    counted(env, PAIRS)
    first = started(env, before)
    first.run_epoch(take=21, checkpoint=True)
    second = first.restart(after)
    counts = [op.function.operator_count for op in second.operators("count")]
    assert len(counts) == after
    assert sum(counts) == 21
    second.run()
    found = by_key(second.collected())
    assert {k: [r[1] for r in rows] for k, rows in found.items()} == {
        k: [4, 5, 6] for k in range(7)
    }


class NumberRecordsCount(FlatMapFunction, ListCheckpointed):
    def __init__(self):
        self.number_records = 0

    def flat_map(self, value):
        self.number_records += 1
        yield value, self.number_records

    def snapshot_state(self, checkpoint_id, timestamp):
        return [self.number_records]

    def restore_state(self, state):
        self.number_records = sum(state)


@pytest.mark.parametrize(("before", "after"), SCALES)
def test_a_list_checkpointed_function_gets_its_share(before, after):
    env = environment()
    collect(env.from_sequence(1, 30).rebalance().flat_map(NumberRecordsCount()).uid("count"))
    first = started(env, before)
    first.run_epoch(take=20, checkpoint=True)
    second = first.restart(after)
    assert sum(op.function.number_records for op in second.operators("count")) == 20


class UnionMembers(MapFunction, CheckpointedFunction):
    """Every subtask learns on restore what all subtasks had seen."""

    def __init__(self):
        self.seen = []
        self.restored = []

    def map(self, value):
        self.seen.append(value)
        return value

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_union_list_state(ListStateDescriptor("all", Types.LONG()))
        self.restored = list(self.state.get())

    def snapshot_state(self, context):
        self.state.update(self.seen)


@pytest.mark.parametrize(("before", "after"), [*SCALES, (2, 2)])
def test_union_state_goes_to_every_subtask(before, after):
    env = environment()
    collect(env.from_sequence(1, 12).rebalance().map(UnionMembers()).uid("union"))
    first = started(env, before)
    first.run_epoch(checkpoint=True)
    second = first.restart(after)
    restored = [sorted(op.function.restored) for op in second.operators("union")]
    assert restored == [list(range(1, 13))] * after


RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())


class Ruled(BroadcastProcessFunction):
    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value, value * value)
        return []

    def process_element(self, value, ctx):
        yield value, tuple(sorted(ctx.get_broadcast_state(RULES).items()))


@pytest.mark.parametrize(("before", "after"), [*SCALES, (1, 4)])
def test_broadcast_state_is_whole_in_every_subtask_after_rescaling(before, after):
    env = environment()
    items = env.from_collection([]).uid("items").rebalance()
    rules = env.from_sequence(1, 5).uid("rules").broadcast(RULES)
    collect(items.connect(rules).process(Ruled()).uid("ruled"))
    first = started(env, before)
    first.run_epoch(checkpoint=True)
    second = first.restart(after)
    second.run_epoch({0: list(range(2 * after))})
    assert len(second.collected()) == 2 * after
    assert {r[1] for r in second.collected()} == {((1, 1), (2, 4), (3, 9), (4, 16), (5, 25))}


class Late(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(1000 + value)
        ctx.timer_service().register_processing_time_timer(1000 + value)
        return []

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, ctx.time_domain().name


@pytest.mark.parametrize(("before", "after"), SCALES)
def test_timers_of_both_domains_move_with_their_keys(before, after):
    env = environment()
    collect(env.from_sequence(1, 25).key_by(lambda v: v).process(Late()).uid("late"))
    first = started(env, before)
    first.run_epoch(checkpoint=True)
    second = first.restart(after)
    second.clock.advance(5000)
    second.finish()
    assert sorted(second.collected()) == sorted(
        (v, 1000 + v, domain) for v in range(1, 26) for domain in ("EVENT_TIME", "PROCESSING_TIME")
    )


class Listening(MapFunction, CheckpointListener):
    def open(self, runtime_context):
        self.heard = []

    def map(self, value):
        return value

    def notify_checkpoint_complete(self, checkpoint_id):
        self.heard.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id):
        self.heard.append(("aborted", checkpoint_id))


def test_functions_hear_of_completed_checkpoints():
    env = environment()
    collect(env.from_sequence(1, 4).map(Listening()).uid("listening"))
    harness = started(env, 2)
    harness.run_epoch(checkpoint=True)
    harness.checkpoint()
    heard = [op.function.heard for op in harness.operators("listening")]
    assert heard == [[("complete", 1), ("complete", 2)]] * 2


def test_max_parallelism_of_the_state_is_kept_when_a_job_is_rescaled():
    env = environment()
    counted(env, PAIRS)
    first = started(env, 2)
    first.run_epoch(take=21, checkpoint=True)
    second = first.restart(100)
    second.run()
    found = by_key(second.collected())
    assert {k: [r[1] for r in rows] for k, rows in found.items()} == {
        k: [4, 5, 6] for k in range(7)
    }
