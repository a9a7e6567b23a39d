"""Queries of running jobs: live between records, committed from checkpoints, whatever happens."""

from __future__ import annotations

import json
import math
import threading

import pytest
from tests.harness.programs import environment, started
from tests.harness.querying import (
    KEYS,
    KINDS,
    TTL_MS,
    descriptors,
    expected,
    job_of,
    queries_of,
)

from weir.common import Time
from weir.common.typeinfo import Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import KeyedProcessFunction
from weir.datastream.functions import ProcessWindowFunction
from weir.datastream.state import (
    ListStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.datastream.window import TumblingEventTimeWindows
from weir.errors import WeirError
from weir.jobmanager.queries import (
    KeyRange,
    QueryError,
    QueryLimitError,
    StateTooOldError,
    StateUnavailableError,
    Terms,
    UnknownKeyOrNamespaceError,
    UnknownStateError,
)
from weir.queryable.immutable import ReadOnlyStateError, state_of
from weir.testing.campaign_backends import BACKENDS, settings_of
from weir.testing.harness import collect

LIVE, COMMITTED = Terms("live"), Terms("committed")
LONG_EPOCH = 6000
every_backend = pytest.mark.parametrize("backend", list(BACKENDS))


def read(queries, name, key, terms=LIVE):
    """Return what a state of a key holds, None when there is nothing."""
    descriptor = descriptors()[name]
    answer = queries.get(f"q-{name}", [key], terms)
    try:
        state = state_of(descriptor, answer)
    except UnknownKeyOrNamespaceError:
        return None
    if name in ("total", "expiring"):
        return state.value()
    if name == "parity":
        return dict(state.items())
    return state.get()


def all_of(queries, terms=LIVE):
    return {key: {name: read(queries, name, key, terms) for name in KINDS} for key in range(KEYS)}


def wanted(numbers):
    return {key: expected(numbers, key) for key in range(KEYS)}


@pytest.mark.matrix
@every_backend
def test_live_and_committed_answers_of_every_kind_are_those_of_their_moments(backend):
    job = job_of(backend=settings_of(backend))
    queries = queries_of(job)
    job.run_epoch(take=5)
    assert all_of(queries) == wanted(range(1, 6))
    job.run_epoch(take=20, checkpoint=True)
    assert all_of(queries) == all_of(queries, COMMITTED) == wanted(range(1, 26))
    job.run_epoch(take=13)
    assert all_of(queries) == wanted(range(1, 39))
    assert all_of(queries, COMMITTED) == wanted(range(1, 26))


@pytest.mark.matrix
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name.startswith("hashmap")])
def test_who_looks_changes_nothing(backend):
    """The job ends as one that nobody looked at, and its checkpoints are no larger."""

    def run(look):
        job = job_of(backend=settings_of(backend))
        queries = queries_of(job)
        sizes = []
        for _ in range(6):
            job.run_epoch(take=10, checkpoint=True)
            job.run_epoch(take=0)
            if look:
                all_of(queries)
                queries.scan("q-seen", KeyRange(), LIVE)
            job.run_epoch(take=0, checkpoint=True)
            sizes.append(job.control.history().entries[0].written)
        return sizes, all_of(queries)

    assert run(look=True) == run(look=False)


@pytest.mark.matrix
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name.startswith("rocksdb")])
def test_who_looks_into_a_database_changes_no_state(backend):
    """Files may be cut otherwise: what was held in memory is in the database a little earlier."""

    def run(look):
        job = job_of(backend=settings_of(backend))
        queries = queries_of(job)
        for _ in range(6):
            job.run_epoch(take=10, checkpoint=True)
            if look:
                all_of(queries)
                queries.scan("q-seen", KeyRange(), LIVE)
        found = all_of(queries), all_of(queries, COMMITTED)
        return found, sorted(job.run().collected())

    assert run(look=True) == run(look=False)


