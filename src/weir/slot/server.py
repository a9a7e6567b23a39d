"""The network face of a slot: an Arrow Flight server over a `SlotService`."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
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
from weir.runtime.subtask import EpochInfo
from weir.slot.channel import TOKEN_BYTES, read_frames
from weir.slot.messages import Cut, EndMarker, EpochCall, decode, encode
from weir.slot.service import SlotService


def authorised(data: bytes, token: bytes) -> bytes:
    """Return what follows a valid token."""
    if not hmac.compare_digest(data[:TOKEN_BYTES], token):
        msg = "the token of this call is not valid for this job"
        raise flight.FlightUnauthenticatedError(msg)
    return data[TOKEN_BYTES:]


class SlotServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves epochs (`DoExchange`) and control (`DoAction`) of one slot."""

    def __init__(self, location: str, service: SlotService, token: bytes, leave: Any) -> None:
        """Listen at once; `leave` ends the process."""
        super().__init__(location)
        self._service = service
        self._token = token
        self._leave = leave

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take the whole input of an epoch, apply it, stream the output back."""
        call: EpochCall = decode(authorised(descriptor.command, self._token), EpochCall)
        try:
            frames = list(_incoming(reader))
            info = EpochInfo(
                call.epoch,
                call.checkpoint_id,
                call.checkpoint_timestamp_ms,
                call.final,
                call.drain,
                call.full,
                call.native,
                call.overtaking,
            )
            out = self._service.run(call.attempt, call.level, info, frames, call.directory)
        except WeirError as error:
            raise flight.FlightServerError(str(error)) from error
        writer.begin(FRAME_SCHEMA)
        for part in split_frames(out):
            writer.write_batch(frames_to_batch(part, _as_is))
        writer.write_metadata(encode(EndMarker(len(out))))

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        """Perform a control action."""
        body = authorised(action.body.to_pybytes(), self._token)
        try:
            return [self._perform(action.type, body)]
        except WeirError as error:
            raise flight.FlightServerError(str(error)) from error

    def _perform(self, action: str, body: bytes) -> bytes:
        if action == "complete":
            attempt, checkpoint = msgspec.msgpack.decode(body)
            staged = self._service.notify_complete(attempt, checkpoint)
            return msgspec.msgpack.encode(staged)
        if action == "aborted":
            attempt, checkpoint = msgspec.msgpack.decode(body)
            self._service.notify_aborted(attempt, checkpoint)
            return b""
        if action == "where":
            attempt, checkpoint, epoch = msgspec.msgpack.decode(body)
            return msgspec.msgpack.encode(self._service.where(attempt, checkpoint, epoch))
        if action == "cut":
            return msgspec.msgpack.encode(self._service.cut(decode(body, Cut)))
        if action == "revoke":
            attempt, checkpoint = msgspec.msgpack.decode(body)
            return msgspec.msgpack.encode(self._service.revoke(attempt, checkpoint))
        if action == "leave":
            self._leave(body.decode())
            return b""
        msg = f"unknown action {action!r}"
        raise flight.FlightServerError(msg)


def _incoming(reader: Any) -> Iterator[Incoming]:
    for batch in read_frames(reader, "the input of the epoch"):
        edges = batch.column(1).to_pylist()
        origins = batch.column(2).to_pylist()
        payloads = payload_views(batch.column(3))
        for edge, number, payload in zip(edges, origins, payloads, strict=True):
            yield Incoming(edge, number, payload)


def _as_is(target: int) -> int:
    return target
