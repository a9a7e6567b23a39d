"""`FileSink`: exactly-once files in Parquet, JSON lines, CSV, text or a user's format.

This is the description that a program builds; `weir.connector.file_writer` does the work. Files
are visible in the base path, or in bucket directories below it, once their checkpoint completed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from weir.connector.bucket import BucketAssigner
from weir.connector.compacting_writer import CompactingWriter
from weir.connector.compaction import Compaction, FileCompactor, FileCompactStrategy
from weir.connector.file_format import (
    CsvFormat,
    FileFormat,
    JsonLinesFormat,
    TextFormat,
    row_format,
)
from weir.connector.file_system import FileSystem, resolve
from weir.connector.file_writer import FileLayout, FileSinkWriter
from weir.connector.parquet_format import ParquetFormat
from weir.connector.rolling import OutputFileConfig, RollingPolicy
from weir.connector.sink import Sink, WriterContext
from weir.errors import UsageError


class FileSink(Sink):
    """Files with exactly-once contents.

    Guarantees: a reader of the directory sees whole files of completed checkpoints only; files
    being written have names that start with a dot, which Spark and pyarrow skip. A crash at any
    moment neither loses nor repeats a record, and leaves no hidden file after the restart. Readers
    may move or delete visible files at any time.

    Example:
        >>> sink = FileSink.json_lines("/tmp/out")
    """

    BaseBuilder: ClassVar[type[FileSinkBuilder]]
    RowFormatBuilder: ClassVar[type[FileSinkBuilder]]
    BulkFormatBuilder: ClassVar[type[FileSinkBuilder]]

    def __init__(
        self, layout: FileLayout, file_format: FileFormat, file_system: FileSystem | None = None
    ) -> None:
        """Prefer the static methods; `file_system` replaces the one that the path names."""
        resolved, path = resolve(layout.base_path)
        self._layout = replace(layout, base_path=path)
        self._format = file_format
        self._file_system = file_system or resolved

    @property
    def path(self) -> str:
        """Absolute base path."""
        return self._layout.base_path

    def create_writer(self, context: WriterContext) -> FileSinkWriter:
        """Create the writer of one subtask; `UsageError` if the format cannot hold the type."""
        open_part = self._format.bind(context.type_info)
        columns = self._format.column_schema(context.type_info)
        given = (context, self._layout, open_part, self._file_system)
        compaction = self._layout.compaction
        if compaction is None:
            return FileSinkWriter(*given, columns=columns)
        return CompactingWriter(*given, columns=columns, compaction=compaction)

    def can_take_back(self) -> bool:
        """Committed files can be removed: their names tell job, operator and checkpoint.

        Not so joined ones: what they were made of, and older checkpoints wait for, is gone.
        """
        return self._layout.compaction is None

    def with_file_system(self, file_system: FileSystem) -> FileSink:
        """Return the same sink on another file system."""
        return FileSink(self._layout, self._format, file_system)

    def __repr__(self) -> str:
        """Name format and path."""
        return f"FileSink({type(self._format).__name__}, {self.path!r})"

    @staticmethod
    def for_row_format(base_path: str, encoder: Any) -> FileSinkBuilder:
        """Build a sink that encodes record by record, into hourly buckets unless told otherwise."""
        policy = RollingPolicy.default_rolling_policy()
        return FileSinkBuilder(base_path, row_format(encoder), policy)

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: Any) -> FileSinkBuilder:
        """Build a sink of a whole-file format, into hourly buckets unless told otherwise."""
        if not isinstance(writer_factory, FileFormat):
            message = (
                f"for_bulk_format: got {writer_factory!r}, expected a writer factory such as "
                "ParquetBulkWriters.for_row_type(row_type)"
            )
            raise UsageError(message)
        policy = RollingPolicy.on_checkpoint_rolling_policy()
        return FileSinkBuilder(base_path, writer_factory, policy)

    @staticmethod
    def parquet(
        path: str,
        row_type: Any = None,
        *,
        bucket_assigner: BucketAssigner | None = None,
        rolling_policy: RollingPolicy | None = None,
        output_file_config: OutputFileConfig | None = None,
    ) -> FileSink:
        """Write Parquet; columns from `row_type` (or a `pyarrow.Schema`) or the stream's type."""
        chosen = (bucket_assigner, rolling_policy, output_file_config)
        return _simple(path, ParquetFormat(row_type), *chosen)

    @staticmethod
    def json_lines(
        path: str,
        *,
        bucket_assigner: BucketAssigner | None = None,
        rolling_policy: RollingPolicy | None = None,
        output_file_config: OutputFileConfig | None = None,
        non_finite: str = "refuse",
    ) -> FileSink:
        """Write one JSON value per line; named rows become objects.

        JSON has no NaN and no infinity: the job fails at a record with one, unless `non_finite` is
        "null", or "text" for "NaN", "Infinity" and "-Infinity".
        """
        chosen = (bucket_assigner, rolling_policy, output_file_config)
        return _simple(path, JsonLinesFormat(non_finite), *chosen)

    @staticmethod
    def csv(
        path: str,
        row_type: Any = None,
        header: bool = False,
        *,
        bucket_assigner: BucketAssigner | None = None,
        rolling_policy: RollingPolicy | None = None,
        output_file_config: OutputFileConfig | None = None,
    ) -> FileSink:
        """Write CSV, with the field names first in each file if `header`."""
        chosen = (bucket_assigner, rolling_policy, output_file_config)
        return _simple(path, CsvFormat(row_type, header), *chosen)

    @staticmethod
    def text(
        path: str,
        charset: str = "UTF-8",
        *,
        bucket_assigner: BucketAssigner | None = None,
        rolling_policy: RollingPolicy | None = None,
        output_file_config: OutputFileConfig | None = None,
    ) -> FileSink:
        """Write `str(value)` per line."""
        chosen = (bucket_assigner, rolling_policy, output_file_config)
        return _simple(path, TextFormat(charset), *chosen)


