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
from weir.datastream.functions import ProcessWindowFunction
from weir.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.datastream.window import CountTrigger, TumblingEventTimeWindows
from weir.jobmanager.queries import UnknownKeyOrNamespaceError
from weir.queryable import QueryableStateClient
from weir.queryable.server import QueryServer
from weir.queryable.settings import QuerySettings
from weir.testing.campaign_backends import settings_of
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


@pytest.fixture(scope="module", params=["hashmap", "rocksdb"])
def job(request: Any) -> JobHarness:
    env = environment()
    windows = timed(env, RECORDS).key_by(lambda record: record[0], Types.STRING())
    kept = (
        windows.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .allowed_lateness(1000)
        .trigger(CountTrigger.of(1))
        .process(Keeps())
    )
    collect(kept.uid("windows"))
    made = started(env, 2, partitions=1, backend=settings_of(request.param))
    made.run_epoch(checkpoint=True)
    return made


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
