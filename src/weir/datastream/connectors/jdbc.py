"""Sinks for PostgreSQL, at PyFlink's path."""

from weir.connector.jdbc import (
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcExecutionOptionsBuilder,
    JdbcSink,
)

__all__ = [
    "JdbcConnectionOptions",
    "JdbcExecutionOptions",
    "JdbcExecutionOptionsBuilder",
    "JdbcSink",
]
