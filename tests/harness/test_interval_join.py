"""Interval joins: which records are pairs, what is kept, what is late, what survives."""

from __future__ import annotations

import datetime

import pytest
from tests.harness.joining import (
    RECORD,
    Pairs,
    between,
    buffers,
    collect_pairs,
    events,
    left,
    numbers,
    right,
    side,
    watermark,
)
from tests.harness.programs import environment, started

from weir.checkpoint.retention import JobEnd
from weir.checkpoint.store import list_completed, load_checkpoint
from weir.common import Duration, Row, Time
from weir.common.typeinfo import Types
from weir.datastream import OutputTag, ProcessFunction, ProcessJoinFunction
from weir.datastream.state import ValueStateDescriptor
from weir.errors import UsageError, UserFunctionError, WeirError
from weir.jobmanager.recovery import RestorePoint
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import BACKENDS, settings_of
from weir.testing.harness import HarnessOptions, JobHarness, collect

FOUR = range(1, 5)
FIVE = range(1, 6)
INTERVALS = {
    "[-2,-1]": ((-2, -1), "21 31 32 42 43"),
    "[-1,1]": ((-1, 1), "11 12 21 22 23 32 33 34 43 44"),
    "[1,2]": ((1, 2), "12 13 23 24 34"),
    "(-3,-1)": ((-3, -1), "31 42"),
    "(-1,1)": ((-1, 1), "11 22 33 44"),
    "(1,3)": ((1, 3), "13 24"),
    "[1,3)": ((1, 3), "12 13 23 24 34"),
}
ARRIVALS = {
    "together": lambda lefts, rights: [[*lefts, *rights]],
    "left first": lambda lefts, rights: [lefts, rights],
    "right first": lambda lefts, rights: [rights, lefts],
    "in turn": lambda ls, rs: [[event] for pair in zip(ls, rs, strict=True) for event in pair],
    "from the end": lambda lefts, rights: [[*rights[::-1], *lefts[::-1]]],
}


def within(env, interval, bounds):
    """Apply bounds, exclusive where the interval is open: "(1,3]"."""
    join = between(env, *bounds)
    join = join.lower_bound_exclusive() if interval[0] == "(" else join
    return join.upper_bound_exclusive() if interval[-1] == ")" else join


def started_join(interval, bounds, parallelism=2, **options):
    env = environment()
    collect(within(env, interval, bounds).process(Pairs()).uid("join"))
    return started(env, parallelism, **options)


# ---- pairs ---------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("interval", INTERVALS)
def test_pairs_are_the_records_of_one_key_within_the_bounds_however_they_arrive(interval, arrival):
    bounds, expected = INTERVALS[interval]
    harness = started_join(interval, bounds)
    for epoch in ARRIVALS[arrival]([left(n) for n in FOUR], [right(n) for n in FOUR]):
        harness.run_epoch(epoch)
    assert numbers(harness.collected()) == expected.split()
    harness.finish()
    assert numbers(harness.collected()) == expected.split()


@pytest.mark.parametrize(
    ("interval", "expected"), [("[0,2]", "00 01 02 11 12 22"), ("(0,2)", "01 12")]
)
def test_bounds_at_zero_hold_for_records_of_the_same_time(interval, expected):
    harness = started_join(interval, (0, 2))
    harness.run_epoch([*(left(n) for n in range(3)), *(right(n) for n in range(3))])
    assert numbers(harness.collected()) == expected.split()


def test_equal_records_are_all_joined():
    harness = started_join("[0,0]", (0, 0))
    harness.run_epoch([left(1, 5), left(2, 5), right(3, 5)])
    harness.run_epoch([right(4, 5), left(5, 5)])
    assert numbers(harness.collected()) == ["13", "14", "23", "24", "53", "54"]


def test_keys_do_not_mix():
    harness = started_join("[0,1]", (0, 1))
    harness.run_epoch([left(1, key="a"), left(2, key="b"), right(1, key="b"), right(2, key="a")])
    assert sorted(pair[:3] for pair in harness.collected()) == [("a", 1, 2)]


def test_a_stream_can_be_joined_with_itself():
    env = environment()
    stream = side(events(env), "L")
    collect(stream.interval_join(stream).between(0, 1).process(Pairs()))
    harness = started(env)
    harness.run_epoch([left(1), left(2), left(3)])
    assert numbers(harness.collected()) == ["11", "12", "22", "23", "33"]