def test_an_answer_tells_how_true_it_is():
    job = job_of()
    queries = queries_of(job)
    job.run_epoch(take=5, checkpoint=True)
    job.clock.advance(250)
    job.run_epoch(take=5)
    live = queries.get("q-total", [1], LIVE).facts
    assert (live.level, live.checkpoint_id, live.epoch, live.age_ms) == ("live", 1, job.epoch, 0)
    committed = queries.get("q-total", [1], COMMITTED).facts
    assert (committed.level, committed.checkpoint_id, committed.age_ms) == ("committed", 1, 250)
    assert committed.epoch < live.epoch
    with pytest.raises(StateTooOldError, match="checkpoint 1 is 250 ms old, and at most 249 ms"):
        queries.get("q-total", [1], Terms("committed", max_age_ms=249))
    assert queries.get("q-total", [1], Terms("committed", max_age_ms=250)).table.num_rows == 1
    with pytest.raises(StateTooOldError):
        queries.scan("q-total", KeyRange(), Terms("committed", max_age_ms=249))


def test_before_the_first_checkpoint_nothing_is_committed():
    queries = queries_of(job_of())
    queries.states()
    with pytest.raises(StateUnavailableError, match="no checkpoint of the job is complete yet"):
        queries.get("q-total", [1], COMMITTED)


def test_committed_state_is_there_while_the_job_fails_over_and_live_state_is_not():
    job = job_of()
    queries = queries_of(job)
    job.run_epoch(take=20, checkpoint=True)
    job.run_epoch(take=5)
    assert all_of(queries) == wanted(range(1, 26))
    job.kill_slot(0)
    with pytest.raises(WeirError):
        job.run_epoch(take=5)
    assert all_of(queries, COMMITTED) == wanted(range(1, 21))
    with pytest.raises(StateUnavailableError, match=r"cannot be read now.*level: committed"):
        all_of(queries)
    job.fail_over()
    job.run_epoch(take=0)
    assert all_of(queries) == wanted(range(1, 21))
    job.run_epoch(take=5)
    assert all_of(queries) == wanted(range(1, 26))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_queries_find_the_keys_of_a_job_that_was_rescaled(parallelism):
    job = job_of()
    queries = queries_of(job)
    job.run_epoch(take=20)
    assert all_of(queries) == wanted(range(1, 21))
    asked = job.control.rescale(parallelism)
    job.turn_until(asked.done)
    assert asked.result(0) == parallelism
    assert all_of(queries) == all_of(queries, COMMITTED) == wanted(range(1, 21))
    job.run_epoch(take=20)
    assert all_of(queries) == wanted(range(1, 41))


def test_a_job_that_starts_from_a_savepoint_has_its_state_as_committed():
    job = job_of()
    job.run_epoch(take=20, checkpoint=True)
    later = job.restart(3)
    queries = queries_of(later)
    queries.states()
    assert all_of(queries, COMMITTED) == wanted(range(1, 21))


def test_expired_entries_are_not_shown_and_looking_does_not_renew_them():
    job = job_of()
    queries = queries_of(job)
    job.run_epoch(take=7, checkpoint=True)
    job.clock.advance(TTL_MS - 1)
    for terms in (LIVE, COMMITTED):
        assert read(queries, "expiring", 1, terms) == "last 1"
        assert queries.scan("q-expiring", KeyRange(), terms).table.num_rows == 7
    job.clock.advance(1)
    for terms in (LIVE, COMMITTED):
        assert read(queries, "expiring", 1, terms) is None
        assert queries.scan("q-expiring", KeyRange(), terms).table.num_rows == 0
    assert read(queries, "total", 1) == 1


def test_names_of_states_are_known_and_others_are_told_apart():
    job = job_of()
    queries = queries_of(job)
    job.run_epoch(take=5)
    views = {view.name: view for view in queries.states()}
    assert set(views) == {f"q-{name}" for name in KINDS}
    assert views["q-total"].kind == "ValueState"
    assert views["q-total"].columns == ("key_group", "key", "value")
    assert views["q-parity"].types == {"key": "LONG", "value": "LONG", "map_key": "STRING"}
    assert views["q-expiring"].expires
    assert read(queries, "total", 1) == 1
    assert queries.get("everything.total", [1], LIVE).table.num_rows == 1
    refused = r"UnknownKvStateLocation: No KvStateLocation found .* with name 'hidden'.*'q-mean'"
    for terms in (LIVE, COMMITTED):
        with pytest.raises(UnknownStateError, match=refused):
            queries.get("hidden", [1], terms)
    every = queries_of(job, states="all")
    assert every.get("everything.hidden", [1], LIVE).table["value"].to_pylist() == [1]


