"""Savepoints of windows, joins, patterns, broadcast and expiring state, read and written again.

Every state of the savepoint is read as rows and written from them. A job that starts from the
result goes on as the one that was stopped.
"""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, started
from tests.harness.surviving import EVENTS, HALF, SUBJECTS, program
from tests.harness.test_savepoints import SETTINGS, savepoint_of
from tests.harness.test_survival import check

from weir.checkpoint.store import load_checkpoint
from weir.common import Time, Types
from weir.datastream import KeyedBroadcastProcessFunction
from weir.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from weir.jobmanager.recovery import RestorePoint
from weir.offline import SavepointEdit, read_snapshot
from weir.offline.contents import SnapshotContents
from weir.offline.edit_parts import GivenRows
from weir.offline.keyed import KeyedTable
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import settings_of
from weir.testing.harness import HarnessOptions, JobHarness, collect


def written_again(location, target):
    """Write all states of all operators from their rows."""
    contents = read_snapshot(location, unpickle=True)
    edit = SavepointEdit.of(contents)
    contents = SnapshotContents(contents.snapshot, unpickle=True, as_text=False)
    count = 0
    for stored in contents.states():
        table = contents.table(stored.operator.id, stored.name)
        if isinstance(table, KeyedTable):
            rows = GivenRows(list(table.batches()))
            edit.with_keyed_state(stored.operator.id, stored.name, None, rows)
            count += 1
        elif not stored.name.startswith("_"):
            types = (table.value.type_info, table.map_key and table.map_key.type_info)
            edit.with_operator_state(
                stored.operator.id, stored.name, table.mode, types, list(table.elements())
            )
            count += 1
    edit.write(target)
    return count


def stopped(env, storage):
    job = started(env, storage=storage, checkpoints=SETTINGS)
    job.run_epoch(take=HALF)
    savepoint_of(job, storage)
    job.end_slots()
    return job


def resumed(env, storage, directory, backend="hashmap"):
    options = HarnessOptions(storage=storage, backend=settings_of(backend), checkpoints=SETTINGS)
    point = RestorePoint(storage.uri, directory, load_checkpoint(storage, directory))
    return JobHarness(env.build_graph(), 3, options, point).start().run(6)


@pytest.mark.matrix
@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name != "async"])
def test_windows_joins_and_patterns_go_on_from_their_rows(subject, tmp_path):
    storage = LocalStorage(str(tmp_path))
    job = stopped(program(subject), storage)
    assert written_again(f"{storage.uri}/sp/savepoint-1", f"{storage.uri}/sp/again") > 0
    check(subject, job, resumed(program(subject), storage, "sp/again", "rocksdb"))


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


def expiring(descriptor):
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    return descriptor


class Ruled(KeyedBroadcastProcessFunction):
    """Expiring state of each shape, beside broadcast state."""

    def open(self, runtime_context):
        self.one = runtime_context.get_state(expiring(ValueStateDescriptor("one", Types.LONG())))
        self.many = runtime_context.get_list_state(
            expiring(ListStateDescriptor("many", Types.LONG()))
        )
        self.named = runtime_context.get_map_state(
            expiring(MapStateDescriptor("named", Types.STRING(), Types.LONG()))
        )

    def process_element(self, value, ctx):
        number, name, _ = value
        self.one.update(number)
        self.many.add(number)
        self.named.put(f"{name}{number % 2}", number)
        rules = sorted(ctx.get_broadcast_state(RULES).items())
        yield number, list(self.many.get()), sorted(self.named.items()), rules

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value[1], value[0])


def ruled():
    env = environment()
    event = Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])
    rules = env.from_collection(EVENTS[:3], event).uid("rules").broadcast(RULES)
    events = env.from_collection(EVENTS, event).uid("events")
    keyed = events.key_by(lambda e: e[1], Types.STRING())
    collect(keyed.connect(rules).process(Ruled()).uid("subject"))
    return env


def test_expiring_and_broadcast_state_go_on_from_their_rows(tmp_path):
    storage = LocalStorage(str(tmp_path))
    job = stopped(ruled(), storage)
    assert written_again(f"{storage.uri}/sp/savepoint-1", f"{storage.uri}/sp/again") >= 4
    expected = resumed(ruled(), storage, "sp/savepoint-1").collected()
    found = resumed(ruled(), storage, "sp/again").collected()
    assert sorted(found) == sorted(expected)
    assert len(job.collected()) + len(found) == len(EVENTS)
    assert found[-1][-1], "broadcast state was there"
