"""One HTTP request: who asks, from where, for what; then a route, then an answer.

Checks come in this order: Host, Origin, token, path and method, what the token is good for, body.
Nothing is read of a body before the others passed. Only the files of the page need no token. An
answer is never a stack trace.
"""

from __future__ import annotations

import hmac
import logging
import urllib.parse
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, Protocol

import msgspec

from weir.errors import CorruptStateError, IncompatibleStateError, UsageError, WeirError
from weir.jobmanager.queries import QueryError
from weir.rest.assets import POLICY, Asset, assets
from weir.rest.connections import Connections
from weir.rest.routing import (
    JOBS_SCOPE,
    JSON,
    STATE_SCOPE,
    Part,
    RefusedError,
    Request,
    Route,
    Router,
)

BODY_MAX: Final = 64 * 1024
_LOG = logging.getLogger("weir.rest")
_HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
)
_PAGE_HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    # Asked for again each time, and sent only if it has changed.
    ("Cache-Control", "no-cache"),
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("Vary", "Accept-Encoding"),
)


class Site(Protocol):
    """What a handler knows about its server."""

    router: Router
    cluster: Any
    connections: Connections
    token: str | None
    state_token: str | None
    hosts: frozenset[str]

    @property
    def scheme(self) -> str:
        """Return how addresses of the server begin."""


