"""REST under clients that mean harm, or only badly: connections that say nothing, and too many."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.rest.client import Answer, Client
from tests.unit.rest.samples import JOB_ID, sample_job

from weir.rest import RestServer
from weir.rest.cluster import Cluster
from weir.rest.connections import WAITING_MAX_MS, Connections
from weir.rest.routing import Request, Route, Router
from weir.rest.settings import NO_TOKEN
from weir.testing.clock import ManualClock

Served = Callable[..., RestServer]
HALF = b"GET /jobs HTTP/1.1\r\nHost: local"


@pytest.fixture
def served() -> Iterator[Served]:
    servers = []

    def start(most: int | None = None, **settings: Any) -> RestServer:
        server = RestServer(ports=(0,), **{"token": NO_TOKEN, **settings})
        if most is not None:
            server.connections = Connections(server.cluster.clock, most)
        server.register(sample_job())
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


def connect(server: RestServer, data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connection.sendall(data)
    return connection


def is_over(connection: socket.socket) -> bool:
    """Wait for the end of a connection that the server breaks off."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def threads_of(before: set[threading.Thread]) -> int:
    return len(set(threading.enumerate()) - before)


@pytest.mark.slow
def test_half_open_connections_make_few_threads_and_keep_nobody_out(served: Served) -> None:
    before = set(threading.enumerate())
    server = served()
    held = [connect(server, HALF) for _ in range(900)]
    assert Client(server.url).get("/jobs").status == 200
    # Those that had to make room see the end; 64 are left, and the thread that accepts.
    assert all(is_over(connection) for connection in held[: 900 - 64])
    for thread in set(threading.enumerate()) - before:
        if "process_request_thread" in thread.name and threads_of(before) > 65:
            thread.join(10)
    assert threads_of(before) <= 65
    for connection in held:
        connection.close()