class Times(ProcessFunction):
    def process_element(self, value, ctx):
        yield *value, ctx.timestamp()


def test_a_pair_knows_both_times_and_its_outputs_have_the_later_one():
    env = environment()
    collect(between(env, -10, 10).process(Pairs()).process(Times()))
    harness = started(env)
    harness.run_epoch([left(1, 10), left(2, 20), right(3, 15)])
    assert sorted(harness.collected()) == [("k", 1, 3, 10, 15, 15, 15), ("k", 2, 3, 20, 15, 20, 20)]


LENGTHS = [
    (Time.seconds(-1), Time.seconds(2)),
    (Duration.of_millis(-1000), Duration.of_seconds(2)),
    (datetime.timedelta(seconds=-1), datetime.timedelta(seconds=2)),
    (-1000, 2000),
]


@pytest.mark.parametrize("bounds", LENGTHS, ids=["Time", "Duration", "timedelta", "int"])
def test_bounds_are_lengths_of_time_of_any_spelling(bounds):
    env = environment()
    collect_pairs(env, *bounds)
    harness = started(env)
    times = enumerate((3999, 4000, 7000, 7001))
    harness.run_epoch([left(1, 5000), *(right(i, t) for i, t in times)])
    assert numbers(harness.collected()) == ["11", "12"]


class OwnTime(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


class Tagged(ProcessJoinFunction):
    """Keeps a count per key, and sends pairs of equal numbers to a side output."""

    same = OutputTag("same", Types.LONG())

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, left, right, ctx):
        self.count.update((self.count.value() or 0) + 1)
        if left[1] == right[1]:
            yield self.same, left[1]
        else:
            yield left[0], left[1], right[1], self.count.value()


def test_a_join_function_has_side_outputs_and_keyed_state_of_its_own():
    env = environment()
    joined = between(env, 0, 1).process(Tagged(), output_type=None)
    main, same = collect(joined), collect(joined.get_side_output(Tagged.same))
    harness = started(env)
    harness.run_epoch([left(1), left(2), left(2, key="j"), right(2, key="j"), right(2)])
    assert sorted(harness.collected(same)) == [2, 2]
    assert [pair[:3] for pair in harness.collected(main)] == [("k", 1, 2)]
    harness.run_epoch([right(3, key="j")])
    assert harness.collected(main)[-1] == ("j", 2, 3, 2)


class Aside(ProcessJoinFunction):
    """Gives pairs of equal numbers aside, by the context, and others to the main output."""

    same = OutputTag("same", Types.LONG())

    def __init__(self, tag=same):
        self.tag = tag

    def process_element(self, left, right, ctx):
        if left[1] == right[1]:
            ctx.output(self.tag, left[1])
            return None
        ctx.output(self.tag, -left[1])
        return [left[1]]


def test_what_a_join_function_gives_aside_has_the_time_of_the_pair():
    env = environment()
    joined = between(env, 0, 1).process(Aside())
    main = collect(joined.process(OwnTime()))
    same = collect(joined.get_side_output(Aside.same).process(OwnTime()))
    harness = started(env)
    harness.run_epoch([left(1), left(2), right(2)])
    assert harness.collected(main) == [(1, 2)]
    assert sorted(harness.collected(same)) == [(-1, 2), (2, 2)]


def test_giving_aside_needs_a_tag():
    env = environment()
    collect(between(env, 0, 0).process(Aside("same")).name("pairs"))
    harness = started(env)
    with pytest.raises(UserFunctionError, match=r"(?s)'pairs'.*expects an OutputTag, found 'same'"):
        harness.run_epoch([left(1), right(1)])


def test_a_declared_output_type_is_checked():
    env = environment()
    collect(between(env, 0, 0).process(Pairs(), Types.LONG()).uid("join"))
    harness = started(env)
    with pytest.raises(UsageError, match=r"declared as .*LONG"):
        harness.run_epoch([left(1), right(1)])


# ---- what is kept --------------------------------------------------------------------------------

