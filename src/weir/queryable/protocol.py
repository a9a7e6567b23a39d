"""What clients and the server of queries say to each other, over Arrow Flight.

`DoAction` "states" and "get" are MessagePack both ways; an answer is its facts and a stream of
Arrow's IPC format. `DoGet` with a ticket gives all rows of a state as they are read. An error goes
by the name of its class. Every call carries the token as `authorization: Bearer …`.
"""

from __future__ import annotations

import io
from typing import Any, Final

import msgspec
import pyarrow as pa

from weir.jobmanager import queries
from weir.jobmanager.queries import (
    Answer,
    Entries,
    Facts,
    KeyRange,
    Level,
    QueryError,
    StateView,
    Terms,
)

TICKET: Final = b"weir-state:"
FACTS: Final = b"weir.facts"
"""Where the schema of a stream, or of a result of SQL, tells how true its rows are, as JSON."""
AUTHORIZATION: Final = "authorization"
_ERRORS: Final = {
    kind.__name__: kind
    for kind in vars(queries).values()
    if isinstance(kind, type) and issubclass(kind, QueryError)
}


class ReadBy(msgspec.Struct, frozen=True):
    """The kind and the types by which a caller reads a state."""

    kind: str
    value: Any
    map_key: Any = None


class QueryRequest(msgspec.Struct, frozen=True):
    """Some keys of a state, or a range of them, or all.

    `keys` are encoded by `key_type`, which has to be the type of the state's keys. Who says by what
    types the answer is read (`read_by`) gets entries as slots encode them, where those are the
    state's.
    """

    job: str
    state: str
    keys: list[bytes] | None = None
    key_type: Any = None
    namespace: Any = None
    prefix: str | None = None
    low: Any = None
    high: Any = None
    level: Level = "live"
    max_age_ms: int | None = None
    limit: int | None = None
    read_by: ReadBy | None = None

    @property
    def terms(self) -> Terms:
        """What is asked of the answer."""
        return Terms(self.level, self.max_age_ms, self.limit)

    @property
    def range(self) -> KeyRange:
        """Which rows of a scan are wanted."""
        return KeyRange(self.prefix, self.low, self.high, namespace=self.namespace)

    def refuse_range(self) -> None:
        """Refuse a range of keys besides keys.

        Raises:
            QueryError: both are there.
        """
        given = [name for name in ("prefix", "low", "high") if getattr(self, name) is not None]
        if self.keys is not None and given:
            msg = f"keys and {', '.join(given)} do not go together: name keys, or a range of them"
            raise QueryError(msg)


class QueryAnswer(msgspec.Struct, frozen=True):
    """The facts of an answer, its rows as Arrow's IPC stream, and the columns with pickles.

    With `truncated` a limit has left rows out. Or, with `entries`, no rows but what `Entries` has.
    """

    facts: Facts
    rows: bytes
    opaque: list[str]
    entries: list[bytes] | None = None
    expires: bool = False
    truncated: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(QueryRequest).decode
_decode_answer = msgspec.msgpack.Decoder(QueryAnswer).decode
_decode_facts = msgspec.json.Decoder(Facts).decode
_decode_views = msgspec.msgpack.Decoder(list[StateView]).decode


def encode_request(request: QueryRequest) -> bytes:
    """Return a request as bytes."""
    return _encode(request)


def decode_request(data: bytes) -> QueryRequest:
    """Return a request.

    Raises:
        QueryError: the bytes are none.
    """
    try:
        return _decode_request(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{len(data)} bytes are no query: {error}"
        raise QueryError(msg) from error


def encode_answer(answer: Answer | Entries) -> bytes:
    """Return an answer as bytes."""
    if isinstance(answer, Entries):
        return _encode(QueryAnswer(answer.facts, b"", [], answer.parts, expires=answer.expires))
    out = io.BytesIO()
    with pa.ipc.new_stream(out, answer.table.schema) as writer:
        writer.write_table(answer.table)
    rows, opaque = out.getvalue(), sorted(answer.opaque)
    return _encode(QueryAnswer(answer.facts, rows, opaque, truncated=answer.truncated))


def decode_answer(data: bytes) -> Answer | Entries:
    """Return an answer.

    Raises:
        QueryError: the bytes are none.
    """
    try:
        found = _decode_answer(data)
        if found.entries is not None:
            return Entries(found.facts, found.entries, found.expires)
        with pa.ipc.open_stream(found.rows) as reader:
            opaque = frozenset(found.opaque)
            return Answer(found.facts, reader.read_all(), opaque, truncated=found.truncated)
    except (msgspec.MsgspecError, pa.ArrowException) as error:
        msg = f"what answers is no server of queries: {error}"
        raise QueryError(msg) from error


def encode_views(views: list[StateView]) -> bytes:
    """Return descriptions of states as bytes."""
    return _encode(views)


def decode_views(data: bytes) -> list[StateView]:
    """Return descriptions of states."""
    return _decode_views(data)


def with_facts(schema: Any, facts: Facts) -> Any:
    """Return a schema that tells how true its rows are."""
    return schema.with_metadata({**(schema.metadata or {}), FACTS: msgspec.json.encode(facts)})


def facts_of(schema: Any) -> Facts | None:
    """Return how true the rows of a schema are; None where it does not tell."""
    told = (schema.metadata or {}).get(FACTS)
    return None if told is None else _decode_facts(told)


def max_age_of(text: str | None) -> int | None:
    """Return how old an answer may be, as a header tells it.

    Raises:
        QueryError: it is no number of milliseconds.
    """
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        msg = f"the header weir-max-age-ms is {text[:40]!r}, expected a number of milliseconds"
        raise QueryError(msg)
    return int(text)


def error_text(error: QueryError) -> str:
    """Return an error as a message from which the client makes it again."""
    return f"{type(error).__name__}: {error}"


def error_of(text: str) -> QueryError:
    """Return the error that a server told."""
    name, colon, rest = text.partition(": ")
    kind = _ERRORS.get(name)
    return QueryError(text) if kind is None or not colon else kind(rest)