def test_many_keys_come_in_one_answer_and_unknown_ones_are_left_out():
    job = job_of()
    queries = queries_of(job)
    job.run_epoch(take=60, checkpoint=True)
    for terms in (LIVE, COMMITTED):
        table = queries.get("q-total", [6, 5, 99, 5], terms).table.sort_by("key")
        assert table.select(["key", "value"]).to_pydict() == {
            "key": [5, 6],
            "value": [expected(range(1, 61), key)["total"] for key in (5, 6)],
        }


@pytest.mark.parametrize("terms", [LIVE, COMMITTED], ids=lambda terms: terms.level)
def test_ranges_of_keys_come_in_order_up_to_the_limit(terms):
    job = job_of()
    queries = queries_of(job)
    job.run_epoch(take=60, checkpoint=True)

    def keys(wanted, limit=None):
        asked = Terms(terms.level, limit=limit)
        return queries.scan("q-total", wanted, asked).table["key"].to_pylist()

    assert keys(KeyRange()) == list(range(KEYS))
    assert keys(KeyRange(low=2, high=5)) == [2, 3, 4]
    assert keys(KeyRange(low=2), limit=2) == [2, 3]
    assert keys(KeyRange(high=2)) == [0, 1]
    with pytest.raises(QueryError, match="only texts have a prefix"):
        keys(KeyRange(prefix="a"))
    with pytest.raises(QueryError, match="is no int64"):
        keys(KeyRange(low="a"))
    schema, batches = queries.stream("q-total", terms)
    found = [key for batch in batches for key in batch.column("key").to_pylist()]
    assert sorted(found) == list(range(KEYS))
    assert schema.names == ["key_group", "key", "value"]


def texts(env):
    words = env.from_collection(["ab", "abc", "b", "aa", "ab"], Types.STRING()).uid("words")
    return words.key_by(lambda word: word, Types.STRING())


def test_a_stream_ends_in_a_state_that_can_be_queried():
    env = environment()
    keyed = texts(env)
    last = keyed.as_queryable_state("last").uid("last")
    total = ReducingStateDescriptor("joined", lambda a, b: a + b, Types.STRING())
    keyed.as_queryable_state("joined", total)
    assert last.get_queryable_state_name() == "last"
    assert last.get_key_type() == Types.STRING()
    job = started(env)
    queries = queries_of(job)
    job.run_epoch()
    found = queries.scan("joined", KeyRange(prefix="a"), LIVE).table
    assert found["key"].to_pylist() == ["aa", "ab", "abc"]
    assert found["value"].to_pylist() == ["aa", "abab", "abc"]
    assert queries.get("last", ["b"], LIVE).table["value"].to_pylist() == ["b"]


class Queryable(KeyedProcessFunction):
    def __init__(self, state, name):
        self.names = state, name

    def open(self, runtime_context):
        descriptor = ValueStateDescriptor(self.names[0], Types.LONG())
        descriptor.set_queryable(self.names[1])
        runtime_context.get_state(descriptor)
        runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        yield value


def test_two_states_under_one_name_fail_the_job():
    env = environment()
    keyed = env.from_sequence(1, 5).key_by(lambda n: n, Types.LONG())
    collect(keyed.process(Queryable("a", "same")).name("one"))
    collect(keyed.process(Queryable("b", "same")).name("other"))
    with pytest.raises(WeirError, match=r"'same' of state '[ab]' of operator '(one|other)' is in"):
        started(env)


class Mutable(KeyedProcessFunction):
    """Two lists that are always equal, in one value that changes in place."""

    def open(self, runtime_context):
        declared = Types.TUPLE([Types.LIST(Types.LONG()), Types.LIST(Types.LONG())])
        descriptor = ValueStateDescriptor("twins", declared)
        descriptor.set_queryable("twins")
        self.twins = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        left, right = self.twins.value() or ([], [])
        for twin in (left, right):
            twin.append(value)
            del twin[:-20]
        self.twins.update((left, right))
        yield value


