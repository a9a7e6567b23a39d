"""SQL over the state of a job: DuckDB on Arrow tables, and nothing but those.

Every query has an engine of its own, which knows a view for each state, "operator"."state". It
reads no files, loads no extensions, sees no variable of this process, and its settings are locked,
so that a query reaches nothing else. Only a single SELECT is taken.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from weir.errors import UsageError
from weir.jobmanager.queries import LEVELS, Level, QueryError, QueryLimitError, Terms
from weir.offline.tables import (
    KEY,
    KEY_GROUP,
    MAP_KEY,
    NAMESPACE,
    POSITION,
    TTL_TIMESTAMP,
    VALUE,
    WINDOW,
)
from weir.queryable.catalog import KnownState
from weir.queryable.queries import StateQueries

_THREADS: Final = 2
_COLUMNS: Final = {KEY, KEY_GROUP, MAP_KEY, NAMESPACE, POSITION, TTL_TIMESTAMP, VALUE, *WINDOW}
_LOCKED: Final = (
    "SET temp_directory=''",
    "SET autoinstall_known_extensions=false",
    "SET autoload_known_extensions=false",
    "SET allow_community_extensions=false",
    "SET python_enable_replacements=false",
    "SET enable_external_access=false",
    "SET lock_configuration=true",
)


def require_engine() -> Any:
    """Return the SQL engine.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        msg = (
            "SQL over state needs DuckDB, which is not installed: pip install 'weir[sql]', or set "
            "weir.queryable-state.sql: false"
        )
        raise UsageError(msg) from error
    return duckdb


def level_of(text: str) -> Level:
    """Return a level of truth.

    Raises:
        QueryError: it is none.
    """
    for level in LEVELS:
        if text == level:
            return level
    msg = f"{text!r} is no level of truth: expected one of {', '.join(LEVELS)}"
    raise QueryError(msg)


@dataclass(frozen=True)
class SqlQueries:
    """SQL about one job, at one level of truth."""

    queries: StateQueries
    level: Level
    memory_bytes: int

    def schema(self, sql: str) -> Any:
        """Return the columns of a result, without reading any state.

        Raises:
            QueryError: it is no query that can be answered.
        """
        states = self.queries.catalog.states()
        tables = {(s.place, s.described.name): s.layout.schema.empty_table() for s in states}
        with self._engine(tables) as engine:
            return self._run(engine, sql).schema

    def run(self, sql: str) -> Any:
        """Return the result as an Arrow table.

        Raises:
            QueryError: it is no query that can be answered, or takes too much.
        """
        states = self.queries.catalog.states()
        with self._engine({}) as engine:
            _refuse_others(engine, sql)
            tree = _parsed(engine, sql)
        named = {name.lower() for name in _tables(tree)}
        wanted = [state for state in states if state.described.name.lower() in named]
        only = _single_key(tree) if len(wanted) == 1 else None
        tables = {(s.place, s.described.name): s.layout.schema.empty_table() for s in states}
        for state in wanted:
            tables[state.place, state.described.name] = self._rows(state, only)
        with self._engine(tables) as engine:
            return self._run(engine, sql)

    def _rows(self, state: KnownState, only: tuple[Any] | None) -> Any:
        terms = Terms(self.level)
        if only is not None:
            try:
                keys = [self.queries.key(state.name, only[0])]
            except QueryError:
                keys = None  # the engine knows what to make of such a comparison
            if keys is not None:
                return self.queries.table(state, terms, keys).table
        return self.queries.table(state, terms).table

    @contextmanager
    def _engine(self, tables: dict[tuple[str, str], Any]) -> Iterator[Any]:
        duckdb = require_engine()
        engine = duckdb.connect(":memory:")
        try:
            engine.execute(f"SET memory_limit='{max(1, self.memory_bytes >> 20)}MiB'")
            engine.execute(f"SET threads={_THREADS}")
            for number, ((schema, name), table) in enumerate(sorted(tables.items())):
                engine.register(f"_state_{number}", table)
                engine.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
                engine.execute(
                    f"CREATE VIEW {quoted(schema)}.{quoted(name)} AS FROM _state_{number}"
                )
            for setting in _LOCKED:
                engine.execute(setting)
            yield engine
        except duckdb.Error as error:
            raise QueryError(_first_lines(str(error))) from error
        finally:
            engine.close()

    def _run(self, engine: Any, sql: str) -> Any:
        _refuse_others(engine, sql)
        limit_ms = self.queries.limits.timeout_ms
        late = threading.Event()

        def stop() -> None:
            late.set()
            engine.interrupt()

        timer = threading.Timer(limit_ms / 1000, stop)
        timer.daemon = True
        timer.start()
        try:
            result = engine.sql(sql).to_arrow_table()
        except require_engine().Error as error:
            if late.is_set():
                msg = f"the query took more than {limit_ms} ms and was given up"
                raise QueryLimitError(msg) from error
            raise
        finally:
            timer.cancel()
        self.queries.limits.refuse_larger(result.nbytes, "the result")
        return result


