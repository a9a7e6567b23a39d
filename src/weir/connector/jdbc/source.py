"""`JdbcSource`: the rows of a query, read once, by ranges of one column.

The rows are those whose column is at most what its maximum was when the job first started. An epoch
reads some ranges of values, side by side; the position is the value behind which nothing was read
yet, so a job that resumes asks for the rest alone::

    {"jdbc": "id", "after": 173, "bounds": [120, 173], "until": 900}

`bounds` are the ends of the ranges of the last epoch: the same positions give the same ranges.

Own readers and not Spark's: no jar is needed, rows do not pass through the JVM, and Spark's reader
keeps no position. What a range holds must not change while it is read: rows that are added have
higher values, and others are let alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa

from weir.codec import pickled
from weir.common.typeinfo import RowTypeInfo
from weir.connector.decoder import Decoder, PickledRecords, TypedColumns
from weir.connector.jdbc.database import Database
from weir.connector.jdbc.options import JdbcConnectionOptions
from weir.connector.parquet_format import try_columnar
from weir.connector.source import Opening, PlannedSplits, Source, SplitPlanner, SplitReader
from weir.errors import CorruptStateError, UsageError

Value = int | str | None
_PICKLED = pa.schema([("records", pa.binary())])
_RANGES = 4


class Position(msgspec.Struct, frozen=True):
    """How far a query was read; see the module. Without rows `until` is None."""

    jdbc: str
    after: Value = None
    bounds: tuple[int | str, ...] = ()
    until: Value = None

    @classmethod
    def of(cls, data: Any) -> Position:
        """Read a position.

        Raises:
            CorruptStateError: it is none.
        """
        try:
            return _decode_position(msgspec.json.encode(data))
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            msg = f"{data!r:.300} is not the position of a JDBC source: {error}"
            raise CorruptStateError(msg) from error

    @property
    def is_over(self) -> bool:
        """Tell whether everything was read."""
        return self.after == self.until

    def to_json(self) -> dict[str, Any]:
        """Return the form that is written down."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


_decode_position = msgspec.json.Decoder(Position).decode


class Range(msgspec.Struct, frozen=True):
    """A split: the rows above one value and up to another; up to None there are none."""

    after: Value
    upto: Value
    last: bool


_decode_range = msgspec.json.Decoder(Range).decode


@dataclass(frozen=True)
class _Query:
    """A query, and the column by which it is read."""

    connection: JdbcConnectionOptions
    sql: str
    column: str

    def ask(self, doing: str, text: str, values: tuple[Any, ...] = ()) -> tuple[Any, ...]:
        """Return the one row of a question about the query."""
        database = Database(self.connection)
        try:
            with database.transaction(doing) as cursor:
                database.execute(cursor, text, values)
                found: tuple[Any, ...] = cursor.fetchone()
            return found
        finally:
            database.close()

    def between(self, after: Value, upto: Value) -> tuple[str, tuple[Any, ...]]:
        """Return the rows of a range as a table, and its parameters."""
        above = "" if after is None else f"{self.column} > ? and "
        values = (upto,) if after is None else (after, upto)
        return f"({self.sql}) weir_rows where {above}{self.column} <= ?", values


class JdbcPlanner(SplitPlanner):
    """Plans ranges of about as many rows each."""

    def __init__(self, query: _Query, start: Position, rows: int) -> None:
        """Read ranges of so many rows."""
        self._query = query
        self._start = start
        self._rows = rows

    def begin(self) -> dict[str, Any]:
        """Return where the source was opened."""
        return self._start.to_json()

    def advance(self, position: dict[str, Any] | None) -> dict[str, Any]:
        """Return the position behind a few more ranges."""
        if position is None:
            return self._end()
        at = Position.of(position)
        bounds: list[int | str] = []
        after = at.after
        while len(bounds) < _RANGES and after != at.until:
            after = self._bound(after, at.until)
            bounds.append(after)
        return msgspec.structs.replace(at, after=after, bounds=tuple(bounds)).to_json()

    def _end(self) -> dict[str, Any]:
        """Return the position behind everything."""
        until = self._start.until
        bounds = () if until is None else (until,)
        return msgspec.structs.replace(self._start, after=until, bounds=bounds).to_json()

    def _bound(self, after: Value, until: Value) -> int | str:
        """Return the value at which a range of so many rows ends."""
        table, values = self._query.between(after, until)
        column = self._query.column
        page = f"select {column} as place from {table} order by {column} limit {self._rows}"
        found = self._query.ask("planning", f"select max(place) from ({page}) page", values)[0]
        # Rows that were deleted since leave nothing to read behind the position.
        return _value(until if found is None else found, column)

    def plan(self, start: dict[str, Any], end: dict[str, Any], tasks: int) -> list[tuple[str, ...]]:
        """Return the ranges between two positions; the first one begins at the start.

        Where there is nothing to read, one range says that this is the end.
        """
        first, last = Position.of(start), Position.of(end)
        ranges: list[Range] = []
        after = first.after
        for bound in last.bounds:
            ranges.append(Range(after, bound, last.is_over))
            after = bound
        if last.is_over and not ranges:
            ranges.append(Range(after, None, last=True))
        splits = [msgspec.json.encode(found).decode() for found in ranges]
        return [tuple(splits[n::tasks]) for n in range(min(tasks, len(splits)))]

    def bound(self) -> None:
        """Change nothing: the source has an end."""

    def is_over(self, position: dict[str, Any]) -> bool:
        """Tell whether all rows were read."""
        return Position.of(position).is_over


