"""Read, written row by row, and restored from: the same job, whatever its operators keep.

Windows, joins and patterns have states in namespaces, timers and watermarks; operators have lists,
unions and broadcast maps. States are drawn that are written anew; all others are taken over.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.harness.programs import environment
from tests.harness.state_programs import restore_point, run_job
from tests.harness.surviving import HALF, SUBJECTS, in_order, program, undisturbed

from weir.common.typeinfo import Types
from weir.datastream import (
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    MapFunction,
)
from weir.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from weir.offline import read_snapshot
from weir.offline.contents import SnapshotContents
from weir.offline.edit_parts import GivenRows
from weir.offline.editing import SavepointEdit
from weir.offline.keyed import KeyedTable
from weir.testing.campaign_backends import BACKENDS, settings_of
from weir.testing.harness import collect

pytestmark = pytest.mark.matrix
MAKES_NO_STATE = "async"
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LIST(Types.LONG()))
EVERYTHING = settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def rewritten(place, target, wanted):
    """Read states row by row, and write them again; `wanted` tells which ones by their number."""
    contents = read_snapshot(str(place), unpickle=True)
    edit, states = SavepointEdit.of(contents), contents.states()
    contents = SnapshotContents(contents.snapshot, unpickle=True, as_text=False)
    for number, state in enumerate(states):
        if state.name.startswith("_") and not state.name.startswith(("_timer", "_window")):
            continue  # what operators keep about themselves
        if not wanted(number):
            continue
        table = contents.table(state.operator.id, state.name)
        if isinstance(table, KeyedTable):
            rows = GivenRows(list(table.batches()))
            edit.with_keyed_state(state.operator.id, state.name, None, rows)
        else:
            of_map = None if table.map_key is None else table.map_key.type_info
            types = (table.value.type_info, of_map)
            elements = list(table.elements())
            edit.with_operator_state(state.operator.id, state.name, table.mode, types, elements)
    return edit.write(str(target))


@EVERYTHING
@given(
    subject=st.sampled_from([name for name in SUBJECTS if name != MAKES_NO_STATE]),
    backends=st.tuples(st.sampled_from(list(BACKENDS)), st.sampled_from(list(BACKENDS))),
    widths=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    chosen=st.integers(1, 255),
)
def test_windows_joins_and_patterns_go_on(tmp_path_factory, subject, backends, widths, chosen):
    root = tmp_path_factory.mktemp("state")
    job = run_job(program(subject), root, widths[0], backend=settings_of(backends[0]))
    job.run_epoch(take=HALF, checkpoint=True)
    job.end_slots()
    place = root / job.job_id / "chk-1"
    copy = rewritten(place, root / "savepoint-copy", lambda number: chosen >> number % 8 & 1)
    start = restore_point(root, copy)
    later = run_job(program(subject), root, widths[1], start, backend=settings_of(backends[1]))
    found = [*job.collected(), *later.run(6).collected()]
    assert in_order(found) == undisturbed(subject)


class Marked(KeyedBroadcastProcessFunction):
    """Adds what the rules of a key say to what its state has."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        limits = ctx.get_broadcast_state(RULES).get(f"k{value % 3}")
        yield value, self.seen.value(), tuple(limits or ())

    def process_broadcast_element(self, value, ctx):
        rules = ctx.get_broadcast_state(RULES)
        rules.put(f"k{value % 3}", [*(rules.get(f"k{value % 3}") or ()), value])


class Kept(MapFunction, CheckpointedFunction):
    """Keeps the newest number of each subtask in a union list, which all see after a restore."""

    def __init__(self):
        self.newest = 0

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_union_list_state(ListStateDescriptor("newest", Types.LONG()))
        self.newest = max(self.state.get(), default=0)

    def snapshot_state(self, context):
        self.state.update([self.newest])

    def map(self, value):
        before, self.newest = self.newest, max(self.newest, value[0])
        return (*value, before > 0)


def ruled():
    env = environment()
    rules = env.from_collection([1, 2, 3, 4], Types.LONG()).uid("rules").broadcast(RULES)
    numbers = env.from_sequence(1, 30).uid("numbers").key_by(lambda n: n % 5, Types.LONG())
    collect(numbers.connect(rules).process(Marked()).uid("marked").map(Kept()).uid("kept"))
    return env


@EVERYTHING
@given(
    backends=st.tuples(st.sampled_from(list(BACKENDS)), st.sampled_from(list(BACKENDS))),
    widths=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    chosen=st.integers(1, 255),
)
def test_broadcast_and_union_state_go_on(tmp_path_factory, backends, widths, chosen):
    root = tmp_path_factory.mktemp("state")
    job = run_job(ruled(), root, widths[0], backend=settings_of(backends[0]))
    job.run_epoch(take=10, checkpoint=True)
    job.end_slots()
    place = root / job.job_id / "chk-1"
    copy = rewritten(place, root / "savepoint-copy", lambda number: chosen >> number % 8 & 1)

    def outcome(start):
        point = restore_point(root, start)
        later = run_job(ruled(), root, widths[1], point, backend=settings_of(backends[1]))
        return sorted(later.run(7).collected())

    expected = outcome(place)
    assert outcome(copy) == expected
    assert {record[2] for record in expected} == {(1, 4), (2,), (3,)}
    assert all(record[3] for record in expected), "the union list was seen"
