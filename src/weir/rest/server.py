"""The HTTP server in the driver: one for all jobs of the process, on threads of its own.

It listens once `start` has returned. Requests need a token, unless it was told to do without. The
number of connections, and so of threads, is bounded; who is one too many is told 503. With
TLS nothing is said to clients without it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import socketserver
import ssl
import threading
from collections.abc import Sequence
from http.server import ThreadingHTTPServer
from typing import Any, Final

from weir.errors import UsageError
from weir.jobmanager.operations import JobHandle
from weir.rest.cluster import Cluster
from weir.rest.connections import Connections
from weir.rest.handler import Handler
from weir.rest.routes import ROUTES
from weir.rest.routing import Router
from weir.rest.settings import (
    LOOPBACK,
    LOOPBACK_NAMES,
    RestSettings,
    chosen_token,
    is_reached_from_elsewhere,
)
from weir.tls import TlsFiles

_LOG = logging.getLogger("weir.rest")
# How long close() may wait where a socket that is shut wakes nobody up.
_CLOSING_S: Final = 0.2
_BUSY_BODY: Final = b'{"errors":["All connections are busy: try again."]}'
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Type: application/json; charset=UTF-8\r\nContent-Length: %d\r\n\r\n%s"
) % (len(_BUSY_BODY), _BUSY_BODY)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, site: RestServer, port: int, handler: type[Handler]) -> None:
        address = site.bind_address
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._connections = site.connections
        self._tls = site.tls
        super().__init__((address, port), handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self._tls is not None:
            # Hands are shaken by the thread of the connection, so that nobody waits for it.
            connection = self._tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._tls is not None:
            request.settimeout(Handler.timeout)
            request.do_handshake()
        super().finish_request(request, client_address)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.admit(request):
            super().process_request(request, client_address)
            return
        request.setblocking(False)
        with contextlib.suppress(OSError):
            request.send(_BUSY)
        with contextlib.suppress(OSError):
            # What is left unread when a socket closes would take the answer back.
            request.recv(65536)
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        self._connections.leave(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called by the loop that waits for connections, a few times a second."""
        self._connections.cut_off_overdue()

    def server_bind(self) -> None:
        # The standard library's own asks the name service for this machine's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: object, client_address: object) -> None:
        _LOG.debug("a connection broke", exc_info=True)


class RestServer:
    """Serves jobs over HTTP; thread-safe.

    The token is the given one, or one that is made up; commands on this machine find it where the
    job is announced. For other machines one that was made up is logged.
    `files` are what clients on this machine speak TLS with. `state_token` is good for the state of
    jobs and nothing else.
    """

    def __init__(
        self,
        bind_address: str = LOOPBACK,
        ports: Sequence[int] = range(8081, 8182),
        token: str | None = None,
        *,
        advertised_address: str | None = None,
        cluster: Cluster | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Remember where to listen, and which jobs to serve; nothing is opened yet."""
        address = bind_address.strip("[]").lower()
        self.bind_address = LOOPBACK if address == "localhost" else address
        self.advertised_address = advertised_address
        self.cluster = cluster or Cluster()
        self.connections = Connections(self.cluster.clock)
        self.tls = tls
        self.files: TlsFiles | None = None
        self.state_token: str | None = None
        self.router = Router(ROUTES)
        reached = (address, advertised_address)
        self.token = chosen_token(token, reached)
        self._tell_token = token is None and is_reached_from_elsewhere(reached)
        names = [*LOOPBACK_NAMES, address, self.bind_address, advertised_address or ""]
        if self._listens_everywhere:
            names.append(socket.gethostname())
        self.hosts = frozenset(name.strip("[]").lower() for name in names if name)
        self._ports = tuple(ports)
        self._server: _Server | None = None

    def start(self) -> None:
        """Listen on the first free port.

        Raises:
            UsageError: no port is free, or the address is not one of this machine.
        """
        handler = type("BoundHandler", (Handler,), {"site": self})
        self._server = self._bind(handler)
        self.cluster.listen()
        name = f"weir-rest-{self.port}"
        threading.Thread(
            target=self._server.serve_forever, args=(_CLOSING_S,), name=name, daemon=True
        ).start()
        # Not for everybody: programs log to where they print, and `weir list` tells the address.
        _LOG.debug("REST listens at %s", self.url)
        if self._tell_token:
            _LOG.warning("REST at %s needs this bearer token: %s", self.url, self.token)

    def _bind(self, handler: type[Handler]) -> _Server:
        problem: OSError | None = None
        for port in self._ports:
            try:
                return _Server(self, port, handler)
            except OSError as error:  # noqa: PERF203
                problem = error
        ports = f"{self._ports[0]} to {self._ports[-1]}" if self._ports else "none"
        msg = (
            f"REST cannot listen at {self.bind_address!r}, ports {ports} ({problem}): set "
            "rest.bind-address to an address of this machine and rest.bind-port to a free port or 0"
        )
        raise UsageError(msg) from problem

    @property
    def port(self) -> int:
        """Return the port that it listens on.

        Raises:
            UsageError: it was not started.
        """
        if self._server is None:
            msg = "REST was not started: call start() first"
            raise UsageError(msg)
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Return the address for clients, without a slash at its end."""
        host = self.advertised_address or self.bind_address
        if self._listens_everywhere and not self.advertised_address:
            host = socket.gethostname()
        return self._url(host)

    @property
    def local_url(self) -> str:
        """Return the address for clients on this machine, whatever others are told."""
        if not self._listens_everywhere:
            return self._url(self.bind_address)
        return self._url("::1" if ":" in self.bind_address else LOOPBACK)

    @property
    def _listens_everywhere(self) -> bool:
        return self.bind_address in ("0.0.0.0", "::")

    def _url(self, host: str) -> str:
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def scheme(self) -> str:
        """Return how addresses of this server begin."""
        return "http" if self.tls is None else "https"

    def register(self, job: JobHandle) -> None:
        """Serve a job from now on."""
        self.cluster.register(job)

    def close(self) -> None:
        """Stop listening; requests under way are finished by their own threads."""
        server, self._server = self._server, None
        if server is not None:
            ending = threading.Thread(target=server.shutdown)
            ending.start()
            # Wakes the thread that waits for requests, which looks only now and then otherwise.
            with contextlib.suppress(OSError):
                server.socket.shutdown(socket.SHUT_RDWR)
            ending.join()
            server.server_close()
        self.cluster.close()


_lock = threading.Lock()
_servers: dict[int, tuple[RestSettings, RestServer]] = {}


def endpoint(settings: RestSettings) -> RestServer:
    """Return the server of this process; the first call starts it, with its settings.

    Raises:
        UsageError: it cannot listen where the settings say.
    """
    with _lock:
        # By process id, because a forked child inherits the table but not the threads.
        known = _servers.get(os.getpid())
        if known is None:
            server = RestServer(
                settings.bind_address,
                settings.ports,
                settings.token,
                advertised_address=settings.advertised_address,
                tls=settings.server_context(),
            )
            server.files = settings.tls
            server.start()
            known = _servers[os.getpid()] = (settings, server)
        elif known[0] != settings:
            _LOG.warning("REST listens at %s already; other settings are ignored", known[1].url)
        known[1].cluster.storage_options = settings.storage
        return known[1]
