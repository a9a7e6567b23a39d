"""A connection to a database: made when it is needed, and again after it broke."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weir.connector.jdbc.dialect import Dialect, dialect_of
from weir.connector.jdbc.options import JdbcConnectionOptions
from weir.errors import StorageError, UsageError, WeirError

_TRIES = 10
_PAUSE_S = 0.05
_CONNECTING = "connecting"


class ConflictError(StorageError):
    """A transaction gave way to another one, and nothing of it was written."""


class Database:
    """Runs transactions; for one thread at a time. What goes wrong names the database."""

    def __init__(self, options: JdbcConnectionOptions) -> None:
        """Connect to nobody yet."""
        self.dialect: Dialect = dialect_of(options.url)
        self._options = options
        self._connection: Any = None

    @contextmanager
    def transaction(self, doing: str) -> Iterator[Any]:
        """Give a cursor; what is raised rolls back.

        Raises:
            UsageError: statement, values or password are wrong.
            StorageError: it did not work, or nobody knows: trying again may help.
        """
        driver = self.dialect.driver()
        try:
            cursor = self._begun()
            yield cursor
            cursor.execute("commit")
            cursor.close()
        except driver.Error as error:
            self.close()
            raise self._error(doing, error) from error
        except BaseException:
            # A connection that is closed has nothing open.
            self.close()
            raise

    def reach(self, sql: str) -> None:
        """Connect, so that a wrong password is found at once, and look at a statement.

        Raises:
            UsageError: the database refuses who asks, or transactions mean nothing here.
            StorageError: nobody answers.
        """
        with self.transaction(_CONNECTING) as cursor:
            self.dialect.check(cursor, sql)

    def apply(self, doing: str, work: Callable[[Any], None]) -> None:
        """Do something in a transaction, again where it had to give way to another one.

        Raises:
            UsageError: statement, values or password are wrong.
            StorageError: it did not work, or nobody knows: trying again may help.
        """
        pause = threading.Event()
        for number in range(_TRIES):
            try:
                with self.transaction(doing) as cursor:
                    work(cursor)
            except ConflictError:  # noqa: PERF203 - it is tried again
                if number == _TRIES - 1:
                    raise
                pause.wait(_PAUSE_S * 2**number)
            else:
                return

    def execute(self, cursor: Any, sql: str, parameters: tuple[Any, ...] = ()) -> None:
        """Run a statement that has `?` for its parameters."""
        cursor.execute(self.dialect.statement(sql), self.dialect.adapt([parameters])[0])

    def write(self, cursor: Any, sql: str, rows: list[Any], types: Sequence[Any]) -> None:
        """Run a statement for every row, whose fields have the declared types."""
        self.dialect.write(cursor, sql, rows, types)

    def _begun(self) -> Any:
        """Begin a transaction; a connection from before may have ended in the meantime."""
        if self._connection is not None:
            try:
                return self._begin()
            except self.dialect.driver().Error:
                self.close()
        self._connection = self.dialect.connect(self._options)
        return self._begin()

    def _begin(self) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(self.dialect.begin)
        return cursor

    def _error(self, doing: str, error: Exception) -> WeirError:
        text = f"{type(error).__name__}: {str(error).strip()}"
        msg = f"{self.dialect.name} at {self._options.place!r} failed while {doing}: {text}"
        if self.dialect.is_conflict(error):
            return ConflictError(msg)
        if not self.dialect.is_mistake(error):
            return StorageError(msg)
        if doing == _CONNECTING:
            return UsageError(f"{msg}; check the URL, the user and the password")
        return UsageError(
            f"{msg}; nothing of this transaction was written: correct the statement, the table, "
            "its rights or the rows, and start again from the newest checkpoint"
        )

    def close(self) -> None:
        """Close the connection; what is open is rolled back."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            self.dialect.close(connection)
        except self.dialect.driver().Error:
            """It broke before: there is nothing left to close."""
