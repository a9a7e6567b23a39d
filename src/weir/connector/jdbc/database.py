"""A connection to a database: made when it is needed, and again after it broke."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weir.connector.jdbc.dialect import Dialect, dialect_of
from weir.connector.jdbc.options import JdbcConnectionOptions
from weir.errors import StorageError, UsageError, WeirError


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
        return UsageError(msg) if self.dialect.is_mistake(error) else StorageError(msg)

    def close(self) -> None:
        """Close the connection; what is open is rolled back."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.close()
        except self.dialect.driver().Error:
            """It broke before: there is nothing left to close."""
