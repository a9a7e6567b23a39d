"""Rows in flight on every kind of edge, restored with the same and with other parallelisms."""

from __future__ import annotations

import pytest
from tests.harness.overtaking import Count, Overtake, Total, job, lost_and_extra
from tests.harness.programs import environment

from weir.checkpoint.store import list_completed
from weir.common.typeinfo import Types
from weir.connector.file_sink import FileSink
from weir.datastream import (
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
)
from weir.datastream.functions import Partitioner
from weir.datastream.state import MapStateDescriptor, ValueStateDescriptor
from weir.errors import IncompatibleStateError, WeirError
from weir.testing.harness import collect

pytestmark = pytest.mark.matrix

NUMBERS = 30
RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
ODD = OutputTag("odd", Types.LONG())


class Spread(Partitioner):
    def partition(self, key, num_partitions):
        return key % num_partitions


class Pass(ProcessFunction):
    """Passes records on, from a slot: it has a hook."""

    def open(self, runtime_context):
        pass

    def process_element(self, value, ctx):
        yield value


class KeyedPass(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class Split(Pass):
    """Odd numbers go to a side output."""

    def process_element(self, value, ctx):
        yield (ODD, value) if value % 2 else value


class Ruled(KeyedBroadcastProcessFunction):
    """Counts rules and records; tells both when time ends."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_broadcast_element(self, value, ctx):
        state = ctx.get_broadcast_state(RULES)
        state.put(value, (state.get(value) or 0) + 1)
        return iter(())

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(1 << 50)
        yield "row", value

    def on_timer(self, timestamp, ctx):
        seen = tuple(sorted(ctx.get_broadcast_state(RULES).items()))
        yield "end", (ctx.get_current_key(), self.count.value(), seen)


def numbers(env):
    return env.from_sequence(1, NUMBERS).uid("numbers")


def keyed(stream):
    return stream.key_by(lambda n: n % 5)


def rerouted(how):
    """Slots, an edge of some kind, slots again."""

    def build(env):
        passed = numbers(env).process(Pass()).uid("pass")
        collect(how(passed).process(Pass()).uid("again"))
        return range(1, NUMBERS + 1)

    return build


def keyed_twice(env):
    collect(
        keyed(numbers(env))
        .process(Total())
        .uid("totals")
        .key_by(lambda r: r[0])
        .process(Count())
        .uid("counts")
    )
    totals, counts, found = {}, {}, []
    for n in range(1, NUMBERS + 1):
        key = n % 5
        totals[key] = totals.get(key, 0) + n
        counts[key] = counts.get(key, 0) + 1
        found.append((key, n, totals[key], counts[key]))
    return found


def side_outputs(env):
    split = numbers(env).process(Split()).uid("split")
    odd = split.get_side_output(ODD).rebalance().map(lambda n: -n).uid("odd")
    collect(odd.union(split).key_by(lambda n: n % 3).process(KeyedPass()).uid("all"))
    return [-n if n % 2 else n for n in range(1, NUMBERS + 1)]


def union_across_levels(env):
    """Rows that pass through a level untouched meet rows that it made."""
    passed = numbers(env).process(Pass()).uid("pass")
    longer = passed.rebalance().process(Pass()).uid("second").map(lambda n: n + 100).uid("plus")
    collect(longer.rebalance().union(passed.rebalance()).process(Pass()).uid("both"))
    return [n + m for n in range(1, NUMBERS + 1) for m in (0, 100)]


def broadcast(env):
    rules = env.from_collection([1, 2, 3]).uid("rules").process(Pass()).uid("slot").broadcast(RULES)
    passed = numbers(env).process(Pass()).uid("pass")
    collect(keyed(passed).connect(rules).process(Ruled()).uid("ruled"))
    seen = ((1, 1), (2, 1), (3, 1))
    ends = [("end", (key, NUMBERS // 5, seen)) for key in range(5)]
    return [("row", n) for n in range(1, NUMBERS + 1)] + ends


PROGRAMS = {
    "keyed": keyed_twice,
    "rebalance": rerouted(lambda s: s.rebalance()),
    "shuffle": rerouted(lambda s: s.shuffle()),
    "rescale": rerouted(lambda s: s.rescale()),
    "global": rerouted(lambda s: s.global_()),
    "custom": rerouted(lambda s: s.partition_custom(Spread(), lambda n: n)),
    "side outputs": side_outputs,
    "union": union_across_levels,
    "broadcast": broadcast,
}


def cut(harness, hooks):
    """Run most of the input in one epoch whose barrier overtakes, and end the job."""
    harness.run_epoch(take=25, checkpoint=True)
    assert hooks.settled
    metadata = list_completed(harness.storage, harness.job_id)[0].metadata
    assert metadata.in_flight
    return metadata


@pytest.mark.parametrize(("old", "new"), [(2, 2), (2, 3), (3, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_rows_in_flight_find_their_place(program, old, new):
    for at in (3, 27, 40):
        env = environment()
        expected = PROGRAMS[program](env)
        hooks = Overtake(at)
        first = job(env, hooks, old)
        cut(first, hooks)
        hooks.at = None
        second = first.restart(new)
        second.run(take=3)
        # What the first job had released is over; nothing of the cut epoch was.
        assert first.collected() == []
        assert lost_and_extra(expected, second.collected()) == (0, 0), at


@pytest.mark.parametrize(("old", "new"), [(3, 7), (7, 12), (12, 7)])
def test_rows_in_flight_survive_rescaling_as_in_flinks_table(old, new):
    env = environment()
    expected = keyed_twice(env)
    hooks = Overtake(31)
    first = job(env, hooks, old)
    cut(first, hooks)
    hooks.at = None
    second = first.restart(new)
    second.run()
    assert lost_and_extra(expected, second.collected()) == (0, 0)


def test_records_of_a_key_keep_their_order_through_cuts_and_rescaling():
    for at in (3, 11, 27, 31, 44):
        env = environment()
        keyed_twice(env)
        hooks = Overtake(at)
        first = job(env, hooks, 3)
        cut(first, hooks)
        hooks.at = None
        second = first.restart(2)
        second.run()
        for key in range(5):
            counts = [r[3] for r in second.collected() if r[0] == key]
            values = [r[1] for r in sorted(second.collected(), key=lambda r: r[3]) if r[0] == key]
            assert counts == sorted(counts)
            assert values == sorted(values), at


def test_files_hold_every_record_once_when_barriers_overtake(tmp_path):
    for at in (2, 16, 33):
        env = environment()
        out = tmp_path / str(at)
        numbered = keyed(numbers(env)).process(Total()).uid("totals")
        numbered.rebalance().sink_to(FileSink.text(str(out))).uid("files")
        hooks = Overtake(at)
        harness = job(env, hooks)
        cut(harness, hooks)
        hooks.at = None
        harness.fail_over()
        harness.run(take=4)
        files = [p for p in out.rglob("*") if p.is_file() and not p.name.startswith(".")]
        lines = [line for p in files for line in p.read_text().splitlines()]
        found = sorted(int(line.split(",")[1]) for line in lines)
        assert found == list(range(1, NUMBERS + 1)), at


def cut_job(program, **options):
    env = environment()
    PROGRAMS[program](env)
    hooks = Overtake(3)
    harness = job(env, hooks, **options)
    cut(harness, hooks)
    hooks.at = None
    return harness


def changed(env):
    """The program without its second operator."""
    collect(numbers(env).process(Pass()).uid("pass"))
    return env.build_graph()


def test_rows_on_an_edge_that_the_program_lacks_are_refused():
    first = cut_job("rebalance")
    first._graph = changed(environment())
    with pytest.raises(IncompatibleStateError, match="take a savepoint"):
        first.restart()


def test_rows_on_an_edge_that_the_program_lacks_are_dropped_when_that_is_allowed():
    first = cut_job("rebalance", allow_non_restored=True)
    first._graph = changed(environment())
    second = first.restart()
    second.run()
    assert set(second.collected()) < set(range(1, NUMBERS + 1))


def test_an_operator_that_was_added_changes_no_place_of_rows():
    first = cut_job("rebalance")
    env = environment()
    passed = numbers(env).process(Pass()).uid("pass")
    counted = passed.rebalance().process(Pass()).uid("again").rebalance().process(Pass()).uid("new")
    collect(counted)
    first._graph = env.build_graph()
    second = first.restart()
    second.run()
    assert sorted(second.collected()) == list(range(1, NUMBERS + 1))


def test_a_level_with_fewer_subtasks_cuts_the_others_too():
    for at in (2, 10, 26, 35):
        env = environment()
        totals = keyed(numbers(env)).process(Total()).set_parallelism(1).uid("totals")
        counts = totals.key_by(lambda r: r[0]).process(Count()).set_parallelism(3).uid("counts")
        collect(counts.rebalance().process(Pass()).set_parallelism(2).uid("pass"))
        hooks = Overtake(at)
        harness = job(env, hooks, 3)
        cut(harness, hooks)
        harness.kill_slot(2)
        hooks.at = None
        harness.fail_over()
        harness.run()
        expected = keyed_twice(environment())
        assert lost_and_extra(expected, harness.collected()) == (0, 0), at


def test_damaged_rows_are_noticed():
    harness = cut_job("keyed")
    stored = list_completed(harness.storage, harness.job_id)[0]
    record = stored.metadata.files[stored.metadata.in_flight[0].file]
    path = f"{stored.directory}/{record.path}"
    data = bytearray(harness.storage.read(path))
    data[40] ^= 1
    harness.storage.delete(path)
    harness.storage.create(path, bytes(data))
    harness.kill_slot(0)
    with pytest.raises(WeirError, match="cannot be used"):
        harness.fail_over()
