"""Who takes over rows in flight: every row once, broadcast rows once for everybody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weir.checkpoint.in_flight import StoredEdge, is_chosen_by_record, is_routed_anew, is_taken
from weir.datastream import ProcessFunction, StreamExecutionEnvironment
from weir.graph.plan import compile_plan
from weir.graph.transformation import Partitioning
from weir.keygroup import subtask_of
from weir.testing.harness import collect

TABLE = [(2, 3), (3, 7), (7, 12), (12, 7), (1, 4), (4, 1), (2, 2)]


class InSlot(ProcessFunction):
    def open(self, runtime_context):
        pass

    def process_element(self, value, ctx):
        yield value


def plan(parallelism, respread=lambda s: s.rebalance()):
    env = StreamExecutionEnvironment()
    first = env.from_sequence(1, 3).process(InSlot()).uid("first")
    collect(respread(first).process(InSlot()).uid("second"))
    return compile_plan(env.build_graph(), parallelism)


def edge_between(compiled, source, target):
    uids = [op.uid for op in compiled.operators]
    found = (uids.index(source), uids.index(target))
    return next(e for e in compiled.edges if (e.source, e.target) == found)


def pair(old, new, partitioning):
    """Return an edge as it was stored, and as it is now."""
    compiled = plan(new)
    edge = edge_between(compiled, "first", "second")
    edge.partitioning = partitioning
    stored = replace(StoredEdge.of(compiled, edge), parallelism=old)
    return stored, edge


def takers(stored, edge, target):
    return [i for i in range(edge.parallelism) if is_taken(stored, edge, target, i)]


@pytest.mark.parametrize(("old", "new"), TABLE)
@pytest.mark.parametrize(
    "partitioning",
    [Partitioning.REBALANCE, Partitioning.SHUFFLE, Partitioning.RESCALE, Partitioning.FORWARD],
)
def test_every_old_subtask_has_one_successor(partitioning, old, new):
    stored, edge = pair(old, new, partitioning)
    assert [takers(stored, edge, target) for target in range(old)] == [
        [target % new] for target in range(old)
    ]


@pytest.mark.parametrize(("old", "new"), TABLE)
def test_global_rows_go_to_the_first_subtask(old, new):
    stored, edge = pair(old, new, Partitioning.GLOBAL)
    assert takers(stored, edge, 0) == [0]


@pytest.mark.parametrize(("old", "new"), TABLE)
def test_every_new_subtask_takes_one_copy_of_broadcast_rows(old, new):
    stored, edge = pair(old, new, Partitioning.BROADCAST)
    taken = [[t for t in range(old) if is_taken(stored, edge, t, i)] for i in range(new)]
    assert taken == [[i % old] for i in range(new)]


@pytest.mark.parametrize(("old", "new"), TABLE)
def test_everybody_looks_at_rows_of_a_users_partitioner(old, new):
    stored, edge = pair(old, new, Partitioning.CUSTOM)
    wanted = list(range(new)) if old != new else [1]
    assert takers(stored, edge, 1 % old if old != new else 1) == wanted
    assert is_chosen_by_record(edge)


@pytest.mark.parametrize(("old", "new"), TABLE)
@pytest.mark.parametrize("groups", [12, 13, 128])
def test_the_owner_of_a_key_looks_at_where_the_key_was(old, new, groups):
    stored, edge = pair(old, new, Partitioning.HASH)
    stored, edge.max_parallelism = replace(stored, max_parallelism=groups), groups
    for group in range(groups):
        before, now = subtask_of(group, old, groups), subtask_of(group, new, groups)
        assert now in takers(stored, edge, before)


def test_with_other_key_groups_everybody_looks_at_everything():
    stored, edge = pair(2, 2, Partitioning.HASH)
    assert not is_routed_anew(stored, edge)
    assert takers(stored, edge, 0) == [0]
    edge.max_parallelism *= 2
    assert is_routed_anew(stored, edge)
    assert takers(stored, edge, 0) == [0, 1]


def test_an_edge_is_known_by_its_operators():
    before, after = plan(2), plan(3, lambda s: s.broadcast())
    stored = StoredEdge.of(before, edge_between(before, "first", "second"))
    assert stored.find(after) is edge_between(after, "first", "second")
    assert replace(stored, target="other").find(after) is None
    assert replace(stored, input_index=1).find(after) is None
    assert replace(stored, tag="late").find(after) is None


def test_of_two_edges_between_the_same_operators_the_one_with_the_same_routing_is_meant():
    compiled = plan(2, lambda s: s.rebalance().union(s.broadcast()))
    edges = [e for e in compiled.edges if compiled.operators[e.target].uid == "second"]
    assert [StoredEdge.of(compiled, e).find(compiled) for e in edges] == edges
