"""Who is served and who is not: hosts, origins, tokens, sizes, ids, methods."""

import logging
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from tests.unit.rest.client import Client
from tests.unit.rest.samples import JOB_ID

from weir.config import Settings
from weir.errors import UsageError
from weir.rest import RestServer, RestSettings
from weir.rest.settings import parse_ports
from weir.testing.manual_job import ManualJob

Served = Callable[..., RestServer]


@pytest.fixture
def served(job: ManualJob) -> Iterator[Served]:
    servers = []

    def start(**settings: object) -> RestServer:
        server = RestServer(ports=(0,), **settings)
        server.register(job)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


def local(server: RestServer, token: str | None = None) -> Client:
    return Client(f"http://127.0.0.1:{server.port}", token)


# ---- host and origin ---------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1234", "LOCALHOST:8081", "[::1]:8081"])
def test_names_of_this_machine_are_hosts(client: Client, host: str) -> None:
    assert client.get("/jobs", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8081", "", "[::1", "@"],
)
def test_another_host_is_refused(client: Client, host: str) -> None:
    answer = client.get("/jobs", Host=host)
    assert answer.status == 403
    assert "Host" in answer.errors[0]


def test_a_request_without_a_host_or_with_two_is_refused(client: Client) -> None:
    assert b" 403 " in client.raw(b"GET /jobs HTTP/1.1\r\n\r\n")
    two = b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    assert b" 403 " in client.raw(two)


def test_the_advertised_address_is_a_host(served: Served) -> None:
    server = served(advertised_address="jobs.example", token="t")
    assert server.url == f"http://jobs.example:{server.port}"
    assert local(server, "t").get("/jobs", Host=f"jobs.example:{server.port}").status == 200
    assert local(server, "t").get("/jobs", Host="other.example").status == 403


def test_a_server_on_all_addresses_knows_its_own_name(served: Served) -> None:
    server = served(bind_address="0.0.0.0", token="t")
    assert server.url == f"http://{socket.gethostname()}:{server.port}"
    assert server.local_url == f"http://127.0.0.1:{server.port}"
    assert local(server, "t").get("/jobs", Host=urlsplit(server.url).netloc).status == 200
    assert local(server, "t").get("/jobs", Host="other.example").status == 403


def test_this_machine_needs_no_advertised_address(served: Served) -> None:
    server = served(advertised_address="jobs.example")
    assert Client(server.local_url, server.token).get("/jobs").status == 200


@pytest.mark.parametrize("target", ["http://evil.example/jobs", "evil.example:80", "*"])
def test_a_request_that_names_a_host_in_its_path_is_refused(client: Client, target: str) -> None:
    head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{client.token_line}"
    sent = client.raw(f"{head}\r\n".encode())
    assert b" 400 " in sent
    assert b'{"errors":[' in sent


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost"])
def test_another_origin_is_refused_for_every_method(
    client: Client, job: ManualJob, method: str, origin: str
) -> None:
    answer = client.request(method, f"/jobs/{JOB_ID}", headers={"Origin": origin})
    assert answer.status == 403
    assert job.calls == []


def test_our_own_origin_is_served_and_no_other_is_allowed(
    client: Client, server: RestServer
) -> None:
    answer = client.get("/jobs", Origin=f"http://127.0.0.1:{server.port}")
    assert answer.status == 200
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


# ---- tokens ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", [None, "Bearer wrong", "Bearer", "Basic right", "right", "Bearer é"]
)
def test_a_set_token_is_needed_also_on_loopback(served: Served, header: str | None) -> None:
    client = local(served(token="right"))
    headers = {} if header is None else {"Authorization": header}
    for path in ("/jobs", "/metrics", "/openapi.json", "/nowhere"):
        answer = client.request("GET", path, headers=headers)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_with_the_token_everything_is_served(served: Served) -> None:
    client = local(served(token="right"), "right")
    assert client.get("/jobs").status == 200
    assert client.get("/jobs", Authorization="bearer right").status == 200


