"""Turning the program's sources into one streaming DataFrame.

One source keeps its columns; several are united with one struct column each, so that Spark logs
their offsets in one record.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from weir.codec.arrow import arrow_schema_for, type_from_arrow
from weir.errors import UsageError
from weir.graph.plan import JobPlan, OperatorNode
from weir.graph.sources import (
    CollectionSource,
    DataFrameSource,
    FunctionSource,
    SequenceSource,
    TextFileSource,
)
from weir.graph.transformation import StreamGraph
from weir.spark.function_source import FunctionRunner
from weir.spark.resume import Resume
from weir.spark.spool import Spool, spool_collection, spool_sequence
from weir.spark.worker import SourceColumns


@dataclass
class OpenedSource:
    """A source as a stream; `kept` is where the rows of a bounded DataFrame lie."""

    node: OperatorNode
    dataframe: DataFrame
    decode: str
    type_info: Any
    bounded: bool
    runner: FunctionRunner | None = None
    spool: Spool | None = None
    kept: Path | None = None


@dataclass
class Input:
    """All sources of a program as one stream.

    By number of the source, `spools` are those whose records the program itself gives, and `kept`
    is where the rows of bounded DataFrames lie.
    """

    dataframe: DataFrame
    columns: tuple[SourceColumns, ...]
    uids: list[str]
    bounded: bool
    runners: list[FunctionRunner] = field(default_factory=list)
    spools: dict[int, Spool] = field(default_factory=dict)
    kept: dict[int, Path] = field(default_factory=dict)


def declare_types(graph: StreamGraph) -> None:
    """Give DataFrame sources the type of their columns, before the plan is compiled."""
    for t in graph.transformations:
        if t.kind == "source" and isinstance(t.function, DataFrameSource):
            schema = to_arrow_schema(t.function.dataframe.schema, timezone="UTC")
            declared = t.function.type_info or t.output_type
            t.output_type = declared or type_from_arrow(schema)
            if arrow_schema_for(t.output_type) is None:
                unsupported = [f.name for f in schema if arrow_schema_for_field(f) is None]
                msg = (
                    f"source '{t.name}': columns {unsupported} have types that cannot become "
                    "record fields; cast or drop them before from_dataframe()"
                )
                raise UsageError(msg)


def arrow_schema_for_field(field_: Any) -> Any:
    """Return the columnar schema of one column, None when there is none."""
    return arrow_schema_for(type_from_arrow(pa.schema([field_])))


def detach_sources(plan: JobPlan) -> dict[int, Any]:
    """Take source objects (DataFrames, collections) out of the plan: they stay in the driver."""
    sources: dict[int, Any] = {}
    for op in plan.operators:
        if op.kind == "source":
            sources[op.index] = op.function
            op.function = None
    return sources


class SourceOpener:
    """Opens sources below one spool directory, behind what a job before this one has read."""

    def __init__(
        self,
        spark: SparkSession,
        spool: Path,
        records_per_file: int,
        resume: Resume | None = None,
    ) -> None:
        """Bind to a session and a place for spooled data."""
        self._spark = spark
        self._spool = spool
        self._records = records_per_file
        self._resume = resume or Resume()

    def open(self, plan: JobPlan, sources: dict[int, Any], stop: threading.Event) -> Input:
        """Open all sources of a plan."""
        opened = [
            self._open(plan.operators[index], source, stop) for index, source in sources.items()
        ]
        return unite(opened)

    def _open(self, node: OperatorNode, source: Any, stop: threading.Event) -> OpenedSource:
        folder, skip = self._spool / str(node.index), self._resume.records(uid_of(node))
        if isinstance(source, CollectionSource):
            path = spool_collection(folder, source.elements, source.type_info, self._records, skip)
            frame, spool = self._stream(path, "p binary"), Spool(path, skip)
            return OpenedSource(node, frame, "pickled", None, True, spool=spool)
        if isinstance(source, SequenceSource):
            path = spool_sequence(folder, source.start, source.end, self._records, skip)
            frame, spool = self._stream(path, "start bigint, stop bigint"), Spool(path, skip)
            return OpenedSource(node, frame, "ranges", None, True, spool=spool)
        if isinstance(source, TextFileSource):
            return OpenedSource(node, self._text(source), "text", None, True)
        if isinstance(source, FunctionSource):
            spool = Spool(folder / "function", skip)
            runner = FunctionRunner(source.function, spool, source.type_info, stop)
            frame = self._stream(spool.directory, "p binary")
            return OpenedSource(node, frame, "pickled", None, False, runner, spool)
        if isinstance(source, DataFrameSource):
            frame = source.dataframe
            if frame.isStreaming:
                return OpenedSource(node, frame, "columns", node.output_type, False)
            kept = self._static(node, frame)
            reader = self._spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 8)
            stream, declared = reader.parquet(str(kept)), node.output_type
            return OpenedSource(node, stream, "columns", declared, True, kept=kept)
        msg = f"source '{node.name}': {type(source).__name__} is not a source that Weir can read"
        raise UsageError(msg)

    def _stream(self, path: Path, schema: str) -> DataFrame:
        reader = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(path))

    def _text(self, source: TextFileSource) -> DataFrame:
        path = Path(source.path.removeprefix("file://"))
        reader = self._spark.readStream.option("encoding", source.charset)
        if path.is_file():
            return reader.option("pathGlobFilter", path.name).text(str(path.parent))
        if not path.exists():
            msg = f"read_text_file: {str(path)!r} does not exist"
            raise UsageError(msg)
        return reader.text(str(path))

    def _static(self, node: OperatorNode, frame: DataFrame) -> Path:
        """Keep the rows: computing them again might give others, or in another order."""
        path = self._spool / str(node.index) / "dataframe"
        if not self._resume.take_kept(uid_of(node), path):
            frame.write.mode("overwrite").option("maxRecordsPerFile", 500_000).parquet(str(path))
        return path


def uid_of(node: OperatorNode) -> str:
    """Return the name under which later programs find a source."""
    return node.uid or node.id


def unite(opened: list[OpenedSource]) -> Input:
    """Make one stream of all sources."""
    uids = [uid_of(s.node) for s in opened]
    runners = [s.runner for s in opened if s.runner is not None]
    spools = {i: s.spool for i, s in enumerate(opened) if s.spool is not None}
    kept = {i: s.kept for i, s in enumerate(opened) if s.kept is not None}
    bounded = all(s.bounded for s in opened)
    if len(opened) == 1:
        only = opened[0]
        plain = SourceColumns(only.node.index, only.decode, only.type_info, None)
        return Input(only.dataframe, (plain,), uids, bounded, runners, spools, kept)
    schemas = [s.dataframe.schema for s in opened]
    parts = [_tagged(i, s.dataframe, schemas) for i, s in enumerate(opened)]
    frame = parts[0]
    for part in parts[1:]:
        frame = frame.unionByName(part)
    columns = tuple(
        SourceColumns(s.node.index, s.decode, s.type_info, f"s{i}") for i, s in enumerate(opened)
    )
    return Input(frame, columns, uids, bounded, runners, spools, kept)


def _tagged(index: int, frame: DataFrame, schemas: list[StructType]) -> DataFrame:
    columns = []
    for i, schema in enumerate(schemas):
        if i == index:
            whole = F.struct(*[F.col(f"`{name}`") for name in frame.columns])
            columns.append(whole.alias(f"s{i}"))
        else:
            columns.append(F.lit(None).cast(schema).alias(f"s{i}"))
    return frame.select(*columns)
