"""SQL over the state of a job: DuckDB on Arrow tables, and nothing but those.

Every query has an engine of its own, which knows a view for each state, "operator"."state". It
reads no files, loads no extensions, sees no variable of this process, and its settings are locked,
so that a query reaches nothing else. Only a single SELECT is taken, and of functions that give
tables only those that read nothing. All committed tables of a query are of one checkpoint. A state
that was not read for a query cannot be found empty by it: its view raises.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from weir.config import queryable as q
from weir.errors import UsageError
from weir.jobmanager.queries import (
    LEVELS,
    Answer,
    Facts,
    Level,
    QueryError,
    QueryLimitError,
    Terms,
)
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
from weir.queryable.committed import PinnedCheckpoint
from weir.queryable.protocol import with_facts
from weir.queryable.queries import StateQueries
from weir.queryable.sql_views import At, Refusal, Views, unread

_THREADS: Final = 2
_BATCH_ROWS: Final = 2048
_TABLE_FUNCTIONS: Final = ("generate_series", "range", "unnest")
_COLUMNS: Final = {KEY, KEY_GROUP, MAP_KEY, NAMESPACE, POSITION, TTL_TIMESTAMP, VALUE, *WINDOW}
_LOCKED: Final = (
    "SET temp_directory=''",
    "SET secret_directory=''",
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


Named = dict[At, Any]
"""Tables by schema and name, or why there is none."""


@dataclass(frozen=True)
class SqlQueries:
    """SQL about one job, at one level of truth, of states that are not older than asked for."""

    queries: StateQueries
    level: Level
    memory_bytes: int
    max_age_ms: int | None = None

    def schema(self, sql: str) -> Any:
        """Return the columns of a result, without reading any state or running the query.

        Raises:
            QueryError: it is no query that can be answered.
        """
        with self.queries.limits.admitted_sql():
            views = Views.of(self.queries.catalog.states())
            tables: Named = {at: s.layout.schema.empty_table() for at, s in views.states.items()}
            with self._engine(tables | views.refusals) as engine:
                _parsed(engine, sql)
                with self._in_time(engine):
                    asked = engine.sql(sql)
                    found = asked.limit(0).to_arrow_table().schema
                    # A query inside of another one must not have the same name twice.
                    names = zip(found, asked.columns, strict=True)
                    return pa.schema([column.with_name(name) for column, name in names])

    def run(self, sql: str) -> Any:
        """Return the result as an Arrow table, whose schema tells how true it is.

        Raises:
            QueryError: it is no query that can be answered, or takes too much.
        """
        with self.queries.limits.admitted_sql():
            views = Views.of(self.queries.catalog.states())
            with self._engine({}) as engine:
                tree = _parsed(engine, sql)
            named = {name.lower() for name in _tables(tree)}
            wanted = {at: s for at, s in views.states.items() if at[1].lower() in named}
            only = _single_key(tree) if len(wanted) == 1 else None
            answers, facts = self._read(list(wanted.values()), only)
            tables: Named = {at: unread(at, state) for at, state in views.states.items()}
            tables |= views.refusals
            tables |= {at: found.table for at, found in zip(wanted, answers, strict=True)}
            with self._engine(tables) as engine, self._in_time(engine):
                found = self._fetched(engine, sql)
        if facts is None:
            return found
        return found.replace_schema_metadata(with_facts(found.schema, facts).metadata)

    def _read(
        self, states: list[KnownState], only: tuple[Any] | None
    ) -> tuple[list[Answer], Facts | None]:
        """Read states: committed ones from one checkpoint, live ones one after the other.

        The facts are those of all of them: live ones are as old as what was read first.
        """

        def read(moment: PinnedCheckpoint | None) -> list[Answer]:
            inputs = _Inputs(self.memory_bytes)
            return [inputs.took(self._rows(state, only, moment, inputs)) for state in states]

        if not states:
            return [], None
        began = self.queries.clock.monotonic_ms()
        if self.level == "committed":
            answers = self.queries.committed(read)
            return answers, max((a.facts for a in answers), key=lambda facts: facts.age_ms)
        answers = read(None)
        epochs = [a.facts.epoch for a in answers if a.facts.epoch is not None]
        age = self.queries.clock.monotonic_ms() - began
        facts = replace(answers[-1].facts, epoch=max(epochs, default=None), age_ms=age)
        self.queries.refuse_old(facts, Terms(self.level, self.max_age_ms))
        return answers, facts

    def _rows(
        self,
        state: KnownState,
        only: tuple[Any] | None,
        moment: PinnedCheckpoint | None,
        inputs: _Inputs,
    ) -> Answer:
        read = partial(self.queries.table, state, Terms(self.level, self.max_age_ms))
        if only is not None and _is_plain_key(only[0], state.layout.key.arrow):
            try:
                keys = [self.queries.key(state, only[0])]
            except QueryError:
                keys = None  # the engine knows what to make of such a comparison
            if keys is not None:
                return read(keys, moment)
        return read(None, moment, bound=inputs)

    @contextmanager
    def _engine(self, tables: Named) -> Iterator[Any]:
        duckdb = require_engine()
        engine = duckdb.connect(":memory:")
        # Nobody can name what lies behind the views.
        behind = f"_{secrets.token_hex(8)}"
        try:
            engine.execute(f"SET memory_limit='{max(1, self.memory_bytes >> 20)}MiB'")
            engine.execute(f"SET threads={_THREADS}")
            for number, ((schema, name), table) in enumerate(sorted(tables.items())):
                engine.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
                view = f"CREATE VIEW {quoted(schema)}.{quoted(name)} AS FROM {behind}_{number}"
                if isinstance(table, Refusal):
                    view += f" WHERE error({_text(table.text)}) IS NULL"
                    # Of no rows nothing would be asked.
                    nulls = [pa.nulls(1, f.type) for f in table.columns]
                    table = pa.table(nulls, names=table.columns.names)
                engine.register(f"{behind}_{number}", table)
                engine.execute(view)
            for setting in _LOCKED:
                engine.execute(setting)
            yield engine
        except duckdb.Error as error:
            raise QueryError(_first_lines(str(error))) from error
        finally:
            engine.close()

    @contextmanager
    def _in_time(self, engine: Any) -> Iterator[None]:
        """Interrupt the engine when the time is over.

        Raises:
            QueryLimitError: it is.
            QueryError: the engine refuses.
        """
        limit_ms = self.queries.limits.timeout_ms
        late = threading.Event()

        def stop() -> None:
            late.set()
            with suppress(require_engine().Error):  # it has just ended
                engine.interrupt()

        timer = threading.Timer(limit_ms / 1000, stop)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (require_engine().Error, OSError, pa.ArrowException) as error:
            # Behind the first rows the engine's errors come as those of Arrow.
            if late.is_set():
                msg = f"the query took more than {limit_ms} ms and was given up"
                raise QueryLimitError(msg) from error
            raise QueryError(_first_lines(str(error))) from error
        finally:
            timer.cancel()

    def _fetched(self, engine: Any, sql: str) -> Any:
        """Return the result, of which no more is made than may be answered."""
        asked = engine.sql(sql)
        # Older versions of DuckDB have the second name alone.
        read = getattr(asked, "to_arrow_reader", None) or asked.fetch_record_batch
        reader = read(_BATCH_ROWS)
        batches, size = [], 0
        for batch in reader:
            size += batch.nbytes
            self.queries.limits.refuse_larger(size, "the result, as far as it was made,")
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)


class _Inputs:
    """The states that were read for a query, which have no more bytes than its engine may use."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._read = 0

    def took(self, answer: Answer) -> Answer:
        """Count a state that was read."""
        self._read += answer.table.nbytes
        return answer

    def refuse_larger(self, size: int, what: str) -> None:
        """Refuse a state that is too large, with those that were read before.

        Raises:
            QueryLimitError: it is.
        """
        if self._read + size > self._most:
            msg = (
                f"{what} for SQL has more than {self._most - self._read} bytes, and all states of "
                f"a query at most {self._most}: raise {q.QUERY_SQL_MEMORY.key}, or ask for a key"
            )
            raise QueryLimitError(msg)


