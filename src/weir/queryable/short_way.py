"""A short way for look-ups between a client and a driver of the same user on the same host.

Of a small call over Flight most of the time is gRPC's, on both sides. A socket in a private
directory takes a fraction of that, which counts where client, driver and slots share cores. The
server tells clients where it is when they ask over Flight with the right token; both sides then
prove that they know the token. What does not go this way goes by Flight: larger questions and
answers, clients on other hosts or of other users, servers with TLS.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import Final

from weir.slot.door import MESSAGE_MAX, DoorCaller, DoorClosedError, replied
from weir.slot.packets import PacketListener, Packets, greet
from weir.storage.private_files import remove_directory, temporary_directory

CALLERS_MAX: Final = 64
_AGAIN_S: Final = 0.5
_LONGEST: Final = 90  # of the path of a socket
log = logging.getLogger("weir.queryable")


class QueryDoor:
    """The server's side: a thread for each caller, of whom there are few."""

    def __init__(self, token: bytes, answer: Callable[[bytes], bytes]) -> None:
        """Listen at once.

        Raises:
            StorageError: there is no place for the socket.
            OSError: nobody can listen there.
        """
        self._token = token
        self._answer = answer
        self._folder = temporary_directory("weir-queries-", longest=_LONGEST)
        self.path = str(self._folder / "q")
        self._places = threading.BoundedSemaphore(CALLERS_MAX)
        self._closed = False
        try:
            self._listener = PacketListener(self.path, backlog=16)
        except OSError:
            remove_directory(self._folder)
            raise
        threading.Thread(target=self._accept, name="callers of queries", daemon=True).start()

    def _accept(self) -> None:
        pause = threading.Event().wait
        while not self._closed:
            try:
                caller = self._listener.accept()
            except OSError as error:
                if not self._closed:
                    # Callers wait in vain, and go by Flight, until it is better.
                    log.warning("nobody is let in at the door of queries: %s", error)
                    pause(_AGAIN_S)
                continue
            if not self._places.acquire(blocking=False):
                caller.close()  # goes by Flight
                continue
            threading.Thread(
                target=self._serve, args=(caller,), name="a caller of queries", daemon=True
            ).start()

    def _serve(self, caller: Packets) -> None:
        _let_others_go_on()
        try:
            # Here, not where callers are accepted: who hangs half-way holds up nobody else.
            greet(caller, self._token)
            caller.wait_at_most(None)
            while True:
                question = caller.recv_bytes(MESSAGE_MAX)
                caller.send_bytes(replied(self._answer, question))
        except (AuthenticationError, AssertionError, ValueError) as error:
            # By version of Python one or the other says that a challenge is none.
            log.warning("somebody at the door of queries is not let in: %s", error)
        except (EOFError, OSError):
            pass  # has left
        finally:
            caller.close()
            self._places.release()

    def close(self) -> None:
        """Let nobody in any more."""
        self._closed = True
        self._listener.close()
        remove_directory(self._folder)


def _let_others_go_on() -> None:
    """Let the kernel not stop what runs on a core when this thread wakes up there.

    A slot that answers wakes this thread, as a rule on its own core, and has records to handle. So
    this one runs a little later, or on another core.
    """
    with contextlib.suppress(OSError, AttributeError):  # not allowed here, or not known
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


class ShortWay:
    """The client's side; thread-safe. Connections are opened by need, and stay."""

    def __init__(self, find: Callable[[], str], token: bytes) -> None:
        """Ask by `find` where the server listens, when it is needed; "" is nowhere."""
        self._find = find
        self._token = token
        self._lock = threading.Lock()
        self._path: str | None = None
        self._free: list[DoorCaller] = []

    def ask(self, question: bytes, patience_s: float) -> bytes:
        """Return the server's answer.

        Raises:
            DoorClosedError: it has to be asked by Flight.
            WeirError: the server's error, as it tells it.
        """
        caller = self._taken()
        try:
            return caller.ask(question, patience_s)
        finally:
            with self._lock:
                if self._path == "":
                    caller.close()
                elif caller.is_open:
                    self._free.append(caller)

    def _taken(self) -> DoorCaller:
        with self._lock:
            while self._free:
                caller = self._free.pop()
                if caller.is_open:
                    return caller
            if self._path is None:
                found = self._find()
                self._path = found if _is_own_socket(found) else ""
            if not self._path:
                msg = "there is no short way to the server"
                raise DoorClosedError(msg)
            try:
                return DoorCaller(self._path, self._token)
            except DoorClosedError:
                self._path = None  # the server may have been started anew
                raise

    def close(self) -> None:
        """Leave."""
        with self._lock:
            self._path = ""
            for caller in self._free:
                caller.close()
            self._free = []


def _is_own_socket(path: str) -> bool:
    """Tell whether a path is a socket of this user, in a directory where nobody else writes."""
    if not path:
        return False
    try:
        found, folder = os.lstat(path), os.lstat(Path(path).parent)
    except OSError:
        return False  # on another host
    private = folder.st_uid == os.geteuid() and not folder.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return private and found.st_uid == os.geteuid() and stat.S_ISSOCK(found.st_mode)
