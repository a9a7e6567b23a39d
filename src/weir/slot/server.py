"""The network face of a slot: an Arrow Flight server over a `SlotService`."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from pyarrow import flight

from weir.errors import WeirError
from weir.runtime.frame import (
    FRAME_SCHEMA,
    Incoming,
    frames_to_batch,
    incoming_of,
    split_frames,
)
from weir.slot.channel import TOKEN_BYTES, read_frames, server_options
from weir.slot.door import door_path
from weir.slot.lookup import decode_lookup, encode_answer
from weir.slot.messages import Cut, EndMarker, EpochCall, SlotFailure, decode, encode
from weir.slot.service import SlotService
from weir.slot.stacks import stacks
from weir.tls import TlsFiles

# Built at import, as those of weir.slot.messages are.
_encode = msgspec.msgpack.Encoder().encode
log = logging.getLogger("weir.slot")
_UNIX = "grpc+unix://"
Leave = Callable[[str], SlotFailure | None]


def authorised(data: bytes, token: bytes) -> bytes:
    """Return what follows a valid token."""
    if not hmac.compare_digest(data[:TOKEN_BYTES], token):
        msg = "the token of this call is not valid for this job"
        raise flight.FlightUnauthenticatedError(msg)
    return data[TOKEN_BYTES:]


class SlotServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves epochs (`DoExchange`) and control (`DoAction`) of one slot."""

    def __init__(
        self,
        location: str,
        service: SlotService,
        token: bytes,
        leave: Leave,
        tls: TlsFiles | None = None,
    ) -> None:
        """Listen at once; `leave` closes everything and ends the process soon."""
        super().__init__(location, **server_options(location, tls))
        self._unix = location.removeprefix(_UNIX) if location.startswith(_UNIX) else ""
        self._service = service
        self._token = token
        self._leave = leave
        self._handlers: dict[str, Callable[[bytes], bytes]] = {
            "complete": self._complete,
            "aborted": self._aborted,
            "where": self._where,
            "cut": self._cut,
            "revoke": self._revoke,
            "stacks": self._stacks,
            "states": self._states,
            "lookup": self._lookup,
            "door": self._door,
            "leave": self._end,
        }

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take the whole input of an epoch, apply it, stream the output back."""
        call: EpochCall = decode(authorised(descriptor.command, self._token), EpochCall)
        try:
            frames = self._service.take_in(_incoming(reader))
            out = self._service.run(call, frames)
        except WeirError as error:
            raise flight.FlightServerError(str(error)) from error
        writer.begin(FRAME_SCHEMA)
        for part in split_frames(out):
            writer.write_batch(frames_to_batch(part, _as_is))
        writer.write_metadata(encode(EndMarker(len(out))))

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        """Perform a control action."""
        body = authorised(action.body.to_pybytes(), self._token)
        handler = self._handlers.get(action.type)
        if handler is None:
            msg = f"unknown action {action.type!r}"
            raise flight.FlightServerError(msg)
        try:
            return [handler(body)]
        except WeirError as error:
            raise flight.FlightServerError(str(error)) from error

    def _complete(self, body: bytes) -> bytes:
        attempt, checkpoint = msgspec.msgpack.decode(body)
        return msgspec.msgpack.encode(self._service.notify_complete(attempt, checkpoint))

    def _aborted(self, body: bytes) -> bytes:
        attempt, checkpoint = msgspec.msgpack.decode(body)
        self._service.notify_aborted(attempt, checkpoint)
        return b""

    def _where(self, body: bytes) -> bytes:
        attempt, checkpoint, epoch = msgspec.msgpack.decode(body)
        return msgspec.msgpack.encode(self._service.where(attempt, checkpoint, epoch))

    def _cut(self, body: bytes) -> bytes:
        return msgspec.msgpack.encode(self._service.cut(decode(body, Cut)))

    def _revoke(self, body: bytes) -> bytes:
        attempt, checkpoint = msgspec.msgpack.decode(body)
        return msgspec.msgpack.encode(self._service.revoke(attempt, checkpoint))

    def _stacks(self, body: bytes) -> bytes:
        return msgspec.msgpack.encode(stacks(int(msgspec.msgpack.decode(body))))

    def _states(self, body: bytes) -> bytes:
        attempt, patience_ms = msgspec.msgpack.decode(body)
        return _encode(self._service.states(attempt, patience_ms))

    def _lookup(self, body: bytes) -> bytes:
        return encode_answer(self._service.lookup(decode_lookup(body)))

    def _door(self, body: bytes) -> bytes:
        """Open the short way for look-ups; what comes from another host has none."""
        if not self._unix:
            return b""
        try:
            return self._service.open_door(door_path(self._unix), self._token).encode()
        except OSError as error:
            log.warning("look-ups go by Flight: %s", error)
            return b""

    def _end(self, body: bytes) -> bytes:
        failure = self._leave(body.decode())
        return b"" if failure is None else encode(failure)


def _incoming(reader: Any) -> Iterator[Incoming]:
    for batch in read_frames(reader, "the input of the epoch"):
        yield from incoming_of(batch)


def _as_is(target: int) -> int:
    return target
