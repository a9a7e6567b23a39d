"""A TCP proxy on loopback that is slow, or breaks connections off, when it is told to."""

from __future__ import annotations

import contextlib
import enum
import random
import selectors
import socket
import struct
import threading

_CHUNK = 16 << 10
_LOOK_S = 0.1


class Weather(enum.Enum):
    """How the proxy treats bytes."""

    FAIR = "passes them on"
    SLOW = "passes them on late"
    FLAKY = "breaks a share of connections and of requests off"
    DOWN = "breaks everything off"


class Proxy:
    """Forwards connections to one address; `weather` may change at any moment."""

    def __init__(self, port: int, seed: int, delay_s: float = 0.05, share: float = 0.3) -> None:
        self.weather = Weather.FAIR
        self.late = self.broken = 0
        self._port = port
        self._delay_s = delay_s
        self._share = share
        self._rng = random.Random(f"proxy {seed}")
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_LOOK_S)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def close(self) -> None:
        """Take no more connections, and end those that there are."""
        self._closed.set()

    def _accept(self) -> None:
        with self._listener:
            while not self._closed.is_set():
                try:
                    client, _ = self._listener.accept()
                except TimeoutError:
                    continue
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        client.settimeout(None)
        if self._breaks():
            _reset(client)
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            _reset(client)
            return
        try:
            whole = self._pump(client, server)
        except OSError:
            whole = False
        if not whole:
            _reset(client)
        client.close()
        server.close()

    def _pump(self, client: socket.socket, server: socket.socket) -> bool:
        """Forward until one side has ended; False when the connection is to be reset."""
        with selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            while not self._closed.is_set():
                for key, _ in ready.select(_LOOK_S):
                    data = key.fileobj.recv(_CHUNK)  # type: ignore[union-attr]
                    if not data:
                        return True
                    # What a client sends is a request, or the next piece of one.
                    if key.fileobj is client and self._breaks():
                        return False
                    if self.weather is Weather.SLOW:
                        self.late += 1
                        self._closed.wait(self._delay_s)
                    key.data.sendall(data)
        return True

    def _breaks(self) -> bool:
        flaky = self.weather is Weather.FLAKY and self._rng.random() < self._share
        broken = flaky or self.weather is Weather.DOWN
        self.broken += broken
        return broken


def _reset(connection: socket.socket) -> None:
    """Close at once, so that the other side is told of an error."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
