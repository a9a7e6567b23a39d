"""ORC files, at PyFlink's path."""

from weir.connector.formats.column_files import OrcBulkWriters

__all__ = ["OrcBulkWriters"]
