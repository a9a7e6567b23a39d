"""Slots over Arrow Flight: a server that slots and pipes call, and the calls to slots."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from pyarrow import flight

from weir.clock import Clock
from weir.errors import WeirError
from weir.jobmanager.background import in_thread
from weir.jobmanager.network import Reception, Staged
from weir.jobmanager.postmortem import is_slot, process_on
from weir.jobmanager.registry import SlotEntry, SlotRegistry
from weir.slot.channel import (
    Channel,
    ChannelError,
    UnreachableError,
    server_options,
    tcp_location,
)
from weir.slot.closing import CLOSE_S, patience_s
from weir.slot.door import LookupWay
from weir.slot.lookup import LookupAnswer, LookupCall, SlotStates
from weir.slot.messages import (
    LOST,
    Acknowledge,
    Cut,
    Decline,
    Heartbeat,
    Hello,
    Register,
    SlotFailure,
    decode,
    encode,
)
from weir.slot.server import authorised
from weir.slot.spawn import Contact
from weir.slot.stacks import Stack, decode_stacks
from weir.storage.private_files import private_directory, remove_directory
from weir.tls import TlsFiles

log = logging.getLogger("weir.jobmanager")
LOCATE_PATIENCE_S = 10.0
_QUICK_S = 5.0
_ANSWER_S = 3.0
_LEAVE_S = CLOSE_S + _ANSWER_S  # longer than a slot takes to give its operators up
_COMMIT_S = 600.0
_COMMIT_LOOK_S = 0.1
_TOLD_AT_ONCE = 32
_decode_staged = msgspec.msgpack.Decoder(Staged).decode
_decode_states = msgspec.msgpack.Decoder(SlotStates).decode
_decode_place = msgspec.msgpack.Decoder(tuple[int, int]).decode
_Answers = Mapping[Future[bytes], SlotEntry]


class Gateway(flight.FlightServerBase):  # type: ignore[misc]
    """Serves `locate` to pipes and everything else to slots."""

    def __init__(
        self, location: str, token: bytes, reception: Reception, tls: TlsFiles | None = None
    ) -> None:
        """Listen at once."""
        super().__init__(location, **server_options(location, tls))
        self._token = token
        self._reception = reception
        self._handlers: dict[str, Callable[[bytes], bytes]] = {
            "locate": self._locate,
            "hello": self._hello,
            "register": self._register,
            "heartbeat": self._heartbeat,
            "acknowledge": self._acknowledge,
            "decline": self._decline,
            "failure": self._failure,
        }

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        """Perform a call."""
        body = authorised(action.body.to_pybytes(), self._token)
        handler = self._handlers.get(action.type)
        if handler is None:
            msg = f"unknown action {action.type!r}"
            raise flight.FlightServerError(msg)
        try:
            return [handler(body)]
        except WeirError as error:
            raise flight.FlightServerError(str(error)) from error
        except Exception:
            log.exception("call %s failed", action.type)
            raise

    def _locate(self, body: bytes) -> bytes:
        attempt, subtask = msgspec.msgpack.decode(body)
        found = self._reception.registry.locate(attempt, subtask, LOCATE_PATIENCE_S)
        return msgspec.msgpack.encode(
            (found.status, found.unix, found.tcp, found.host, found.message)
        )

    def _hello(self, body: bytes) -> bytes:
        return encode(self._reception.hello(decode(body, Hello)))

    def _register(self, body: bytes) -> bytes:
        self._reception.register(decode(body, Register))
        return b""

    def _heartbeat(self, body: bytes) -> bytes:
        return b"" if self._reception.heartbeat(decode(body, Heartbeat)) else b"leave"

    def _acknowledge(self, body: bytes) -> bytes:
        self._reception.acknowledge(decode(body, Acknowledge))
        return b""

    def _decline(self, body: bytes) -> bytes:
        self._reception.decline(decode(body, Decline))
        return b""

    def _failure(self, body: bytes) -> bytes:
        self._reception.failure(decode(body, SlotFailure))
        return b""


@dataclass(frozen=True)
class SlotPlace:
    """Where slots run and keep things; with `local` all of them are on this host.

    With `default_logs` nobody chose the directory of logs, and users of slots have their own. With
    `tls` slots on other hosts speak it. With `archives` slots run in a directory of this name,
    where those of the program are unpacked.
    """

    socket_dir: Path
    log_dir: Path
    local: bool
    default_logs: bool = False
    tls: TlsFiles | None = None
    archives: str | None = None

    @cached_property
    def host(self) -> str:
        """The name by which slots know the driver's host."""
        return "localhost" if self.local else driver_host()


