"""File sources and sinks, at PyFlink's path."""

from weir.common._absent import absent
from weir.connector.bucket import BucketAssigner
from weir.connector.compaction import FileCompactor, FileCompactStrategy
from weir.connector.file_format import FileFormat
from weir.connector.file_format import FileFormat as BulkWriterFactory
from weir.connector.file_sink import FileSink, FileSinkBuilder, StreamingFileSink
from weir.connector.file_source import FileSource, FileSourceBuilder, StreamFormat
from weir.connector.formats.column_files import BulkFormat, ParquetBulkWriters
from weir.connector.formats.csv_files import CsvBulkWriters
from weir.connector.rolling import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from weir.datastream.connectors._elsewhere import FILES

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "BulkWriterFactory",
    "CsvBulkWriters",
    "DefaultRollingPolicy",
    "FileCompactStrategy",
    "FileCompactor",
    "FileFormat",
    "FileSink",
    "FileSinkBuilder",
    "FileSource",
    "FileSourceBuilder",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "ParquetBulkWriters",
    "RollingPolicy",
    "StreamFormat",
    "StreamingFileSink",
]

__getattr__ = absent(__name__, FILES)
