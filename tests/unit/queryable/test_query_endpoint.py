"""One server for all jobs of a process: its place is theirs together, what may be asked is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.harness.querying import job_of

from weir.errors import UsageError
from weir.jobmanager.queries import KeyRange, QueryError, Terms, UnknownStateError
from weir.queryable import server as servers
from weir.queryable.server import query_endpoint
from weir.queryable.settings import QueryLimits, QuerySettings
from weir.spark.execution import _serve_queries
from weir.testing.harness import JobHarness
from weir.tls import TlsFiles

MINE = QuerySettings(ports=(0,), token="mine")


@pytest.fixture(autouse=True)
def no_server() -> Iterator[None]:
    """Begin and end without a server."""
    yield
    known = servers._servers.pop(os.getpid(), None)
    if known is not None:
        known.close()


def serve(settings: QuerySettings) -> tuple[servers.QueryServer, JobHarness]:
    job: Any = job_of(20)
    job.run_epoch()
    server = query_endpoint(settings)
    _serve_queries(job, (server, settings), None, None)
    return server, job


def test_every_job_is_asked_by_its_own_settings() -> None:
    pytest.importorskip("duckdb")
    few, every = QueryLimits(bytes_max=64), QueryLimits(states="all")
    server, open_job = serve(replace(MINE, limits=every, sql=True, sql_memory=64 << 20))
    same, job = serve(replace(MINE, limits=few, sql=False))
    assert same is server
    assert server.job(open_job.job_id).limits is every
    assert server.job(job.job_id).limits is few
    asked = KeyRange(), Terms()
    assert server.job(open_job.job_id).scan("everything.hidden", *asked).table.num_rows == 7
    with pytest.raises(UnknownStateError):
        server.job(job.job_id).scan("everything.hidden", *asked)
    with pytest.raises(QueryError, match="at most 64 are read"):
        server.job(job.job_id).scan("q-seen", *asked)
    assert [server.served(j.job_id)[1].sql for j in (open_job, job)] == [True, False]


@pytest.mark.parametrize(
    ("other", "key"),
    [
        ({"bind_address": "0.0.0.0"}, "weir.queryable-state.bind-address"),
        ({"ports": (1,)}, "queryable-state.proxy.ports"),
        ({"token": "other"}, "weir.queryable-state.token"),
        ({"token": None}, "weir.queryable-state.token"),
        ({"tls": TlsFiles("c", "k", "a")}, "security.ssl.rest.enabled"),
        ({"asks_clients": True}, "security.ssl.rest.authentication-enabled"),
    ],
)
def test_another_place_or_token_is_refused_while_a_job_is_served(
    other: dict[str, Any], key: str
) -> None:
    server, _ = serve(MINE)
    with pytest.raises(UsageError, match=rf"taken at grpc.*settings {key} are others") as refused:
        query_endpoint(replace(MINE, **other))
    assert "mine" not in str(refused.value)
    assert query_endpoint(replace(MINE, ports=(server.port,))) is server


def test_when_no_job_is_left_the_next_one_is_served_where_it_wants() -> None:
    server, job = serve(MINE)
    job.run()
    again = query_endpoint(replace(MINE, token="other"))
    assert again is not server
    assert again.token == "other"
    with pytest.raises(UsageError, match="no more taken at"):
        _serve_queries(job, (server, MINE), None, None)  # type: ignore[arg-type]
