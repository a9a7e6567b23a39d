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

from weir.config import Settings, security
from weir.config import queryable as q
from weir.errors import UsageError
from weir.jobmanager.queries import QueryLimitError
from weir.rest.settings import LOOPBACK, parse_ports
from weir.tls import TlsFiles

_AT_ONCE: Final = 32


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

    def __post_init__(self) -> None:
        """Begin with all places free."""
        object.__setattr__(self, "_free", threading.BoundedSemaphore(self.at_once))

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Take one of the places, as long as something runs.

        Raises:
            QueryLimitError: all are taken.
        """
        if not self._free.acquire(blocking=False):
            msg = (
                f"{self.at_once} queries are being answered: ask again, or raise "
                f"{q.QUERY_THREADS.key}"
            )
            raise QueryLimitError(msg)
        try:
            yield
        finally:
            self._free.release()

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
