"""The server of queries in the driver: one for all jobs of the process, over Arrow Flight.

Every call needs the token. Handlers speak to `JobQueries`, which bound what a query may take. About
jobs with SQL switched on it speaks Arrow Flight SQL, too. Where and to whom it listens is the same
for all jobs; what may be asked of a job its own settings say.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import flight

from weir.config import queryable as q
from weir.config import security
from weir.errors import UsageError, WeirError
from weir.jobmanager.queries import QueryError, UnknownJobError
from weir.queryable import protocol
from weir.queryable.flight_sql import FlightSql
from weir.queryable.queries import StateQueries
from weir.queryable.settings import QuerySettings
from weir.queryable.short_way import QueryDoor
from weir.rest.settings import is_loopback

log = logging.getLogger("weir.queryable")
_MIDDLEWARE = "weir"


class _Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """One call whose token was right, and its headers."""

    def __init__(self, headers: dict[str, list[str]]) -> None:
        self.headers = headers

    def header(self, name: str) -> str | None:
        """Return the only or first value of a header."""
        found = self.headers.get(name)
        return found[0] if found else None


class _Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets nobody in without the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token.encode()

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> _Caller:
        """Check the token of a call before anything of it is read."""
        given = (headers.get(protocol.AUTHORIZATION) or [""])[0]
        scheme, _, token = given.partition(" ")
        same = hmac.compare_digest(token.strip().encode("utf-8", "replace"), self._token)
        if scheme.lower() != "bearer" or not same:
            msg = "a bearer token is needed: the header authorization: Bearer <token>"
            raise flight.FlightUnauthenticatedError(msg)
        return _Caller(headers)


@contextmanager
def _told() -> Iterator[None]:
    """Let errors reach the caller as messages, without a stack trace."""
    try:
        yield
    except QueryError as error:
        raise flight.FlightServerError(protocol.error_text(error)) from error
    except WeirError as error:
        text = f"{QueryError.__name__}: {error}"
        raise flight.FlightServerError(text) from error


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    """The handlers of calls."""

    def __init__(self, location: str, site: QueryServer, **options: Any) -> None:
        super().__init__(location, middleware={_MIDDLEWARE: _Guard(site.token)}, **options)
        self._site = site

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        """Answer a look-up or a question about states; or a step of Flight SQL."""
        with _told():
            body = action.body.to_pybytes() if action.body is not None else b""
            if action.type == "states":
                return [
                    protocol.encode_views(self._site.job(body.decode("utf-8", "replace")).states())
                ]
            if action.type == "get":
                return [protocol.encode_answer(self._site.answer(protocol.decode_request(body)))]
            if action.type == "door":
                return [self._site.door().encode()]
            return self._sql(context).action(action.type, body)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Stream all rows of a state, or the result of a SQL query."""
        with _told():
            if not ticket.ticket.startswith(protocol.TICKET):
                return self._sql(context).result(ticket.ticket)
            request = protocol.decode_request(ticket.ticket[len(protocol.TICKET) :])
            schema, batches = self._site.stream(request)
            return flight.GeneratorStream(schema, _told_later(batches))

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Run a SQL query."""
        with _told():
            return self._sql(context).info(descriptor)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Tell the columns of a SQL query."""
        with _told():
            return flight.SchemaResult(self._sql(context).schema(descriptor))

    def _sql(self, context: Any) -> FlightSql:
        caller = context.get_middleware(_MIDDLEWARE)
        queries, settings = self._site.served(caller.header("weir-job"))
        if not settings.sql:
            msg = f"SQL is switched off: set {q.QUERY_SQL.key}: true"
            raise QueryError(msg)
        level = caller.header("weir-level") or "committed"
        age = protocol.max_age_of(caller.header("weir-max-age-ms"))
        return FlightSql(queries, level, settings.sql_memory, age)


def _told_later(batches: Iterator[Any]) -> Iterator[Any]:
    with _told():
        yield from batches