class Handler(BaseHTTPRequestHandler):
    """Serves the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "weir"
    sys_version = ""
    timeout = 30
    # Head and body in one packet: in two, the second waits 40 ms for the client's system.
    wbufsize = -1
    disable_nagle_algorithm = True
    site: Site

    def _serve(self) -> None:
        try:
            self._check_host()
            self._check_origin()
            asset = assets().get(self.path.partition("?")[0])
            if asset is not None and self.command in ("GET", "HEAD"):
                self._read()
                self._send_asset(asset)
                return
            scopes = self._scopes()
            target = self._target()
            if self.command == "OPTIONS":
                self._options(target.path)
                return
            route, variables = self.site.router.find(self.command, target.path)
            self._check_scope(route, scopes)
            request = Request(variables, _query(target.query), self._body(route))
            with self.site.connections.working(self.connection):
                answer = route.handle(self.site.cluster, request)
            self._answer(route, answer)
        except RefusedError as error:
            self._refuse(error)
        except WeirError as error:
            self._refuse(RefusedError(status_of(error), str(error)))
        except Exception:
            _LOG.exception("%s %s failed", self.command, self.path)
            self._refuse(RefusedError(500, "Internal error; the log of the driver tells more."))

    do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = do_DELETE = do_OPTIONS = _serve

    def _target(self) -> urllib.parse.SplitResult:
        if self.command == "CONNECT":
            raise RefusedError(405, "Method CONNECT is not allowed: this is no proxy.")
        # The long form with a host of its own is for proxies, and would get around the check.
        if not self.path.startswith("/"):
            raise RefusedError(400, "The request has to name a path, such as /jobs.")
        return urllib.parse.urlsplit(self.path)

    def _check_host(self) -> None:
        given = self.headers.get_all("Host") or []
        host = _host_name(given[0]) if len(given) == 1 else None
        # A socket for both families names IPv4 addresses in IPv6's way.
        local = self.connection.getsockname()[0].lower().removeprefix("::ffff:")
        if host is None or (host not in self.site.hosts and host != local):
            raise RefusedError(403, f"Host {', '.join(given)!r} is not an address of this server.")

    def _check_origin(self) -> None:
        origins = self.headers.get_all("Origin") or []
        if origins and origins != [f"{self.site.scheme}://{self.headers['Host']}"]:
            raise RefusedError(403, f"Origin {', '.join(origins)!r} is not this server.")

    def _scopes(self) -> frozenset[str]:
        """Return what the token is good for: state is never shown to who has none."""
        if self._gave(self.site.token):
            return frozenset({JOBS_SCOPE, STATE_SCOPE})
        scopes = {STATE_SCOPE} if self._gave(self.site.state_token) else set()
        if self.site.token is None:
            scopes.add(JOBS_SCOPE)
        if not scopes:
            raise RefusedError(401, "A bearer token is needed: Authorization: Bearer <token>.")
        return frozenset(scopes)

    def _gave(self, token: str | None) -> bool:
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        if token is None or scheme.lower() != "bearer":
            return False
        # Compared as bytes, because headers may hold any character.
        return hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())

    @staticmethod
    def _check_scope(route: Route, scopes: frozenset[str]) -> None:
        if route.scope not in scopes:
            what = "state" if route.scope == STATE_SCOPE else "anything but state"
            status = 401 if route.scope == STATE_SCOPE else 403
            raise RefusedError(status, f"Another bearer token is needed for {what}.")

    def _body(self, route: Route) -> Any:
        data = self._read()
        if route.body is None:
            return None
        if data:
            kind = self.headers.get_content_type()
            if kind != JSON:
                raise RefusedError(400, f"Content-Type is {kind!r}, expected {JSON!r}.")
        try:
            return route.decode(data or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedError(400, f"The body is not what is expected: {error}") from error

    def _read(self) -> bytes:
        if "Transfer-Encoding" in self.headers:
            raise RefusedError(400, "A body needs a Content-Length; chunks are not taken.")
        given = self.headers.get_all("Content-Length") or ["0"]
        if len(set(given)) != 1 or not (given[0].isascii() and given[0].isdigit()):
            raise RefusedError(400, f"Content-Length is {', '.join(given)!r}, expected a number.")
        length = int(given[0][:20])
        if length > BODY_MAX:
            raise RefusedError(413, f"The body has {length} bytes, at most {BODY_MAX} are taken.")
        try:
            data = self.rfile.read(length)
        except OSError as error:
            raise RefusedError(400, "The body did not arrive in time.") from error
        if len(data) != length:
            raise RefusedError(400, f"The body broke off after {len(data)} of {length} bytes.")
        return data

    def _options(self, path: str) -> None:
        methods = self.site.router.methods(path)
        if not methods:
            raise RefusedError(404, "Not found.")
        self._read()
        self._send(204, b"", JSON, {"Allow": ", ".join(methods)})

    def _answer(self, route: Route, answer: Any) -> None:
        extra: dict[str, str] = {}
        if route.media == JSON:
            data = msgspec.json.encode(answer)
        elif isinstance(answer, Part):
            data, extra = answer.data, {"Weir-Start": str(answer.start)}
        else:
            data = answer if isinstance(answer, bytes) else answer.encode()
        self._send(route.status, data, route.media, extra)

    def _send_asset(self, asset: Asset) -> None:
        head = {**dict(_PAGE_HEADERS), "ETag": asset.tag}
        if self.headers.get("If-None-Match") == asset.tag:
            self._write(304, b"", head)
            return
        packed = "gzip" in self.headers.get("Accept-Encoding", "")
        head |= {"Content-Encoding": "gzip"} if packed else {}
        data = asset.packed if packed else asset.data
        head |= {"Content-Type": asset.media, "Content-Length": str(len(data))}
        self._write(200, data, head)

    def _refuse(self, error: RefusedError) -> None:
        # What is left of the body would be taken for the next request.
        self.close_connection = True
        extra = {"Connection": "close"}
        if error.status == 401:
            extra["WWW-Authenticate"] = 'Bearer realm="weir"'
        if error.status == 405:
            path = self.path.partition("?")[0]
            methods = self.site.router.methods(path) or self.site.router.all_methods
            extra["Allow"] = ", ".join(methods)
        data = msgspec.json.encode({"errors": list(error.messages)})
        self._send(error.status, data, JSON, extra)

    def _send(
        self, status: int, data: bytes, media: str, extra: dict[str, str] | None = None
    ) -> None:
        charset = "; charset=UTF-8" if media == JSON else ""
        head = {**dict(_HEADERS), **(extra or {})}
        if status != 204:
            head |= {"Content-Type": media + charset, "Content-Length": str(len(data))}
        self._write(status, data, head)

    def _write(self, status: int, data: bytes, head: dict[str, str]) -> None:
        # What is not HTTP counts as HTTP/0.9, which would be answered without a head.
        self.request_version = self.protocol_version
        try:
            self.send_response(status)
            for name, value in head.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
            self.wfile.flush()
        except OSError:
            # The client has left; there is nobody to tell.
            self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what the HTTP parser refused, in the form of all other errors."""
        if code == 501:
            # A method that nothing is served by: checked and refused as all others are.
            self._serve()
            return
        self.command = getattr(self, "command", None) or "GET"
        self.path = getattr(self, "path", "/")
        self.close_connection = True
        data = msgspec.json.encode({"errors": [message or "The request is malformed."]})
        self._send(code, data, JSON, {"Connection": "close"})

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are for debugging only; headers, and so tokens, are never logged."""
        _LOG.debug(format, *args)


def status_of(error: WeirError) -> int:
    """Return the HTTP status of an error that a job raised at once."""
    if isinstance(error, QueryError):
        return error.status
    if isinstance(error, UsageError):
        return 400
    return 409 if isinstance(error, (IncompatibleStateError, CorruptStateError)) else 500


def _host_name(header: str) -> str | None:
    try:
        return urllib.parse.urlsplit(f"//{header.strip()}").hostname
    except ValueError:
        return None


def _query(text: str) -> dict[str, str]:
    try:
        return dict(urllib.parse.parse_qsl(text, keep_blank_values=True, max_num_fields=32))
    except ValueError as error:
        raise RefusedError(400, f"The query cannot be read: {error}") from error