def test_also_on_loopback_a_token_is_made_up_which_no_log_shows(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        server, other = served(), served()
        assert local(server).get("/jobs").status == 401
        assert local(server, other.token).get("/jobs").status == 401
        assert local(server, server.token).get("/jobs").status == 200
    assert server.token is not None
    assert len(server.token) >= 40
    assert server.token not in caplog.text


def test_whoever_wants_no_token_has_to_say_so(served: Served) -> None:
    server = served(token="none")
    assert server.token is None
    assert local(server).get("/jobs").status == 200


@pytest.mark.parametrize(
    "address", [{"rest.bind-address": "0.0.0.0"}, {"rest.address": "jobs.example"}]
)
def test_without_a_token_no_other_machine_is_served(address: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"weir\.rest\.token' is 'none'.*give a secret"):
        RestSettings.of(Settings([{"weir.rest.token": "none", **address}]))
    with pytest.raises(UsageError, match="give a secret"):
        RestServer(bind_address="0.0.0.0", token="none")


@pytest.mark.parametrize(
    "settings", [{"bind_address": "0.0.0.0"}, {"advertised_address": "jobs.example"}]
)
def test_beyond_loopback_a_token_is_made_up_and_logged_once(
    served: Served, caplog: pytest.LogCaptureFixture, settings: dict[str, str]
) -> None:
    with caplog.at_level(logging.DEBUG, "weir.rest"):
        server = served(**settings)
        assert server.token is not None
        assert len(server.token) >= 40
        assert local(server).get("/jobs").status == 401
        assert local(server, server.token).get("/jobs").status == 200
    assert caplog.text.count(server.token) == 1


def test_a_given_token_is_never_logged(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        server = served(bind_address="0.0.0.0", token="given-secret")
        assert local(server, "given-secret").get("/jobs").status == 200
        assert local(server, "given-secreT").get("/jobs").status == 401
    assert "given-secre" not in caplog.text


# ---- bodies ------------------------------------------------------------------------------------

SAVEPOINTS = f"/jobs/{JOB_ID}/savepoints"


def test_a_body_over_the_limit_is_not_read(client: Client, job: ManualJob) -> None:
    answer = client.request("POST", SAVEPOINTS, b" " * (64 * 1024 - 2) + b"{}")
    assert answer.status == 202
    head = f"POST {SAVEPOINTS} HTTP/1.1\r\nHost: localhost\r\n{client.token_line}"
    head += "Content-Type: application/json\r\n"
    sent = client.raw(f"{head}Content-Length: 65537\r\n\r\n".encode())
    assert b" 413 " in sent
    assert b"Connection: close" in sent
    assert len(job.calls) == 1


@pytest.mark.parametrize(
    "header",
    ["Content-Length: -1", "Content-Length: x", "Transfer-Encoding: chunked", "Content-Length: 9"],
)
def test_a_body_of_unclear_length_is_refused(client: Client, job: ManualJob, header: str) -> None:
    head = f"POST {SAVEPOINTS} HTTP/1.1\r\nHost: localhost\r\n{client.token_line}"
    head += "Content-Type: application/json\r\n"
    assert b" 400 " in client.raw(f"{head}{header}\r\n\r\n{{}}".encode())
    assert job.calls == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_only_json_is_taken(client: Client, job: ManualJob, kind: str) -> None:
    answer = client.request("POST", SAVEPOINTS, b"{}", {"Content-Type": kind})
    assert answer.status == 400
    assert "Content-Type" in answer.errors[0]
    assert job.calls == []


def test_json_may_name_its_characters(client: Client) -> None:
    kind = {"Content-Type": "application/json; charset=UTF-8"}
    assert client.request("POST", SAVEPOINTS, b"{}", kind).status == 202


# ---- paths and methods -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/jobs/",
        "/jobs/xyz",
        f"/jobs/{JOB_ID.upper()}",
        f"/jobs/{JOB_ID}0",
        "/jobs/..%2f..%2fetc%2fpasswd",
        "/jobs/../../etc/passwd",
        f"/jobs/{JOB_ID}%0a",
        f"/jobs/{JOB_ID}/checkpoints/details/-1",
        f"/jobs/{JOB_ID}/checkpoints/details/{'9' * 19}",
        f"/jobs/{JOB_ID}/checkpoints/details/1e3",
        "/taskmanagers/../config",
        "//evil.example/jobs",
    ],
)
def test_what_is_no_id_is_not_found(client: Client, path: str) -> None:
    assert client.get(path).status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/jobs"),
        ("DELETE", f"/jobs/{JOB_ID}"),
        ("GET", f"/jobs/{JOB_ID}/stop"),
        ("PUT", f"/jobs/{JOB_ID}/savepoints"),
        ("TRACE", "/jobs"),
    ],
)
def test_another_method_is_not_allowed(
    client: Client, job: ManualJob, method: str, path: str
) -> None:
    answer = client.request(method, path)
    assert answer.status == 405
    assert answer.errors
    assert job.calls == []


