"""ORC files, at PyFlink's path; PyFlink only writes them."""

from weir.connector.formats.column_files import OrcBulkWriters, OrcColumnarRowInputFormat

__all__ = ["OrcBulkWriters", "OrcColumnarRowInputFormat"]
