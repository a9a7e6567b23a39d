"""Every assigner with every trigger and every evictor, against Flink's rules in plain Python.

Records come out of order and late, both times go on, operators are restored with other
parallelisms. Results, late records, and how many timers and entries there are, are always the same.
A job may also go on as another one, with other windows, another trigger and another lateness.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.databases import scratch_directory
from tests.examples import examples
from tests.model.plain_windows import PlainWindows, bounds_of
from tests.window_driver import MAX, Driver

from weir.backend.factory import BackendSettings
from weir.common import Types
from weir.datastream import ProcessWindowFunction
from weir.datastream.output_tag import OutputTag
from weir.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    DeltaEvictor,
    DeltaTrigger,
    EndOfStreamTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    MergingWindowAssigner,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
    WindowStagger,
)
from weir.keygroup import key_group
from weir.testing.backend_snapshot_conformance import source_of, write_file

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def distance(older, newer):
    return abs(newer[1] - older[1])


def gap(record):
    return 1 + record[1] % 7


@dataclass(frozen=True, order=True)
class Stay(Window):
    """A window of the program's own, stored pickled."""

    start: int
    end: int

    def max_timestamp(self):
        return self.end - 1

    def intersects(self, other):
        return self.start < other.end and other.start < self.end

    def cover(self, other):
        return Stay(min(self.start, other.start), max(self.end, other.end))


class Stays(MergingWindowAssigner[tuple, Stay]):
    """Sessions of the program's own: those that only touch stay apart."""

    def assign_windows(self, element, timestamp, context):
        return [Stay(timestamp, timestamp + 5)]

    def get_default_trigger(self, env):
        return EventTimeTrigger.create()

    def get_window_serializer(self):
        return None

    def is_event_time(self):
        return True

    def merge_windows(self, windows, callback):
        groups = []
        for window in sorted(windows):
            if groups and groups[-1][0].intersects(window):
                covered, members = groups.pop()
                groups.append((covered.cover(window), [*members, window]))
            else:
                groups.append((window, [window]))
        for covered, members in groups:
            if len(members) > 1:
                callback.merge(members, covered)


ASSIGNERS = [
    TumblingEventTimeWindows.of(10, 3),
    SlidingEventTimeWindows.of(12, 5, -2),
    SlidingEventTimeWindows.of(3, 7),
    EventTimeSessionWindows.with_gap(6),
    EventTimeSessionWindows.with_dynamic_gap(gap),
    TumblingProcessingTimeWindows.of(10),
    SlidingProcessingTimeWindows.of(12, 5),
    ProcessingTimeSessionWindows.with_gap(6),
    ProcessingTimeSessionWindows.with_dynamic_gap(gap),
    GlobalWindows.create(),
    CountTumblingWindowAssigner.of(3),
    CountSlidingWindowAssigner.of(4, 3),
    TumblingEventTimeWindows.of(10, 3, WindowStagger.NATURAL),
    TumblingEventTimeWindows.of(10, 0, WindowStagger.RANDOM),
    TumblingProcessingTimeWindows.of(10, 0, WindowStagger.NATURAL),
    Stays(),
]
LENGTHS = st.integers(1, 9)
PLAIN = st.one_of(
    st.builds(EventTimeTrigger.create),
    st.builds(ProcessingTimeTrigger.create),
    st.builds(NeverTrigger),
    st.builds(EndOfStreamTrigger),
    st.builds(CountTrigger.of, st.integers(1, 4)),
    st.builds(ContinuousEventTimeTrigger.of, LENGTHS),
    st.builds(ContinuousProcessingTimeTrigger.of, LENGTHS),
    st.builds(DeltaTrigger.of, st.integers(0, 20), st.just(distance), st.just(PAIR)),
)
WITH_TIMEOUT = st.builds(ProcessingTimeoutTrigger.of, PLAIN, LENGTHS, st.booleans(), st.booleans())
TRIGGERS = st.one_of(
    st.none(),
    PLAIN,
    WITH_TIMEOUT,
    st.builds(PurgingTrigger.of, PLAIN),
    st.builds(PurgingTrigger.of, WITH_TIMEOUT),
)
EVICTORS = st.one_of(
    st.none(),
    st.none(),
    st.builds(CountEvictor.of, st.integers(1, 4), st.booleans()),
    st.builds(TimeEvictor.of, LENGTHS, st.booleans()),
    st.builds(DeltaEvictor.of, st.integers(0, 20), st.just(distance), st.booleans()),
)
ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(-10, 40)), max_size=8
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("watermark"), st.integers(0, 12)),
        st.tuples(st.just("now"), LENGTHS),
        st.tuples(st.just("restore"), st.integers(1, 3)),
    ),
    max_size=12,
)
END = [("watermark", 13), ("now", 50), ("end", None)]


class Values(ProcessWindowFunction):
    """Gives key, bounds and values; behind a reduction the one value."""

    def process(self, key, context, elements):
        values = tuple(sorted(value for _, value in elements))
        yield key, *bounds_of(context.window()), values


def added(a, b):
    return a[0], a[1] + b[1]


