"""REST over TLS: who is trusted, who is refused, and how commands find their way."""

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.certificates import make_files
from tests.unit.rest.samples import JOB_ID, sample_job

from weir.cli.client import RestClient, UnreachableError
from weir.cli.main import cli
from weir.config import Settings
from weir.errors import UsageError
from weir.jobmanager.directory import JobEntry, publish
from weir.rest import RestServer, RestSettings
from weir.rest.settings import NO_TOKEN
from weir.storage.processes import process_started
from weir.tls import TlsFiles

ENABLED = {"security.ssl.rest.enabled": "true"}


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return make_files(tmp_path / "ours")


def settings_of(files: TlsFiles, **more: str) -> RestSettings:
    paths = {f"weir.ssl.{name}": path for name, path in vars(files).items()}
    return RestSettings.of(Settings([{**ENABLED, **paths, **more}]))


def started(settings: RestSettings) -> RestServer:
    server = RestServer(ports=(0,), token=NO_TOKEN, tls=settings.server_context())
    server.register(sample_job())
    server.start()
    return server


@pytest.fixture
def server(files: TlsFiles) -> Iterator[RestServer]:
    server = started(settings_of(files))
    yield server
    server.close()


def test_who_knows_the_authority_is_served(server: RestServer, files: TlsFiles) -> None:
    assert server.url == f"https://127.0.0.1:{server.port}"
    found = RestClient(server.url, tls=TlsFiles(ca=files.ca)).get("/jobs")
    assert [job["id"] for job in found["jobs"]] == [JOB_ID]


def test_another_authority_is_not_trusted(server: RestServer, tmp_path: Path) -> None:
    other = make_files(tmp_path / "theirs")
    with pytest.raises(UnreachableError, match=r"is not trusted \(.*issuer.*weir\.ssl\.ca"):
        RestClient(server.url, tls=TlsFiles(ca=other.ca)).get("/jobs")
    with pytest.raises(UnreachableError, match="is not trusted"):
        RestClient(server.url).get("/jobs")


def test_a_certificate_of_another_host_is_not_trusted(tmp_path: Path) -> None:
    files = make_files(tmp_path / "elsewhere", names=("driver.example",))
    server = started(settings_of(files))
    with pytest.raises(UnreachableError, match=r"is not trusted \(.*127\.0\.0\.1"):
        RestClient(server.url, tls=files).get("/jobs")
    server.close()


def test_a_client_without_tls_gets_no_answer(server: RestServer) -> None:
    with pytest.raises(UnreachableError, match="write https:// if it speaks TLS"):
        RestClient(server.url.replace("https", "http")).get("/jobs")


def test_a_server_without_tls_is_told_apart(files: TlsFiles) -> None:
    plain = RestServer(ports=(0,), token=NO_TOKEN)
    plain.start()
    with pytest.raises(UnreachableError, match="if it speaks no TLS, write http://"):
        RestClient(plain.url.replace("http", "https"), tls=files).get("/jobs")
    plain.close()


def test_somebody_who_never_shakes_hands_keeps_nobody_waiting(
    server: RestServer, files: TlsFiles
) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    assert RestClient(server.url, tls=files).get("/jobs")["jobs"]
    for connection in silent:
        connection.close()


def test_the_own_origin_begins_with_https(server: RestServer, files: TlsFiles) -> None:
    host = f"127.0.0.1:{server.port}"
    statuses = []
    for scheme in ("https", "http"):
        connection = http.client.HTTPSConnection(host, context=files.client_context(), timeout=10)
        connection.request("GET", "/jobs", headers={"Origin": f"{scheme}://{host}"})
        statuses.append(connection.getresponse().status)
        connection.close()
    assert statuses == [200, 403]


def test_clients_may_have_to_show_a_certificate(files: TlsFiles, tmp_path: Path) -> None:
    asking = settings_of(files, **{"security.ssl.rest.authentication-enabled": "true"})
    server = started(asking)
    assert RestClient(server.url, tls=files).get("/jobs")["jobs"]
    other = make_files(tmp_path / "theirs")
    for client in (TlsFiles(ca=files.ca), replace(other, ca=files.ca)):
        with pytest.raises(UnreachableError, match="does not answer"):
            RestClient(server.url, tls=client).get("/jobs")
    server.close()


def test_asking_clients_without_tls_is_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    RestSettings.of(Settings([{"security.ssl.rest.authentication-enabled": "true"}]))
    assert "has no effect without security.ssl.rest.enabled" in caplog.text


# ---- commands ----------------------------------------------------------------------------------


def listed(*arguments: str, **environment: str | None) -> Any:
    answer = CliRunner().invoke(cli, ["list", "--json", *arguments], env=environment)
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


def test_commands_find_a_job_with_tls_by_its_announcement(
    server: RestServer, files: TlsFiles
) -> None:
    entry = JobEntry(
        job_id=JOB_ID,
        name="announced",
        pid=1,
        process=process_started(1),
        url=server.local_url,
        started_ms=0,
        status="CREATED",
        tls=files,
    )
    publish(entry)
    (job,) = listed()
    assert (job["url"], job["status"]) == (server.local_url, "RUNNING")
    assert "tls" not in job


def test_commands_for_another_host_take_the_authority_from_the_settings(
    server: RestServer, files: TlsFiles
) -> None:
    (job,) = listed("-m", server.url, WEIR_SSL_CA=files.ca)
    assert job["job_id"] == JOB_ID
    refused = CliRunner().invoke(cli, ["list", "-m", server.url])
    assert refused.exit_code == 1
    assert "is not trusted" in refused.stderr


# ---- files -------------------------------------------------------------------------------------


def test_tls_without_files_is_refused_with_what_is_missing(files: TlsFiles) -> None:
    with pytest.raises(UsageError, match=r"weir\.ssl\.certificate and weir\.ssl\.key and .* not"):
        RestSettings.of(Settings([ENABLED]))
    assert RestSettings.of(Settings([{"weir.ssl.ca": files.ca}])).server_context() is None


@pytest.mark.parametrize(
    ("name", "contents", "explained"),
    [
        ("certificate", None, r"weir\.ssl\.certificate '.*' cannot be read: No such file"),
        ("key", None, r"weir\.ssl\.key '.*' cannot be read: No such file"),
        ("ca", None, r"weir\.ssl\.ca '.*' cannot be read: No such file"),
        ("certificate", b"no PEM", "expected a certificate and its key without a password"),
        ("key", b"no PEM", "expected a certificate and its key without a password"),
        ("ca", b"no PEM", "expected certificates of authorities"),
    ],
)
def test_a_file_that_is_no_good_is_named(
    files: TlsFiles, tmp_path: Path, name: str, contents: bytes | None, explained: str
) -> None:
    path = tmp_path / "bad.pem"
    if contents is not None:
        path.write_bytes(contents)
    with pytest.raises(UsageError, match=explained):
        settings_of(replace(files, **{name: str(path)}))


def test_a_key_of_another_certificate_is_refused(files: TlsFiles, tmp_path: Path) -> None:
    other = make_files(tmp_path / "theirs")
    with pytest.raises(UsageError, match="the key does not belong to the certificate"):
        settings_of(replace(files, key=other.key))
