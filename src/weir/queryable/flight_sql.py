"""Arrow Flight SQL over the state of one job: what drivers ask, answered without any memory.

A prepared statement is its own text, and so is the ticket of a result, so the server keeps nothing
between calls. What is not here is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyarrow import flight

from weir.jobmanager.queries import QueryError
from weir.queryable.catalog import KnownState
from weir.queryable.protobuf import Fields, field, message, numbers, read_message, text, texts
from weir.queryable.queries import StateQueries
from weir.queryable.sql import SqlQueries, level_of, require_engine
from weir.queryable.sql_info import INFO_SCHEMA, KEYS, info_columns
from weir.queryable.sql_views import At, Views

_STATEMENT: Final = "CommandStatementQuery"
_PREPARED: Final = "CommandPreparedStatementQuery"
_TICKET: Final = "TicketStatementQuery"
_VIEW: Final = "VIEW"
_CATALOG: Final = "memory"
_CATALOGS: Final = pa.schema([pa.field("catalog_name", pa.string(), nullable=False)])
_SCHEMAS: Final = pa.schema(
    [("catalog_name", pa.string()), pa.field("db_schema_name", pa.string(), nullable=False)]
)
_TABLES: Final = pa.schema(
    [
        ("catalog_name", pa.string()),
        ("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("table_type", pa.string(), nullable=False),
    ]
)
_TYPES: Final = pa.schema([pa.field("table_type", pa.string(), nullable=False)])
_WITH_SCHEMA: Final = _TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
Columns = list[Any]


class FlightSql:
    """Answers the calls of one driver about one job."""

    def __init__(
        self,
        queries: StateQueries,
        level: str,
        memory_bytes: int,
        max_age_ms: int | None = None,
    ) -> None:
        """Answer at a level of truth, with states that are not older than asked for.

        Raises:
            QueryError: it is none.
        """
        self._sql = SqlQueries(queries, level_of(level), memory_bytes, max_age_ms)
        self._queries = queries
        self._tables: dict[str, tuple[Any, Callable[[Fields], Columns]]] = {
            "CommandGetCatalogs": (_CATALOGS, lambda _: [[_CATALOG]]),
            "CommandGetDbSchemas": (_SCHEMAS, self._schemas),
            "CommandGetTables": (_TABLES, self._known),
            "CommandGetTableTypes": (_TYPES, lambda _: [[_VIEW]]),
            "CommandGetSqlInfo": (INFO_SCHEMA, self._info),
            **{name: (schema, _nothing(schema)) for name, schema in KEYS.items()},
        }

    @staticmethod
    def require_engine() -> None:
        """Refuse to begin without the SQL engine.

        Raises:
            UsageError: it is not installed.
        """
        require_engine()

    def action(self, kind: str, body: bytes) -> list[bytes]:
        """Perform a step of the protocol.

        Raises:
            QueryError: it is none that is served.
        """
        if kind == "CreatePreparedStatement":
            sql = _query(read_message(body)[1])
            schema = self._sql.schema(sql).serialize().to_pybytes()
            made = field(1, sql.encode()) + field(2, schema)
            return [message("ActionCreatePreparedStatementResult", made)]
        if kind == "ClosePreparedStatement":
            return []
        msg = (
            f"{kind!r} of Arrow Flight SQL is not served: state is read-only, and there are no "
            "transactions (autocommit)"
        )
        raise QueryError(msg)

    def info(self, descriptor: Any) -> Any:
        """Return where the result of a query is, and its columns.

        Raises:
            QueryError: it is no query that can be answered.
        """
        schema = self.schema(descriptor)
        name, fields = read_message(descriptor.command or b"")
        ticket = descriptor.command
        if name in (_STATEMENT, _PREPARED):
            ticket = message(_TICKET, field(1, _query(fields).encode()))
        endpoint = flight.FlightEndpoint(flight.Ticket(ticket), [])
        return flight.FlightInfo(schema, descriptor, [endpoint], -1, total_bytes=-1)

    def schema(self, descriptor: Any) -> Any:
        """Return the columns of a result.

        Raises:
            QueryError: it is no query that can be answered.
        """
        name, fields = read_message(descriptor.command or b"")
        if name in (_STATEMENT, _PREPARED):
            return self._sql.schema(_query(fields))
        if name in self._tables:
            return self._table_schema(name, fields)
        msg = f"{name} of Arrow Flight SQL is not served here"
        raise QueryError(msg)

    def result(self, ticket: bytes) -> Any:
        """Return the rows that a ticket stands for.

        Raises:
            QueryError: it is no query that can be answered.
        """
        name, fields = read_message(ticket)
        if name == _TICKET:
            return flight.RecordBatchStream(self._sql.run(_query(fields)))
        if name not in self._tables:
            msg = f"{name} of Arrow Flight SQL has no result"
            raise QueryError(msg)
        columns = self._tables[name][1](fields)
        schema = self._table_schema(name, fields)
        arrays = [
            found if isinstance(found, pa.Array) else pa.array(found, column.type)
            for found, column in zip(columns, schema, strict=True)
        ]
        return flight.RecordBatchStream(pa.Table.from_arrays(arrays, schema=schema))

    def _table_schema(self, name: str, fields: Fields) -> Any:
        if name == "CommandGetTables" and fields.get(5, [0])[-1]:
            return _WITH_SCHEMA
        return self._tables[name][0]

    def _info(self, fields: Fields) -> Columns:
        return info_columns(numbers(fields, 1), self._queries.limits.timeout_ms)

    def _schemas(self, fields: Fields) -> Columns:
        here = _is_here(fields)
        names = sorted({schema for schema, _ in self._views() if here})
        wanted = [name for name in names if _like(name, text(fields, 2))]
        return [[_CATALOG] * len(wanted), wanted]

    def _known(self, fields: Fields) -> Columns:
        kinds = texts(fields, 4)
        here = _is_here(fields) and (not kinds or _VIEW in kinds)
        found = {
            (schema, name): state
            for (schema, name), state in self._views().items()
            if here and _like(schema, text(fields, 2)) and _like(name, text(fields, 3))
        }
        columns: Columns = [
            [_CATALOG] * len(found),
            [schema for schema, _ in found],
            [name for _, name in found],
            [_VIEW] * len(found),
        ]
        if fields.get(5, [0])[-1]:
            columns.append([s.layout.schema.serialize().to_pybytes() for s in found.values()])
        return columns

    def _views(self) -> dict[At, KnownState]:
        return Views.of(self._queries.catalog.states()).states


def _nothing(schema: Any) -> Callable[[Fields], Columns]:
    return lambda _: [[] for _ in schema]


def _is_here(fields: Fields) -> bool:
    """Tell whether the only catalog is meant; no text means any."""
    return text(fields, 1) in (None, _CATALOG)


def _query(fields: Fields) -> str:
    sql = text(fields, 1)
    if not sql:
        msg = "the message of Arrow Flight SQL holds no query"
        raise QueryError(msg)
    return sql


def _like(name: str, pattern: str | None) -> bool:
    """Tell whether a name fits a pattern of SQL: % is any text, _ any character."""
    if pattern is None:
        return True
    wild = {"%": ".*", "_": "."}
    parts = (wild.get(c) or re.escape(c) for c in re.sub("%+", "%", pattern))
    return re.fullmatch("".join(parts), name, re.DOTALL) is not None
