"""Raw state: bytes of the function's own, through checkpoints, failover and rescaling."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, started

from weir.datastream import CheckpointedFunction, MapFunction
from weir.errors import WeirError
from weir.keygroup import key_group, range_of
from weir.testing.harness import collect

SCALES = [(2, 2), (2, 3), (3, 1), (4, 2)]
MAXIMUM = 128


class RawByGroup(MapFunction, CheckpointedFunction):
    """Keeps the last value of every key group by itself, and a byte per record of the subtask."""

    def open(self, runtime_context):
        self.attempt = runtime_context.get_attempt_number()

    def map(self, value):
        self.last[key_group(value, MAXIMUM)] = value
        self.seen.append(value)
        return value

    def snapshot_state(self, context):
        keyed = context.get_raw_keyed_operator_state_output()
        for group, value in sorted(self.last.items()):
            keyed.start_new_key_group(group)
            keyed.write(b"v=")
            keyed.write(str(value).encode())
        partitions = context.get_raw_operator_state_output()
        for value in self.seen:
            partitions.start_new_partition()
            partitions.write(bytes([value]))
        assert context.get_raw_operator_state_output() is partitions

    def initialize_state(self, context):
        groups = context.get_raw_keyed_state_inputs()
        self.groups = [group for group, _ in groups]
        self.last = {group: int(stream.read().removeprefix(b"v=")) for group, stream in groups}
        self.seen = [s.read(1)[0] for s in context.get_raw_operator_state_inputs()]
        self.restored = context.is_restored()


def program():
    env = environment()
    env.set_max_parallelism(MAXIMUM)
    keyed = env.from_sequence(1, 60).uid("source").key_by(lambda v: v)
    collect(keyed.map(RawByGroup()).uid("raw"))
    return env


def expected(values):
    return {key_group(v, MAXIMUM): v for v in values}


@pytest.mark.parametrize(("before", "after"), SCALES)
def test_raw_state_goes_where_its_key_groups_and_partitions_go(before, after):
    first = started(program(), before)
    first.run_epoch(take=40, checkpoint=True)
    held = [op.function.seen for op in first.operators("raw")]
    second = first.restart(after)
    functions = [op.function for op in second.operators("raw")]
    assert {g: v for f in functions for g, v in f.last.items()} == expected(range(1, 41))
    for subtask, function in enumerate(functions):
        own = range_of(subtask, after, MAXIMUM)
        assert function.groups == sorted(function.groups)
        assert all(group in own for group in function.groups)
    assert sorted(v for f in functions for v in f.seen) == list(range(1, 41))
    if before == after:
        assert [f.seen for f in functions] == held
    else:
        loads = [len(f.seen) for f in functions]
        assert max(loads) - min(loads) <= 1


def test_raw_state_survives_a_failover_and_what_no_checkpoint_covered_is_gone():
    harness = started(program(), 2)
    harness.run_epoch(take=20, checkpoint=True)
    harness.run_epoch(take=20)
    harness.kill_slot(0)
    with pytest.raises(WeirError):
        harness.run_epoch()
    harness.fail_over()
    functions = [op.function for op in harness.operators("raw")]
    assert all(f.restored and f.attempt == 1 for f in functions)
    assert sorted(v for f in functions for v in f.seen) == list(range(1, 21))
    harness.run()
    assert sorted(harness.collected()) == sorted([*range(1, 61), *range(21, 41)])


class Once(MapFunction, CheckpointedFunction):
    """Writes raw state into the first checkpoint only."""

    def map(self, value):
        return value

    def snapshot_state(self, context):
        if context.get_checkpoint_id() == 1:
            context.get_raw_operator_state_output().start_new_partition()
            context.get_raw_keyed_operator_state_output().start_new_key_group(self.group)

    def initialize_state(self, context):
        keyed = context.get_raw_keyed_state_inputs()
        self.found = [(g, s.read()) for g, s in keyed]
        self.partitions = [s.read() for s in context.get_raw_operator_state_inputs()]
        self.names = context.get_operator_state_store().get_registered_state_names()
        self.group = 0


def once():
    env = environment()
    collect(env.from_sequence(1, 4).uid("source").key_by(lambda v: v).map(Once()).uid("raw"))
    return started(env, 1)


def test_empty_groups_and_partitions_are_restored_as_empty_streams():
    first = once()
    first.checkpoint()
    (operator,) = first.restart(1).operators("raw")
    assert operator.function.found == [(0, b"")]
    assert operator.function.partitions == [b""]
    assert operator.function.names == set()


def test_raw_state_that_is_not_written_again_is_not_carried_along():
    first = once()
    first.checkpoint()
    first.checkpoint()
    (operator,) = first.restart(1).operators("raw")
    assert operator.function.found == []
    assert operator.function.partitions == []


class Unkeyed(MapFunction, CheckpointedFunction):
    def map(self, value):
        return value

    def snapshot_state(self, context):
        context.get_raw_keyed_operator_state_output()

    def initialize_state(self, context):
        assert context.get_raw_keyed_state_inputs() == []
        assert context.get_raw_operator_state_inputs() == []


def test_raw_keyed_state_needs_a_keyed_stream():
    env = environment()
    collect(env.from_sequence(1, 4).map(Unkeyed()).uid("unkeyed"))
    harness = started(env, 1)
    with pytest.raises(WeirError, match=r"raw keyed state needs a keyed stream.*key_by"):
        harness.run_epoch(checkpoint=True)
