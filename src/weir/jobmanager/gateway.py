"""The JobManager's network face: an Arrow Flight server that slots and pipes call."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from pyarrow import flight

from weir.errors import WeirError
from weir.jobmanager.registry import SlotEntry, SlotRegistry
from weir.slot.channel import Channel, ChannelError
from weir.slot.messages import (
    Acknowledge,
    Assignment,
    Cut,
    Decline,
    Hello,
    Register,
    SlotFailure,
    decode,
    encode,
)
from weir.slot.server import authorised

log = logging.getLogger("weir.jobmanager")
LOCATE_PATIENCE_S = 10.0
_QUICK_S = 5.0


class Callbacks:
    """What the gateway tells the job's supervisor; replaced by the supervisor."""

    def assignment(self, subtask: int) -> Assignment:
        """Return the work of a slot."""
        raise NotImplementedError

    def acknowledge(self, message: Acknowledge) -> None:
        """Take a slot's acknowledgement."""

    def decline(self, message: Decline) -> None:
        """Take a slot's refusal."""

    def failed(self, message: SlotFailure) -> None:
        """Take a slot's failure."""

    def staged(self, staged: list[tuple[str, list[bytes]]]) -> None:
        """Take staged data that a restored slot hands over."""


class Gateway(flight.FlightServerBase):  # type: ignore[misc]
    """Serves `locate` to pipes and everything else to slots."""

    def __init__(
        self, location: str, token: bytes, registry: SlotRegistry, callbacks: Callbacks
    ) -> None:
        """Listen at once."""
        super().__init__(location)
        self._token = token
        self._registry = registry
        self._callbacks = callbacks
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
        found = self._registry.locate(attempt, subtask, LOCATE_PATIENCE_S)
        return msgspec.msgpack.encode(
            (found.status, found.unix, found.tcp, found.host, found.message)
        )

    def _hello(self, body: bytes) -> bytes:
        message: Hello = decode(body, Hello)
        if not self._registry.hello(message):
            msg = f"slot {message.subtask} of attempt {message.attempt} is not wanted"
            raise flight.FlightServerError(msg)
        return encode(self._callbacks.assignment(message.subtask))

    def _register(self, body: bytes) -> bytes:
        message: Register = decode(body, Register)
        if not self._registry.register(message):
            msg = f"slot {message.subtask} of attempt {message.attempt} came too late"
            raise flight.FlightServerError(msg)
        if message.staged:
            self._callbacks.staged(message.staged)
        return b""

    def _heartbeat(self, body: bytes) -> bytes:
        attempt, subtask = msgspec.msgpack.decode(body)
        return b"" if self._registry.heartbeat(attempt, subtask) else b"leave"

    def _acknowledge(self, body: bytes) -> bytes:
        self._callbacks.acknowledge(decode(body, Acknowledge))
        return b""

    def _decline(self, body: bytes) -> bytes:
        self._callbacks.decline(decode(body, Decline))
        return b""

    def _failure(self, body: bytes) -> bytes:
        message: SlotFailure = decode(body, SlotFailure)
        if self._registry.fail(message):
            self._callbacks.failed(message)
        return b""


class SlotCalls:
    """The JobManager's calls to slots: about checkpoints, cuts, and the end."""

    def __init__(self, registry: SlotRegistry, token: bytes) -> None:
        """Share the registry's view of who is there."""
        self._registry = registry
        self._token = token
        self._channels: dict[str, Channel] = {}

    def _channel(self, slot: SlotEntry) -> Channel:
        location = slot.tcp or slot.unix
        channel = self._channels.get(location)
        if channel is None:
            channel = self._channels[location] = Channel(location, self._token)
        return channel

    def complete(self, checkpoint_id: int) -> list[tuple[str, list[bytes]]]:
        """Let all slots commit; returns what the driver has to commit itself."""
        body = msgspec.msgpack.encode((self._registry.attempt, checkpoint_id))
        staged: list[tuple[str, list[bytes]]] = []
        for slot in self._registry.ready():
            answer = self._channel(slot).call("complete", body, timeout_s=600.0)
            staged.extend(msgspec.msgpack.decode(answer, type=list[tuple[str, list[bytes]]]))
        return staged

    def aborted(self, checkpoint_id: int) -> None:
        """Tell all slots that a checkpoint was given up; nobody depends on it."""
        body = msgspec.msgpack.encode((self._registry.attempt, checkpoint_id))
        for slot in self._registry.ready():
            self._tell(slot, "aborted", body)

    def where(self, checkpoint_id: int, epoch: int) -> list[tuple[int, int]]:
        """Return what levels of an epoch slots have begun and finished; they hold from then on.

        Raises:
            ChannelError: a slot cannot be asked.
        """
        body = msgspec.msgpack.encode((self._registry.attempt, checkpoint_id, epoch))
        answers = [self._channel(s).call("where", body, _QUICK_S) for s in self._registry.ready()]
        return [msgspec.msgpack.decode(answer, type=tuple[int, int]) for answer in answers]

    def cut(self, cut: Cut) -> bool:
        """Tell all slots where a barrier overtakes rows; False when one has gone beyond it.

        Raises:
            ChannelError: a slot did not answer.
        """
        slots = self._registry.ready()
        answers = [self._channel(s).call_struct("cut", cut, _QUICK_S) for s in slots]
        return all(msgspec.msgpack.decode(answer) for answer in answers)

    def revoke(self, checkpoint_id: int) -> bool:
        """Let a barrier overtake nothing; True when it has done so at a slot, or may have."""
        body = msgspec.msgpack.encode((self._registry.attempt, checkpoint_id))
        return any([self._revoke(slot, body) for slot in self._registry.ready()])  # noqa: C419

    def _revoke(self, slot: SlotEntry, body: bytes) -> bool:
        try:
            answer = self._channel(slot).call("revoke", body, _QUICK_S)
        except ChannelError as error:
            log.debug("revoke: %s", error)
            return True
        return bool(msgspec.msgpack.decode(answer))

    def _tell(self, slot: SlotEntry, action: str, body: bytes) -> None:
        try:
            self._channel(slot).call(action, body, timeout_s=2.0)
        except ChannelError as error:
            log.debug("%s: %s", action, error)

    def leave(self, slots: list[SlotEntry], reason: str) -> None:
        """Tell slots to end; those that do not hear it leave when their lease ends."""
        for slot in slots:
            if not slot.ready:
                continue
            self._tell(slot, "leave", reason.encode())
            channel = self._channels.pop(slot.tcp or slot.unix, None)
            if channel is not None:
                channel.close()
