"""Windows and patterns by the clock, and state of the user that expires, through what can happen.

Half of the input comes, then something happens, then time passes: what comes out is what the
undisturbed program gives.
"""

from __future__ import annotations

from functools import cache

import pytest
from tests.harness.overtaking import Overtake
from tests.harness.overtaking import job as overtaken
from tests.harness.programs import environment, started
from tests.harness.surviving import EVENT, EVENTS, Gap, Numbers, in_order, keyed
from tests.harness.test_savepoints import SETTINGS, savepoint_of

from weir.cep import CEP, Pattern
from weir.checkpoint.store import load_checkpoint
from weir.common import Duration, Time, Types
from weir.datastream import OutputTag, ProcessWindowFunction
from weir.datastream.state import StateTtlConfig, ValueStateDescriptor
from weir.datastream.window import (
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    GlobalWindows,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from weir.jobmanager.overtake import Outcome
from weir.jobmanager.recovery import RestorePoint
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import settings_of
from weir.testing.campaign_windows import strategy
from weir.testing.harness import HarnessOptions, JobHarness, collect

pytestmark = pytest.mark.matrix
ENDED = OutputTag("ended", Types.STRING())


def pattern(stream):
    """Even numbers that no multiple of three follows in time: they time out."""
    pair = Pattern.begin("a").where(lambda e: e[0] % 2 == 0).followed_by("b")
    pair = pair.where(lambda e: e[0] % 3 == 0).within(Duration.of_millis(300))
    found = CEP.pattern(keyed(stream), pair).in_processing_time()
    matches = found.select(
        lambda m: f"{m['a'][0][0]} {m['b'][0][0]}",
        Types.STRING(),
        ENDED,
        lambda m, time: f"{m['a'][0][0]} ended at {time}",
    )
    return matches.uid("subject").union(matches.get_side_output(ENDED))


def global_window(trigger):
    return lambda s: keyed(s).window(GlobalWindows.create()).trigger(trigger).process(Numbers())


SUBJECTS = {
    "tumbling": lambda s: keyed(s).window(TumblingProcessingTimeWindows.of(100)).process(Numbers()),
    "sliding": lambda s: (
        keyed(s).window(SlidingProcessingTimeWindows.of(200, 100)).process(Numbers())
    ),
    "sessions": lambda s: (
        keyed(s).window(ProcessingTimeSessionWindows.with_gap(250)).process(Numbers())
    ),
    "dynamic sessions": lambda s: (
        keyed(s).window(ProcessingTimeSessionWindows.with_dynamic_gap(Gap())).process(Numbers())
    ),
    "again and again": global_window(
        PurgingTrigger.of(ContinuousProcessingTimeTrigger.of(Time.milliseconds(150)))
    ),
    "timeout": global_window(
        PurgingTrigger.of(ProcessingTimeoutTrigger.of(CountTrigger.of(9), Time.milliseconds(200)))
    ),
    "pattern": pattern,
}


def program(subject):
    env = environment()
    found = SUBJECTS[subject](env.from_collection(EVENTS, EVENT).uid("events"))
    collect(found if subject == "pattern" else found.uid("subject"))
    return env


def time_passes(job):
    """Let the second part of the input come a while after the first, then time pass."""
    job.clock.advance(110)
    job.run_epoch(take=9)
    for _ in range(4):
        job.clock.advance(150)
        job.run_epoch(take=0)


@cache
def undisturbed(subject):
    job = started(program(subject))
    job.run_epoch(take=9)
    time_passes(job)
    found = in_order(job.collected())
    assert len(found) >= 4
    return found


def killed(job, tmp_path):
    job.run_epoch(take=0, checkpoint=True)
    job.kill_slot(0)
    job.kill_slot(1)
    job.fail_over()
    return job


def rescaled(job, tmp_path):
    asked = job.control.rescale(3)
    job.turn_until(asked.done)
    return job


def moved(job, tmp_path):
    """Go on from a savepoint with another backend and another parallelism, at the same time."""
    storage = LocalStorage(str(tmp_path))
    savepoint_of(job, storage)
    job.end_slots()
    options = HarnessOptions(
        storage=storage, backend=settings_of("rocksdb"), checkpoints=SETTINGS, clock=job.clock
    )
    metadata = load_checkpoint(storage, "sp/savepoint-1")
    point = RestorePoint(storage.uri, "sp/savepoint-1", metadata)
    later = JobHarness(job._graph, 3, options, point)
    later.sources.inherit(job.sources)
    return later.start()


HAPPENINGS = {"kill": killed, "rescaling": rescaled, "savepoint and backend": moved}


@pytest.mark.parametrize("happening", HAPPENINGS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_it_survives(subject, happening, tmp_path):
    job = started(program(subject), storage=LocalStorage(str(tmp_path)), checkpoints=SETTINGS)
    job.run_epoch(take=9)
    later = HAPPENINGS[happening](job, tmp_path)
    time_passes(later)
    found = [*job.collected(), *(later.collected() if later is not job else ())]
    assert in_order(found) == undisturbed(subject)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_it_survives_a_barrier_that_overtakes(subject):
    hooks = Overtake(at=3)
    job = overtaken(program(subject), hooks)
    job.run_epoch(take=9, checkpoint=True)
    assert hooks.outcomes == [Outcome.SETTLED]
    job.fail_over()
    time_passes(job)
    job.checkpoint()
    assert in_order(job.collected()) == undisturbed(subject)


# ---- state of the user that expires


class Counted(ProcessWindowFunction):
    """The how-many-th window of its key this is, among those of the last second."""

    def __init__(self):
        self.seen = ValueStateDescriptor("seen", Types.LONG())
        self.seen.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())

    def process(self, key, context, elements):
        seen = context.global_state().get_state(self.seen)
        seen.update((seen.value() or 0) + 1)
        yield key, context.window().start, seen.value()


@pytest.mark.parametrize(("passed_ms", "number"), [(900, 2), (1100, 1)])
@pytest.mark.parametrize("happening", HAPPENINGS)
@pytest.mark.parametrize("backend", ["hashmap", "hashmap-changelog", "rocksdb-incremental"])
def test_state_of_a_window_function_expires_in_its_time(
    happening, backend, passed_ms, number, tmp_path
):
    env = environment()
    timed = env.from_collection([], EVENT).uid("events")
    windows = keyed(timed.assign_timestamps_and_watermarks(strategy()))
    collect(windows.window(TumblingEventTimeWindows.of(30)).process(Counted()).uid("subject"))
    job = started(
        env,
        storage=LocalStorage(str(tmp_path)),
        backend=settings_of(backend),
        checkpoints=SETTINGS,
    )
    job.run_epoch([(0, "a", 0), (1, "a", 100)])
    assert job.collected() == [("a", 0, 1)]
    job.clock.advance(passed_ms)
    later = HAPPENINGS[happening](job, tmp_path)
    later.run_epoch([(2, "a", 200)])
    assert later.collected()[-1] == ("a", 90, number)