@dataclass(frozen=True)
class JdbcRanges(SplitReader):
    """Reads ranges, in order of the column."""

    query: _Query
    type_info: Any
    fetch: int

    def read(self, split: str) -> Iterator[pa.RecordBatch]:
        """Return the rows of a range."""
        wanted = _decode_range(split)
        return iter([] if wanted.upto is None else self._taken(wanted))

    def _taken(self, wanted: Range) -> list[pa.RecordBatch]:
        """Take the rows of a range, and leave the database.

        Who reads them may take long. A transaction that waits for it would be ended by the server,
        in every attempt again, and would keep the others of an SQLite file waiting. Drivers hold
        all rows of an answer anyway.
        """
        table, values = self.query.between(wanted.after, wanted.upto)
        taken: list[pa.RecordBatch] = []
        database = Database(self.query.connection)
        try:
            with database.transaction("reading") as cursor:
                text = f"select * from {table} order by {self.query.column}"
                database.execute(cursor, text, values)
                while rows := cursor.fetchmany(self.fetch):
                    taken.append(self._batch([tuple(row) for row in rows]))
        finally:
            database.close()
        return taken

    def _batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        columns = try_columnar(self.type_info)
        if columns is not None:
            return columns[1](rows)
        records = [self.type_info.check(row) for row in rows]
        data = pa.array([pickled.dumps(records)], pa.binary())
        return pa.RecordBatch.from_arrays([data], schema=_PICKLED)

    def is_last(self, split: str) -> bool:
        """Tell what the split says."""
        return _decode_range(split).last


@dataclass(frozen=True)
class JdbcSource(Source):
    """The rows of a query, once.

    Example:
        source = JdbcSource.builder().set_db_url("jdbc:postgresql://host/shop").set_username("me")
        source = source.set_sql("select id, amount from payments").set_split_column("id")
        row = Types.ROW_NAMED(["id", "amount"], [Types.LONG(), Types.LONG()])
        source.set_type_information(row).build()
    """

    query: _Query = field(repr=False)
    type_info: RowTypeInfo
    rows_per_range: int = 50_000
    fetch_size: int = 10_000

    @staticmethod
    def builder() -> JdbcSourceBuilder:
        """Begin a source."""
        return JdbcSourceBuilder()

    def get_produced_type(self) -> Any:
        """Return the declared type of the rows."""
        return self.type_info

    def open(self, opening: Opening) -> PlannedSplits:
        """Decide what there is to read, once a job.

        Raises:
            UsageError: the query cannot be run, or its column has no order.
            StorageError: the database does not answer.
        """
        self._check_columns()
        if opening.position is None:
            start = Position(self.query.column, until=self._until())
        else:
            start = Position.of(msgspec.json.decode(opening.position))
            if start.jdbc != self.query.column:
                msg = (
                    f"the JDBC source was read by the column {start.jdbc!r}, and is to go on by "
                    f"{self.query.column!r}: keep the column, or give the source another uid"
                )
                raise UsageError(msg)
        columns = try_columnar(self.type_info)
        decoder: Decoder = PickledRecords() if columns is None else TypedColumns(self.type_info)
        planner = JdbcPlanner(self.query, start, self.rows_per_range)
        return PlannedSplits(
            planner, JdbcRanges(self.query, self.type_info, self.fetch_size), decoder
        )

    def _until(self) -> Value:
        column = self.query.column
        text = f"select max({column}), count(*), count({column}) from ({self.query.sql}) weir_rows"
        most, rows, placed = self.query.ask("asking for the range of the column", text)
        if rows != placed:
            msg = (
                f"the column {column!r} of the JDBC source is empty in {rows - placed} rows, which "
                "would never be read: leave them out in the query, or read by another column"
            )
            raise UsageError(msg)
        return None if most is None else _value(most, column)

    def _check_columns(self) -> None:
        database = Database(self.query.connection)
        try:
            with database.transaction("looking at the query") as cursor:
                database.execute(cursor, f"select * from ({self.query.sql}) weir_rows where 1 = 0")
                names = [column[0] for column in cursor.description]
        finally:
            database.close()
        fields = self.type_info.get_field_names()
        if len(names) != len(fields):
            msg = f"the query has the columns {names}, and its type the fields {list(fields)}"
            raise UsageError(msg)
        if self.query.column not in names:
            msg = f"set_split_column: {self.query.column!r} is none of the query's columns {names}"
            raise UsageError(msg)


