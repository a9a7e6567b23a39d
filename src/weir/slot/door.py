"""A short way for look-ups between a driver and a slot on the same host: a socket of their own.

Python runs one thread at a time. While records are handled, a thread that Flight starts for a call
waits for its turn several times, up to five milliseconds each, and every turn stops the records. So
the thread that handles records looks at this socket itself, between two strides, and answers there.
While no epoch runs, a thread of the door does.

Messages are small, so that neither side ever waits for the other to read: what is larger goes by
Flight. Both sides prove that they know the job's token. The door is opened by the first look-up, so
slots that nobody asks have none.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Final

from weir.errors import WeirError
from weir.slot.channel import Channel
from weir.slot.lookup import LookupAnswer, LookupCall, decode_answer, encode_lookup

MESSAGE_MAX: Final = 64 << 10
_ANSWERED: Final = b"+"
_REFUSED: Final = b"-"
_TOO_LARGE: Final = b">"
log = logging.getLogger("weir.slot")


class DoorClosedError(WeirError):
    """The door is not there, or what was asked is too large for it: ask by Flight."""


class Door:
    """The slot's side; `answer` is called under the slot's lock, when no record is handled."""

    def __init__(
        self, path: str, token: bytes, lock: Any, answer: Callable[[bytes], bytes]
    ) -> None:
        """Listen at once.

        Raises:
            OSError: nobody can listen there.
        """
        self.path = path
        self._lock = lock
        self._answer = answer
        self._listener = Listener(path, "AF_UNIX", backlog=4, authkey=token)
        # Set at once, so that an epoch that runs sees both or none.
        self._present: tuple[Connection, Any] | None = None
        self._closed = False
        threading.Thread(target=self._serve, name="look-ups", daemon=True).start()

    def look(self) -> None:
        """Answer what is asked; the caller holds the slot's lock and handles no record."""
        present = self._present
        if present is None:
            return
        caller, asked = present
        try:
            # Who asks waits for the answer: there is never more than one question.
            if asked.poll(0):
                caller.send_bytes(replied(self._answer, caller.recv_bytes(MESSAGE_MAX)))
        except (EOFError, OSError):
            self._present = None  # has left

    def _serve(self) -> None:
        """Let one caller in after the other, and answer while no epoch runs."""
        while not self._closed:
            try:
                caller = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError) as error:
                log.warning("somebody at the door of look-ups is not let in: %s", error)
                continue
            except OSError:
                return  # closed
            waiting, asked = select.poll(), select.poll()
            for one in (waiting, asked):
                one.register(caller.fileno(), select.POLLIN)
            self._present = (caller, asked)
            while self._is_present(caller):
                waiting.poll()
                # An epoch holds the lock to its end, and looks itself meanwhile.
                with self._lock:
                    self.look()
            caller.close()

    def _is_present(self, caller: Connection) -> bool:
        present = self._present
        return present is not None and present[0] is caller

    def close(self) -> None:
        """Let nobody in any more."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.close()


def replied(answer: Callable[[bytes], bytes], data: bytes) -> bytes:
    """Return the message that answers a question, or says why it is not answered."""
    try:
        found = answer(data)
    except WeirError as error:
        return _refusal(str(error))
    except Exception as error:
        # Whatever a look-up comes across, a value's own code for one, is no failure of records.
        log.exception("a look-up failed")
        return _refusal(f"the look-up failed: {type(error).__name__}: {error}")
    return _TOO_LARGE if len(found) >= MESSAGE_MAX else _ANSWERED + found


class DoorCaller:
    """The driver's side: one call at a time, over a connection that stays; thread-safe."""

    def __init__(self, path: str, token: bytes) -> None:
        """Connect, and prove each other's token.

        Raises:
            DoorClosedError: nobody listens there who knows the token.
        """
        self._lock = threading.Lock()
        try:
            self._connection: Connection = Client(path, "AF_UNIX", authkey=token)
        except (OSError, EOFError, AuthenticationError) as error:
            msg = f"look-ups of {path!r}: {error}"
            raise DoorClosedError(msg) from error

    def ask(self, data: bytes, patience_s: float) -> bytes:
        """Return the answer of the slot.

        Raises:
            DoorClosedError: the slot has left, or question or answer are too large.
            WeirError: the slot refuses, or has no moment for it in time.
        """
        if len(data) > MESSAGE_MAX:
            msg = f"{len(data)} bytes do not go through the door"
            raise DoorClosedError(msg)
        with self._lock:
            try:
                self._connection.send_bytes(data)
                if not self._connection.poll(patience_s):
                    # A late answer would be taken for that to the next question.
                    self._connection.close()
                    msg = f"no record ended within {patience_s:g} s: ask again"
                    raise WeirError(msg)
                answer = self._connection.recv_bytes()
            except (OSError, EOFError) as error:
                self._connection.close()
                msg = f"the slot has left: {error}"
                raise DoorClosedError(msg) from error
        if answer[:1] == _TOO_LARGE:
            msg = "the answer does not go through the door"
            raise DoorClosedError(msg)
        if answer[:1] == _REFUSED:
            raise WeirError(answer[1:].decode("utf-8", "replace"))
        return answer[1:]

    @property
    def is_open(self) -> bool:
        """Tell whether questions can be asked."""
        return not self._connection.closed

    def close(self) -> None:
        """Leave."""
        with self._lock:
            self._connection.close()


class LookupWay:
    """How a driver asks one slot: through its door, else by Flight; thread-safe."""

    def __init__(self, channel: Channel, token: bytes) -> None:
        """Know the slot; its door is opened by the first question."""
        self._channel = channel
        self._token = token
        self._lock = threading.Lock()
        self._door: DoorCaller | None = None
        self._has_door = True

    def ask(self, call: LookupCall, longer_s: float) -> LookupAnswer:
        """Return what the slot finds; by Flight an answer may take `longer_s` than its patience.

        Raises:
            WeirError: it cannot be asked, refuses, or has no moment for it in time.
        """
        data, patience_s = encode_lookup(call), call.patience_ms / 1000
        door = self._opened(longer_s) if _is_small(call) else None
        if door is not None:
            with contextlib.suppress(DoorClosedError):
                return decode_answer(door.ask(data, patience_s))
        return decode_answer(self._channel.call("lookup", data, patience_s + longer_s))

    def _opened(self, longer_s: float) -> DoorCaller | None:
        with self._lock:
            if self._door is not None and self._door.is_open:
                return self._door
            if not self._has_door:
                return None
            path = self._channel.call("door", timeout_s=longer_s).decode()
            try:
                self._door = DoorCaller(path, self._token) if path else None
            except DoorClosedError as error:
                log.debug("%s", error)
                self._door = None
            self._has_door = self._door is not None
            return self._door

    def close(self) -> None:
        """Leave the door; the channel belongs to others."""
        with self._lock:
            self._has_door = False
            if self._door is not None:
                self._door.close()


def _refusal(reason: str) -> bytes:
    return _REFUSED + reason.encode("utf-8", "replace")[: MESSAGE_MAX - 1]


def _is_small(call: LookupCall) -> bool:
    """Tell whether a call asks for keys; all keys of a group are many as a rule."""
    return all(lookup.keys is not None for lookup in call.lookups)


def door_path(socket: str) -> str:
    """Return where the door of a slot is that listens at a Unix socket."""
    folder, name = os.path.split(socket)
    return os.path.join(folder, f"q{name[1:]}")
