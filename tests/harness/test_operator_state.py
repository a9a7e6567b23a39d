"""Operator state of functions, checkpoint hooks, and how state moves when jobs are rescaled."""

from __future__ import annotations

import pytest
from examples.buffering_sink import BufferingSink
from examples.checkpoint_count import CheckpointCount
from examples.number_records_count import NumberRecordsCount
from tests.harness.programs import by_key, environment, run, started

from weir.checkpoint.retention import JobEnd
from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction, MapFunction
from weir.datastream.functions import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    CheckpointListener,
)
from weir.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig
from weir.errors import IncompatibleStateError, UsageError
from weir.testing.harness import JobHarness, collect

SCALES = [(2, 3), (3, 1), (4, 2)]


def buffering(directory, threshold=5):
    env = environment()
    letters = env.from_collection([(c, i) for i, c in enumerate("abcdefghijkl")]).uid("source")
    letters.rebalance().add_sink(BufferingSink(threshold, str(directory / "out"))).uid("sink")
    return env


def lines(directory):
    out = directory / "out"
    return out.read_text().split() if out.exists() else []


def test_a_buffering_sink_keeps_what_waits(tmp_path):
    harness = started(buffering(tmp_path), 1)
    harness.run_epoch(take=3, checkpoint=True)
    harness.kill_slot(0)
    harness.fail_over()
    assert lines(tmp_path) == []
    harness.run_epoch(take=3)
    assert lines(tmp_path) == ["a,0", "b,1", "c,2", "d,3", "e,4"]
    harness.run()
    assert lines(tmp_path) == [f"{c},{i}" for i, c in enumerate("abcdefghijkl")]


@pytest.mark.parametrize(("before", "after"), [*SCALES, (2, 2)])
def test_waiting_elements_of_a_buffering_sink_are_dealt_out(before, after, tmp_path):
    first = started(buffering(tmp_path, threshold=9), before)
    first.run_epoch(take=7, checkpoint=True)
    held = [op.function.buffered_elements for op in first.operators("sink")]
    assert sum(map(len, held)) == 7
    second = first.restart(after)
    given = [op.function.buffered_elements for op in second.operators("sink")]
    assert [e for part in given for e in part] == [e for part in held for e in part]
    assert max(map(len, given)) - min(map(len, given)) <= 1
    second.run()
    assert sorted(lines(tmp_path)) == [f"{c},{i}" for i, c in enumerate("abcdefghijkl")]


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


@pytest.mark.parametrize(("before", "after"), SCALES)
def test_a_list_checkpointed_function_gets_its_share(before, after):
    env = environment()
    records = env.from_collection(PAIRS).uid("source").rebalance()
    collect(records.flat_map(NumberRecordsCount()).uid("count"))
    first = started(env, before)
    first.run_epoch(take=20, checkpoint=True)
    first.run_epoch(take=5)
    first.kill_slot(0)
    first.fail_over()
    assert sum(op.function.number_records for op in first.operators("count")) == 20
    second = first.restart(after)
    assert sum(op.function.number_records for op in second.operators("count")) == 20
    second.run()
    assert sum(op.function.number_records for op in second.operators("count")) == len(PAIRS)


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
    def __init__(self):
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


def test_another_max_parallelism_than_the_states_is_refused_and_so_are_too_many_subtasks():
    env = environment()
    counted(env, PAIRS)
    graph = env.build_graph()
    graph.max_parallelism = 13
    first = JobHarness(graph, 2).start()
    first.run_epoch(take=21, checkpoint=True)
    first.end(JobEnd.CANCELED)
    graph.max_parallelism = 42
    with pytest.raises(IncompatibleStateError, match=r"max parallelism 13.*sets 42: set 13"):
        first.successor(2)
    graph.max_parallelism = None
    with pytest.raises(IncompatibleStateError, match="13, which is lower than the parallelism 14"):
        first.successor(14)
    second = first.successor(13).start()
    second.run()
    found = by_key(second.collected())
    assert {k: [r[1] for r in rows] for k, rows in found.items()} == {
        k: [4, 5, 6] for k in range(7)
    }


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


def expiring(name):
    descriptor = MapStateDescriptor(name, Types.LONG(), Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(1000).build())
    return descriptor


class ExpiringRules(BroadcastProcessFunction):
    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(expiring("rules")).put(value, value)

    def process_element(self, value, ctx):
        yield value


def test_broadcast_state_with_a_time_to_live_is_refused_where_it_is_declared_or_asked_for():
    env = environment()
    rules = env.from_sequence(1, 5)
    with pytest.raises(UsageError, match="operator state 'rules' has a time to live"):
        rules.broadcast(expiring("rules"))
    collect(env.from_sequence(1, 2).connect(rules.broadcast(RULES)).process(ExpiringRules()))
    with pytest.raises(UsageError, match="operator state 'rules' has a time to live"):
        run(env)