class FlightNetwork:
    """Slots as processes of their own, on any host; fulfils `SlotNetwork`."""

    def __init__(self, registry: SlotRegistry, clock: Clock, place: SlotPlace) -> None:
        self.registry = registry
        self.place = place
        self.host = place.host
        self._clock = clock
        self._token = secrets.token_bytes(32)
        self._channels: dict[str, Channel] = {}
        self._ways: dict[str, LookupWay] = {}
        self._gateway: Gateway | None = None
        self._location = ""

    def open(self, reception: Reception) -> None:
        """Listen: on a Unix socket if all slots are on this host."""
        private_directory(self.place.socket_dir, "start the job again")
        if self.place.local:
            self._location = f"grpc+unix://{self.place.socket_dir}/jm"
            self._gateway = Gateway(self._location, self._token, reception)
            return
        tls = self.place.tls
        self._gateway = Gateway(tcp_location(self.host, 0, tls), self._token, reception, tls)
        self._location = tcp_location(self.host, self._gateway.port, tls)

    def contact(self) -> Contact:
        """Return what a slot needs to reach the job, once it is open."""
        return Contact(
            location=self._location,
            token=self._token,
            driver_host=self.host,
            driver_pid=os.getpid(),
            log_dir=str(self.place.log_dir),
            socket_dir=str(self.place.socket_dir),
            tcp=not self.place.local,
            default_logs=self.place.default_logs,
            tls=None if self.place.local else self.place.tls,
            archives=self.place.archives,
        )

    @property
    def log_dir(self) -> Path | None:
        """Return where the logs of slots on this host are."""
        return self.place.log_dir

    def _channel(self, slot: SlotEntry) -> Channel:
        location = slot.tcp or slot.unix
        channel = self._channels.get(location)
        if channel is None:
            channel = self._channels[location] = Channel(location, self._token, self.place.tls)
        return channel

    def complete(self, checkpoint_id: int) -> Staged:
        """Let all slots commit, at once; returns what the driver has to commit itself.

        A slot handles no records while it commits: one after the other, each would wait for all.
        Whether it returns or raises, no slot is committing any more that can be heard of. A slot
        that is gone is lost, and the registry knows it at once: the job fails for that, not for a
        call that could not be made.

        Raises:
            ChannelError: a slot is lost, failed to commit, or is silent although its attempt is
                over; the first of the former goes before others.
        """
        attempt = self.registry.attempt
        body = msgspec.msgpack.encode((attempt, checkpoint_id))
        asked = {
            in_thread(self._channel(slot).call, "complete", body, _COMMIT_S): slot
            for slot in self.registry.ready()
        }
        errors = self._await_commits(asked, attempt)
        if errors:
            raise next((e for e in errors if isinstance(e, UnreachableError)), errors[0])
        return [staged for answer in asked for staged in _decode_staged(answer.result())]

    def _await_commits(self, asked: _Answers, attempt: int) -> list[BaseException]:
        """Return what went wrong when all slots have answered, which may take long.

        Of a host that is cut off no answer comes, nor an error: failover must not wait for it.
        """
        errors: list[BaseException] = []
        waiting = set(asked)
        over_ms: int | None = None
        while waiting:
            done, waiting = wait(waiting, _COMMIT_LOOK_S, FIRST_COMPLETED)
            failed = [(asked[a], e) for a in done if (e := a.exception()) is not None]
            errors += [self._explained(slot, error, attempt) for slot, error in failed]
            if not self._is_over(attempt):
                continue
            now = self._clock.monotonic_ms()
            over_ms = now if over_ms is None else over_ms
            if now - over_ms >= _LEAVE_S * 1000:
                return [*errors, *(_silent(asked[answer], attempt) for answer in waiting)]
        return errors

    def _explained(self, slot: SlotEntry, error: BaseException, attempt: int) -> BaseException:
        """Return what the error of a call means; a slot that is gone is lost from now on."""
        if not isinstance(error, ChannelError) or not self._is_gone(slot, error, attempt):
            return error
        self.registry.fail(SlotFailure(attempt, slot.subtask, LOST, str(error)))
        return error if isinstance(error, UnreachableError) else UnreachableError(str(error))

    def _is_gone(self, slot: SlotEntry, error: ChannelError, attempt: int) -> bool:
        """Tell whether the slot is gone that a call broke off at.

        A process that dies in the middle of a call may break it off with any error.
        """
        if isinstance(error, UnreachableError):
            return True
        if self._is_over(attempt) or self.registry.known_failure(attempt) is not None:
            return False  # Nobody wants to know, or the slot has said itself what failed.
        if self.registry.has_ended(slot):
            return True
        try:
            self.stacks(slot, 0)
        except UnreachableError:
            return True
        except ChannelError as other:
            log.debug("slot %s is there: %s", slot.subtask, other)
        return False

    def _is_over(self, attempt: int) -> bool:
        return self.registry.attempt != attempt or self.registry.closed

    def aborted(self, checkpoint_id: int) -> None:
        """Tell all slots that a checkpoint was given up; nobody depends on it."""
        body = msgspec.msgpack.encode((self.registry.attempt, checkpoint_id))
        for slot in self.registry.ready():
            self._tell(slot, "aborted", body)

    def where(self, checkpoint_id: int, epoch: int) -> list[tuple[int, int]]:
        """Return what levels of an epoch slots have begun and finished; they hold from then on.

        Raises:
            ChannelError: a slot cannot be asked.
        """
        body = msgspec.msgpack.encode((self.registry.attempt, checkpoint_id, epoch))
        answers = [self._channel(s).call("where", body, _QUICK_S) for s in self.registry.ready()]
        return [_decode_place(answer) for answer in answers]

    def cut(self, cut: Cut) -> bool:
        """Tell all slots where a barrier overtakes rows; False when one has gone beyond it.

        Raises:
            ChannelError: a slot did not answer.
        """
        slots = self.registry.ready()
        answers = [self._channel(s).call_struct("cut", cut, _QUICK_S) for s in slots]
        return all(msgspec.msgpack.decode(answer) for answer in answers)

    def revoke(self, checkpoint_id: int) -> bool:
        """Let a barrier overtake nothing; True when it has done so at a slot, or may have."""
        body = msgspec.msgpack.encode((self.registry.attempt, checkpoint_id))
        return any([self._revoke(slot, body) for slot in self.registry.ready()])  # noqa: C419

    def _revoke(self, slot: SlotEntry, body: bytes) -> bool:
        try:
            answer = self._channel(slot).call("revoke", body, _QUICK_S)
        except ChannelError as error:
            log.debug("revoke: %s", error)
            return True
        return bool(msgspec.msgpack.decode(answer))

    def stacks(self, slot: SlotEntry, duration_ms: int) -> list[Stack]:
        """Return where the threads of a slot are, or were in a while if that is not zero.

        Raises:
            ChannelError: the slot cannot be asked.
        """
        body, patience_s = msgspec.msgpack.encode(duration_ms), duration_ms / 500 + _QUICK_S
        return decode_stacks(self._channel(slot).call("stacks", body, patience_s))

    def states(self, patience_ms: int) -> list[SlotStates]:
        """Return the keyed states that slots know.

        Raises:
            ChannelError: a slot cannot be asked.
        """
        body = msgspec.msgpack.encode((self.registry.attempt, patience_ms))
        seconds = patience_ms / 1000 + _QUICK_S
        answers = [self._channel(s).call("states", body, seconds) for s in self.registry.ready()]
        return [_decode_states(answer) for answer in answers]

    def lookup(self, subtask: int, call: LookupCall) -> LookupAnswer:
        """Let a slot look at its keyed state.

        Raises:
            WeirError: it is not there, cannot be asked, or refuses.
        """
        slot = next((s for s in self.registry.ready() if s.subtask == subtask), None)
        if slot is None:
            msg = f"slot {subtask} is not there: the job is starting, failing over or rescaling"
            raise ChannelError(msg)
        location = slot.tcp or slot.unix
        way = self._ways.get(location)
        if way is None:
            made = LookupWay(self._channel(slot), self._token)
            way = self._ways.setdefault(location, made)
        return way.ask(call, _QUICK_S)

    def _tell(self, slot: SlotEntry, action: str, body: bytes) -> None:
        try:
            self._channel(slot).call(action, body, timeout_s=2.0)
        except ChannelError as error:
            log.debug("%s: %s", action, error)

    def watch(self) -> None:
        """Notice slots on this host whose process is gone, also before they have spoken."""
        self.registry.look()

    def dismiss(self, slots: list[SlotEntry], reason: str) -> list[SlotFailure]:
        """Let slots end and see them gone; those that linger on this host are killed.

        Slots on other hosts that do not hear it leave when their lease ends.
        """
        failures = self._tell_to_leave([slot for slot in slots if slot.ready], reason)
        mark = self.place.log_dir.name
        for slot in slots:
            pid = process_on(self.host, slot)
            if pid is not None:
                _await_end(pid, mark, self._clock)
        return failures

    def _tell_to_leave(self, slots: list[SlotEntry], reason: str) -> list[SlotFailure]:
        """Tell all slots at once: each answers when it has closed its operators."""
        with ThreadPoolExecutor(_TOLD_AT_ONCE, "leave") as pool:
            answers = list(pool.map(lambda slot: self._let_leave(slot, reason), slots))
        for slot in slots:
            way = self._ways.pop(slot.tcp or slot.unix, None)
            if way is not None:
                way.close()
            channel = self._channels.pop(slot.tcp or slot.unix, None)
            if channel is not None:
                channel.close()
        return [failure for failure in answers if failure is not None]

    def _let_leave(self, slot: SlotEntry, reason: str) -> SlotFailure | None:
        timeout_s = patience_s(reason) + _ANSWER_S
        try:
            answer = self._channel(slot).call("leave", reason.encode(), timeout_s)
        except UnreachableError as error:
            log.debug("leave: %s", error)
            return None
        except ChannelError as error:
            log.warning("slot %s did not say how it closed its operators: %s", slot.subtask, error)
            return None
        return decode(answer, SlotFailure) if answer else None

    def close(self) -> None:
        """Stop listening; nobody reaches the job any more."""
        if self._gateway is not None:
            self._gateway.shutdown()
        remove_directory(self.place.socket_dir)


def _silent(slot: SlotEntry, attempt: int) -> ChannelError:
    return ChannelError(
        f"complete at {slot.tcp or slot.unix}: attempt {attempt} has been over for {_LEAVE_S} s, "
        "and its slot does not answer"
    )


def driver_host() -> str:
    """Return an address of this host that others reach."""
    return os.environ.get("SPARK_LOCAL_IP") or socket.gethostbyname(socket.gethostname())


def _await_end(pid: int, mark: str, clock: Clock) -> None:
    """Wait for one of our slots to end; kill it when it does not."""
    waiter = threading.Event()
    deadline = clock.monotonic_ms() + 5000
    while is_slot(pid, mark) and clock.monotonic_ms() < deadline:
        waiter.wait(0.02)
    if is_slot(pid, mark):
        log.warning("slot process %s did not leave and is killed", pid)
        os.kill(pid, signal.SIGKILL)
