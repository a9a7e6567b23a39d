"""What can be asked about the state of a running job, by whoever serves others.

There are two levels of truth. `live` is what slots hold between two records: newest, and taken back
when the job fails over. `committed` is the last completed checkpoint: it is there while the job
fails over or rescales, and is never taken back. Every answer says how old it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from weir.errors import WeirError

Level = Literal["live", "committed"]
LEVELS: tuple[Level, ...] = ("live", "committed")
_ROWS_MAX = 2**63 - 1


class QueryError(WeirError):
    """A query cannot be answered; `status` is that of HTTP."""

    status: ClassVar[int] = 400


class UnknownJobError(QueryError):
    """There is no such job here."""

    status = 404


class UnknownStateError(QueryError):
    """The job has no state of that name that can be queried."""

    status = 404


class UnknownKeyOrNamespaceError(QueryError):
    """There is nothing under the key, or not in that namespace."""

    status = 404

    def __init__(self, message: str = "No state for the specified key/namespace.") -> None:
        super().__init__(message)


class StateUnavailableError(QueryError):
    """Nobody can answer now: the job starts, fails over or rescales, or has no checkpoint yet."""

    status = 503


class UnknownKeyGroupLocationError(StateUnavailableError):
    """No slot has the key group now."""


class StateTooOldError(QueryError):
    """What could be answered is older than was asked for."""

    status = 412


class QueryLimitError(QueryError):
    """The answer is too large, takes too long, or too many ask at the same time."""

    status = 429


class QueryRefusedError(QueryError):
    """Queries are switched off, or who asks has no right to."""

    status = 403


@dataclass(frozen=True)
class Facts:
    """How true an answer is: its level, and the moment that it shows.

    `checkpoint_id` is the last completed checkpoint, which a committed answer is of; `epoch` the
    newest one whose records may be in the answer; `age_ms` how long ago that moment was, of a live
    scan that of the rows which were read first.
    """

    level: Level
    attempt: int
    checkpoint_id: int | None
    epoch: int | None
    age_ms: int


@dataclass(frozen=True)
class Terms:
    """What is asked of an answer: its level, how old it may be, how many rows it may have."""

    level: Level = "live"
    max_age_ms: int | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        """Refuse a limit that no number of rows has.

        Raises:
            QueryError: it is negative, or beyond 64 bits.
        """
        if self.limit is not None and not 0 <= self.limit <= _ROWS_MAX:
            msg = f"the limit of a query is {self.limit}, expected 0 to {_ROWS_MAX} rows"
            raise QueryError(msg)


@dataclass(frozen=True)
class KeyRange:
    """Which rows of a scan are wanted: keys with a prefix, or from `low` on to before `high`.

    With a `namespace` those of one window alone, its start and end.
    """

    prefix: str | None = None
    low: Any = None
    high: Any = None
    namespace: Any = None


@dataclass(frozen=True)
class Answer:
    """Rows as an Arrow table, and how true they are; bytes in `opaque` columns are pickles.

    With `truncated` there are more rows than the limit has let through.
    """

    facts: Facts
    table: Any
    opaque: frozenset[str] = frozenset()
    truncated: bool = False


@dataclass(frozen=True)
class Entries:
    """Entries of some keys as slots encode them, for who reads them by the types of the state.

    `expires` tells that each value has a time stamp beside it.
    """

    facts: Facts
    parts: list[bytes]
    expires: bool


@dataclass(frozen=True)
class StateView:
    """A state that can be queried.

    `name` is what `set_queryable` said, or the operator and the state; `columns` are those of an
    answer. With `opaque` values were pickled, and are shown as bytes that nobody looks into.
    """

    name: str
    operator: str
    state: str
    kind: str
    types: Mapping[str, str]
    columns: tuple[str, ...]
    expires: bool
    opaque: bool


class JobQueries(Protocol):
    """Answers queries about the state of one job, from any thread."""

    def states(self) -> list[StateView]:
        """Return the states that can be queried.

        Raises:
            QueryError: nobody knows them now.
        """

    def key(self, state: str, value: Any, *, text: bool = False) -> Any:
        """Return the key of a state that a JSON value stands for, or a text that a person typed.

        Raises:
            QueryError: it is none, or there is no such state.
        """

    def get(self, state: str, keys: Sequence[Any], terms: Terms, namespace: Any = None) -> Answer:
        """Return the rows of some keys, of one window only if a namespace is given.

        Raises:
            QueryError: there is no answer that fulfils the terms.
        """

    def scan(self, state: str, wanted: KeyRange, terms: Terms) -> Answer:
        """Return the rows of keys in a range, in the order of keys, up to the limit.

        Raises:
            QueryError: there is no answer that fulfils the terms.
        """

    def stream(
        self, state: str, terms: Terms, wanted: KeyRange | None = None
    ) -> tuple[Any, Iterator[Any]]:
        """Return the schema and all rows that are wanted, in batches, each whole in itself.

        Committed rows are all of one checkpoint. Who lets the time limit pass without reading on
        gets an error.

        Raises:
            QueryError: there is no answer that fulfils the terms.
        """

    def rows(self, answer: Answer) -> list[dict[str, Any]]:
        """Return the rows of an answer as JSON values; pickled ones as their sizes."""
