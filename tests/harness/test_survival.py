"""States of windows, joins, patterns and async calls, through everything that can happen to them.

Rows are what has state, columns what happens half-way. Nothing is late, so each cell has the answer
that the undisturbed program gives.
"""

from __future__ import annotations

from functools import cache

import pytest
from tests.harness.overtaking import Overtake
from tests.harness.overtaking import job as overtaken
from tests.harness.programs import environment, started
from tests.harness.test_savepoints import SETTINGS, savepoint_of

from weir.cep import CEP, Pattern
from weir.checkpoint.store import load_checkpoint
from weir.common import Duration, Time, Types
from weir.datastream import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from weir.datastream.state import StateTtlConfig, ValueStateDescriptor
from weir.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowStagger,
)
from weir.jobmanager.overtake import Outcome
from weir.jobmanager.recovery import RestorePoint
from weir.offline import describe
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import settings_of
from weir.testing.campaign_windows import strategy
from weir.testing.harness import HarnessOptions, JobHarness, collect

pytestmark = pytest.mark.matrix
EVENT = Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])
EVENTS = [(n, "abcde"[n * n % 11 % 5], n * 5 - (0, 7, 3)[n % 3]) for n in range(36)]
HALF = 17
BACKENDS = ["hashmap-incremental", "rocksdb-incremental"]


class Numbers(ProcessWindowFunction):
    """The window with its numbers, in order."""

    def process(self, key, context, elements):
        window = context.window()
        bounds = (window.start, window.end) if hasattr(window, "start") else ()
        yield key, *bounds, tuple(sorted(n for n, *_ in elements))


class Counted(ProcessWindowFunction):
    """The how-many-th window of its key this is: state of the user, which expires in an hour."""

    def __init__(self):
        self.seen = ValueStateDescriptor("seen", Types.LONG())
        self.seen.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.own = ValueStateDescriptor("own", Types.LONG())

    def process(self, key, context, elements):
        seen = context.global_state().get_state(self.seen)
        seen.update((seen.value() or 0) + 1)
        own = context.window_state().get_state(self.own)
        own.update((own.value() or 0) + 1)
        yield key, context.window().start, seen.value(), own.value()

    def clear(self, context):
        context.window_state().get_state(self.own).clear()


class Sum(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value[0]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left[0], right[0], ctx.get_timestamp()


class Twice(AsyncFunction):
    async def async_invoke(self, value):
        return [value, (-value[0], *value[1:])]


def added(a, b):
    return a[0] + b[0], a[1], b[2]


def key(event):
    return event[1]


def keyed(stream):
    return stream.key_by(key, Types.STRING())


def pattern(stream):
    soon = Pattern.begin("a").where(lambda e: e[0] % 2 == 0).followed_by("b")
    soon = soon.where(lambda e: e[0] % 3 == 0).within(Duration.of_millis(70))
    return CEP.pattern(keyed(stream), soon).select(lambda m: (m["a"][0][0], m["b"][0][0]))


def joined(stream):
    other = stream.filter(lambda e: e[0] % 2 == 0)
    both = stream.co_group(other).where(key, Types.STRING()).equal_to(key, Types.STRING())
    windowed = both.window(TumblingEventTimeWindows.of(40))
    return windowed.apply(lambda a, b: [(sorted(x[0] for x in a), sorted(x[0] for x in b))])


SUBJECTS = {
    "tumbling": lambda s: keyed(s).window(TumblingEventTimeWindows.of(30)).process(Numbers()),
    "sliding": lambda s: keyed(s).window(SlidingEventTimeWindows.of(40, 20)).reduce(added),
    "sessions": lambda s: keyed(s).window(EventTimeSessionWindows.with_gap(22)).process(Numbers()),
    "counted": lambda s: keyed(s).count_window(3).reduce(added),
    "staggered": lambda s: (
        keyed(s).window(TumblingEventTimeWindows.of(30, 0, WindowStagger.RANDOM)).process(Numbers())
    ),
    "evicted": lambda s: (
        keyed(s)
        .window(GlobalWindows.create())
        .trigger(CountTrigger.of(2))
        .evictor(CountEvictor.of(3))
        .process(Numbers())
    ),
    "evicted aggregate": lambda s: (
        keyed(s)
        .window(TumblingEventTimeWindows.of(30))
        .evictor(CountEvictor.of(2))
        .aggregate(Sum(), accumulator_type=Types.LONG())
    ),
    "purged": lambda s: (
        keyed(s)
        .window(EventTimeSessionWindows.with_gap(22))
        .trigger(PurgingTrigger.of(CountTrigger.of(2)))
        .reduce(added)
    ),
    "all": lambda s: s.window_all(TumblingEventTimeWindows.of(30)).reduce(added),
    "user state": lambda s: keyed(s).window(TumblingEventTimeWindows.of(30)).process(Counted()),
    "co-group": joined,
    "interval join": lambda s: keyed(s).interval_join(keyed(s)).between(-20, 15).process(Pairs()),
    "pattern": pattern,
    "async": lambda s: AsyncDataStream.ordered_wait(keyed(s), Twice(), Time.seconds(30)),
}


def program(subject):
    env = environment()
    timed = env.from_collection(EVENTS, EVENT).uid("events")
    found = SUBJECTS[subject](timed.assign_timestamps_and_watermarks(strategy()))
    collect(found.uid("subject"))
    return env


@cache
def undisturbed(subject):
    found = sorted(started(program(subject)).run(7).collected(), key=repr)
    assert len(found) >= 5
    return found


def check(subject, *jobs):
    found = [record for job in jobs for record in job.collected()]
    assert sorted(found, key=repr) == undisturbed(subject)


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
WITHOUT_NAMESPACES = {"evicted", "interval join", "pattern"}


@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name != "async"])
def test_where_types_are_declared_nothing_is_pickled(subject, tmp_path):
    storage = LocalStorage(str(tmp_path))
    job = started(program(subject), storage=storage, checkpoints=SETTINGS)
    job.run_epoch(take=HALF)
    savepoint_of(job, storage)
    [operator] = [
        op for op in describe(f"{storage.uri}/sp/savepoint-1").operators if op.uid == "subject"
    ]
    assert any(state.entries for state in operator.states)
    pickled = {
        (state.name, role)
        for state in operator.states
        for role, shown in state.types.items()
        if "PICKLED" in shown and (role != "namespace" or subject not in WITHOUT_NAMESPACES)
    }
    assert pickled == set()