KEPT = {
    "[-1,0]": ((-1, 0), ([2, 3, 4, 5], [1, 2, 3, 4, 5]), ([5], [4, 5])),
    "[0,1]": ((0, 1), ([1, 2, 3, 4, 5], [2, 3, 4, 5]), ([4, 5], [5])),
    "(-2,1)": ((-2, 1), ([2, 3, 4, 5], [1, 2, 3, 4, 5]), ([5], [4, 5])),
    "(-1,2)": ((-1, 2), ([1, 2, 3, 4, 5], [2, 3, 4, 5]), ([4, 5], [5])),
}


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["hashmap", "rocksdb", "hashmap-changelog"])
@pytest.mark.parametrize("interval", KEPT)
def test_records_are_kept_until_the_watermark_rules_out_a_partner(interval, kind):
    bounds, at_one, at_four = KEPT[interval]
    harness = started_join(interval, bounds, backend=settings_of(kind))
    harness.run_epoch([*(left(n) for n in FIVE), *(right(n) for n in FIVE), watermark(1)])
    assert buffers(harness) == list(at_one)
    harness.run_epoch([watermark(4)])
    assert buffers(harness) == list(at_four)
    harness.run_epoch([watermark(6)])
    assert buffers(harness) == [[], []]
    assert sum(op.backend.size() for op in harness.operators("join")) == 0
    assert sum(len(op.event_timers) for op in harness.operators("join")) == 0


def test_the_end_of_input_empties_the_buffers_of_records_at_the_end_of_time():
    last = (1 << 63) - 2
    harness = started_join("[-5,5]", (-5, 5))
    harness.run_epoch([left(1, 1), right(2, 3)])
    # They are let go at the last moment of all: no timer can be behind it.
    harness.run_epoch([left(3, last), right(4, last)])
    assert numbers(harness.collected()) == ["12", "34"]
    operators = list(harness.operators("join"))
    sizes = [op.backend.size() for op in operators]
    harness.finish()
    assert sum(sizes) == 2
    assert sum(len(op.event_timers) for op in operators) == 0


# ---- late records --------------------------------------------------------------------------------

LATE_LEFT = OutputTag("late left", RECORD)
LATE_RIGHT = OutputTag("late right", RECORD)
LATE = [
    [left(3), right(3), watermark(3)],
    [left(4), right(4), left(1), right(2), left(5), right(5)],
]


def test_late_records_are_not_joined_and_go_to_the_side_output_of_their_side():
    env = environment()
    join = between(env, -1, 1)
    join = join.side_output_left_late_data(LATE_LEFT).side_output_right_late_data(LATE_RIGHT)
    joined = join.process(Pairs()).uid("join")
    pairs = collect(joined)
    lates = [collect(joined.get_side_output(t).process(Times())) for t in (LATE_LEFT, LATE_RIGHT)]
    harness = started(env)
    for epoch in LATE:
        harness.run_epoch(epoch)
    assert numbers(harness.collected(pairs)) == ["33", "34", "43", "44", "45", "54", "55"]
    assert [harness.collected(late) for late in lates] == [[("k", 1, 1)], [("k", 2, 2)]]
    assert sum(harness.metrics("join")["numLateRecordsDropped"]) == 0


@pytest.mark.parametrize("tagged", [False, True])
def test_late_records_without_a_side_output_are_dropped_and_counted(tagged):
    env = environment()
    join = between(env, -1, 1)
    if tagged:  # nobody reads them
        join = join.side_output_left_late_data(LATE_LEFT).side_output_right_late_data(LATE_RIGHT)
    collect(join.process(Pairs()).uid("join"))
    harness = started(env)
    for epoch in LATE:
        harness.run_epoch(epoch)
    assert numbers(harness.collected()) == ["33", "34", "43", "44", "45", "54", "55"]
    assert sum(harness.metrics("join")["numLateRecordsDropped"]) == 2


def test_a_record_at_the_watermark_is_not_late():
    harness = started_join("[0,1]", (0, 1))
    harness.run_epoch([watermark(3)])
    harness.run_epoch([left(3), left(2), right(3), right(2)])
    assert numbers(harness.collected()) == ["33"]


def test_nothing_is_late_within_an_epoch():
    harness = started_join("[0,0]", (0, 0))
    harness.run_epoch([watermark(100), left(1), right(1)])
    assert numbers(harness.collected()) == ["11"]


# ---- refusals ------------------------------------------------------------------------------------


def test_a_lower_bound_above_the_upper_one_is_refused():
    with pytest.raises(UsageError, match="found 2 ms and 1 ms"):
        between(environment(), 2, 1)


