"""Asks for the state of a running job, from any process: Flink's `QueryableStateClient`.

Beyond it: many keys in one call, ranges of keys, all rows as a stream of Arrow batches, committed
state, and how old an answer is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import flight

from weir.backend.kinds import Shape
from weir.codec.portable import Portable, portable
from weir.common.completable_future import CompletableFuture
from weir.common.state import State
from weir.common.typeinfo import Types
from weir.errors import StorageError, UsageError, WeirError
from weir.jobmanager import directory
from weir.jobmanager.queries import (
    Answer,
    Entries,
    Facts,
    Level,
    QueryError,
    QueryLimitError,
    QueryRefusedError,
    StateUnavailableError,
    StateView,
    UnknownJobError,
    UnknownKeyOrNamespaceError,
)
from weir.offline.tables import KEY
from weir.queryable import protocol
from weir.queryable.gathering import NOTHING, Gathering, Question, Stored, StoredByKey
from weir.queryable.immutable import state_of, state_with, stored_by_key
from weir.queryable.protocol import QueryRequest, ReadBy
from weir.queryable.short_way import ShortWay
from weir.rest.settings import is_loopback
from weir.slot.channel import first_line
from weir.slot.door import DoorClosedError
from weir.tls import TlsFiles

DEFAULT_PORT: Final = 9069
_THREADS: Final = 8
_QUESTIONS: Final = 64
_TLS_HINT: Final = (
    ", or iii) TLS: the server speaks none, its certificate does not name this host or is not of "
    "an authority in weir.ssl.ca, or it wants to see one of the client's"
)


@dataclass(frozen=True)
class Found:
    """States by key, and how true they are; a key that has nothing is not there."""

    facts: Facts
    states: dict[Any, State]


class QueryableStateClient:
    """A connection to the driver of a job; safe to share by threads.

    `token` is `weir.queryable-state.token` of the job; that of a job of the same user on this host
    is found. With `tls` the server has to prove who it is, to an authority in `tls.ca` or one of
    the system; a certificate of the client is shown to servers that ask for one. Values of no
    declared type are loaded if they are plain data, others only with `unpickle`, which runs code of
    whoever wrote them.

    Example:
        client = QueryableStateClient("localhost", 9069, token="secret")
        counts = ValueStateDescriptor("count", Types.LONG())
        future = client.get_kv_state(job_id, "counts", "ada", Types.STRING(), counts)
    """

    def __init__(
        self,
        remote_hostname: str,
        remote_port: int = DEFAULT_PORT,
        *,
        token: str | None = None,
        tls: TlsFiles | None = None,
        timeout_s: float = 30.0,
        unpickle: bool = False,
    ) -> None:
        """Prepare a connection; the first call opens it.

        Raises:
            UsageError: the host is empty, the port is none, or a file for TLS is no good.
        """
        if not remote_hostname or not 0 < remote_port < 1 << 16:
            msg = f"{remote_hostname!r}:{remote_port!r} is no address: expected a host and a port"
            raise UsageError(msg)
        options: dict[str, Any] = {}
        if tls is not None:
            contents = tls.read_as_client()
            options = {
                "tls_root_certs": contents.ca,
                "cert_chain": contents.certificate,
                "private_key": contents.key,
            }
            # Without an authority of its own a client trusts those of the system.
            options = {name: data for name, data in options.items() if data}
        scheme = "grpc" if tls is None else "grpc+tls"
        host = f"[{remote_hostname}]" if ":" in remote_hostname else remote_hostname
        self.location = f"{scheme}://{host}:{remote_port}"
        self._client = flight.connect(self.location, **options)
        secret = token or _announced_token(remote_hostname, remote_port)
        headers = [(protocol.AUTHORIZATION.encode(), f"Bearer {secret}".encode())]
        self._options = flight.FlightCallOptions(timeout=timeout_s, headers=headers)
        self._pool = ThreadPoolExecutor(_THREADS, "weir-queries")
        self._short_way: ShortWay | None = None
        if tls is None and is_loopback(remote_hostname):
            self._short_way = ShortWay(self._door, secret.encode())
        self._patience_s = timeout_s
        self._gathering = Gathering(self._look, self._pool)
        self._questions = _Recent()
        self._unpickle = unpickle

    @classmethod
    def of(cls, job_id: Any, **options: Any) -> QueryableStateClient:
        """Connect to a job of this user on this host; `options` are those of the constructor.

        Raises:
            UnknownJobError: none of that id runs here with `queryable-state.enable`.
        """
        found = [job for job in directory.running() if job.job_id == str(job_id)]
        url = found[0].query_url if found else ""
        if not url:
            msg = f"no job {job_id} runs on this host whose state can be queried"
            raise UnknownJobError(msg)
        host, _, port = url.rpartition("//")[2].rpartition(":")
        host = "localhost" if host in ("0.0.0.0", "::") else host
        tls = found[0].tls if url.startswith("grpc+tls") else None
        given = {"token": found[0].query_token, "tls": tls, **options}
        return cls(host.strip("[]"), int(port), **given)

    def get_kv_state(
        self,
        job_id: Any,
        queryable_state_name: str,
        key: Any,
        key_type: Any,
        state_descriptor: Any,
        **terms: Any,
    ) -> CompletableFuture:
        """Return a future of the state under a key, read-only.

        Look-ups that wait at the same time go in one call, and each has its own result. `terms` are
        those of `get`. The future fails with `UnknownKeyOrNamespaceError` when there is nothing
        under the key, and with the other errors of `weir.queryable`.
        """
        asked = str(job_id), queryable_state_name, key_type, id(state_descriptor)
        known = None if terms else self._questions.get(asked)
        if known is None:
            request = _keys_request(_request(job_id, queryable_state_name, terms), [key], key_type)
            request = msgspec.structs.replace(request, read_by=_read_by(state_descriptor))
            known = Question.about(request, _keys(key_type)), state_descriptor
            if not terms:
                self._questions.put(asked, known)
        question, descriptor = known
        encoded = _encoded_keys([key], question.of)[0]

        def made(answer: Answer | Stored) -> State:
            if not isinstance(answer, Stored):
                return state_of(descriptor, answer, unpickle=self._unpickle)
            if answer.value is NOTHING:
                raise UnknownKeyOrNamespaceError
            return state_with(descriptor, answer.value, answer.facts)

        return CompletableFuture(self._gathering.submit(question, encoded, made))

    def get(
        self,
        job_id: Any,
        name: str,
        keys: Iterable[Any],
        key_type: Any,
        descriptor: Any,
        **terms: Any,
    ) -> Found:
        """Return the states under many keys, in one call; keys that have nothing are left out.

        Args:
            job_id: the job; "" for the only one of its driver.
            name: what `set_queryable` said, or operator and state with a dot between them.
            keys: the keys.
            key_type: their type.
            descriptor: the state's kind and types.
            terms: `level` ("live" or "committed"), `max_age_ms`, and `namespace`, the start and
                end of a window.

        Raises:
            QueryError: there is no answer.
        """
        answer = self._ask(_keys_request(_request(job_id, name, terms), list(keys), key_type))
        found: dict[Any, State] = {}
        column = answer.table[KEY].combine_chunks()
        shown = _keys(key_type).values(column)
        places: dict[Any, list[int]] = {}
        for place, key in enumerate(shown):
            places.setdefault(key, []).append(place)
        for key, own in places.items():
            part = Answer(answer.facts, answer.table.take(own), answer.opaque)
            found[key] = state_of(descriptor, part, unpickle=self._unpickle)
        return Found(answer.facts, found)

    def table(
        self, job_id: Any, name: str, keys: Iterable[Any], key_type: Any, **terms: Any
    ) -> Answer:
        """Return the rows of some keys as an Arrow table, whatever the state's kind.

        Raises:
            QueryError: there is no answer.
        """
        return self._ask(_keys_request(_request(job_id, name, terms), list(keys), key_type))

    def scan(self, job_id: Any, name: str, **wanted: Any) -> Answer:
        """Return rows in the order of keys: with a `prefix`, or from `low` to before `high`.

        `wanted` may have a `limit`, too, and the terms of `get`.

        Raises:
            QueryError: there is no answer.
        """
        return self._ask(_request(job_id, name, wanted))

    def stream(self, job_id: Any, name: str, **terms: Any) -> Any:
        """Return rows as a `pyarrow.RecordBatchReader`, which reads them as they come.

        `terms` are those of `scan`, whose limit cuts in no order here. Rows of one key group are
        of one moment. Of committed state all rows are.

        Raises:
            QueryError: there is no answer.
        """
        ticket = protocol.TICKET + protocol.encode_request(_request(job_id, name, terms))
        with _asked(self.location):
            reader = self._client.do_get(flight.Ticket(ticket), self._options)
            schema = reader.schema
        return pa.RecordBatchReader.from_batches(schema, self._batches(reader))

    def states(self, job_id: Any = "") -> list[StateView]:
        """Return the states of a job that can be queried.

        Raises:
            QueryError: there is no answer.
        """
        return protocol.decode_views(self._call("states", str(job_id).encode()))

    def _batches(self, reader: Any) -> Iterator[Any]:
        with _asked(self.location):
            for chunk in reader:
                yield chunk.data

    def _ask(self, request: QueryRequest) -> Answer:
        answer = protocol.decode_answer(self._call("get", protocol.encode_request(request)))
        if isinstance(answer, Entries):
            msg = f"{self.location} answers a question that was not asked"
            raise QueryError(msg)
        return answer

    def _look(self, request: QueryRequest) -> Answer | StoredByKey:
        question = protocol.encode_request(request)
        answer = protocol.decode_answer(self._shortly(question) or self._call("get", question))
        return answer if isinstance(answer, Answer) else stored_by_key(answer, request)

    def _shortly(self, question: bytes) -> bytes | None:
        """Ask a server on this host; None where that has to go by Flight."""
        if self._short_way is None:
            return None
        try:
            return self._short_way.ask(question, self._patience_s)
        except DoorClosedError:
            return None
        except WeirError as error:
            raise protocol.error_of(str(error)) from error

    def _door(self) -> str:
        try:
            return self._call("door", b"").decode()
        except QueryError:
            return ""  # Flight tells what is wrong

    def _call(self, action: str, body: bytes) -> bytes:
        with _asked(self.location):
            results = list(self._client.do_action(flight.Action(action, body), self._options))
        return results[0].body.to_pybytes() if results else b""

    def shutdown_and_wait(self) -> None:
        """Wait for what was asked, and close the connection."""
        self._pool.shutdown(wait=True)
        if self._short_way is not None:
            self._short_way.close()
        self._client.close()

    def shutdown_and_handle(self) -> CompletableFuture:
        """Close the connection; completes when that is done."""
        self.shutdown_and_wait()
        return CompletableFuture.completed(None)

    close = shutdown_and_wait

    def __enter__(self) -> QueryableStateClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _asked:
    """Turns what Flight raises into errors of queries."""

    def __init__(self, location: str) -> None:
        self._location = location

    def __enter__(self) -> None:
        """Nothing has to be done before."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Say what it means.

        Raises:
            QueryError: something of Flight was raised.
        """
        if error is None or isinstance(error, QueryError):
            return
        text = first_line(error)
        if isinstance(error, flight.FlightUnauthenticatedError):
            msg = f"{self._location} refuses the token: give weir.queryable-state.token of the job"
            raise QueryRefusedError(msg) from error
        if isinstance(error, flight.FlightUnavailableError):
            hint = _TLS_HINT if self._location.startswith("grpc+tls") else ""
            msg = (
                f"nothing answers queries at {self._location} ({text}): UnknownLocation: either "
                "i) the state is not ready, or ii) the job does not exist, or its "
                f"queryable-state.enable is not set{hint}"
            )
            raise StateUnavailableError(msg) from error
        if isinstance(error, flight.FlightTimedOutError):
            msg = f"{self._location} did not answer in time"
            raise QueryLimitError(msg) from error
        if isinstance(error, (flight.FlightError, pa.ArrowException)):
            raise protocol.error_of(text) from error


def _announced_token(host: str, port: int) -> str:
    """Return the token of a job of this user on this host, "" for any other."""
    if not is_loopback(host):
        return ""
    try:
        jobs = directory.running()
    except StorageError:
        return ""
    found = (job for job in jobs if job.query_url.rpartition(":")[2] == str(port))
    return next((job.query_token for job in found), "")


def _keys(key_type: Any) -> Portable:
    """Return how keys of a type are encoded."""
    return portable(key_type or Types.PICKLED_BYTE_ARRAY())


def _keys_request(request: QueryRequest, keys: list[Any], key_type: Any) -> QueryRequest:
    """Return a request for some keys."""
    of = _keys(key_type)
    encoded = _encoded_keys(keys, of)
    return msgspec.structs.replace(request, keys=encoded, key_type=of.type_info.to_json())


def _encoded_keys(keys: list[Any], of: Portable) -> list[bytes]:
    try:
        return [of.codec.encode(key) for key in keys]
    except (UsageError, TypeError, ValueError) as error:
        msg = f"{keys!r} are no keys of {of.type_info!r}: {error}"
        raise QueryError(msg) from error


class _Recent:
    """Questions that were asked before; few, and the descriptor in each keeps its id taken."""

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[Question, Any]] = {}

    def get(self, asked: Any) -> tuple[Question, Any] | None:
        """Return one."""
        return self._kept.get(asked)

    def put(self, asked: Any, question: tuple[Question, Any]) -> None:
        """Keep one."""
        if len(self._kept) >= _QUESTIONS:
            self._kept = {}
        self._kept[asked] = question


def _read_by(descriptor: Any) -> ReadBy | None:
    """Return by what types a descriptor reads; None where it declares none."""
    value, map_key = descriptor.value_type, descriptor.key_type
    if value is None or (map_key is None and descriptor.kind.shape is Shape.MAP):
        return None
    told = None if map_key is None else map_key.to_json()
    return ReadBy(descriptor.kind.name, value.to_json(), told)


def _request(job_id: Any, name: str, terms: dict[str, Any]) -> QueryRequest:
    try:
        return QueryRequest(str(job_id), name, **terms)
    except TypeError as error:
        msg = f"a query takes level, max_age_ms, limit, prefix, low, high and namespace: {error}"
        raise QueryError(msg) from error


__all__ = ["Facts", "Found", "Level", "QueryableStateClient"]