def _refuse_others(engine: Any, sql: str) -> None:
    """Refuse everything but a single SELECT.

    Raises:
        QueryError: it is something else.
    """
    statements = engine.extract_statements(sql)
    kinds = [statement.type.name for statement in statements]
    if kinds not in (["SELECT"], ["SELECT_STATEMENT"]):
        found = ", ".join(kinds) or "nothing"
        msg = f"only one SELECT is taken, found {found}: state cannot be changed by queries"
        raise QueryError(msg)


def _parsed(engine: Any, sql: str) -> Any:
    """Return the tree of a query."""
    tree = json.loads(engine.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()[0])
    if tree.get("error"):
        raise QueryError(str(tree.get("error_message") or "the query cannot be read"))
    return tree


def _tables(tree: Any) -> Iterator[str]:
    """Yield the name of every table in a tree, as often as it is there."""
    if isinstance(tree, dict):
        if tree.get("type") == "BASE_TABLE":
            yield str(tree.get("table_name"))
        for child in tree.values():
            yield from _tables(child)
    elif isinstance(tree, list):
        for child in tree:
            yield from _tables(child)


def _single_key(tree: Any) -> tuple[Any] | None:
    """Return the key that all rows of the only state in a query must have; None for any.

    The query is run with its condition all the same: this only tells what need not be read. So it
    is None wherever there is a doubt.
    """
    node = tree["statements"][0].get("node", {})
    table = node.get("from_table") or {}
    plain = node.get("type") == "SELECT_NODE" and table.get("type") == "BASE_TABLE"
    if not plain or len(list(_tables(tree))) != 1:
        return None
    if table.get("column_name_alias") or table.get("sample") or node.get("sample"):
        return None
    alias = str(table.get("alias") or table.get("table_name")).lower()
    # A column of that name may have a field of the name of the key.
    names = [[KEY]] if alias in _COLUMNS else [[KEY], [alias, KEY]]
    return _key_in(node.get("where_clause"), names)


def _key_in(clause: Any, names: list[list[str]]) -> tuple[Any] | None:
    """Return the constant that a condition compares the key with, as far as it surely does."""
    if not isinstance(clause, dict):
        return None
    if clause.get("type") == "CONJUNCTION_AND":
        found = (_key_in(child, names) for child in clause.get("children", ()))
        return next((key for key in found if key is not None), None)
    if clause.get("type") != "COMPARE_EQUAL":
        return None
    sides = clause.get("left") or {}, clause.get("right") or {}
    for column, constant in (sides, sides[::-1]):
        told = [str(name).lower() for name in column.get("column_names", ())]
        if told in names and constant.get("type") == "VALUE_CONSTANT":
            return _constant(constant)
    return None


def _constant(constant: Any) -> tuple[Any] | None:
    """Return a whole number or a text; other constants may be equal to several keys."""
    literal = constant.get("literal")
    if literal is None:  # as DuckDB writes it before 2.0
        told = constant.get("value") or {}
        kind, value = (told.get("type") or {}).get("id"), told.get("value")
        plain = {"INTEGER": int, "BIGINT": int, "VARCHAR": str}.get(str(kind))
        return (value,) if type(value) is plain else None
    kind, text = literal.get("kind"), str(literal.get("text"))
    if kind == "INTEGER" and re.fullmatch("-?[0-9]{1,30}", text):
        return (int(text),)
    return (text,) if kind == "STRING" else None


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _first_lines(text: str) -> str:
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())
