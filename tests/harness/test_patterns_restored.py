"""Partial matches through crashes, savepoints, other parallelisms and other backends."""

from __future__ import annotations

from functools import cache

import pytest
from tests.harness.overtaking import Overtake
from tests.harness.overtaking import job as overtaken
from tests.harness.programs import environment, started
from tests.harness.test_patterns import EVENT, event, kind, numbers
from tests.harness.test_savepoints import SETTINGS, savepoint_of

from weir.cep import CEP, AfterMatchSkipStrategy, Pattern
from weir.checkpoint.store import load_checkpoint
from weir.common import Duration, Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import OutputTag
from weir.jobmanager.overtake import Outcome
from weir.jobmanager.recovery import RestorePoint
from weir.offline import describe
from weir.runtime.patterns import EVENTS, PARTIAL_MATCHES, WAITING
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import BACKENDS, settings_of
from weir.testing.harness import HarnessOptions, JobHarness, collect

pytestmark = pytest.mark.matrix
KEYS = 6
ENDED = OutputTag("ended", Types.STRING())
every_kind = pytest.mark.parametrize("backend", list(BACKENDS))


def records():
    """Rising and falling numbers of several keys, out of order by up to four milliseconds."""
    found = []
    for step in range(40):
        for key in range(KEYS):
            letter = "smex"[(step * (key + 3) // 2 + key) % 4]
            late = (step * 7 + key) % 5
            found.append(event(step, letter, step * 10 - late, float(step % 7), f"k{key}"))
    return found


def pattern():
    """A start, middles that rise, an end: events of a match are looked at by conditions."""

    def rising(e, ctx):
        before = ctx.get_events_for_pattern("middle") or ctx.get_events_for_pattern("start")
        return e[2] == "m" and e[3] >= before[-1][3]

    skip = AfterMatchSkipStrategy.skip_to_next()
    found = Pattern.begin("start", skip).where(kind("s"))
    found = found.followed_by_any("middle").where(rising).one_or_more().greedy()
    return found.followed_by("end").where(kind("e")).within(Duration.of_millis(130))


def program(type_info=EVENT, *, keyed=True):
    env = environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(15))
    strategy = strategy.with_timestamp_assigner(lambda e, _: e[4])
    stream = env.from_collection(records(), type_info).uid("events")
    stream = stream.assign_timestamps_and_watermarks(strategy)
    if keyed:
        stream = stream.key_by(lambda e: e[0], Types.STRING())
    found = CEP.pattern(stream, pattern()).select(
        described, Types.STRING(), ENDED, lambda match, time: f"{described(match)}@{time}"
    )
    collect(found.uid("pattern").union(found.get_side_output(ENDED)))
    return env


def described(match):
    return f"{match['start'][0][0]}: {numbers(match)}"


@cache
def undisturbed(**how):
    found = sorted(started(program(**how)).run(30).collected())
    assert len(found) > 20
    assert any("@" in text for text in found)
    assert any("@" not in text for text in found)
    return found


def in_the_middle(job):
    """Tell whether partial matches and waiting records are stored now."""
    return sum(operator.state_entries() for operator in job.operators("pattern")) > KEYS


@every_kind
def test_partial_matches_survive_crashes_and_rescaling(backend):
    job = started(program(), backend=settings_of(backend), wait_for_checkpoints=True)
    job.run_epoch(take=70)
    job.run_epoch(take=50, checkpoint=True)
    assert in_the_middle(job)
    job.run_epoch(take=30)
    job.kill_slot(1)
    job.fail_over()
    job.run_epoch(take=20, checkpoint=True)
    before = list(job.collected())
    later = job.restart(3)
    assert in_the_middle(later)
    later.run_epoch(take=40, checkpoint=True)
    before += later.collected()
    last = later.restart(1).run(25)
    assert sorted([*before, *last.collected()]) == undisturbed()


@every_kind
@pytest.mark.parametrize("type_info", [EVENT, None], ids=["declared", "undeclared"])
def test_a_savepoint_moves_partial_matches_to_another_backend(backend, type_info, tmp_path):
    storage = LocalStorage(str(tmp_path))
    job = started(
        program(type_info), storage=storage, backend=settings_of(backend), checkpoints=SETTINGS
    )
    job.run_epoch(take=110)
    savepoint_of(job, storage)
    before = list(job.collected())
    other = "rocksdb" if backend.startswith("hashmap") else "hashmap"
    options = HarnessOptions(storage=storage, backend=settings_of(other), checkpoints=SETTINGS)
    metadata = load_checkpoint(storage, "sp/savepoint-1")
    point = RestorePoint(storage.uri, "sp/savepoint-1", metadata)
    later = JobHarness(program(type_info).build_graph(), 3, options, point).start()
    assert in_the_middle(later)
    later.run(40)
    assert sorted([*before, *later.collected()]) == undisturbed(type_info=type_info)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "hashmap-changelog"])
def test_the_one_subtask_of_a_stream_without_keys_is_restored(backend):
    job = started(program(keyed=False), backend=settings_of(backend), wait_for_checkpoints=True)
    job.run_epoch(take=100, checkpoint=True)
    job.run_epoch(take=10)
    job.kill_slot(0)
    job.fail_over()
    before = list(job.collected())
    later = job.restart(3).run(50)
    assert sorted([*before, *later.collected()]) == undisturbed(keyed=False)


def test_the_states_of_a_pattern_can_be_looked_at(tmp_path):
    storage = LocalStorage(str(tmp_path))
    job = started(program(), storage=storage, checkpoints=SETTINGS)
    job.run_epoch(take=110)
    savepoint_of(job, storage)
    shown = describe(f"{storage.uri}/sp/savepoint-1")
    operator = next(op for op in shown.operators if op.uid == "pattern")
    record = "TUPLE<STRING, LONG, STRING, DOUBLE, LONG>"
    values = {state.name: state.types["value"] for state in operator.states}
    assert values[WAITING] == f"LIST<{record}>"
    assert values[EVENTS] == record
    assert values[PARTIAL_MATCHES].startswith("TUPLE<LONG, LIST<TUPLE<LONG, LONG, LONG")


@pytest.mark.parametrize("pause", [3, 20, 50])
def test_a_barrier_that_overtakes_finds_the_records_that_wait_in_memory(pause):
    hooks = Overtake(at=pause)
    job = overtaken(program(), hooks)
    job.run_epoch(take=60)
    hooks.again(pause)
    job.run_epoch(take=60, checkpoint=True)
    assert Outcome.SETTLED in hooks.outcomes
    job.fail_over()
    assert sorted(job.run(30).collected()) == undisturbed()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "hashmap-changelog"])
def test_partial_matches_in_processing_time_end_by_the_clock_after_a_crash(backend):
    env = environment()
    pair = Pattern.begin("s").where(kind("s")).followed_by("e").where(kind("e")).within(100)
    stream = env.from_collection([], EVENT).key_by(lambda e: e[0], Types.STRING())
    found = CEP.pattern(stream, pair).in_processing_time()
    ended = OutputTag("ended")
    matches = found.select(numbers, None, ended, lambda match, time: (len(match), time))
    main, side = collect(matches), collect(matches.get_side_output(ended))
    job = started(env, backend=settings_of(backend))
    job.run_epoch([event(1, "s", 0, key="k"), event(2, "s", 0, key="l")], checkpoint=True)
    job.kill_slot(0)
    job.fail_over()
    job.clock.advance(99)
    job.run_epoch([event(3, "e", 0, key="k")])
    assert job.collected(main) == ["1,3"]
    job.clock.advance(1)
    job.run_epoch()
    assert job.collected(side) == [(1, 100)]
