"""States of windows and of their keys, of every kind, through the client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.harness.programs import environment, started
from tests.harness.querying import Mean, add, queries_of
from tests.harness.test_queries import timed

from weir.common import Time
from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction
from weir.datastream.functions import ProcessWindowFunction
from weir.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from weir.datastream.window import CountTrigger, TumblingEventTimeWindows
from weir.jobmanager.queries import (
    KeyRange,
    QueryError,
    StateUnavailableError,
    Terms,
    UnknownKeyOrNamespaceError,
)
from weir.queryable import QueryableStateClient
from weir.queryable.queries import StateQueries
from weir.queryable.server import QueryServer
from weir.queryable.settings import QuerySettings
from weir.testing.campaign_backends import BACKENDS, settings_of
from weir.testing.harness import JobHarness, collect

TOKEN = "windows"
RECORDS = [("a", 1), ("b", 2), ("a", 3), ("a", 12), ("b", 13), ("a", 14)]
KINDS = ("value", "list", "map", "reducing", "aggregating")
LEVELS = ("live", "committed")


def descriptors(place: str) -> dict[str, Any]:
    """One of every kind; "w" are those of windows, "g" those of keys."""
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    made = {
        "value": ValueStateDescriptor(f"{place}-value", Types.LONG()),
        "list": ListStateDescriptor(f"{place}-list", Types.LONG()),
        "map": MapStateDescriptor(f"{place}-map", Types.STRING(), Types.LONG()),
        "reducing": ReducingStateDescriptor(f"{place}-reducing", add, Types.LONG()),
        "aggregating": AggregatingStateDescriptor(f"{place}-aggregating", Mean(), pair),
    }
    for kind, descriptor in made.items():
        descriptor.set_queryable(f"q-{place}-{kind}")
    return made


class Keeps(ProcessWindowFunction):
    """Is called for each record, and keeps it in all states of its window and of its key."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        newest = max(number for _, number in elements)
        for place, store in (("w", context.window_state()), ("g", context.global_state())):
            made = descriptors(place)
            store.get_state(made["value"]).update(newest)
            store.get_list_state(made["list"]).add(newest)
            store.get_map_state(made["map"]).put(f"n{newest}", newest)
            store.get_reducing_state(made["reducing"]).add(newest)
            store.get_aggregating_state(made["aggregating"]).add(newest)
        yield key, newest


def expected(kind: str, key: str, low: int = 0, high: int = 100) -> Any:
    own = [number for found, number in RECORDS if found == key and low <= number < high]
    return {
        "value": own[-1],
        "list": own,
        "map": {f"n{number}": number for number in own},
        "reducing": sum(own),
        "aggregating": sum(own) / len(own),
    }[kind]


def shown(kind: str, state: Any) -> Any:
    if kind == "value":
        return state.value()
    return dict(state.items()) if kind == "map" else state.get()


def job_of(backend: str) -> JobHarness:
    env = environment()
    windows = timed(env, RECORDS).key_by(lambda record: record[0], Types.STRING())
    kept = (
        windows.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .allowed_lateness(1000)
        .trigger(CountTrigger.of(1))
        .process(Keeps())
    )
    collect(kept.uid("windows"))
    made = started(env, 2, partitions=1, backend=settings_of(backend))
    made.run_epoch(checkpoint=True)
    return made


@pytest.fixture(scope="module", params=["hashmap", "rocksdb"])
def job(request: Any) -> JobHarness:
    return job_of(request.param)


@pytest.fixture(scope="module")
def client(job: JobHarness) -> Iterator[QueryableStateClient]:
    server = QueryServer(QuerySettings(ports=(0,), token=TOKEN))
    server.register(job.job_id, queries_of(job))
    with QueryableStateClient("127.0.0.1", server.port, token=TOKEN) as made:
        yield made
    server.close()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_a_window_is_found_by_its_start_and_end(
    job: JobHarness, client: QueryableStateClient, kind: str, level: str
) -> None:
    def ask(key: str, window: list[int]) -> Any:
        terms = {"namespace": window, "level": level}
        descriptor, name = descriptors("w")[kind], f"q-w-{kind}"
        asked = client.get_kv_state(job.job_id, name, key, Types.STRING(), descriptor, **terms)
        return shown(kind, asked.result(30))

    for key in ("a", "b"):
        for start in (0, 10):
            assert ask(key, [start, start + 10]) == expected(kind, key, start, start + 10)
    with pytest.raises(UnknownKeyOrNamespaceError):
        ask("a", [20, 30])
    with pytest.raises(UnknownKeyOrNamespaceError):
        ask("c", [0, 10])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_a_key_is_found_without_a_window(
    job: JobHarness, client: QueryableStateClient, kind: str, level: str
) -> None:
    descriptor, name = descriptors("g")[kind], f"q-g-{kind}"
    for key in ("a", "b"):
        asked = client.get_kv_state(job.job_id, name, key, Types.STRING(), descriptor, level=level)
        assert shown(kind, asked.result(30)) == expected(kind, key)


@pytest.mark.parametrize("level", LEVELS)
def test_scans_and_streams_are_of_the_window_that_was_asked_for(
    job: JobHarness, client: QueryableStateClient, level: str
) -> None:
    def read(**wanted: Any) -> list[list[Any]]:
        scanned = client.scan(job.job_id, "q-w-value", level=level, **wanted).table
        streamed = client.stream(job.job_id, "q-w-value", level=level, **wanted).read_all()
        assert scanned.sort_by("key") == streamed.sort_by("key").cast(scanned.schema)
        return [scanned[name].to_pylist() for name in ("key", "window_start", "value")]

    assert read(namespace=[0, 10]) == [["a", "b"], [0, 0], [3, 2]]
    assert read(namespace=[0, 10], low="b") == [["b"], [0], [2]]
    assert read(namespace=[20, 30]) == [[], [], []]
    assert sorted(read(prefix="a")[1]) == [0, 10]
    with pytest.raises(QueryError, match="is no window"):
        read(namespace=0)
    with pytest.raises(QueryError, match="is no int64"):
        client.stream(job.job_id, "q-w-value", level=level, namespace=["x", "y"])
    assert read()[0].count("a") == 2


