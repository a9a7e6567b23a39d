"""Sinks and a source for databases, at PyFlink's path."""

from weir.connector.jdbc.options import (
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcExecutionOptionsBuilder,
)
from weir.connector.jdbc.sink import JdbcSink
from weir.connector.jdbc.source import JdbcSource, JdbcSourceBuilder

__all__ = [
    "JdbcConnectionOptions",
    "JdbcExecutionOptions",
    "JdbcExecutionOptionsBuilder",
    "JdbcSink",
    "JdbcSource",
    "JdbcSourceBuilder",
]