def _value(found: Any, column: str) -> int | str:
    if isinstance(found, (int, str)) and not isinstance(found, bool):
        return found
    msg = (
        f"set_split_column: {column!r} has values of the type {type(found).__name__}, expected "
        "whole numbers or texts"
    )
    raise UsageError(msg)


class JdbcSourceBuilder:
    """The builder of `JdbcSource`, with the names of Flink's; every method returns the builder.

    Example:
        JdbcSource.builder().set_db_url("jdbc:sqlite:/data/shop.db").set_sql("select * from t")
    """

    def __init__(self) -> None:
        """Begin with nothing set."""
        self._options = JdbcConnectionOptions("")
        self._sql = ""
        self._column = ""
        self._type: Any = None
        self._sizes: dict[str, int] = {}

    def set_db_url(self, url: str) -> JdbcSourceBuilder:
        """Say where, such as `jdbc:postgresql://host:port/database`."""
        self._options = replace(self._options, url=url)
        return self

    def set_username(self, username: str) -> JdbcSourceBuilder:
        """Say who asks."""
        self._options = replace(self._options, user_name=username)
        return self

    def set_password(self, password: str) -> JdbcSourceBuilder:
        """Give the password."""
        self._options = replace(self._options, password=password)
        return self

    def set_driver_name(self, driver_name: str) -> JdbcSourceBuilder:
        """Take the name of Java's driver, which is not used."""
        self._options = replace(self._options, driver_name=driver_name)
        return self

    def set_sql(self, sql: str) -> JdbcSourceBuilder:
        """Give the query."""
        self._sql = sql.strip().rstrip(";")
        return self

    def set_split_column(self, column: str) -> JdbcSourceBuilder:
        """Name the column of the query by which it is read: numbers or texts, with an index."""
        self._column = column
        return self

    def set_type_information(self, type_information: Any) -> JdbcSourceBuilder:
        """Declare the rows: `Types.ROW_NAMED`, in the order of the query's columns."""
        self._type = type_information
        return self

    def set_result_set_fetch_size(self, result_set_fetch_size: int) -> JdbcSourceBuilder:
        """Make batches of so many rows."""
        return self._size("fetch_size", result_set_fetch_size)

    def set_rows_per_range(self, rows: int) -> JdbcSourceBuilder:
        """Read so many rows by one task; an epoch reads four ranges."""
        return self._size("rows_per_range", rows)

    def _size(self, name: str, value: int) -> JdbcSourceBuilder:
        if not isinstance(value, int) or value < 1:
            msg = f"set_{name}: {value!r}, expected a number >= 1"
            raise UsageError(msg)
        self._sizes[name] = value
        return self

    def build(self) -> JdbcSource:
        """Return the source.

        Raises:
            UsageError: something necessary was not said.
        """
        given = {
            "set_db_url": self._options.url,
            "set_sql": self._sql,
            "set_split_column": self._column,
            "set_type_information": self._type,
        }
        missing = [name for name, value in given.items() if not value]
        if missing:
            msg = f"a JDBC source needs {', '.join(missing)}"
            raise UsageError(msg)
        if not isinstance(self._type, RowTypeInfo):
            msg = f"set_type_information: {self._type!r}, expected Types.ROW_NAMED(...)"
            raise UsageError(msg)
        if not self._column.isidentifier():
            msg = f"set_split_column: {self._column!r}, expected the name of a column"
            raise UsageError(msg)
        Database(self._options).dialect.arguments(self._options)
        return JdbcSource(_Query(self._options, self._sql, self._column), self._type, **self._sizes)
