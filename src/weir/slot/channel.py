"""The client side of a slot and of the JobManager: Arrow Flight with a token in every call.

Between hosts Flight speaks TLS where files for it are given; both sides show a certificate then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from weir.errors import WeirError
from weir.runtime.frame import FRAME_SCHEMA
from weir.slot.messages import EndMarker, EpochCall, decode, encode
from weir.tls import TlsFiles

TOKEN_BYTES = 32
_TLS = "grpc+tls://"


class ChannelError(WeirError):
    """A peer could not be reached, broke off, or refused a call."""


class UnreachableError(ChannelError):
    """A peer is not there, or was gone before it had answered."""


def tcp_location(host: str, port: int, tls: TlsFiles | None) -> str:
    """Return the address of a server that other hosts reach."""
    return f"{'grpc://' if tls is None else _TLS}{host}:{port}"


def server_options(location: str, tls: TlsFiles | None) -> dict[str, Any]:
    """Return what a Flight server needs in order to listen at a location.

    Raises:
        UsageError: a file for TLS is missing or no good.
    """
    if tls is None or not location.startswith(_TLS):
        return {}
    contents = tls.read()
    return {
        "tls_certificates": [(contents.certificate, contents.key)],
        "verify_client": True,
        "root_certificates": contents.ca,
    }


def _client_options(location: str, tls: TlsFiles | None) -> dict[str, Any]:
    if tls is None or not location.startswith(_TLS):
        return {}
    contents = tls.read()
    return {
        "tls_root_certs": contents.ca,
        "cert_chain": contents.certificate,
        "private_key": contents.key,
    }


class Hangup:
    """Lets another thread break off exchanges that wait for their slots."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancels: list[Callable[[], None]] = []
        self._over = False

    def add(self, cancel: Callable[[], None]) -> None:
        """Take note of an exchange; it is broken off at once if that was asked for before."""
        with self._lock:
            if not self._over:
                self._cancels.append(cancel)
                return
        cancel()

    def now(self) -> None:
        """Break off all exchanges."""
        with self._lock:
            self._over = True
            cancels, self._cancels = self._cancels, []
        for cancel in cancels:
            cancel()


class Channel:
    """A connection to a slot or to the JobManager; cheap to make, safe to share by threads."""

    def __init__(self, location: str, token: bytes, tls: TlsFiles | None = None) -> None:
        """Prepare a connection; the first call opens it.

        Raises:
            UsageError: the location is one of TLS, and a file for it is missing or no good.
        """
        self.location = location
        self._token = token
        self._client = flight.connect(location, **_client_options(location, tls))

    def has(self, token: bytes) -> bool:
        """Tell whether calls carry this token."""
        return self._token == token

    def call(self, action: str, body: bytes = b"", timeout_s: float = 30.0) -> bytes:
        """Perform an action and return its answer."""
        options = flight.FlightCallOptions(timeout=timeout_s)
        try:
            results = list(
                self._client.do_action(flight.Action(action, self._token + body), options)
            )
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            msg = f"{action} at {self.location}: {self._explained(error)}"
            gone = isinstance(error, flight.FlightUnavailableError)
            raise (UnreachableError if gone else ChannelError)(msg) from error
        return results[0].body.to_pybytes() if results else b""

    def call_struct(self, action: str, message: msgspec.Struct, timeout_s: float = 30.0) -> bytes:
        """Perform an action with a message as its body."""
        return self.call(action, encode(message), timeout_s)

    def exchange(
        self, call: EpochCall, batches: Iterable[pa.RecordBatch], hangup: Hangup | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Send an epoch and return its output, both with an end marker that is checked."""
        descriptor = flight.FlightDescriptor.for_command(self._token + encode(call))
        try:
            writer, reader = self._client.do_exchange(descriptor)
            if hangup is not None:
                hangup.add(reader.cancel)
            with writer:
                writer.begin(FRAME_SCHEMA)
                sent = 0
                for batch in batches:
                    sent += batch.num_rows
                    writer.write_batch(conform(batch))
                writer.write_metadata(encode(EndMarker(sent)))
                writer.done_writing()
                yield from read_frames(reader, f"the output of slot {self.location}")
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            msg = f"slot at {self.location}: {self._explained(error)}"
            raise ChannelError(msg) from error

    def _explained(self, error: BaseException) -> str:
        text = first_line(error)
        if not self.location.startswith(_TLS) or not isinstance(
            error, flight.FlightUnavailableError
        ):
            return text
        return (
            f"{text} (with TLS: is the other side there, does its certificate name this address, "
            "and are both certificates of an authority in weir.ssl.ca?)"
        )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give a batch from Spark the frame schema; the columns are the same."""
    if batch.schema.equals(FRAME_SCHEMA):
        return batch
    return pa.RecordBatch.from_arrays(batch.columns, schema=FRAME_SCHEMA)


def read_frames(reader: Any, what: str) -> Iterator[pa.RecordBatch]:
    """Read batches up to the end marker; a stream that breaks off raises."""
    received = 0
    marker: EndMarker | None = None
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            break
        if chunk.data is not None and chunk.data.num_rows:
            received += chunk.data.num_rows
            yield chunk.data
        if chunk.app_metadata is not None:
            marker = decode(chunk.app_metadata.to_pybytes(), EndMarker)
    if marker is None or marker.frames != received:
        expected = "an end marker" if marker is None else f"{marker.frames} frames"
        msg = f"{what} broke off after {received} frames, expected {expected}"
        raise ChannelError(msg)


def first_line(error: BaseException) -> str:
    """Return the part of a Flight error that a person can read."""
    text = str(error).split(". Detail:", maxsplit=1)[0].split(". gRPC client debug", maxsplit=1)[0]
    return text.strip() or type(error).__name__