def test_records_are_paired_in_event_time_only():
    env = environment()
    timed = events(env)
    join = side(timed, "L").interval_join(side(timed, "R"))
    with pytest.raises(UsageError, match="only supported in event time"):
        join.in_processing_time()
    collect(join.in_event_time().between(-1, 0).process(Pairs()))
    harness = started(env)
    harness.run_epoch([*(left(n) for n in (1, 2)), *(right(n) for n in (1, 2))])
    assert numbers(harness.collected()) == ["11", "21", "22"]


def test_an_interval_that_is_empty_without_its_bounds_is_refused():
    join = between(environment(), 0, 1).lower_bound_exclusive().upper_bound_exclusive()
    with pytest.raises(UsageError, match="no pairs without its bounds"):
        join.process(Pairs())


@pytest.mark.parametrize("bound", ["1 s", 1.5, None, True])
def test_what_is_no_length_of_time_is_refused(bound):
    with pytest.raises(UsageError, match="expected a Duration, a Time, a timedelta"):
        between(environment(), 0, bound)


def test_what_is_no_keyed_stream_or_no_join_function_is_refused():
    env = environment()
    timed = events(env)
    with pytest.raises(TypeError, match="expected a KeyedStream"):
        side(timed, "L").interval_join(timed)
    with pytest.raises(TypeError, match="expected a ProcessJoinFunction"):
        between(env, 0, 0).process(Times())
    with pytest.raises(TypeError, match="add parentheses"):
        between(env, 0, 0).process(Pairs)
    with pytest.raises(TypeError, match="expected an OutputTag"):
        between(env, 0, 0).side_output_left_late_data("late")


def test_keys_of_different_types_are_refused():
    timed = events(environment())
    by_number = timed.key_by(lambda e: e[2], Types.LONG())
    with pytest.raises(UsageError, match="equal keys on both sides"):
        side(timed, "L").interval_join(by_number)


def test_streams_of_two_environments_are_refused():
    with pytest.raises(UsageError, match="different environments"):
        side(events(environment()), "L").interval_join(side(events(environment()), "R"))


def test_records_without_a_timestamp_are_refused_by_name():
    env = environment()
    keyed = env.from_collection([("k", 1)], RECORD).key_by(lambda r: r[0], Types.STRING())
    collect(keyed.interval_join(keyed).between(0, 1).process(Pairs()).name("orders"))
    with pytest.raises(UsageError, match=r"'orders' at record \('k', 1\): it has no timestamp"):
        started(env).run()


