"""The HTTP server in the driver: one for all jobs of the process, on threads of its own.

It listens once `start` has returned. Without a token it serves this machine only.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import socketserver
import threading
from collections.abc import Sequence
from http.server import ThreadingHTTPServer
from typing import Final

from weir.clock import Clock
from weir.errors import UsageError
from weir.jobmanager.operations import JobHandle
from weir.rest.cluster import Cluster
from weir.rest.handler import Handler
from weir.rest.routes import ROUTES
from weir.rest.routing import Router
from weir.rest.settings import LOOPBACK, LOOPBACK_NAMES, RestSettings, needs_token

_LOG = logging.getLogger("weir.rest")
# How long close() may wait; looking this often costs nothing that can be measured.
_CLOSING_S: Final = 0.05


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, port: int, handler: type[Handler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), handler)

    def server_bind(self) -> None:
        # The standard library's own asks the name service for this machine's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: object, client_address: object) -> None:
        _LOG.debug("a connection broke", exc_info=True)


class RestServer:
    """Serves jobs over HTTP; thread-safe.

    Beyond loopback there is always a token: the given one, or one that is made up and logged.
    """

    def __init__(
        self,
        bind_address: str = LOOPBACK,
        ports: Sequence[int] = range(8081, 8182),
        token: str | None = None,
        *,
        advertised_address: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Remember where to listen; nothing is opened yet."""
        address = bind_address.strip("[]").lower()
        self.bind_address = LOOPBACK if address == "localhost" else address
        self.advertised_address = advertised_address
        self.cluster = Cluster(clock)
        self.router = Router(ROUTES)
        self.token = token
        self._token_is_ours = token is None and needs_token((address, advertised_address))
        if self._token_is_ours:
            self.token = secrets.token_urlsafe(32)
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
        name = f"weir-rest-{self.port}"
        threading.Thread(
            target=self._server.serve_forever, args=(_CLOSING_S,), name=name, daemon=True
        ).start()
        _LOG.info("REST listens at %s", self.url)
        if self._token_is_ours:
            _LOG.warning("REST at %s needs this bearer token: %s", self.url, self.token)

    def _bind(self, handler: type[Handler]) -> _Server:
        problem: OSError | None = None
        for port in self._ports:
            try:
                return _Server(self.bind_address, port, handler)
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
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def register(self, job: JobHandle) -> None:
        """Serve a job from now on."""
        self.cluster.register(job)

    def close(self) -> None:
        """Stop listening; requests under way are finished by their own threads."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
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
            )
            server.start()
            known = _servers[os.getpid()] = (settings, server)
        elif known[0] != settings:
            _LOG.warning("REST listens at %s already; other settings are ignored", known[1].url)
        known[1].cluster.storage_options = settings.storage
        return known[1]
