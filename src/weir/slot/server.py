"""The network face of a slot: an Arrow Flight server over a `SlotService`."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from pyarrow import flight

from weir.errors import WeirError
from weir.runtime.frame import (
    FRAME_SCHEMA,
    Incoming,
    frames_to_batch,
    payload_views,
    split_frames,
)
from weir.slot.channel import TOKEN_BYTES, read_frames, server_options
from weir.slot.messages import Cut, EndMarker, EpochCall, SlotFailure, decode, encode
from weir.slot.service import SlotService
from weir.tls import TlsFiles

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
        self._service = service
        self._token = token
        self._leave = leave
        self._handlers: dict[str, Callable[[bytes], bytes]] = {
            "complete": self._complete,
            "aborted": self._aborted,
            "where": self._where,
            "cut": self._cut,
            "revoke": self._revoke,
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

    def _end(self, body: bytes) -> bytes:
        failure = self._leave(body.decode())
        return b"" if failure is None else encode(failure)


def _incoming(reader: Any) -> Iterator[Incoming]:
    for batch in read_frames(reader, "the input of the epoch"):
        edges = batch.column(1).to_pylist()
        origins = batch.column(2).to_pylist()
        payloads = payload_views(batch.column(3))
        for edge, number, payload in zip(edges, origins, payloads, strict=True):
            yield Incoming(edge, number, payload)


def _as_is(target: int) -> int:
    return target