class Broken(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        raise SystemExit(3)


def test_what_a_join_function_raises_names_the_operator_and_the_pair():
    env = environment()
    collect(between(env, 0, 1).process(Broken()).name("pairs"))
    harness = started(env)
    with pytest.raises(UserFunctionError) as caught:
        harness.run_epoch([left(1), right(2)])
    assert (caught.value.operator, caught.value.record) == ("pairs", "(('k', 1), ('k', 2))")
    assert "SystemExit: 3" in caught.value.user_traceback


# ---- what survives -------------------------------------------------------------------------------

KEYS = "abcdefg"
HALVES = [
    [come(n, 10 * n, key) for key in KEYS for n in FIVE for come in (left, right)],
    [right(n + 5, 10 * n + 3, key) for key in KEYS for n in FIVE],
]
ALL = sorted(
    [(key, n, n) for key in KEYS for n in FIVE] + [(key, n, n + 5) for key in KEYS for n in FIVE]
)


def found(*harnesses):
    return sorted(pair[:3] for harness in harnesses for pair in harness.collected())


def surviving(kind, **options):
    env = environment()
    collect_pairs(env, 0, 3)
    return started(env, wait_for_checkpoints=True, backend=settings_of(kind), **options)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", BACKENDS)
def test_kept_records_survive_a_kill_and_are_joined_once(kind):
    harness = surviving(kind)
    harness.run_epoch(HALVES[0], checkpoint=True)
    harness.run_epoch(HALVES[1])
    harness.kill_slot(0)
    with pytest.raises(WeirError):
        harness.run_epoch()
    harness.fail_over()
    harness.run()
    assert found(harness) == ALL


@pytest.mark.matrix
@pytest.mark.parametrize("kind", BACKENDS)
def test_kept_records_and_their_timers_move_with_their_keys(kind):
    harness = surviving(kind)
    harness.run_epoch([*HALVES[0], watermark(9)], checkpoint=True)
    asked = harness.control.rescale(3)
    harness.turn_until(asked.done)
    harness.run_epoch([*HALVES[1], watermark(49)])
    for key in KEYS:
        assert buffers(harness, key) == [[50], [50, 53]]
    harness.finish()
    assert found(harness) == ALL


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["hashmap", "rocksdb", "hashmap-changelog"])
@pytest.mark.parametrize(("before", "after"), [((0, 3), (-5, 20)), ((-5, 20), (0, 3))])
def test_other_bounds_hold_for_records_that_an_earlier_job_kept(kind, before, after):
    first, second = environment(), environment()
    collect_pairs(first, *before)
    collect_pairs(second, *after)
    harness = started(first, backend=settings_of(kind))
    harness.run_epoch([left(1, 10), right(2, 12), watermark(9)], checkpoint=True)
    harness.end(JobEnd.CANCELED)
    point = harness.successor()._restore
    later = JobHarness(second.build_graph(), 3, harness.options, point)
    later.sources.inherit(harness.sources)
    later.start()
    later.run_epoch([right(3, 30), watermark(10 + after[1] - 1)])
    assert numbers(later.collected()) == (["13"] if after[1] == 20 else [])
    assert buffers(later)[0] == [10]
    later.run_epoch([watermark(10 + after[1])])
    assert buffers(later)[0] == []
    later.run_epoch([watermark(100)])
    assert buffers(later) == [[], []]
    assert sum(op.backend.size() for op in later.operators("join")) == 0


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("hashmap", "rocksdb"),
        ("rocksdb", "hashmap"),
        ("hashmap-changelog", "rocksdb"),
        ("rocksdb-incremental", "hashmap-incremental"),
    ],
)
def test_a_savepoint_takes_kept_records_to_another_backend_and_parallelism(tmp_path, first, second):
    storage = LocalStorage(str(tmp_path))
    harness = surviving(first, storage=storage)
    harness.run_epoch(HALVES[0])
    asked = harness.runner.savepoint(f"{storage.uri}/sp/savepoint-1")
    harness.run_epoch(take=0)
    directory = "sp/savepoint-1"
    assert asked.result(0).kind == "savepoint"
    harness.checkpoint()
    point = RestorePoint(storage.uri, directory, load_checkpoint(storage, directory))
    env = environment()
    collect_pairs(env, 0, 3)
    options = HarnessOptions(storage=storage, backend=settings_of(second))
    later = JobHarness(env.build_graph(), 3, options, point)
    later.sources.inherit(harness.sources)
    later.start()
    later.run_epoch(HALVES[1])
    later.finish()
    assert found(harness, later) == ALL


def test_records_of_a_declared_type_are_stored_without_pickles():
    harness = surviving("hashmap")
    harness.run_epoch(HALVES[0], checkpoint=True)
    stored = list_completed(harness.storage, harness.job_id)[0]
    names = harness.storage.list(stored.directory)
    data = b"".join(harness.storage.read(f"{stored.directory}/{name}") for name in names)
    assert b"_left_buffer" in data
    assert b"\x80\x05\x95" not in data


class Numbers(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        return [(left["key"], left["n"], right["n"])]


TYPES = {
    "none": (None, dict),
    "pickled": (Types.PICKLED_BYTE_ARRAY(), dict),
    "row": (Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()]), Row),
}


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("name", TYPES)
def test_records_of_any_type_are_kept(name, kind):
    declared, make = TYPES[name]
    env = environment()
    timed = events(env)
    chosen = [timed.filter(lambda e, side=side: e[0] == side) for side in "LR"]
    records = [s.map(lambda e: make(key=e[1], n=e[2]), declared) for s in chosen]
    first, second = (stream.key_by(lambda r: r["key"]) for stream in records)
    collect(first.interval_join(second).between(0, 3).process(Numbers()).uid("join"))
    harness = started(env, wait_for_checkpoints=True, backend=settings_of(kind))
    harness.run_epoch(HALVES[0], checkpoint=True)
    harness.kill_slot(1)
    with pytest.raises(WeirError):
        harness.run_epoch(HALVES[1])
    harness.fail_over()
    harness.run()
    assert found(harness) == ALL