def _simple(
    path: str,
    file_format: FileFormat,
    bucket_assigner: BucketAssigner | None,
    rolling_policy: RollingPolicy | None,
    names: OutputFileConfig | None,
) -> FileSink:
    layout = FileLayout(
        path,
        bucket_assigner or BucketAssigner.base_path_bucket_assigner(),
        rolling_policy or RollingPolicy.on_checkpoint_rolling_policy(),
        names or OutputFileConfig("part", file_format.suffix),
    )
    return FileSink(layout, file_format)


class FileSinkBuilder:
    """PyFlink's builder; the defaults are Flink's: hourly buckets, prefix "part", no suffix.

    Example:
        FileSink.for_row_format("/out", Encoder.simple_string_encoder()).build()
    """

    def __init__(self, base_path: str, file_format: FileFormat, policy: RollingPolicy) -> None:
        self._format = file_format
        self._layout = FileLayout(
            base_path,
            BucketAssigner.date_time_bucket_assigner(),
            policy,
            OutputFileConfig(),
        )

    def with_bucket_check_interval(self, interval: int) -> FileSinkBuilder:
        """Set how often, in milliseconds, age and idle limits are looked at."""
        if interval <= 0:
            message = f"bucket check interval is {interval!r}, expected positive milliseconds"
            raise UsageError(message)
        return self._with(check_interval_ms=interval)

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> FileSinkBuilder:
        """Set which bucket a record goes to."""
        return self._with(bucket_assigner=bucket_assigner)

    def with_rolling_policy(
        self, rolling_policy: RollingPolicy | None = None, policy: RollingPolicy | None = None
    ) -> FileSinkBuilder:
        """Set when files close before the checkpoint; `policy` is the older name."""
        chosen = rolling_policy or policy
        if chosen is None:
            message = "with_rolling_policy() needs a RollingPolicy"
            raise UsageError(message)
        return self._with(rolling_policy=chosen)

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> FileSinkBuilder:
        """Set prefix and suffix of the file names."""
        return self._with(names=output_file_config)

    def enable_compact(
        self, strategy: FileCompactStrategy, compactor: FileCompactor
    ) -> FileSinkBuilder:
        """Join small files before they become visible.

        Raises:
            UsageError: files of the format cannot be joined like this.
        """
        return self._with(compaction=Compaction.of(strategy, compactor, self._format))

    def disable_compact(self) -> FileSinkBuilder:
        """Join no files, as by default."""
        return self._with(compaction=None)

    def build(self) -> FileSink:
        """Return the sink."""
        return FileSink(self._layout, self._format)

    def _with(self, **changes: Any) -> FileSinkBuilder:
        self._layout = replace(self._layout, **changes)
        return self


FileSink.BaseBuilder = FileSinkBuilder
FileSink.RowFormatBuilder = FileSink.BulkFormatBuilder = FileSinkBuilder


class StreamingFileSink(FileSink):
    """`FileSink` by its older name, for `add_sink`.

    Example:
        old = StreamingFileSink.for_row_format("/out", Encoder.simple_string_encoder()).build()
        stream.add_sink(old)
    """

    DefaultRowFormatBuilder: ClassVar[type[FileSinkBuilder]]
    DefaultBulkFormatBuilder: ClassVar[type[FileSinkBuilder]]


StreamingFileSink.BaseBuilder = StreamingFileSink.DefaultRowFormatBuilder = FileSinkBuilder
StreamingFileSink.DefaultBulkFormatBuilder = FileSinkBuilder
