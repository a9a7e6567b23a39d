"""Whole messages over a socket of this host: one system call sends one, and one takes it.

A stream of bytes needs two or more for each, and every one of them lets go of Python's lock. Both
ends prove that they know a token before anything else is said, and nobody waits for that, or for
an answer, longer than asked to. Not every system has such sockets; there nobody can listen.
"""

from __future__ import annotations

import contextlib
import select
import socket
from multiprocessing import AuthenticationError
from multiprocessing.connection import answer_challenge, deliver_challenge
from typing import Any, Final

GREETING_S: Final = 5.0
"""So long both ends may take to prove that they know the token."""
_GREETING_MAX: Final = 1 << 10
# In front of every message: one without any bytes says that the other end has left.
_MARK: Final = b"."


class Packets:
    """One end of a connection; whoever uses it is alone with it."""

    def __init__(self, connected: socket.socket) -> None:
        """Own a socket."""
        self._socket = connected
        self._patience_s: float | None = connected.gettimeout()
        self._coming = select.poll()
        self._coming.register(connected.fileno(), select.POLLIN)
        self.closed = False

    def fileno(self) -> int:
        """Return the number of the socket."""
        return self._socket.fileno()

    def wait_at_most(self, patience_s: float | None) -> None:
        """Let everything that waits for the other end fail after so long; None is never."""
        if patience_s != self._patience_s:
            self._socket.settimeout(patience_s)
            self._patience_s = patience_s

    def send_bytes(self, data: Any) -> None:
        """Send a message.

        Raises:
            OSError: the other end has left, or takes nothing in time.
        """
        self._socket.sendmsg((_MARK, data))

    def recv_bytes(self, maxlength: int = _GREETING_MAX) -> bytes:
        """Return the next message.

        Raises:
            EOFError: the other end has left.
            OSError: nothing comes in time, or a message is longer than that.
        """
        return self._whole(self._socket.recv(maxlength + 2), maxlength)

    def recv_waiting(self, maxlength: int) -> bytes | None:
        """Return the next message if it is there, without waiting for it.

        Raises:
            EOFError: the other end has left.
            OSError: the message is longer than that.
        """
        # A socket with a timeout waits in Python before each call, whatever its flags say.
        if not self._coming.poll(0):
            return None
        return self._whole(self._socket.recv(maxlength + 2), maxlength)

    @staticmethod
    def _whole(data: bytes, maxlength: int) -> bytes:
        if not data:
            raise EOFError
        if len(data) > maxlength + 1:
            msg = f"a message of more than {maxlength} bytes"
            raise OSError(msg)
        return data[1:]

    def close(self) -> None:
        """Leave; who waits at either end is told."""
        self.closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits in a call
        self._socket.close()


class PacketListener:
    """Where others connect, by a path."""

    def __init__(self, path: str, backlog: int) -> None:
        """Listen at once.

        Raises:
            OSError: nobody can listen there, or the system has no such sockets.
        """
        self._socket = _made()
        try:
            self._socket.bind(path)
            self._socket.listen(backlog)
        except OSError:
            self._socket.close()
            raise

    def accept(self) -> Packets:
        """Wait for the next one, who has not proved anything yet.

        Raises:
            OSError: the listener was closed, or the process has no place for one more.
        """
        connected, _ = self._socket.accept()
        return Packets(connected)

    def close(self) -> None:
        """Listen no more; who waits in `accept` is woken."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def connect(path: str, token: bytes, patience_s: float = GREETING_S) -> Packets:
    """Connect, and prove each other's token.

    Raises:
        OSError: nobody listens there who knows the token, or says so in time.
    """
    made = _made()
    try:
        made.settimeout(patience_s)
        made.connect(path)
        packets = Packets(made)
        answer_challenge(packets, token)  # type: ignore[arg-type]
        deliver_challenge(packets, token)  # type: ignore[arg-type]
    except (EOFError, AuthenticationError, AssertionError, ValueError) as error:
        # By version of Python one or the other says that a challenge is none.
        made.close()
        msg = f"who listens at {path!r} does not prove that it knows the token"
        raise OSError(msg) from error
    except OSError:
        made.close()
        raise
    return packets


def greet(caller: Packets, token: bytes, patience_s: float = GREETING_S) -> None:
    """Let a caller prove that it knows the token, and prove it as well.

    Raises:
        AuthenticationError: it does not.
        EOFError: it has left.
        OSError: it takes longer than that.
    """
    caller.wait_at_most(patience_s)
    deliver_challenge(caller, token)  # type: ignore[arg-type]
    answer_challenge(caller, token)  # type: ignore[arg-type]


def _made() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
