"""The target for REST: raw bytes to a real server on loopback.

Whatever is sent, the server closes soon, and what it says until then is HTTP: no 500, no answer
that ends in the middle, no exception of another kind than a broken connection in the log.
"""

from __future__ import annotations

import atexit
import json
import logging
import re
import socket
from collections.abc import Callable

from tests.fuzz.target import FindingError, NoInputError, Target, require
from tests.unit.rest.samples import JOB_ID, sample_job
from tests.unit.rest.test_openapi import BODIES, QUERIES, VALUES

from weir.rest import RestServer
from weir.rest.routes import ROUTES

PATIENCE_S = 20.0
TOKEN = "fuzz"
_HEAD = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [ -~]*\r\n((?:[A-Za-z-]+: [ -~]*\r\n)*)\r\n")
_LENGTH = re.compile(rb"^Content-Length: ([0-9]+)\r$", re.MULTILINE)
_LOG = logging.getLogger("weir.rest")


def _requests() -> list[bytes]:
    """Return one request for each route, and some that go on with another one."""
    found = []
    for route in ROUTES:
        path = re.sub(r":(\w+)", lambda match: VALUES[match[1]], route.path)
        body = b"" if route.body is None else json.dumps(BODIES.get(route.path, {})).encode()
        found.append(_request(route.method, path + QUERIES.get(route.path, ""), body))
    twice = _request("GET", "/overview") + _request("HEAD", "/jobs")
    waiting = _request("POST", f"/jobs/{JOB_ID}/savepoints", b"{}").replace(
        b"Host:", b"Expect: 100-continue\r\nHost:"
    )
    return [*found, twice, waiting, _request("OPTIONS", "/jobs"), _request("BREW", "/v1/jobs")]


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class _Seen(logging.Handler):
    """Keeps what is logged with an exception that is more than a client who left."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OSError):
            self.problems.append(error)


def _prepare() -> Callable[[bytes], None]:
    job, seen = sample_job(), _Seen()
    view = job.current
    server = RestServer(ports=(0,), token=TOKEN)
    server.register(job)
    server.start()
    atexit.register(server.close)

    def run(data: bytes) -> None:
        # What the requests before have asked for must not change what this one does.
        job.current = view
        job.calls.clear()
        statuses = answered(server.port, data, seen)
        if not any(200 <= status < 300 for status in statuses):
            raise NoInputError

    return run


def answered(port: int, data: bytes, seen: _Seen) -> list[int]:
    """Send bytes, and return the statuses of the answers; a 500 is a finding."""
    level = _LOG.level
    _LOG.addHandler(seen)
    _LOG.setLevel(logging.DEBUG)
    try:
        answer = _say(port, data)
    finally:
        _LOG.setLevel(level)
        _LOG.removeHandler(seen)
    if seen.problems:
        msg = "an exception in the log"
        raise FindingError(msg) from seen.problems.pop()
    statuses = _statuses(answer)
    require(500 not in statuses, "an answer with status 500")
    return statuses


def _say(port: int, data: bytes) -> bytes:
    """Send bytes and return all that comes back until the server closes."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                answer += part
        except TimeoutError as error:
            msg = f"no answer and no end within {PATIENCE_S} s"
            raise FindingError(msg) from error
        except OSError:
            # Closed with bytes unread: what was on its way back may be lost.
            return b""
    return answer


def _statuses(answer: bytes) -> list[int]:
    """Take answers apart and check their form."""
    found = []
    while answer:
        head = _HEAD.match(answer)
        require(head is not None, f"no HTTP: {answer[:200]!r}")
        if head is None:
            break
        found.append(int(head[1]))
        answer = answer[head.end() :]
        length = _LENGTH.search(head[2])
        # The answer to HEAD has a length and no body.
        if length is None or answer.startswith(b"HTTP/1.1 ") or not answer:
            continue
        body, answer = answer[: int(length[1])], answer[int(length[1]) :]
        require(len(body) == int(length[1]), "an answer that ends in the middle")
        if found[-1] >= 400:
            require(list(json.loads(body)) == ["errors"], f"not an error as others: {body!r}")
    return found


TARGETS = [Target("rest", "text", _requests, _prepare)]
