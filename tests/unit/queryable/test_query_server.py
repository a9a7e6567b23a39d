"""The server of queries and its client over real connections: answers, errors, who is let in."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from tests.harness.querying import KEYS, descriptors, expected, job_of, queries_of

from weir.common.typeinfo import Types
from weir.config import Settings
from weir.errors import UsageError
from weir.jobmanager.queries import (
    QueryError,
    QueryRefusedError,
    StateUnavailableError,
    UnknownJobError,
    UnknownKeyOrNamespaceError,
    UnknownStateError,
)
from weir.queryable import QueryableStateClient
from weir.queryable.protocol import TICKET, facts_of
from weir.queryable.server import QueryServer
from weir.queryable.settings import QuerySettings
from weir.testing.harness import JobHarness

TOKEN = "let-me-in"
LONG = Types.LONG()


@pytest.fixture(scope="module")
def job() -> JobHarness:
    made = job_of(60)
    made.run_epoch(take=50, checkpoint=True)
    made.run_epoch(take=5)
    return made


@pytest.fixture(scope="module")
def server(job: JobHarness) -> Iterator[QueryServer]:
    made = QueryServer(QuerySettings(ports=(0,), token=TOKEN))
    made.register(job.job_id, queries_of(job))
    yield made
    made.close()


@pytest.fixture(scope="module", params=["short way", "Flight"])
def client(server: QueryServer, request: Any) -> Iterator[QueryableStateClient]:
    with QueryableStateClient("127.0.0.1", server.port, token=TOKEN) as made:
        if request.param == "Flight":
            made._short_way = None
        yield made


def value_of(name: str, state: Any) -> Any:
    if name in ("total", "expiring"):
        return state.value()
    return dict(state.items()) if name == "parity" else state.get()


@pytest.mark.parametrize("name", list(descriptors()))
def test_a_state_of_every_kind_is_a_future_of_a_read_only_state(
    client: QueryableStateClient, job: JobHarness, name: str
) -> None:
    made = descriptors()[name]
    state = client.get_kv_state(job.job_id, f"q-{name}", 3, LONG, made).result(30)
    assert value_of(name, state) == expected(range(1, 56), 3)[name]
    assert state.facts.level == "live"
    old = client.get_kv_state(job.job_id, f"q-{name}", 3, LONG, made, level="committed")
    assert value_of(name, old.result(30)) == expected(range(1, 51), 3)[name]
    assert old.result().facts.checkpoint_id == 1


def test_errors_are_those_of_flink(client: QueryableStateClient, job: JobHarness) -> None:
    total = descriptors()["total"]
    unknown = client.get_kv_state(job.job_id, "q-total", 99, LONG, total)
    with pytest.raises(UnknownKeyOrNamespaceError, match="No state for the specified key"):
        unknown.result(30)
    with pytest.raises(UnknownStateError, match=r"UnknownKvStateLocation.*'nothing'"):
        client.get_kv_state(job.job_id, "nothing", 1, LONG, total).result(30)
    with pytest.raises(UnknownJobError, match=r"FlinkJobNotFoundException.*\(0{32}\)"):
        client.get_kv_state("0" * 32, "q-total", 1, LONG, total).result(30)


def test_types_that_do_not_fit_are_told(client: QueryableStateClient, job: JobHarness) -> None:
    made = descriptors()
    with pytest.raises(QueryError, match=r"keys of state 'q-total' are .*BIGINT|LONG"):
        client.get_kv_state(job.job_id, "q-total", "1", Types.STRING(), made["total"]).result(30)
    with pytest.raises(QueryError, match="elements in order, and was asked for as ValueState"):
        client.get_kv_state(job.job_id, "q-seen", 1, LONG, made["total"]).result(30)
    with pytest.raises(QueryError, match=r"column 'value' of the state is string, expected int64"):
        client.get_kv_state(job.job_id, "q-expiring", 1, LONG, made["total"]).result(30)
    with pytest.raises(QueryError, match="are no keys of"):
        client.get_kv_state(job.job_id, "q-total", "x", LONG, made["total"])
    with pytest.raises(QueryError, match="a query takes level"):
        client.get_kv_state(job.job_id, "q-total", 1, LONG, made["total"], lvel="live")


def test_many_keys_come_in_one_call(client: QueryableStateClient, job: JobHarness) -> None:
    found = client.get(job.job_id, "q-seen", [1, 2, 99], LONG, descriptors()["seen"])
    numbers = range(1, 56)
    assert {k: s.get() for k, s in found.states.items()} == {
        key: expected(numbers, key)["seen"] for key in (1, 2)
    }
    assert found.facts.checkpoint_id == 1


def test_ranges_and_streams_of_all_keys(client: QueryableStateClient, job: JobHarness) -> None:
    answer = client.scan("", "q-total", low=2, limit=3)
    assert answer.table["key"].to_pylist() == [2, 3, 4]
    for level in ("live", "committed"):
        reader = client.stream(job.job_id, "q-total", level=level)
        assert isinstance(reader, pa.RecordBatchReader)
        facts = facts_of(reader.schema)
        assert facts is not None
        assert (facts.level, facts.checkpoint_id) == (level, 1)
        assert sorted(reader.read_all()["key"].to_pylist()) == list(range(KEYS))
    with pytest.raises(UnknownStateError):
        client.stream(job.job_id, "nothing").read_all()
    assert "q-total" in {view.name for view in client.states(job.job_id)}


@pytest.mark.parametrize("name", list(descriptors()))
def test_look_ups_that_go_together_get_their_own_answers(
    client: QueryableStateClient, job: JobHarness, name: str
) -> None:
    made = descriptors()[name]
    keys = [*range(KEYS), 99, *range(KEYS)]
    asked = [client.get_kv_state(job.job_id, f"q-{name}", key, LONG, made) for key in keys]
    for key, future in zip(keys, asked, strict=True):
        if key == 99:
            with pytest.raises(UnknownKeyOrNamespaceError):
                future.result(30)
        else:
            found = value_of(name, future.result(30))
            assert found == expected(range(1, 56), key)[name]


@pytest.mark.slow
def test_many_clients_at_once_get_their_own_answers(
    client: QueryableStateClient, job: JobHarness
) -> None:
    total = descriptors()["total"]

    def ask(key: int) -> Any:
        return client.get(job.job_id, "q-total", [key], LONG, total).states[key].value()

    keys = [n % KEYS for n in range(100)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, keys)) == [expected(range(1, 56), k)["total"] for k in keys]


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x"])
def test_nobody_is_let_in_without_the_token(server: QueryServer, token: str) -> None:
    with QueryableStateClient("127.0.0.1", server.port, token=token or None) as stranger:
        for ask in (
            lambda: stranger.states(),
            lambda: stranger.scan("", "q-total"),
            lambda: stranger.stream("", "q-total").read_all(),
        ):
            with pytest.raises(QueryRefusedError, match="refuses the token"):
                ask()


def test_where_nobody_listens_the_location_is_unknown(server: QueryServer) -> None:
    with (
        QueryableStateClient("127.0.0.1", 1, token=TOKEN, timeout_s=5) as lost,
        pytest.raises(StateUnavailableError, match="UnknownLocation"),
    ):
        lost.states()


@pytest.mark.parametrize("body", [b"", b"\xff" * 50, b"\x81\xa1a\x01"])
def test_bytes_that_are_no_query_are_refused(server: QueryServer, body: bytes) -> None:
    plain = flight.connect(server.location)
    headers = [(b"authorization", f"Bearer {TOKEN}".encode())]
    options = flight.FlightCallOptions(timeout=30, headers=headers)
    with pytest.raises(flight.FlightServerError, match="are no query"):
        list(plain.do_action(flight.Action("get", body), options))
    with pytest.raises(flight.FlightServerError, match="are no query"):
        plain.do_get(flight.Ticket(TICKET + body), options).read_all()
    with pytest.raises(flight.FlightServerError, match="SQL is switched off"):
        plain.do_get(flight.Ticket(b"other" + body), options).read_all()
    with pytest.raises(flight.FlightServerError, match="SQL is switched off"):
        list(plain.do_action(flight.Action("CreatePreparedStatement", body), options))
    plain.close()


def test_a_port_in_use_is_passed_over_or_told(server: QueryServer) -> None:
    with pytest.raises(UsageError, match=r"cannot be taken.*queryable-state.proxy.ports"):
        QueryServer(QuerySettings(ports=(server.port,), token=TOKEN))
    other = QueryServer(QuerySettings(ports=(server.port, 0), token=TOKEN))
    assert other.port != server.port
    other.close()


def test_queries_are_off_on_loopback_and_with_a_token_unless_told() -> None:
    assert QuerySettings.of(Settings([])) is None
    found = QuerySettings.of(Settings([{"queryable-state.enable": "true"}]))
    assert found is not None
    assert (found.bind_address, found.ports, found.token) == ("127.0.0.1", (9069,), None)
    assert (found.limits.states, found.sql) == ("declared", False)
    made = QueryServer(QuerySettings(ports=(0,)))
    assert len(made.token) > 30
    made.close()
    with pytest.raises(UsageError, match="is empty"):
        QuerySettings.of(
            Settings([{"queryable-state.enable": "true", "weir.queryable-state.token": " "}])
        )
    with pytest.raises(UsageError, match=r"queryable-state.proxy.ports.*found 'x'"):
        QuerySettings.of(
            Settings([{"queryable-state.enable": "true", "queryable-state.proxy.ports": "x"}])
        )