def test_keys_and_a_range_of_them_are_refused(
    job: JobHarness, client: QueryableStateClient
) -> None:
    with pytest.raises(QueryError, match="keys and prefix, low do not go together"):
        client.table(job.job_id, "q-w-value", ["a"], Types.STRING(), prefix="a", low="a")
    with pytest.raises(QueryError, match="a stream is of all keys"):
        client.stream(job.job_id, "q-w-value", keys=[b""], key_type=None)


def test_a_namespace_of_a_state_without_any_is_refused() -> None:
    queries = queries_of(asked := asking([Types.LONG()], "hashmap"), states="all")
    asked.run_epoch(take=8)
    with pytest.raises(QueryError, match=r"'asks\.plain' has no namespaces, and 1 was asked for"):
        queries.scan("asks.plain", KeyRange(namespace=1), Terms())


def every_row(queries: StateQueries, name: str, terms: Terms) -> list[Any]:
    """Return the rows of a state, those asked for by key as well as those of a scan."""
    scanned = queries.scan(name, KeyRange(), terms).table.to_pylist()
    asked = queries.get(name, ["a", "b", "c"], terms).table.to_pylist()
    found = [sorted(map(repr, some)) for some in (scanned, asked)]
    assert found[0] == found[1]
    return found[0]


@pytest.mark.matrix
@pytest.mark.parametrize("way", ["failover", "rescale", "restore"])
@pytest.mark.parametrize("backend", list(BACKENDS))
def test_restored_states_are_found_before_the_program_asks_for_them(backend: str, way: str) -> None:
    """States of windows and of their keys are asked for when a window fires, and not before."""
    job = job_of(backend)
    queries = queries_of(job, states="all")
    names = {f"windows.{d.name}" for place in "wg" for d in descriptors(place).values()}
    before = {name: every_row(queries, name, Terms("live")) for name in names}
    assert all(before.values())
    if way == "failover":
        job.fail_over()
    elif way == "rescale":
        asked = job.control.rescale(3)
        job.turn_until(asked.done)
    else:
        job = job.restart(1)
        queries = queries_of(job, states="all")
        assert names <= {f"{view.operator}.{view.state}" for view in queries.states()}
    for name in names:
        for level in LEVELS:
            assert every_row(queries, name, Terms(level)) == before[name]
    window = queries.get("windows.w-value", ["a"], Terms("live"), namespace=[0, 10]).table
    assert window["value"].to_pylist() == [3]


class Asks(KeyedProcessFunction):
    """Asks for its states with the first record; `types` are those of now."""

    def __init__(self, types: list[Any]) -> None:
        self.types = types

    def open(self, runtime_context: Any) -> None:
        self.states = runtime_context

    def process_element(self, value: Any, ctx: Any) -> Any:
        plain = ValueStateDescriptor("plain", self.types[0])
        expiring = ValueStateDescriptor("expiring", Types.LONG())
        ttl = StateTtlConfig.new_builder(Time.milliseconds(1000)).build()
        expiring.enable_time_to_live(ttl)
        for descriptor in (plain, expiring):
            self.states.get_state(descriptor).update(value)
        yield value


def asking(types: list[Any], backend: str) -> JobHarness:
    env = environment()
    keyed = env.from_sequence(1, 20).uid("numbers").key_by(lambda n: n % 8, Types.LONG())
    collect(keyed.process(Asks(types)).uid("asks").set_max_parallelism(8))
    return started(env, 2, backend=settings_of(backend))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb-incremental"])
def test_what_of_a_restored_state_has_expired_is_not_known_yet(backend: str) -> None:
    job = asking([Types.LONG()], backend)
    job.run_epoch(take=8, checkpoint=True)
    queries = queries_of(job, states="all")
    assert queries.scan("asks.expiring", KeyRange(), Terms()).table.num_rows == 8
    job.fail_over()
    assert queries.scan("asks.plain", KeyRange(), Terms()).table.num_rows == 8
    for ask in (
        lambda: queries.scan("asks.expiring", KeyRange(), Terms()),
        lambda: queries.get("asks.expiring", [1], Terms()),
    ):
        with pytest.raises(StateUnavailableError, match=r"'expiring' was restored.*committed"):
            ask()
    assert queries.get("asks.expiring", [1], Terms("committed")).table.num_rows == 1
    job.run_epoch(take=8)
    assert queries.scan("asks.expiring", KeyRange(), Terms()).table.num_rows == 8


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb-incremental"])
def test_a_restored_state_is_not_read_by_the_types_that_it_will_have(backend: str) -> None:
    types: list[Any] = [Types.INT()]
    job = asking(types, backend)
    job.run_epoch(take=8, checkpoint=True)
    types[0] = Types.LONG()
    later = job.restart(2)
    queries = queries_of(later, states="all")
    assert queries.scan("asks.plain", KeyRange(), Terms()).table.num_rows == 8
    later.run_epoch(take=1)  # one slot has asked for it now, the other has not
    with pytest.raises(StateUnavailableError, match="has other types in this slot"):
        queries.scan("asks.plain", KeyRange(), Terms())
    later.run_epoch(take=8)
    assert queries.scan("asks.plain", KeyRange(), Terms()).table.num_rows == 8
