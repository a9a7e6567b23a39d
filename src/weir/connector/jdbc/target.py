"""Databases as a commit target: rows and marker in one transaction.

The marker is a row of the table `weir_commits`, which is lock, fence and answer in one: it is
updated first, so that a second writer of the identity waits, and then finds that it was fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from weir.codec import pickled
from weir.connector.commit_target import CommitTarget
from weir.connector.jdbc.database import Database
from weir.connector.jdbc.dialect import ASK, ASK_FENCE, LOOK, MARK
from weir.connector.jdbc.options import JdbcConnectionOptions
from weir.errors import StorageError, UsageError


class JdbcTarget(CommitTarget):
    """Writes rows by a statement."""

    def __init__(self, options: JdbcConnectionOptions, sql: str, types: Sequence[Any]) -> None:
        """Connect to nobody yet; rows have fields of the declared types."""
        self._database = Database(options)
        self._sql = sql
        self._types = types
        self._fences: dict[str, int] = {}

    def check(self) -> None:
        """Refuse what cannot work, before there are rows; see `Database.reach`."""
        self._database.reach(self._sql)

    def fence(self, identities: Sequence[str]) -> None:
        """Take the identities over; a transaction that is writing under one is waited for."""
        database = self._database
        self._make_table()

        def take_over(cursor: Any, identity: str) -> None:
            database.execute(cursor, database.dialect.fence, (identity,))
            database.execute(cursor, ASK_FENCE, (identity,))
            self._fences[identity] = int(cursor.fetchone()[0])

        for identity in identities:
            database.apply("fencing", partial(take_over, identity=identity))

    def _make_table(self) -> None:
        """Make the table of markers; who may make none can have been given it."""
        try:
            with self._database.transaction("looking for the table of commits") as cursor:
                cursor.execute(LOOK)
        except UsageError:
            create = self._database.dialect.create
        else:
            return
        try:
            with self._database.transaction("making the table of commits") as cursor:
                for statement in create:
                    cursor.execute(statement)
        except UsageError as error:
            msg = f"{error}. For that, let somebody who may run: {create[-1]}"
            raise UsageError(msg) from error

    def committed(self, identity: str) -> int | None:
        """Return the marker."""
        with self._database.transaction("asking what was committed") as cursor:
            self._database.execute(cursor, ASK, (identity,))
            found = cursor.fetchone()
        return None if found is None or not found[0] else int(found[0])

    def write(self, identity: str, checkpoint: int, rows: list[Any]) -> None:
        """Write the marker, then the rows, in one transaction."""
        fence = self._fences.get(identity, 0)

        def mark_and_write(cursor: Any) -> None:
            self._database.execute(cursor, MARK, (checkpoint, identity, fence, checkpoint))
            if cursor.rowcount != 1:
                msg = f"{identity!r} was taken over by a later attempt: it writes nothing more"
                raise StorageError(msg)
            self._database.write(cursor, self._sql, rows, self._types)

        try:
            self._database.apply(f"writing checkpoint {checkpoint}", mark_and_write)
        except UsageError as error:
            msg = (
                f"{error}. The checkpoint holds these rows: where they are what is wrong, start "
                "from a copy without them, by 'weir state edit CHECKPOINT --to DIR "
                f"--drop-transactions OPERATOR {checkpoint}', which leaves out all that the sink "
                "had prepared for it"
            )
            raise UsageError(msg) from error

    def encode(self, rows: list[Any]) -> bytes:
        """Keep dates and decimals as they are."""
        return pickled.dumps(rows)

    def decode(self, data: bytes) -> list[Any]:
        """Return the rows."""
        found: list[Any] = pickled.loads(data)
        return found

    def close(self) -> None:
        """Close the connection."""
        self._database.close()
