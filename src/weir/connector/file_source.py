"""`FileSource` by PyFlink's names: a value that says which files to read.

It reads nothing itself: the environment turns it into a Spark stream, of lines of text, or of the
names of files that workers read (`weir.connector.file_reader`).
"""

from __future__ import annotations

import codecs
import logging
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from weir.common.time import Duration
from weir.common.typeinfo import TypeInformation, Types
from weir.connector.builtin_sources import TextFileSource
from weir.connector.file_reader import SETTING, FormattedFiles, ReaderFormat
from weir.connector.source import Opening, Source, SourceStream
from weir.connector.undecoded import OnError
from weir.errors import UsageError
from weir.notices import warn_once

__all__ = ["FileSource", "FileSourceBuilder", "Source", "StreamFormat"]

log = logging.getLogger("weir.sources")


@dataclass(frozen=True)
class StreamFormat:
    """A format that is read record by record.

    Example:
        StreamFormat.text_line_format("UTF-8")
    """

    charset: str = "UTF-8"

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Read lines of text; `UsageError` for an unknown character set."""
        try:
            codecs.lookup(charset_name)
        except LookupError as error:
            message = f"unknown character set {charset_name!r}; try 'UTF-8'"
            raise UsageError(message) from error
        return StreamFormat(charset_name)


@dataclass(frozen=True)
class FileSource(Source):
    """Files or directories; read once, or watched for new files.

    Attributes:
        discovery_interval_ms: set to watch for new files; None reads what is there and ends.
        on_error: what becomes of records that cannot be decoded; None fails, or gives them to
            the side output `DEAD_LETTERS` if the program reads it.

    Example:
        lines = StreamFormat.text_line_format()
        source = FileSource.for_record_stream_format(lines, "/in").build()
        env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    """

    paths: tuple[str, ...]
    stream_format: StreamFormat | ReaderFormat
    discovery_interval_ms: int | None = None
    on_error: str | None = None

    @property
    def charset(self) -> str:
        """Character set of the files."""
        return getattr(self.stream_format, "charset", "UTF-8")

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the format; that of text is the string type: records are lines."""
        form = self.stream_format
        return form.get_produced_type() if isinstance(form, ReaderFormat) else Types.STRING()

    def parts(self) -> tuple[Source, ...]:
        """Return one source per path, as the engine reads them."""
        watched = self.discovery_interval_ms is not None
        if watched:
            warn_once(
                log,
                "FileSource.monitor_continuously: the interval has no effect, Spark looks for new "
                "files before every batch; 'weir.trigger' says how often that is",
            )
        form = self.stream_format
        if isinstance(form, ReaderFormat):
            return tuple(FormattedFiles(p, form, watched, self.on_error) for p in self.paths)
        return tuple(TextFileSource(path, self.charset, watched) for path in self.paths)

    @property
    def bounded(self) -> bool:
        """Tell whether only those files are read that are there."""
        return self.discovery_interval_ms is None

    def open(self, opening: Opening) -> SourceStream:
        """Refuse: each path is a source of its own, with a position of its own."""
        message = f"source '{opening.name}': a FileSource is read by its parts, path by path"
        raise UsageError(message)

    @staticmethod
    def for_record_stream_format(stream_format: Any, *paths: str) -> FileSourceBuilder:
        """Start from a format and at least one path."""
        if not isinstance(stream_format, (StreamFormat, ReaderFormat)):
            message = (
                f"FileSource.for_record_stream_format: found {stream_format!r}, expected a format "
                "such as StreamFormat.text_line_format() or CsvReaderFormat.for_schema(schema)"
            )
            raise UsageError(message)
        return FileSourceBuilder(FileSource(_paths(paths), stream_format))

    @staticmethod
    def for_bulk_file_format(bulk_format: Any, *paths: str) -> FileSourceBuilder:
        """Start from a format of whole files and at least one path."""
        if not isinstance(bulk_format, ReaderFormat):
            message = (
                f"FileSource.for_bulk_file_format: found {bulk_format!r}, expected a format such "
                "as ParquetColumnarRowInputFormat(row_type)"
            )
            raise UsageError(message)
        return FileSourceBuilder(FileSource(_paths(paths), bulk_format))


def _paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    if not paths or not all(isinstance(path, str) and path for path in paths):
        message = f"FileSource: got the paths {paths!r}, expected at least one path"
        raise UsageError(message)
    return paths


class FileSourceBuilder:
    """PyFlink's builder.

    Example:
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/in").build()
    """

    def __init__(self, source: FileSource) -> None:
        """Start with a bounded source."""
        self._source = source

    def monitor_continuously(self, discovery_interval: Any) -> FileSourceBuilder:
        """Watch for new files; the interval is a `Duration` or milliseconds."""
        interval = discovery_interval
        if isinstance(interval, Duration):
            interval = interval.to_millis()
        if not isinstance(interval, int) or interval <= 0:
            message = f"discovery interval is {discovery_interval!r}, expected a positive Duration"
            raise UsageError(message)
        self._source = replace(self._source, discovery_interval_ms=interval)
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that are there, then end; the default."""
        self._source = replace(self._source, discovery_interval_ms=None)
        return self

    def set_on_deserialization_error(self, how: str) -> FileSourceBuilder:
        """Say what becomes of records that cannot be decoded: "fail", "skip" or "dead-letter".

        What is left out is counted by the metric `numRecordsInErrors`. Of lines of text all can be.
        """
        OnError.named(how, SETTING)
        if not isinstance(self._source.stream_format, ReaderFormat):
            warn_once(log, f"{SETTING} has no effect on lines of text: all of them can be decoded")
        self._source = replace(self._source, on_error=how)
        return self

    def set_file_enumerator(self, file_enumerator: Any) -> NoReturn:
        """Refuse: Spark lists the files."""
        msg = (
            f"set_file_enumerator({file_enumerator!r}) is an object of Java: choose files by the "
            "path, or with env.from_dataframe(spark.read.option('pathGlobFilter', …)…)"
        )
        raise UsageError(msg)

    def set_split_assigner(self, split_assigner: Any) -> NoReturn:
        """Refuse: Spark hands out the files."""
        msg = f"set_split_assigner({split_assigner!r}) is an object of Java: leave it out"
        raise UsageError(msg)

    def build(self) -> FileSource:
        """Return the source."""
        return self._source
