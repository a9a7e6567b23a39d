"""Who may query state, where, and how much, read from the configuration.

Nothing is served unless it was switched on, nobody beyond loopback unless told, and nobody at all
without a token.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from weir.clock import Clock
from weir.config import Settings, security
from weir.config import queryable as q
from weir.errors import UsageError
from weir.jobmanager.queries import QueryLimitError
from weir.rest.settings import LOOPBACK, parse_ports
from weir.tls import TlsFiles

_AT_ONCE: Final = 32
SQL_AT_ONCE: Final = 4


class StreamPlace:
    """The place of a stream, which its reader may take as long for as it likes, but not to rest.

    A reader that asks for nothing within the time limit of queries loses it to whoever comes next.
    """

    def __init__(self, limits: QueryLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._since_ms: int | None = clock.monotonic_ms()

    def __enter__(self) -> StreamPlace:
        return self

    def __exit__(self, *_: object) -> None:
        self._limits.leave(self)

    @property
    def rests(self) -> bool:
        """Tell whether its reader has let the time limit pass."""
        since = self._since_ms
        return since is not None and (self._clock.monotonic_ms() - since > self._limits.timeout_ms)

    def given(self) -> None:
        """A batch is there for the reader to take."""
        self._since_ms = self._clock.monotonic_ms()

    def wanted(self) -> None:
        """The reader wants the next batch.

        Raises:
            QueryLimitError: it came too late.
        """
        late, self._since_ms = self.rests, None
        if late or not self._limits.has(self):
            msg = (
                f"the stream was not read for more than {self._limits.timeout_ms} ms and was given "
                f"up: read faster, or raise {q.QUERY_TIMEOUT.key}"
            )
            raise QueryLimitError(msg)


@dataclass(frozen=True)
class QueryLimits:
    """How much one query may take, and how many are answered at the same time.

    `states` is "declared" for those that called `set_queryable`, or "all".
    """

    states: str = "declared"
    timeout_ms: int = 10_000
    bytes_max: int = 64 << 20
    at_once: int = _AT_ONCE
    _free: threading.BoundedSemaphore = field(init=False, repr=False, compare=False)
    _sql: threading.BoundedSemaphore = field(init=False, repr=False, compare=False)
    _streams: set[StreamPlace] = field(init=False, repr=False, compare=False)
    _lock: threading.Lock = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Begin with all places free."""
        object.__setattr__(self, "_free", threading.BoundedSemaphore(self.at_once))
        engines = min(self.at_once, SQL_AT_ONCE)
        object.__setattr__(self, "_sql", threading.BoundedSemaphore(engines))
        object.__setattr__(self, "_streams", set())
        object.__setattr__(self, "_lock", threading.Lock())

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Take one of the places, as long as something runs.

        Raises:
            QueryLimitError: all are taken.
        """
        self._enter()
        try:
            yield
        finally:
            self._free.release()

    @contextmanager
    def admitted_sql(self) -> Iterator[None]:
        """Take one of the few places for engines of SQL, which have much memory each.

        Raises:
            QueryLimitError: all are taken.
        """
        if not self._sql.acquire(blocking=False):
            engines = min(self.at_once, SQL_AT_ONCE)
            msg = f"{engines} queries in SQL are being answered: ask again in a moment"
            raise QueryLimitError(msg)
        try:
            yield
        finally:
            self._sql.release()

    def stream_place(self, clock: Clock) -> StreamPlace:
        """Take one of the places for a stream, until it is left.

        Raises:
            QueryLimitError: all are taken.
        """
        self._enter()
        place = StreamPlace(self, clock)
        with self._lock:
            self._streams.add(place)
        return place

    def has(self, place: StreamPlace) -> bool:
        """Tell whether a stream still has its place."""
        with self._lock:
            return place in self._streams

    def leave(self, place: StreamPlace) -> None:
        """Give the place of a stream back, unless another one has got it."""
        with self._lock:
            had = place in self._streams
            self._streams.discard(place)
        if had:
            self._free.release()

    def _enter(self) -> None:
        if not self._free.acquire(blocking=False) and not self._taken_over():
            msg = (
                f"{self.at_once} queries are being answered: ask again, or raise "
                f"{q.QUERY_THREADS.key}"
            )
            raise QueryLimitError(msg)

    def _taken_over(self) -> bool:
        """Take the place of a stream that nobody reads; tells whether there was one."""
        with self._lock:
            found = next((place for place in self._streams if place.rests), None)
            if found is not None:
                self._streams.discard(found)
            return found is not None

    def refuse_larger(self, size: int, what: str) -> None:
        """Refuse an answer that is too large.

        Raises:
            QueryLimitError: it is.
        """
        if size > self.bytes_max:
            msg = (
                f"{what} has {size} bytes, and at most {self.bytes_max} are read: ask for fewer "
                f"keys or with a limit, or raise {q.QUERY_ANSWER_SIZE.key}"
            )
            raise QueryLimitError(msg)


@dataclass(frozen=True)
class QuerySettings:
    """Where queries are taken, with what token (None: made up), and within which limits."""

    bind_address: str = LOOPBACK
    ports: Sequence[int] = (9069,)
    token: str | None = field(default=None, repr=False)
    limits: QueryLimits = field(default_factory=QueryLimits)
    sql: bool = False
    sql_memory: int = 256 << 20
    tls: TlsFiles | None = None
    asks_clients: bool = False

    @classmethod
    def of(cls, settings: Settings) -> QuerySettings | None:
        """Read the options; None when queries are switched off.

        Raises:
            UsageError: the ports are not of Flink's form, the token is empty, or a file for TLS is
                missing or no good.
        """
        if not settings.get(q.QUERIES_ENABLE):
            return None
        token = settings.get(q.QUERY_TOKEN)
        if token is not None and not token.strip():
            msg = f"configuration {q.QUERY_TOKEN.key!r} is empty: give a secret, or leave it out"
            raise UsageError(msg)
        limits = QueryLimits(
            settings.get(q.QUERY_STATES),
            settings.get(q.QUERY_TIMEOUT),
            settings.get(q.QUERY_ANSWER_SIZE),
            at_once=settings.get(q.QUERY_THREADS) or _AT_ONCE,
        )
        address = str(settings.get(q.QUERY_BIND_ADDRESS)).strip("[]")
        return cls(
            bind_address=LOOPBACK if address.lower() == "localhost" else address,
            ports=parse_ports(settings.get(q.PROXY_PORTS), q.PROXY_PORTS.key),
            token=token,
            limits=limits,
            sql=settings.get(q.QUERY_SQL),
            sql_memory=settings.get(q.QUERY_SQL_MEMORY),
            tls=TlsFiles.wanted(settings, security.REST_ENABLED),
            asks_clients=settings.get(security.REST_AUTHENTICATION),
        )
