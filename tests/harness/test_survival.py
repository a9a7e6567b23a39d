"""States of windows, joins, patterns and async calls, through everything that can happen to them.

Rows are what has state, columns what happens half-way. Nothing is late, so each cell has the answer
that the undisturbed program gives.
"""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from tests.harness.overtaking import Overtake
from tests.harness.overtaking import job as overtaken
from tests.harness.programs import started
from tests.harness.surviving import HALF, SUBJECTS, in_order, program, undisturbed
from tests.harness.test_savepoints import SETTINGS, savepoint_of

from weir.checkpoint.store import load_checkpoint
from weir.cli.main import cli
from weir.jobmanager.overtake import Outcome
from weir.jobmanager.recovery import RestorePoint
from weir.offline import describe
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import settings_of
from weir.testing.harness import HarnessOptions, JobHarness

pytestmark = pytest.mark.matrix
BACKENDS = ["hashmap-incremental", "rocksdb-incremental"]


def check(subject, *jobs):
    found = [record for job in jobs for record in job.collected()]
    assert in_order(found) == undisturbed(subject)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_it_survives_a_kill_and_other_parallelisms(subject, backend):
    job = started(program(subject), backend=settings_of(backend), wait_for_checkpoints=True)
    job.run_epoch(take=HALF, checkpoint=True)
    job.run_epoch(take=4)
    job.kill_slot(1)
    job.fail_over()
    job.run_epoch(take=3, checkpoint=True)
    wider = job.restart(3)
    wider.run_epoch(take=5, checkpoint=True)
    check(subject, job, wider, wider.restart(1).run(4))


@pytest.mark.parametrize(
    ("first", "second"), [("hashmap", "rocksdb"), ("rocksdb", "hashmap-changelog")]
)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_it_survives_a_savepoint_and_another_backend(subject, first, second, tmp_path):
    storage = LocalStorage(str(tmp_path))
    job = started(
        program(subject), storage=storage, backend=settings_of(first), checkpoints=SETTINGS
    )
    job.run_epoch(take=HALF)
    savepoint_of(job, storage)
    job.end_slots()
    options = HarnessOptions(storage=storage, backend=settings_of(second), checkpoints=SETTINGS)
    metadata = load_checkpoint(storage, "sp/savepoint-1")
    point = RestorePoint(storage.uri, "sp/savepoint-1", metadata)
    later = JobHarness(program(subject).build_graph(), 3, options, point).start()
    check(subject, job, later.run(6))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_it_survives_a_barrier_that_overtakes(subject):
    hooks = Overtake(at=3)
    job = overtaken(program(subject), hooks)
    job.run_epoch(take=9)
    hooks.again(5)
    job.run_epoch(take=9, checkpoint=True)
    assert Outcome.SETTLED in hooks.outcomes
    job.fail_over()
    check(subject, job.run(6))


# The one global window, sides of a join and patterns have none, so that none is ever stored.
WITHOUT_NAMESPACES = {
    "evicted",
    "delta",
    "end of stream",
    "interval join",
    "pattern",
    "pattern that skips",
}
WITH_STATE = [name for name in SUBJECTS if name != "async"]


def half_way(subject, tmp_path):
    """Return where a savepoint of the program lies that has read half of its input."""
    storage = LocalStorage(str(tmp_path))
    job = started(program(subject), storage=storage, checkpoints=SETTINGS)
    job.run_epoch(take=HALF)
    savepoint_of(job, storage)
    job.end_slots()
    return f"{tmp_path}/sp/savepoint-1"


@pytest.mark.parametrize("subject", [name for name in WITH_STATE if name != "windows of its own"])
def test_where_types_are_declared_nothing_is_pickled(subject, tmp_path):
    path = half_way(subject, tmp_path)
    [operator] = [op for op in describe(path).operators if op.uid == "subject"]
    assert any(state.entries for state in operator.states)
    pickled = {
        (state.name, role)
        for state in operator.states
        for role, shown in state.types.items()
        if "PICKLED" in shown and (role != "namespace" or subject not in WITHOUT_NAMESPACES)
    }
    assert pickled == set()


TIME = ["key_group", "key", "window_start", "window_end"]
COUNT = ["key_group", "key", "namespace"]
PLAIN = ["key_group", "key"]
SHOWN = {
    "counted": COUNT,
    "sliding counted": COUNT,
    "counted in all": COUNT,
    **dict.fromkeys(WITHOUT_NAMESPACES, PLAIN),
}


@pytest.mark.parametrize("subject", [name for name in WITH_STATE if name != "windows of its own"])
def test_the_command_shows_every_state_with_its_windows(subject, tmp_path):
    path = half_way(subject, tmp_path)

    def said(*arguments):
        result = CliRunner().invoke(cli, ["state", *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    text = said("show", path)
    [operator] = [op for op in describe(path).operators if op.uid == "subject"]
    for state in operator.states:
        if not state.entries:
            continue
        assert state.name in text
        head, *rows = said("cat", path, "subject", state.name).splitlines()
        expected = SHOWN.get(subject, TIME)
        assert head.split()[: len(expected)] == expected, state.name
        assert len(rows) >= 1
