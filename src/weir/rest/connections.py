"""Who is connected to REST: a bounded number, and nobody for long without a request.

A connection waits (for a request, or for its client to take the answer) or works. One that waits
too long is cut off, however slowly it sends. When there are too many, the one that has waited
longest makes room; one that works never does. So connections that send nothing keep nobody out,
and cannot make more threads than the limit.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Final

from weir.clock import Clock

CONNECTIONS_MAX: Final = 64
WAITING_MAX_MS: Final = 30_000


class Connections:
    """The open connections of a server; thread-safe."""

    def __init__(self, clock: Clock, most: int = CONNECTIONS_MAX) -> None:
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        # By how long they wait, longest first; None for those that work.
        self._since: dict[socket.socket, int | None] = {}

    def admit(self, connection: socket.socket) -> bool:
        """Take a connection in, in place of one that waits if need be; False when all work."""
        with self._lock:
            if len(self._since) >= self._most:
                waiting = (c for c, since in self._since.items() if since is not None)
                longest = next(waiting, None)
                if longest is None:
                    return False
                del self._since[longest]
                _cut_off(longest)
            self._since[connection] = self._clock.monotonic_ms()
            return True

    def leave(self, connection: socket.socket) -> None:
        """Forget a connection that is being closed."""
        with self._lock:
            self._since.pop(connection, None)

    @contextlib.contextmanager
    def working(self, connection: socket.socket) -> Iterator[None]:
        """Keep a connection while its request is being carried out."""
        self._move(connection, None)
        try:
            yield
        finally:
            self._move(connection, self._clock.monotonic_ms())

    def _move(self, connection: socket.socket, since: int | None) -> None:
        with self._lock:
            if connection in self._since:
                del self._since[connection]
                self._since[connection] = since

    def cut_off_overdue(self) -> None:
        """Break off connections that have waited too long; their threads end by that."""
        limit = self._clock.monotonic_ms() - WAITING_MAX_MS
        with self._lock:
            found = [c for c, since in self._since.items() if since is not None and since <= limit]
            for connection in found:
                del self._since[connection]
                _cut_off(connection)


def _cut_off(connection: socket.socket) -> None:
    # Past what TLS would do, which is for the thread that reads.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