def _text(text: str) -> str:
    """Return a text as SQL has it."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def _is_plain_key(key: Any, arrow: Any) -> bool:
    """Tell whether the engine compares a constant with keys of a type as look-ups do.

    Constants that it would convert first are left to it: a text to bytes or a time, a number to a
    floating one.
    """
    if isinstance(key, str):
        return bool(pa.types.is_string(arrow) or pa.types.is_large_string(arrow))
    return bool(pa.types.is_integer(arrow))


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
    """Return the tree of a query.

    Raises:
        QueryError: it is no single SELECT, or asks a function that is not for queries.
    """
    _refuse_others(engine, sql)
    ((text,),) = engine.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    try:
        tree = json.loads(text)
    except RecursionError as error:
        msg = "the query is nested too deeply: write it with fewer levels"
        raise QueryError(msg) from error
    if tree.get("error"):
        raise QueryError(str(tree.get("error_message") or "the query cannot be read"))
    for node in _nodes(tree):
        if node.get("type") == "TABLE_FUNCTION":
            name = str((node.get("function") or {}).get("function_name"))
            if name.lower() not in _TABLE_FUNCTIONS:
                known = ", ".join(_TABLE_FUNCTIONS)
                msg = f"the function {name} is not for queries of state: tables come from {known}"
                raise QueryError(msg)
    return tree


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield everything in a tree that has a type."""
    left = [tree]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            yield found
            left += found.values()
        elif isinstance(found, list):
            left += found


def _tables(tree: Any) -> Iterator[str]:
    """Yield the name of every table in a tree, as often as it is there."""
    for node in _nodes(tree):
        if node.get("type") == "BASE_TABLE":
            yield str(node.get("table_name"))


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