@pytest.mark.matrix
@every_backend
def test_answers_are_never_torn_and_come_in_the_middle_of_an_epoch(backend):
    """Threads ask as fast as they can while one epoch runs: both lists always agree."""
    env = environment()
    keyed = env.from_sequence(1, LONG_EPOCH).key_by(lambda n: n % 2, Types.LONG())
    collect(keyed.process(Mutable()).uid("twins"))
    job = started(env, 1, partitions=1, backend=settings_of(backend))
    queries = queries_of(job)
    queries.states()
    newest, wrong, over = [], [], threading.Event()

    def ask():
        while not over.is_set():
            for row in queries.get("twins", [0, 1], LIVE).table.to_pylist():
                left, right = row["value"].values()
                newest.append(left[-1])
                if left != right:
                    wrong.append(row)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    job.run_epoch()
    over.set()
    for thread in asking:
        thread.join()
    assert wrong == []
    assert any(0 < number < LONG_EPOCH - 1 for number in newest)


class Largest(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, max(elements)[1]


def timed(env, records):
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
    stream = env.from_collection(records, Types.TUPLE([Types.STRING(), Types.LONG()]))
    return stream.uid("records").assign_timestamps_and_watermarks(strategy).uid("times")


class Stamp:
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


@pytest.mark.matrix
@every_backend
def test_windows_are_namespaces(backend):
    env = environment()
    records = [("a", 5), ("b", 7), ("a", 12), ("a", 8), ("a", 14)]
    windows = timed(env, records).key_by(lambda r: r[0], Types.STRING())
    windows = windows.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    total = windows.reduce(lambda a, b: (a[0], a[1] + b[1]))
    collect(total.uid("windows"))
    job = started(env, 2, partitions=1, backend=settings_of(backend))
    queries = queries_of(job, states="all")
    job.run_epoch(take=3, checkpoint=True)
    for terms in (LIVE, COMMITTED):
        name = "windows._window_contents"
        table = queries.get(name, ["a"], terms).table.sort_by("window_start")
        # The watermark is 11: what began at 0 has fired.
        assert table["window_start"].to_pylist() == [10]
        one = queries.get(name, ["a"], terms, namespace=[10, 20]).table
        assert one.num_rows == 1
        assert queries.get(name, ["a"], terms, namespace=[20, 30]).table.num_rows == 0
        with pytest.raises(QueryError, match="is no window"):
            queries.get(name, ["a"], terms, namespace=5)


def test_an_answer_that_is_too_large_is_refused():
    job = job_of()
    job.run_epoch(take=60, checkpoint=True)
    for terms in (LIVE, COMMITTED):
        with pytest.raises(QueryLimitError, match="bytes"):
            queries_of(job, bytes_max=20).scan("q-seen", KeyRange(), terms)


@every_backend
@pytest.mark.matrix
def test_a_scan_with_a_limit_takes_no_more_from_slots(backend):
    """All rows would be too large for an answer; the first ones of each key group are not."""
    env = environment()
    words = [f"w{number:04}" for number in range(2000)]
    stream = env.from_collection(words, Types.STRING()).uid("words")
    keyed = stream.key_by(lambda word: word, Types.STRING())
    keyed.as_queryable_state("words").uid("last").set_max_parallelism(4)
    job = started(env, 2, backend=settings_of(backend))
    job.run_epoch()
    queries = queries_of(job, bytes_max=2000)
    for limit in (0, 1, 20):
        found = queries.scan("words", KeyRange(), Terms("live", limit=limit)).table
        assert found["key"].to_pylist() == words[:limit]
    with pytest.raises(QueryLimitError, match="bytes"):
        queries.scan("words", KeyRange(), LIVE)


def test_what_is_expired_does_not_count_against_a_limit():
    job = job_of()
    queries = queries_of(job)
    job.run_epoch(take=3)
    job.clock.advance(TTL_MS)
    job.run_epoch(take=3)
    found = queries.scan("q-expiring", KeyRange(), Terms("live", limit=2)).table
    assert found["key"].to_pylist() == [4, 5]
    rows = queries.scan("q-seen", KeyRange(), Terms("live", limit=3)).table
    assert rows["key"].to_pylist() == [1, 2, 3]


def test_no_more_queries_are_answered_at_the_same_time_than_allowed():
    job = job_of()
    queries = queries_of(job, at_once=1)
    job.run_epoch(take=5)
    with queries.limits.admitted(), pytest.raises(QueryLimitError, match="1 queries are being"):
        read(queries, "total", 1)
    assert read(queries, "total", 1) == 1


def test_an_answer_cannot_be_changed():
    job = job_of()
    queries = queries_of(job)
    job.run_epoch(take=20)
    for name, descriptor in descriptors().items():
        state = state_of(descriptor, queries.get(f"q-{name}", [1], LIVE))
        changes = [state.clear]
        changes += [lambda s=state: s.update([1])] if hasattr(state, "update") else []
        changes += [lambda s=state: s.add(1)] if hasattr(state, "add") else []
        changes += [lambda s=state: s.put("odd", 1)] if hasattr(state, "put") else []
        for change in changes:
            with pytest.raises(ReadOnlyStateError, match="State is read-only"):
                change()


def test_a_job_that_has_ended_answers_nothing():
    job = job_of()
    queries = queries_of(job)
    job.run()
    with pytest.raises(StateUnavailableError, match="has ended"):
        read(queries, "total", 1)


class Anything(KeyedProcessFunction):
    """State of no declared type: plain data, and objects that must never be loaded."""

    def open(self, runtime_context):
        for name in ("plain", "object"):
            descriptor = ValueStateDescriptor(name)
            descriptor.set_queryable(name)
            setattr(self, name, runtime_context.get_state(descriptor))

    def process_element(self, value, ctx):
        self.plain.update({"last": value})
        self.object.update(Bomb())
        yield value


armed = []


def exploded():
    if armed:
        msg = "somebody unpickled state"
        raise AssertionError(msg)
    return Bomb()


class Bomb:
    def __reduce__(self):
        return exploded, ()


def test_nothing_is_unpickled_for_a_caller():
    env = environment()
    keyed = env.from_sequence(1, 20).key_by(lambda n: n % 3)
    collect(keyed.process(Anything()).uid("anything"))
    job = started(env)
    queries = queries_of(job)
    job.run_epoch(checkpoint=True)
    armed.append(True)
    try:
        for terms in (LIVE, COMMITTED):
            answer = queries.get("plain", [1], terms)
            (row,) = queries.rows(answer)
            assert row["key"] == 1
            assert set(row["value"]) == {"opaque_bytes"}
            with pytest.raises(QueryError, match=r"'object' cannot be shown.*exploded"):
                queries.get("object", [1], terms)
    finally:
        armed.clear()


class Numbers(KeyedProcessFunction):
    def open(self, runtime_context):
        several = ListStateDescriptor("several", Types.DOUBLE())
        several.set_queryable("several")
        self.several = runtime_context.get_list_state(several)

    def process_element(self, value, ctx):
        self.several.add(value)
        yield value


def test_numbers_that_json_does_not_have_are_texts_in_rows():
    numbers = [math.nan, math.inf, -math.inf, 1.5]
    env = environment()
    keyed = env.from_collection(numbers, Types.DOUBLE()).key_by(lambda n: n, Types.DOUBLE())
    collect(keyed.process(Numbers()).uid("numbers"))
    job = started(env)
    job.run_epoch(checkpoint=True)
    queries = queries_of(job)
    for terms in (LIVE, COMMITTED):
        rows = queries.rows(queries.get("several", numbers, terms))
        found = {str(row["key"]): row["value"] for row in rows}
        texts = ["NaN", "Infinity", "-Infinity"]
        assert found == {**dict(zip(texts, texts, strict=True)), "1.5": 1.5}
        json.dumps(rows, allow_nan=False)


@pytest.mark.parametrize("limit", [-1, 2**63, 2**64])
def test_a_limit_that_no_number_of_rows_has_is_refused(limit):
    with pytest.raises(QueryError, match=f"limit of a query is {limit}, expected 0 to"):
        Terms("live", limit=limit)


@pytest.mark.parametrize(("takes_ms", "calls"), [(0, 3), (10_000, 1)])
def test_a_slot_that_cannot_be_asked_is_asked_again_while_there_is_time(takes_ms, calls):
    job = job_of()
    job.run_epoch()
    queries, asked = queries_of(job), []
    network = job.supervisor.network

    def lookup(subtask, call):
        asked.append(subtask)
        job.clock.advance(takes_ms)
        msg = "no record ended in time"
        raise WeirError(msg)

    network.lookup = lookup
    with pytest.raises(StateUnavailableError, match="no record ended in time"):
        queries.get("total", [1], Terms())
    assert len(asked) == calls
