"""`JdbcSink` by PyFlink's names: no driver of Java is needed.

`sink` writes batches as they come, again after a failure: at least once, so its statement should
replace what it finds (`ON CONFLICT … DO UPDATE`). `exactly_once_sink` writes the rows of a
checkpoint and a marker in one transaction when the checkpoint is complete.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from weir.clock import Clock
from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo
from weir.connector.commit_target import CommitSink, CommitWriter
from weir.connector.jdbc.database import Database
from weir.connector.jdbc.dialect import parameters_of
from weir.connector.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from weir.connector.jdbc.target import JdbcTarget
from weir.connector.sink import Sink, SinkWriter, WriterContext, blame
from weir.errors import StorageError, UsageError
from weir.notices import warn_once

log = logging.getLogger("weir.jdbc")
_PAUSE_S = 1.0


@dataclass(frozen=True)
class _Statement:
    """A statement and the type whose fields are its parameters."""

    sql: str
    type_info: Any

    def __post_init__(self) -> None:
        """Refuse a statement whose parameters are not the fields of the rows."""
        if not isinstance(self.type_info, (RowTypeInfo, TupleTypeInfo)):
            msg = f"JdbcSink needs rows: the type is {self.type_info!r}, expected Types.ROW(...)"
            raise UsageError(msg)
        fields, marks = len(self.types), parameters_of(self.sql)
        if fields != marks:
            msg = f"JdbcSink: {self.sql!r} has {marks} parameters, and rows have {fields} fields"
            raise UsageError(msg)

    @property
    def types(self) -> Sequence[Any]:
        """The declared types of the parameters."""
        found: Sequence[Any] = self.type_info.get_field_types()
        return found

    def parameters(self, values: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        check = self.type_info.check
        for value in values:
            try:
                yield tuple(check(value))
            except BaseException as error:  # noqa: PERF203 - it names the record
                blame(error, value)
                raise


class JdbcSink(Sink):
    """Writes batches as they come: at least once.

    Example:
        connection = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        connection = connection.with_url("jdbc:postgresql://host/shop").build()
        sql = "INSERT INTO payments VALUES (?, ?)"
        row = Types.ROW([Types.STRING(), Types.LONG()])
        JdbcSink.sink(sql, row, connection)
    """

    def __init__(
        self,
        statement: _Statement,
        connection: JdbcConnectionOptions,
        execution: JdbcExecutionOptions,
    ) -> None:
        """Use `JdbcSink.sink`."""
        self._statement = statement
        self._connection = connection
        self._execution = execution

    @staticmethod
    def sink(
        sql: str,
        type_info: Any,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """Write each row by a statement whose `?` are the row's fields; at least once."""
        execution = jdbc_execution_options or JdbcExecutionOptions()
        return JdbcSink(_Statement(sql, type_info), jdbc_connection_options, execution)

    @staticmethod
    def exactly_once_sink(
        sql: str,
        type_info: Any,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> ExactlyOnceJdbcSink:
        """Write the rows of a checkpoint in one transaction with a marker, when it is complete.

        Execution options have no effect: checkpoints are the batches, restarts the retries.
        """
        if jdbc_execution_options not in (None, JdbcExecutionOptions()):
            warn_once(
                log,
                "the execution options of JdbcSink.exactly_once_sink have no effect: it writes the "
                "rows of a checkpoint together, and what fails is tried again by the restart "
                "strategy",
            )
        return ExactlyOnceJdbcSink(_Statement(sql, type_info), jdbc_connection_options)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create the writer of one subtask.

        Raises:
            UsageError: the database refuses who asks.
            StorageError: it does not answer.
        """
        database = Database(self._connection)
        database.reach(self._statement.sql)
        return _BatchWriter(self._statement, database, self._execution, context.clock)


class ExactlyOnceJdbcSink(CommitSink):
    """Writes every row once; see `JdbcSink.exactly_once_sink`."""

    def __init__(self, statement: _Statement, connection: JdbcConnectionOptions) -> None:
        """Use `JdbcSink.exactly_once_sink`."""
        self._statement = statement
        self._connection = connection

    def create_writer(self, context: WriterContext) -> CommitWriter:
        """Create the writer of one subtask.

        Raises:
            UsageError: the database refuses who asks, or transactions mean nothing to its table.
            StorageError: it does not answer.
        """
        target = self.open_target(context)
        target.check()
        return CommitWriter(self, target, context)

    def open_target(self, context: WriterContext) -> JdbcTarget:
        """Return a target for one subtask."""
        return JdbcTarget(self._connection, self._statement.sql, self._statement.types)

    def rows_of(self, values: list[Any], timestamps: list[int | None] | None) -> Iterable[Any]:
        """Return the parameters of every row."""
        return self._statement.parameters(values)


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


class _BatchWriter(SinkWriter):
    def __init__(
        self,
        statement: _Statement,
        database: Database,
        execution: JdbcExecutionOptions,
        clock: Clock,
        *,
        pause: Callable[[float], None] = _wait,
    ) -> None:
        self._statement = statement
        self._pause = pause
        self._database = database
        self._execution = execution
        self._clock = clock
        self._rows: list[tuple[Any, ...]] = []
        self._since_ms = clock.monotonic_ms()

    def write_batch(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        self._rows.extend(self._statement.parameters(values))
        now, how = self._clock.monotonic_ms(), self._execution
        is_old = 0 < how.batch_interval_ms <= now - self._since_ms
        if is_old or len(self._rows) >= how.batch_size:
            self._flush()

    def _flush(self) -> None:
        size = self._execution.batch_size
        while self._rows:
            self._write(self._rows[:size])
            del self._rows[:size]
        self._since_ms = self._clock.monotonic_ms()

    def _write(self, rows: list[tuple[Any, ...]]) -> None:
        """Write a batch, again after a pause: a database that is away refuses within moments."""
        retries = self._execution.max_retries
        for number in range(1, retries + 2):
            try:
                self._database.apply("writing a batch", partial(self._insert, rows=rows))
            except StorageError as error:  # noqa: PERF203 - it is tried again
                if number > retries:
                    raise
                log.warning("try %d of %d to write a batch: %s", number, retries + 1, error)
                self._pause(_PAUSE_S * number)
            else:
                return

    def _insert(self, cursor: Any, rows: list[tuple[Any, ...]]) -> None:
        self._database.write(cursor, self._statement.sql, rows, self._statement.types)

    def prepare(self, checkpoint_id: int) -> list[bytes]:
        self._flush()
        return []

    def commit(self, committables: list[bytes]) -> None:
        """Nothing is prepared, so nothing is left to do."""

    def finish(self) -> None:
        self._flush()

    def abort(self) -> None:
        self._rows = []

    def close(self) -> None:
        self.abort()
        self._database.close()
