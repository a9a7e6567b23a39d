"""A short way for look-ups between a driver and a slot on the same host: a socket of their own.

Python runs one thread at a time. While records are handled, a thread that Flight starts for a call
waits for its turn several times, up to five milliseconds each, and every turn stops the records. So
the thread that handles records looks at this socket itself, between two strides, and answers there.
While no epoch runs, a thread of the door does; during one it sleeps, whatever is asked.

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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import AuthenticationError
from typing import Any, Final

from weir.errors import WeirError
from weir.slot.channel import Channel
from weir.slot.lookup import LookupAnswer, LookupCall, decode_answer, encode_lookup
from weir.slot.packets import PacketListener, Packets, connect, greet

MESSAGE_MAX: Final = 64 << 10
_ANSWERED: Final = b"+"
_REFUSED: Final = b"-"
_TOO_LARGE: Final = b">"
_AGAIN_S: Final = 0.5
_SOON_S: Final = 0.0003
_NAP_MS: Final = 1
_NAPS: Final = 4
_LEARNING: Final = 16
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
        self._token = token
        self._lock = lock
        self._answer = answer
        self._listener = PacketListener(path, backlog=4)
        # Set at once, so that an epoch that runs sees both or none.
        self._present: tuple[Packets, Any] | None = None
        self._replaced: list[Packets] = []
        self._arming = threading.Lock()
        self._asked = select.epoll()
        self._over = os.eventfd(0)
        self._asked.register(self._over, select.EPOLLIN)
        self._armed: int | None = None
        self._epochs = 0
        self._closed = False
        self._pause = threading.Event().wait
        threading.Thread(target=self._let_in, name="callers of look-ups", daemon=True).start()
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
            self._leave(caller)

    @contextmanager
    def left_to_records(self) -> Iterator[None]:
        """Wake no thread of the door meanwhile: who holds the slot's lock looks itself."""
        self._arm(1)
        try:
            yield
        finally:
            self._arm(-1)

    def _arm(self, epochs: int = 0) -> None:
        """Let questions wake the door's thread, unless an epoch runs."""
        with self._arming:
            self._epochs += epochs
            present = self._present
            wanted = None if present is None or self._epochs else present[0].fileno()
            if wanted == self._armed or self._closed:
                return
            if self._armed is not None:
                self._asked.unregister(self._armed)
            if wanted is not None:
                self._asked.register(wanted, select.EPOLLIN)
            self._armed = wanted

    def _leave(self, caller: Packets) -> None:
        """Forget a caller who has left."""
        with self._arming:
            if self._present is not None and self._present[0] is caller:
                self._present = None
        self._arm()
        caller.close()

    def _let_in(self) -> None:
        """Let one caller in after the other; the newest one is heard."""
        while not self._closed:
            try:
                caller = self._listener.accept()
            except OSError as error:
                if not self._closed:
                    # Callers wait in vain, and go by Flight, until it is better.
                    log.warning("nobody is let in at the door of look-ups: %s", error)
                    self._pause(_AGAIN_S)
                continue
            try:
                greet(caller, self._token)
                caller.wait_at_most(None)  # it is read from when there is something, and only then
            except (AuthenticationError, AssertionError, ValueError, EOFError, OSError) as error:
                log.warning("somebody at the door of look-ups is not let in: %s", error)
                caller.close()
                continue
            self._hear(caller)

    def _hear(self, caller: Packets) -> None:
        asked = select.poll()
        asked.register(caller.fileno(), select.POLLIN)
        with self._arming:
            before, self._present = self._present, (caller, asked)
            if before is not None:
                # Not closed here: who handles records may be reading from it.
                self._replaced.append(before[0])
        self._arm()

    def _serve(self) -> None:
        """Answer while no epoch runs."""
        while True:
            self._asked.poll()
            if self._closed:
                break
            # An epoch that has just begun holds the lock to its end, and looks itself meanwhile.
            with self._lock:
                self.look()
                self._close_replaced()
        self._asked.close()
        os.close(self._over)

    def _close_replaced(self) -> None:
        with self._arming:
            gone, self._replaced = self._replaced, []
        for caller in gone:
            caller.close()

    def close(self) -> None:
        """Let nobody in any more."""
        with self._arming:
            if self._closed:
                return
            self._closed = True
            present, self._present = self._present, None
            os.eventfd_write(self._over, 1)
        self._listener.close()
        if present is not None:
            present[0].close()
        self._close_replaced()


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

    def __init__(self, path: str, token: bytes, *, naps: bool = False) -> None:
        """Connect, and prove each other's token.

        With `naps`, who answers has better things to do than to wake who waits for it.

        Raises:
            DoorClosedError: nobody listens there who knows the token, or says so in time.
        """
        self._lock = threading.Lock()
        self._naps = naps
        self._calls = 0
        self._usual_s = 0.0
        try:
            self._connection = connect(path, token)
        except OSError as error:
            msg = f"look-ups of {path!r}: {error}"
            raise DoorClosedError(msg) from error
        self._left = select.poll()
        self._left.register(self._connection.fileno(), 0)  # tells of nothing but an end

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
                answer = self._answered(data, patience_s)
            except TimeoutError:
                # A late answer would be taken for that to the next question.
                self._connection.close()
                msg = f"no record ended within {patience_s:g} s: ask again"
                raise WeirError(msg) from None
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

    def _answered(self, data: bytes, patience_s: float) -> bytes:
        """Ask; where answers take a while, look for it by the clock before waiting for it.

        Who answers wakes who waits, as a rule on its own core, where it has records to handle. How
        long answers take is learned from calls that wait, which some do for that alone.
        """
        connection, began = self._connection, time.monotonic()
        connection.wait_at_most(patience_s)
        connection.send_bytes(data)
        self._calls += 1
        if self._naps and self._usual_s > _SOON_S and self._calls % _LEARNING:
            for _ in range(_NAPS):
                self._left.poll(_NAP_MS)
                answer = connection.recv_waiting(MESSAGE_MAX)
                if answer is not None:
                    return answer
        answer = connection.recv_bytes(MESSAGE_MAX)
        self._usual_s = time.monotonic() - began
        return answer

    @property
    def is_open(self) -> bool:
        """Tell whether questions can be asked."""
        return not self._connection.closed

    def close(self) -> None:
        """Leave; who waits for an answer waits no more."""
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
        self._closed = threading.Event()

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
            if self._closed.is_set() or not self._has_door:
                return None
            path = self._channel.call("door", timeout_s=longer_s).decode()
            try:
                self._door = DoorCaller(path, self._token, naps=True) if path else None
            except DoorClosedError as error:
                log.debug("%s", error)
                self._door = None
            self._has_door = self._door is not None
            if self._closed.is_set() and self._door is not None:
                self._door.close()
            return self._door

    def close(self) -> None:
        """Leave the door, at once; the channel belongs to others."""
        self._closed.set()
        self._has_door = False
        door = self._door
        if door is not None:
            door.close()


def _refusal(reason: str) -> bytes:
    return _REFUSED + reason.encode("utf-8", "replace")[: MESSAGE_MAX - 1]


def _is_small(call: LookupCall) -> bool:
    """Tell whether a call asks for keys; all keys of a group are many as a rule."""
    return all(lookup.keys is not None for lookup in call.lookups)


def door_path(socket: str) -> str:
    """Return where the door of a slot is that listens at a Unix socket."""
    folder, name = os.path.split(socket)
    return os.path.join(folder, f"q{name[1:]}")
