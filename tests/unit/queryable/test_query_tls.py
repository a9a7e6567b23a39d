"""Queries over TLS: client, SQL drivers and commands trust whom they should, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight
from tests.certificates import make_files
from tests.cli import jobs
from tests.harness.querying import descriptors, expected, job_of, queries_of

from weir.common.typeinfo import Types
from weir.config import Settings
from weir.errors import UsageError
from weir.jobmanager.directory import JobEntry, publish
from weir.jobmanager.queries import QueryRefusedError, StateUnavailableError
from weir.queryable import QueryableStateClient
from weir.queryable.server import QueryServer
from weir.queryable.settings import QuerySettings
from weir.rest import RestServer
from weir.storage.processes import process_started
from weir.testing.harness import JobHarness
from weir.testing.manual_job import ManualJob
from weir.tls import TlsFiles

TOKEN = "let-me-in"
SQL = 'SELECT value FROM "everything"."total" WHERE key = 3'
SHORT_S = 5.0


@pytest.fixture(scope="module")
def job() -> JobHarness:
    made = job_of(60)
    made.run_epoch(take=50, checkpoint=True)
    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_files(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_files(tmp_path_factory.mktemp("tls") / "theirs")


def settings_of(files: TlsFiles, **more: str) -> QuerySettings:
    """Return what the options of TLS for REST make of the server of queries."""
    paths = {f"weir.ssl.{name}": path for name, path in vars(files).items()}
    options = {
        "queryable-state.enable": "true",
        "queryable-state.proxy.ports": "0",
        "weir.queryable-state.token": TOKEN,
        "weir.queryable-state.sql": "true",
        "security.ssl.rest.enabled": "true",
    }
    found = QuerySettings.of(Settings([{**options, **paths, **more}]))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def server(job: JobHarness, files: TlsFiles) -> Iterator[QueryServer]:
    pytest.importorskip("duckdb")
    made = QueryServer(settings_of(files))
    made.register(job.job_id, queries_of(job))
    yield made
    made.close()


def value(server: QueryServer, tls: TlsFiles | None, token: str = TOKEN) -> Any:
    """Look a key up."""
    with QueryableStateClient(
        "127.0.0.1", server.port, token=token, tls=tls, timeout_s=SHORT_S
    ) as client:
        total = descriptors()["total"]
        return client.get_kv_state("", "q-total", 3, Types.LONG(), total).result(30).value()


TOTAL = expected(range(1, 51), 3)["total"]


def test_who_knows_the_authority_is_answered(server: QueryServer, files: TlsFiles) -> None:
    assert server.location.startswith("grpc+tls://")
    assert value(server, files) == TOTAL
    assert value(server, TlsFiles(ca=files.ca)) == TOTAL


def test_the_token_is_needed_all_the_same(server: QueryServer, files: TlsFiles) -> None:
    with pytest.raises(QueryRefusedError, match="refuses the token"):
        value(server, files, token="wrong")


def test_another_authority_is_not_trusted_and_nothing_goes_without_tls(
    server: QueryServer, strangers: TlsFiles
) -> None:
    for tls in (strangers, TlsFiles(ca=strangers.ca), TlsFiles(), None):
        with pytest.raises(StateUnavailableError, match="nothing answers queries at grpc"):
            value(server, tls)
    with pytest.raises(StateUnavailableError, match=r"an authority in weir\.ssl\.ca"):
        value(server, TlsFiles(ca=strangers.ca))


def test_a_certificate_for_another_host_is_not_trusted(job: JobHarness, tmp_path: Path) -> None:
    files = make_files(tmp_path / "elsewhere", names=("driver.example",))
    server = QueryServer(settings_of(files, **{"weir.queryable-state.sql": "false"}))
    try:
        server.register(job.job_id, queries_of(job))
        with pytest.raises(StateUnavailableError, match="does not name this host"):
            value(server, TlsFiles(ca=files.ca))
    finally:
        server.close()


def test_clients_may_have_to_show_a_certificate(
    job: JobHarness, files: TlsFiles, strangers: TlsFiles
) -> None:
    switch = {"security.ssl.rest.authentication-enabled": "true"}
    server = QueryServer(settings_of(files, **{"weir.queryable-state.sql": "false"}, **switch))
    try:
        server.register(job.job_id, queries_of(job))
        assert value(server, files) == TOTAL
        for tls in (TlsFiles(ca=files.ca), replace(strangers, ca=files.ca)):
            with pytest.raises(StateUnavailableError):
                value(server, tls)
    finally:
        server.close()


def test_a_file_that_is_no_good_is_named_before_anything_is_opened(
    files: TlsFiles, tmp_path: Path
) -> None:
    gone = str(tmp_path / "gone.pem")
    with pytest.raises(UsageError, match=r"weir\.ssl\.ca '.*gone\.pem' cannot be read"):
        QueryableStateClient("127.0.0.1", 1, token=TOKEN, tls=TlsFiles(ca=gone))
    with pytest.raises(UsageError, match=r"weir\.ssl\.key '.*gone\.pem' cannot be read"):
        settings_of(replace(files, key=gone))


def test_streams_of_all_rows_are_encrypted_too(server: QueryServer, files: TlsFiles) -> None:
    with QueryableStateClient("127.0.0.1", server.port, token=TOKEN, tls=files) as client:
        assert client.stream("", "q-total").read_all().num_rows == 7


def connect(server: QueryServer, ca: str | None) -> Any:
    dbapi: Any = pytest.importorskip("adbc_driver_flightsql.dbapi")
    options = {"adbc.flight.sql.authorization_header": f"Bearer {TOKEN}"}
    if ca is not None:
        options["adbc.flight.sql.client_option.tls_root_certs"] = Path(ca).read_text()
    return dbapi.connect(server.location, db_kwargs=options, autocommit=True)


def test_a_driver_of_flight_sql_speaks_tls(server: QueryServer, files: TlsFiles) -> None:
    with connect(server, files.ca) as connection, connection.cursor() as cursor:
        cursor.execute(SQL)
        assert cursor.fetchall() == [(TOTAL,)]


def test_a_driver_that_does_not_trust_the_server_sends_it_nothing(
    server: QueryServer, strangers: TlsFiles
) -> None:
    dbapi: Any = pytest.importorskip("adbc_driver_flightsql.dbapi")
    with (
        pytest.raises(dbapi.Error, match="certificate"),
        connect(server, strangers.ca) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(SQL)


def test_flight_without_tls_reaches_nothing(server: QueryServer) -> None:
    plain = flight.connect(f"grpc://127.0.0.1:{server.port}")
    headers = [(b"authorization", f"Bearer {TOKEN}".encode())]
    options = flight.FlightCallOptions(timeout=SHORT_S, headers=headers)
    with pytest.raises(flight.FlightError):
        list(plain.do_action(flight.Action("states", b""), options))
    plain.close()


# ---- jobs that announce themselves --------------------------------------------------------------


@pytest.fixture
def announced(
    job: JobHarness,
    server: QueryServer,
    files: TlsFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[RestServer]:
    """A job whose REST and queries both speak TLS, as a driver announces it."""
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    manual = ManualJob("counting", job_id=str(job.job_id))
    manual.queries = queries_of(job)
    rest = RestServer(ports=(0,), token="rest", tls=files.server_context(ask_clients=False))
    rest.register(manual)
    rest.state_token = TOKEN
    rest.start()
    publish(
        JobEntry(
            job_id=str(job.job_id),
            name="counting",
            pid=1,
            process=process_started(1),
            url=rest.local_url,
            token="rest",
            started_ms=0,
            status="RUNNING",
            tls=files,
            query_url=server.location,
            query_token=TOKEN,
        )
    )
    yield rest
    rest.close()


def test_the_client_finds_a_job_with_tls_by_its_announcement(
    announced: RestServer, job: JobHarness
) -> None:
    with QueryableStateClient.of(job.job_id) as client:
        assert client.location.startswith("grpc+tls://")
        total = descriptors()["total"]
        found = client.get(job.job_id, "q-total", [3], Types.LONG(), total)
        assert found.states[3].value() == TOTAL


def test_the_command_gets_state_over_tls(
    announced: RestServer, files: TlsFiles, strangers: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = jobs.invoke("state", "get", "counting", "q-total", "3")
    assert found.exit_code == 0, found.output
    assert str(TOTAL) in found.output
    asked = ("state", "get", "counting", "q-total", "3", "-m", announced.url, "--token", "rest")
    monkeypatch.setenv("WEIR_SSL_CA", str(files.ca))
    assert str(TOTAL) in jobs.invoke(*asked).output
    monkeypatch.setenv("WEIR_SSL_CA", str(strangers.ca))
    refused = jobs.invoke(*asked)
    assert refused.exit_code == 1
    assert "is not trusted" in refused.output