def test_a_request_that_arrives_by_the_byte_is_broken_off_in_time(served: Served) -> None:
    clock = ManualClock()
    server = served(cluster=Cluster(clock))
    quiet, slow = connect(server), connect(server, HALF)
    assert Client(server.url).get("/jobs").status == 200
    clock.advance(WAITING_MAX_MS // 2)
    slow.sendall(b"h")
    fresh = connect(server)
    clock.advance(WAITING_MAX_MS // 2)
    assert is_over(quiet)
    assert is_over(slow)
    fresh.sendall(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert fresh.recv(15) == b"HTTP/1.1 200 OK"
    for connection in (quiet, slow, fresh):
        connection.close()


def test_a_body_that_never_comes_is_not_waited_for_longer(served: Served) -> None:
    clock = ManualClock()
    server = served(cluster=Cluster(clock))
    head = f"POST /jobs/{JOB_ID}/savepoints HTTP/1.1\r\nHost: localhost\r\n"
    waiting = connect(server, f"{head}Content-Length: 100\r\n\r\n{{".encode())
    assert Client(server.url).get("/jobs").status == 200
    clock.advance(WAITING_MAX_MS)
    answer = b"".join(iter(lambda: waiting.recv(65536), b""))
    assert answer == b""
    waiting.close()


class Slow:
    """A route that answers when a test lets it."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()

    def handle(self, cluster: Any, request: Request) -> dict[str, str]:
        self.begun.release()
        assert self.go.wait(30)
        return {}


def in_thread(work: Callable[[], Answer]) -> tuple[threading.Thread, list[Answer]]:
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    return thread, answers


def test_requests_at_work_are_kept_and_one_too_many_is_told_503(served: Served) -> None:
    slow = Slow()
    clock = ManualClock()
    server = served(cluster=Cluster(clock), most=2)
    server.router = Router([Route("GET", "/slow", slow.handle, "Slow.", response=dict[str, str])])
    client = Client(server.url)
    asked = [in_thread(lambda: client.get("/slow")) for _ in range(2)]
    for _ in asked:
        assert slow.begun.acquire(timeout=10)
    refused = client.get("/slow")
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert "busy" in refused.errors[0]
    clock.advance(10 * WAITING_MAX_MS)
    slow.go.set()
    for thread, answers in asked:
        thread.join(10)
        assert [answer.status for answer in answers] == [200]
    assert client.get("/slow").status == 200


# ---- methods -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "FOO", "DELETE"])
def test_a_method_that_is_not_served_is_refused_with_those_that_are(
    client: Client, method: str
) -> None:
    answer = client.request(method, "/jobs")
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_rest_is_no_proxy(served: Served) -> None:
    client = Client(served().url)
    sent = client.raw(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b" 405 " in sent
    assert b"Allow: GET, HEAD, OPTIONS, PATCH, POST, PUT\r\n" in sent


def test_an_unknown_method_needs_host_and_token_like_all_others(served: Served) -> None:
    client = Client(served(token="right").url)
    assert client.request("TRACE", "/jobs").status == 401
    assert client.request("FOO", "/jobs", headers={"Host": "evil.example"}).status == 403
    sent = client.raw(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b" 401 " in sent


# ---- what the document promises -----------------------------------------------------------------


def parameters(client: Client) -> dict[str, Any]:
    paths = client.json("/openapi.json")["paths"].values()
    found = (p for path in paths for op in path.values() for p in op.get("parameters", ()))
    return {p["name"]: p for p in found if p["in"] == "query"}


@pytest.mark.parametrize(
    ("path", "name", "good", "bad"),
    [
        (f"/jobs/{JOB_ID}/exceptions", "maxExceptions", ["0", "20"], ["-1", "x", "1000000000"]),
        (f"/jobs/{JOB_ID}", "mode", ["cancel"], ["stop", "x"]),
        (f"/jobs/{JOB_ID}/rescaling", "parallelism", ["1", "3"], ["0", "-1", "x", "32769"]),
        (None, "agg", ["min,max", "sum", ""], ["median", "min;max", "minmax"]),
    ],
)
def test_queries_that_fit_the_document_are_served_and_others_are_not(
    client: Client, path: str | None, name: str, good: list[str], bad: list[str]
) -> None:
    schema = parameters(client)[name]["schema"]
    vertex = client.json(f"/jobs/{JOB_ID}")["vertices"][0]["id"]
    target = f"{path}?" if path else f"/jobs/{JOB_ID}/vertices/{vertex}/subtasks/metrics?get=x&"
    method = "PATCH" if name in ("mode", "parallelism") else "GET"
    for value in (*bad, *good):
        status = client.request(method, f"{target}{name}={value}").status
        assert fits(value, schema) == (status < 300) == (value in good), value


def fits(text: str, schema: Any) -> bool:
    if schema["type"] == "integer":
        whole = re.fullmatch(r"-?[0-9]+", text) is not None
        return whole and schema["minimum"] <= int(text) <= schema["maximum"]
    return text in schema.get("enum", [text]) and bool(re.search(schema.get("pattern", ""), text))


def test_the_document_says_what_has_to_be_there(client: Client) -> None:
    assert parameters(client)["parallelism"]["required"]
    assert not parameters(client)["mode"]["required"]
    paths = client.json("/openapi.json")["paths"]
    assert paths["/savepoint-disposal"]["post"]["requestBody"]["required"]
    assert paths["/jobs/{jobid}/resource-requirements"]["put"]["requestBody"]["required"]
    assert not paths["/jobs/{jobid}/stop"]["post"]["requestBody"]["required"]
    asked = paths["/jobs/{jobid}/checkpoints"]["post"]["requestBody"]["content"]
    name = asked["application/json"]["schema"]["$ref"].rpartition("/")[2]
    schema = client.json("/openapi.json")["components"]["schemas"][name]
    assert schema["properties"]["checkpointType"]["enum"] == ["CONFIGURED", "FULL"]