class QueryServer:
    """Takes queries about the jobs of this process; thread-safe."""

    def __init__(self, settings: QuerySettings) -> None:
        """Listen at once, on the first free port.

        Raises:
            UsageError: no port is free, a file for TLS is no good, or the extra `sql` is missing.
        """
        if settings.sql:
            FlightSql.require_engine()
        self.settings = settings
        self.token = settings.token or secrets.token_urlsafe(32)
        self._lock = threading.Lock()
        self._jobs: dict[str, tuple[StateQueries, QuerySettings]] = {}
        self._door: QueryDoor | None = None
        self._closed = False
        self._server = self._listen()
        log.info("queries of state are taken at %s", self.location)
        if settings.token is None and not is_loopback(settings.bind_address):
            log.warning("queries at %s need this bearer token: %s", self.location, self.token)

    def _listen(self) -> _Server:
        settings = self.settings
        options: dict[str, Any] = {}
        if settings.tls is not None:
            contents = settings.tls.read()
            options = {"tls_certificates": [(contents.certificate, contents.key)]}
            if settings.asks_clients:
                options |= {"verify_client": True, "root_certificates": contents.ca}
        host = (
            f"[{settings.bind_address}]" if ":" in settings.bind_address else settings.bind_address
        )
        scheme = "grpc" if settings.tls is None else "grpc+tls"
        problem: Exception | None = None
        for port in settings.ports:
            if port and not _is_free(settings.bind_address, port):
                continue
            try:
                return _Server(f"{scheme}://{host}:{port}", self, **options)
            except (pa.ArrowException, OSError) as error:
                problem = error
        ports = ", ".join(map(str, settings.ports[:5]))
        address = q.QUERY_BIND_ADDRESS.key
        msg = (
            f"queries of state cannot be taken at {settings.bind_address!r}, ports {ports} "
            f"({problem or 'in use'}): set {address} to an address of this machine and "
            f"{q.PROXY_PORTS.key} to a free port or 0"
        )
        raise UsageError(msg) from problem

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.port)

    @property
    def location(self) -> str:
        """The address for clients."""
        scheme = "grpc" if self.settings.tls is None else "grpc+tls"
        return f"{scheme}://{self.settings.bind_address}:{self.port}"

    def register(
        self, job_id: str, queries: StateQueries, settings: QuerySettings | None = None
    ) -> None:
        """Answer queries about a job from now on, by its own settings for SQL.

        Raises:
            UsageError: the server was closed.
        """
        with self._lock:
            if self._closed:
                msg = f"queries are no more taken at {self.location}: start job {job_id} again"
                raise UsageError(msg)
            self._jobs[job_id] = queries, settings or self.settings

    def forget(self, job_id: str) -> None:
        """Answer no queries about a job any more."""
        with self._lock:
            self._jobs.pop(job_id, None)

    def job(self, job_id: str | None) -> StateQueries:
        """Return what answers queries about a job; without an id it is the only one.

        Raises:
            UnknownJobError: there is none, or several.
        """
        return self.served(job_id)[0]

    def served(self, job_id: str | None) -> tuple[StateQueries, QuerySettings]:
        """Return what answers queries about a job, and the job's settings for them.

        Raises:
            UnknownJobError: there is none, or several.
        """
        with self._lock:
            jobs = dict(self._jobs)
        if not job_id and len(jobs) == 1:
            return next(iter(jobs.values()))
        found = jobs.get(job_id or "")
        if found is None:
            known = ", ".join(jobs) or "none"
            msg = (
                f"FlinkJobNotFoundException: Could not find Flink job ({job_id or 'no id given'}): "
                f"jobs whose state can be queried here are {known}"
            )
            raise UnknownJobError(msg)
        return found

    def answer(self, request: protocol.QueryRequest) -> Any:
        """Answer a look-up of keys, or a scan.

        Raises:
            QueryError: there is no answer that fulfils its terms.
        """
        job = self.job(request.job)
        if request.keys is None:
            return job.scan(request.state, request.range, request.terms)
        request.refuse_range()
        keys = job.encoded_keys(request.state, request.keys, request.key_type)
        if request.read_by is not None and _is_plain(request):
            found = job.entries(request.state, keys, request.read_by)
            if found is not None:
                return found
        return job.get(request.state, keys, request.terms, request.namespace)

    def stream(self, request: protocol.QueryRequest) -> tuple[Any, Iterator[Any]]:
        """Return the schema and the rows of a state that are wanted, in batches.

        Raises:
            QueryError: there is no answer that fulfils its terms.
        """
        if request.keys is not None:
            msg = "a stream is of all keys, or of a range of them: ask for some keys with table"
            raise QueryError(msg)
        return self.job(request.job).stream(request.state, request.terms, request.range)

    def has_jobs(self) -> bool:
        """Tell whether there are jobs to ask about."""
        with self._lock:
            return bool(self._jobs)

    def door(self) -> str:
        """Return where clients of this user on this host are answered faster; "" is nowhere."""
        if self.settings.tls is not None:
            return ""
        with self._lock:
            if self._door is None and not self._closed:
                try:
                    self._door = QueryDoor(self.token.encode(), self._answer_at_door)
                except (WeirError, OSError) as error:
                    log.warning("queries go by Flight alone: %s", error)
            return "" if self._door is None else self._door.path

    def _answer_at_door(self, data: bytes) -> bytes:
        try:
            return protocol.encode_answer(self.answer(protocol.decode_request(data)))
        except QueryError as error:
            raise WeirError(protocol.error_text(error)) from error

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            door, self._door, self._closed = self._door, None, True
        if door is not None:
            door.close()
        self._server.shutdown()


def _is_plain(request: protocol.QueryRequest) -> bool:
    """Tell whether all that is under some keys now is wanted; live state is never too old."""
    return request.level == "live" and request.limit is None and request.namespace is None


def _is_free(address: str, port: int) -> bool:
    """Tell whether nobody listens there: gRPC would share a port with another process."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


_lock = threading.Lock()
_servers: dict[int, QueryServer] = {}


def query_endpoint(settings: QuerySettings) -> QueryServer:
    """Return the server of this process; a job that is the only one starts it as it wants it.

    Raises:
        UsageError: it cannot listen where the settings say; it serves another job elsewhere, or
            with another token; or the extra `sql` is missing.
    """
    if settings.sql:
        FlightSql.require_engine()
    with _lock:
        known = _servers.get(os.getpid())
        if known is not None and (differing := _differing(known, settings)):
            if known.has_jobs():
                msg = (
                    f"queries of state are taken at {known.location} for all jobs of this process, "
                    f"and the settings {', '.join(differing)} are others for this job: give it the "
                    "same ones, or start it in a process of its own"
                )
                raise UsageError(msg)
            known.close()
            known = None
        if known is None:
            known = _servers[os.getpid()] = QueryServer(settings)
        return known


def _differing(known: QueryServer, wanted: QuerySettings) -> list[str]:
    """Return the options that say otherwise where and to whom a server listens."""
    found = known.settings
    same = {
        q.QUERY_BIND_ADDRESS: found.bind_address == wanted.bind_address,
        q.PROXY_PORTS: 0 in wanted.ports or known.port in wanted.ports,
        q.QUERY_TOKEN: found.token == wanted.token,
        security.REST_ENABLED: found.tls == wanted.tls,
        security.REST_AUTHENTICATION: found.asks_clients == wanted.asks_clients,
    }
    return [option.key for option, is_same in same.items() if not is_same]