@pytest.mark.parametrize("path", ["yarn-cancel", "yarn-stop", "cancel"])
def test_nothing_changes_by_get(client: Client, job: ManualJob, path: str) -> None:
    assert client.get(f"/jobs/{JOB_ID}/{path}").status == 404
    assert job.calls == []


def test_head_is_get_without_a_body_and_options_tell_the_methods(client: Client) -> None:
    head, get = client.request("HEAD", "/jobs"), client.get("/jobs")
    assert (head.status, head.raw) == (200, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]
    options = client.request("OPTIONS", f"/v1/jobs/{JOB_ID}")
    assert (options.status, options.headers["Allow"]) == (204, "GET, HEAD, OPTIONS, PATCH")
    assert client.request("OPTIONS", "/nowhere").status == 404


def test_every_answer_forbids_guessing_and_keeping(client: Client) -> None:
    for path in ("/jobs", "/nowhere", "/metrics"):
        headers = client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Python" not in headers["Server"]


def test_what_is_no_http_is_refused_as_json(client: Client) -> None:
    answer = client.raw(b"GARBAGE\r\n\r\n")
    assert b'{"errors":[' in answer
    assert b" 400 " in answer
    assert b"<html" not in client.raw(b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n")


def test_a_request_of_the_first_http_gets_an_answer_with_a_head(client: Client) -> None:
    assert client.raw(b"GET /jobs\r\n").startswith(b"HTTP/1.1 403 ")


# ---- addresses and ports -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("8081", (8081,)),
        ("0", (0,)),
        ("8081,8090-8092", (8081, 8090, 8091, 8092)),
        (" 1 - 2 , 5 ", (1, 2, 5)),
    ],
)
def test_ports_have_flinks_form(text: str, ports: tuple[int, ...]) -> None:
    assert parse_ports(text) == ports


@pytest.mark.parametrize("text", ["", "x", "-1", "9-8", "65536", "1,,2", "1-2-3", "٣"])
def test_ports_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"rest\.bind-port"):
        parse_ports(text)


def test_settings_come_from_the_configuration() -> None:
    assert RestSettings.of(Settings([])) == RestSettings("localhost", tuple(range(8081, 8182)))
    given = {
        "rest.bind-address": "0.0.0.0",
        "rest.port": "9000",
        "rest.address": "jobs.example",
        "weir.rest.token": "t",
    }
    assert RestSettings.of(Settings([given])) == RestSettings(
        "0.0.0.0", (9000,), "t", "jobs.example"
    )
    with pytest.raises(UsageError, match="token"):
        RestSettings.of(Settings([{"weir.rest.token": " "}]))


def test_a_taken_port_gives_way_to_the_next(server: RestServer) -> None:
    other = RestServer(ports=(server.port, 0))
    other.start()
    assert other.port != server.port
    other.close()


def test_no_free_port_is_told_with_what_to_do(server: RestServer) -> None:
    with pytest.raises(UsageError, match=r"rest\.bind-port"):
        RestServer(ports=(server.port,)).start()
    with pytest.raises(UsageError, match="not started"):
        _ = RestServer().url


def test_closing_frees_the_port(server: RestServer) -> None:
    port = server.port
    server.close()
    server.close()
    again = RestServer(ports=(port,))
    again.start()
    again.close()


def test_many_requests_at_once_are_all_answered(client: Client) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: client.get("/jobs").status, range(64)))
    assert answers == [200] * 64