class Subject:
    """A program of windows, and what its operator and the rules make of the same steps."""

    def __init__(self, summing, terms, directory=None):
        self.summing, self.directory = summing, directory
        self.driver = self.of(terms)
        self.plain = PlainWindows(
            terms[0], self.default(terms), *terms[2:], subtask_of=self.subtask_of
        )
        self.plain.max_parallelism = self.driver.node.max_parallelism
        self.watermark = self.now = 0

    @staticmethod
    def default(terms):
        return terms[1] or terms[0].get_default_trigger(None)

    def subtask_of(self, key):
        """Return which subtask has a key now: what the end of time fires goes by its timers."""
        group = key_group(key, self.driver.node.max_parallelism)
        return next(i for i, op in enumerate(self.driver.ops) if group in op.key_groups)

    def of(self, terms):
        assigner, trigger, evictor, lateness = terms

        def declare(stream):
            windows = stream.window(assigner).allowed_lateness(lateness)
            windows.side_output_late_data(OutputTag("late", PAIR))
            if trigger is not None:
                windows.trigger(trigger)
            if evictor is not None:
                windows.evictor(evictor)
            windows.reduce(added, Values()) if self.summing else windows.process(Values())

        return Driver(declare, types=PAIR, directory=self.directory)

    def go_on_with(self, terms, parallelism):
        """Be another program over the same state, as after a savepoint."""
        before, self.driver = self.driver, self.of(terms)
        self.driver.close()
        sources = []
        for op in before.ops:
            snapshot = op.backend.snapshot(1)
            sources.append(source_of(write_file(snapshot), op.key_groups))
            snapshot.release()
        self.driver.clock.set(self.now)
        self.driver._begin(sources, parallelism)
        for op in self.driver.ops:
            op.watermark = before.ops[0].watermark
        before.close()
        self.plain.go_on_with(terms[0], self.default(terms), *terms[2:])

    def follow(self, steps, backends=None):
        for number, (step, what) in enumerate(steps):
            if step == "rows":
                self.pass_time(0)
                self.driver.epoch(*what)
                for row in what:
                    self.plain.add(*row)
            elif step == "restore":
                self.driver.restore(what, backends and backends[number % len(backends)])
            elif step == "now":
                self.pass_time(what)
            else:
                self.watermark = MAX if step == "end" else self.watermark + what
                self.driver.watermark(self.watermark)
                self.plain.watermark(self.watermark)
            self.check()

    def pass_time(self, length):
        self.now += length
        self.driver.now(self.now)
        self.plain.clock(self.now)

    def check(self):
        expected, self.plain.results = self.plain.results, []
        if self.summing:
            expected = [((*r[:-1], r[-1] and (sum(r[-1]),)), stamp) for r, stamp in expected]
        assert sorted(self.driver.take(), key=repr) == sorted(expected, key=repr)
        late, self.plain.late = self.plain.late, []
        assert sorted(self.driver.take_late()) == sorted(late)


PROGRAMS = st.tuples(
    st.sampled_from(ASSIGNERS), TRIGGERS, EVICTORS, st.sampled_from([0, 0, 3, 8])
).filter(lambda p: not isinstance(p[0], MergingWindowAssigner) or p[1] is None or p[1].can_merge())


@settings(max_examples=examples(150), deadline=None)
@given(PROGRAMS, st.booleans(), STEPS)
def test_the_operator_follows_the_rules_with_every_trigger_and_evictor(terms, summing, steps):
    subject = Subject(summing, terms)
    for step in [*steps, *END]:
        subject.follow([step])
        assert subject.driver.timers == subject.plain.timers
        # A trigger's state is not counted after a restore until the trigger asks for it.
        if all(kind != "restore" for kind, _ in steps):
            assert subject.driver.entries == subject.plain.entries
    subject.driver.close()


@settings(max_examples=examples(15), deadline=None)
@given(PROGRAMS, st.booleans(), STEPS)
def test_the_operator_follows_the_rules_on_every_backend(terms, summing, steps):
    backends = [BackendSettings("rocksdb"), BackendSettings(incremental=True)]
    with scratch_directory() as directory:
        subject = Subject(summing, terms, directory)
        subject.follow([*steps, *END], backends)
        subject.driver.close()


@st.composite
def successors(draw):
    """Programs that may go on with each other's windows, and what happens to each."""
    family = draw(st.sampled_from([ASSIGNERS[:3], ASSIGNERS[3:5], ASSIGNERS[5:7], ASSIGNERS[7:9]]))
    event_time = family[0].is_event_time()
    triggers = [None, PurgingTrigger.of(EventTimeTrigger.create()), CountTrigger.of(2)]
    found = []
    for _ in range(draw(st.integers(2, 3))):
        trigger = draw(st.sampled_from(triggers)) if event_time else None
        lateness = draw(st.sampled_from([0, 0, 3, 8]))
        # By number and allowed to be late, an aligned window has no timer at its end.
        assume(family[0] is not ASSIGNERS[0] or trigger is not triggers[2] or not lateness)
        terms = (draw(st.sampled_from(family)), trigger, None, lateness)
        found.append((terms, draw(STEPS), draw(st.integers(1, 3))))
    # What a trigger kept is not known to another one, and stays: it must not be seen by a third.
    counting = [terms[1] is triggers[2] for terms, _, _ in found]
    assume(counting != [True, False, True])
    return found


@settings(max_examples=examples(60), deadline=None)
@given(successors(), st.booleans())
def test_a_job_goes_on_with_other_windows_triggers_and_lateness(jobs, summing):
    (terms, steps, _), *later = jobs
    subject = Subject(summing, terms)
    subject.follow(steps)
    for terms, steps, parallelism in later:
        subject.go_on_with(terms, parallelism)
        subject.follow(steps)
    subject.follow(END)
    # Nothing stays behind, whatever the windows were before.
    assert (subject.driver.entries, subject.driver.timers) == (0, 0)
    subject.driver.close()
