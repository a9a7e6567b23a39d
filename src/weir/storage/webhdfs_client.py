"""WebHDFS over HTTP: requests, redirects, repeated tries, and what the server's refusals mean.

A JVM with a Hadoop installation inside every slot would be the alternative; the REST interface
needs neither. Every address of a NameNode is tried, because one of them may be in standby. Only
requests that can be sent twice without harm are repeated; callers say which.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from weir.errors import StorageError

PREFIX: Final = "/webhdfs/v1"
_TRIES: Final = 4
_FIRST_PAUSE_S: Final = 0.1
_TIMEOUT_S: Final = 60.0
_PASSING_STATES: Final = (500, 502, 503, 504)
_PASSING_EXCEPTIONS: Final = ("StandbyException", "RetriableException", "SafeModeException")
_REDIRECTS: Final = (301, 302, 303, 307, 308)


class Refusal(Exception):
    """A response other than success: its status, Java's exception name, and the reason."""

    def __init__(self, status: int, exception: str, message: str) -> None:
        """Keep the three; status 0 means that there was no response at all."""
        super().__init__(f"{exception}: {message}" if exception else message)
        self.status = status
        self.exception = exception

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later or elsewhere."""
        return (
            self.status == 0
            or (self.status in _PASSING_STATES and self.exception != "RuntimeException")
            or self.exception in _PASSING_EXCEPTIONS
        )

    @property
    def missing(self) -> bool:
        """Whether there is no such file."""
        return self.status == 404 or self.exception == "FileNotFoundException"

    @property
    def taken(self) -> bool:
        """Whether the name is taken."""
        return self.exception == "FileAlreadyExistsException"


@dataclass(frozen=True)
class WebHdfsClient:
    """Sends requests to the NameNodes at these base URLs, as a user."""

    addresses: tuple[str, ...]
    user: str

    def call(self, method: str, path: str, op: str, **query: str) -> dict[str, Any]:
        """Send a request without content to a NameNode and return its JSON answer; repeats it.

        Raises:
            Refusal: no NameNode carried it out.
        """
        _, _, body = self._repeated(method, path, op, query)
        return dict(json.loads(body)) if body else {}

    def open(self, path: str, offset: int, length: int | None) -> bytes:
        """Read a range, or all from an offset on, from the DataNode that has it; repeats.

        Raises:
            Refusal: it cannot be read.
        """
        query = {"offset": str(offset)} | ({} if length is None else {"length": str(length)})
        return self._repeated("GET", path, "OPEN", query)[2]

    def place(self, path: str) -> str:
        """Ask where to send the content of a new file; repeats, since nothing is created yet.

        Raises:
            Refusal: the file cannot be created.
        """
        query = {"overwrite": "false", "noredirect": "false"}
        status, location, _ = self._repeated("PUT", path, "CREATE", query, follow=False)
        if status not in _REDIRECTS or not location:
            raise Refusal(status, "", f"expected a redirect to a DataNode, found status {status}")
        return location

    def _repeated(
        self, method: str, path: str, op: str, query: dict[str, str], *, follow: bool = True
    ) -> tuple[int, str, bytes]:
        target = target_of(path, {"op": op, "user.name": self.user, **query})
        pause_s = _FIRST_PAUSE_S
        urls = [address + target for address in self.addresses] * _TRIES
        for number, url in enumerate(urls, 1):
            with contextlib.suppress(_Passing):
                return _once(method, url, follow=follow)
            if number % len(self.addresses) == 0:
                threading.Event().wait(pause_s)
                pause_s *= 2
        return _request(method, urls[0], follow=follow)


class _Passing(Exception):
    """The same request may succeed later or elsewhere."""


def _once(method: str, url: str, *, follow: bool) -> tuple[int, str, bytes]:
    try:
        return _request(method, url, follow=follow)
    except Refusal as refusal:
        if refusal.passing:
            raise _Passing from refusal
        raise


def target_of(path: str, query: dict[str, str]) -> str:
    """Return the request target for an absolute path."""
    return f"{PREFIX}{quote(path)}?{urlencode(query)}"


def _request(method: str, url: str, *, follow: bool) -> tuple[int, str, bytes]:
    """Send one request and return status, location and content; redirects are followed once."""
    with connection_to(url) as (connection, target):
        connection.request(method, target, headers={"Content-Length": "0"})
        status, location, body = finish(connection)
    if status in _REDIRECTS and follow:
        return _request(method, location, follow=False)
    return status, location, body


@contextlib.contextmanager
def connection_to(url: str) -> Iterator[tuple[http.client.HTTPConnection, str]]:
    """Connect to the host of a URL; everything that breaks inside is a `Refusal`."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.netloc, timeout=_TIMEOUT_S)
    except http.client.InvalidURL as error:
        raise Refusal(400, "", f"{parts.netloc!r} is not an address: {error}") from error
    try:
        yield connection, f"{parts.path}?{parts.query}"
    except (OSError, http.client.HTTPException) as error:
        message = f"{parts.netloc}: {error or type(error).__name__}"
        raise Refusal(0, "", message) from error
    finally:
        connection.close()


def finish(connection: http.client.HTTPConnection) -> tuple[int, str, bytes]:
    """Read the response to what was sent.

    Raises:
        Refusal: the server did not carry it out.
    """
    response = connection.getresponse()
    body = response.read()
    if response.status >= 400:
        raise _refusal(response.status, body)
    return response.status, response.headers.get("Location", ""), body


def _refusal(status: int, body: bytes) -> Refusal:
    try:
        remote = json.loads(body)["RemoteException"]
        return Refusal(status, str(remote["exception"]), str(remote["message"]).split("\n")[0])
    except (ValueError, KeyError, TypeError):
        return Refusal(status, "", f"the server answered with status {status}")


def explained(verb: str, path: str, refusal: Refusal) -> StorageError:
    """Return the error for a refusal that has no better name."""
    return StorageError(f"cannot {verb} {path}: {refusal}")
