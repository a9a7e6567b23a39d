"""Turning the program's sources into one streaming DataFrame.

Every form in which a source can be opened (see `weir.connector.source`) becomes a stream here. One
source keeps its columns; several are united with one struct column each, so that Spark logs their
offsets in one record.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from weir.clock import SystemClock
from weir.codec.arrow import arrow_schema_for, type_from_arrow
from weir.connector.builtin_sources import DataFrameSource
from weir.connector.decoder import ByFile, Decoder, JournalEntries, TypedColumns
from weir.connector.source import (
    FileRows,
    Journal,
    Opening,
    PlannedSplits,
    RecordCount,
    Source,
    SplitPlanner,
    SplitRows,
    Splits,
    StreamRows,
    TableRows,
)
from weir.connector.spool import Spool
from weir.errors import UsageError
from weir.graph.kinds import TIMESTAMPS
from weir.graph.plan import JobPlan, OperatorNode
from weir.graph.transformation import StreamGraph
from weir.runtime.context import RuntimeContext
from weir.runtime.metrics import OperatorMetrics
from weir.runtime.operator import TaskFacts
from weir.spark.function_source import FunctionRunner
from weir.spark.internals import arrow_schema, plan_nodes
from weir.spark.kept_rows import kept_splits
from weir.spark.planned_source import planned_stream
from weir.spark.resume import Resume
from weir.spark.worker import SourceColumns

_KEPT_FILES_PER_BATCH = 8
_KEPT_ROWS_PER_FILE = 500_000
_FILE = "__weir_file"
_GLOB_SIGNS = re.compile(r"[\\*?{},\[\]^!]")
# Spark's hidden column goes through these unchanged, and there is one source below them.
_KEEP_FILES = {
    "EventTimeWatermark",
    "Filter",
    "Project",
    "StreamingRelation",
    "StreamingRelationV2",
    "SubqueryAlias",
}


@dataclass
class OpenedSource:
    """A source as a stream; `kept` is where the rows of a bounded DataFrame lie.

    Bounded input whose rows Spark reads is over when it has come to so many `files`.
    """

    node: OperatorNode
    bounded: bool
    dataframe: DataFrame
    decoder: Decoder
    runner: FunctionRunner | None = None
    spool: RecordCount | None = None
    kept: Path | None = None
    planner: SplitPlanner | None = None
    files: int | None = None


@dataclass
class Input:
    """All sources of a program as one stream.

    By number of the source, `spools` are those whose records the program itself gives, `kept` is
    where the rows of bounded DataFrames lie, and `planners` plan splits. `files` says of bounded
    input whose rows Spark reads how many files it has.
    """

    dataframe: DataFrame
    columns: tuple[SourceColumns, ...]
    uids: list[str]
    bounded: bool
    runners: list[FunctionRunner] = field(default_factory=list)
    spools: dict[int, RecordCount] = field(default_factory=dict)
    kept: dict[int, Path] = field(default_factory=dict)
    planners: dict[int, SplitPlanner] = field(default_factory=dict)
    files: dict[int, int] = field(default_factory=dict)


def declare_types(graph: StreamGraph) -> None:
    """Give DataFrame sources the type of their columns, before the plan is compiled."""
    for t in graph.transformations:
        if t.kind == "source" and isinstance(t.function, DataFrameSource):
            schema = arrow_schema(t.function.dataframe.schema, timezone="UTC")
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


class SourceOpener:
    """Opens sources below one spool directory, behind what a job before this one has read."""

    def __init__(
        self,
        spark: SparkSession,
        spool: Path,
        records_per_file: int,
        resume: Resume | None = None,
        job_parameters: Mapping[str, str] | None = None,
        *,
        files_per_batch: int = 0,
    ) -> None:
        """Bind to a session and a place for spooled data; source functions see the parameters.

        Of bounded files an epoch gets at most `files_per_batch`, all of them where that is 0.
        """
        self._spark = spark
        self._spool = spool
        self._records = records_per_file
        self._resume = resume or Resume()
        self._parameters = dict(job_parameters or {})
        self._files_per_batch = files_per_batch

    def open(self, plan: JobPlan, sources: dict[int, Any], stop: threading.Event) -> Input:
        """Open all sources of a plan."""
        return unite(
            [self._open(plan, plan.operators[i], source, stop) for i, source in sources.items()]
        )

    def _open(
        self, plan: JobPlan, node: OperatorNode, source: Any, stop: threading.Event
    ) -> OpenedSource:
        if not isinstance(source, Source):
            found = type(source).__name__
            msg = f"source '{node.name}': {found} is not a source that Weir can read"
            raise UsageError(msg)
        opening = Opening(
            node.name,
            self._spool / str(node.index),
            self._resume.records(uid_of(node)),
            self._records,
            type_info=node.output_type,
            position=self._resume.position(uid_of(node)),
            side_outputs=frozenset(e.tag for e in plan.outputs_of(node.index) if e.tag),
        )
        stream = source.open(opening)
        # Whose time nobody asks for need not be told apart.
        timed = any(op.kind == TIMESTAMPS.name for op in plan.operators)
        if isinstance(stream, FileRows):
            return self._opened_files(node, stream, bounded=source.bounded, timed=timed)
        if isinstance(stream, TableRows):
            return self._table(node, stream, by_partition=timed)
        if isinstance(stream, StreamRows):
            return OpenedSource(node, False, self._stream(node, stream), stream.decoder)
        if isinstance(stream, Splits):
            return self._splits(node, stream, bounded=source.bounded)
        if isinstance(stream, PlannedSplits):
            return self._planned(node, stream, bounded=source.bounded)
        return self._journal(plan, node, opening, stream, stop=stop)

    def _opened_files(
        self, node: OperatorNode, rows: FileRows, *, bounded: bool, timed: bool
    ) -> OpenedSource:
        frame = self._files(rows, self._files_per_batch if bounded else 0)
        if bounded and not self._files_per_batch:
            # All files come in one epoch, so that the first one stands for all of them.
            return OpenedSource(node, True, frame, rows.decoder, files=1)
        opened = _opened_by_file(node, frame, rows.decoder, by_file=timed)
        if bounded:
            opened.bounded, opened.files = True, rows.count
        return opened

    def _files(self, rows: FileRows, files_per_batch: int) -> DataFrame:
        reader = self._spark.readStream.format(rows.format).options(**rows.options)
        if files_per_batch:
            reader = reader.option("maxFilesPerTrigger", files_per_batch)
        if rows.schema is not None:
            reader = reader.schema(rows.schema)
        is_file = rows.path.is_file()
        only = rows.only or ((rows.path.name,) if is_file else ())
        if only:
            reader = reader.option("pathGlobFilter", glob_of(only))
        frame = reader.load(str(rows.path.parent if is_file else rows.path))
        return frame.select(*rows.columns) if rows.columns else frame

    def _stream(self, node: OperatorNode, rows: StreamRows) -> DataFrame:
        reader = self._spark.readStream.format(rows.format).options(**rows.options)
        try:
            return reader.load()
        except AnalysisException as error:
            package = rows.package(self._spark.version)
            msg = (
                f"source '{node.name}': Spark cannot read by its connector {rows.format!r} "
                f"({_first_line(error)}): if it is not there, set spark.jars.packages to {package}"
            )
            raise UsageError(msg) from error

    def _splits(self, node: OperatorNode, splits: Splits, *, bounded: bool) -> OpenedSource:
        reader = self._spark.readStream.option("maxFilesPerTrigger", splits.files_per_batch)
        names = reader.text(str(splits.folder))
        decoder = SplitRows(splits.reader, splits.decoder, splits.partitioned)
        return OpenedSource(node, bounded, names, decoder, spool=splits.counted)

    def _planned(self, node: OperatorNode, splits: PlannedSplits, *, bounded: bool) -> OpenedSource:
        names = planned_stream(self._spark, splits.planner)
        decoder = SplitRows(splits.reader, splits.decoder)
        return OpenedSource(node, bounded, names, decoder, planner=splits.planner)

    def _journal(
        self,
        plan: JobPlan,
        node: OperatorNode,
        opening: Opening,
        journal: Journal,
        stop: threading.Event,
    ) -> OpenedSource:
        spool = Spool(opening.directory / "function", opening.skip)
        facts = TaskFacts(
            "",
            plan.job_name,
            attempt=0,
            subtask=0,
            clock=SystemClock(),
            report=lambda index, kind, values: None,
            job_parameters=self._parameters,
        )
        context = RuntimeContext(node, facts, OperatorMetrics(node.name).group, None)
        runner = FunctionRunner(journal.function, spool, journal.type_info, stop, context=context)
        opened = self._splits(node, spool.stream(JournalEntries()), bounded=False)
        opened.runner = runner
        return opened

    def _table(self, node: OperatorNode, rows: TableRows, *, by_partition: bool) -> OpenedSource:
        frame: DataFrame = rows.table
        decoder: Decoder = TypedColumns(rows.type_info, rows.partition_by if by_partition else ())
        if frame.isStreaming:
            by_file = by_partition and not rows.partition_by
            return _opened_by_file(node, frame, decoder, by_file=by_file)
        kept = self._keep(node, frame)
        splits = kept_splits(
            self._spark, kept, frame.schema, decoder, files_per_batch=_KEPT_FILES_PER_BATCH
        )
        if splits is not None:
            opened = self._splits(node, splits, bounded=True)
            opened.kept = kept
            return opened
        files = len(list(kept.glob("*.parquet")))
        reader = self._spark.readStream.schema(frame.schema)
        stream = reader.option("maxFilesPerTrigger", _KEPT_FILES_PER_BATCH).parquet(str(kept))
        if by_partition and not rows.partition_by:
            stream = stream.select("*", F.col("_metadata.file_name").alias(_FILE))
            decoder = ByFile(decoder, _FILE)
        return OpenedSource(node, True, stream, decoder, kept=kept, files=files)

    def _keep(self, node: OperatorNode, frame: DataFrame) -> Path:
        """Keep the rows: computing them again might give others, or in another order."""
        path = self._spool / str(node.index) / "dataframe"
        if not self._resume.take_kept(uid_of(node), path):
            writer = frame.write.mode("overwrite")
            writer.option("maxRecordsPerFile", _KEPT_ROWS_PER_FILE).parquet(str(path))
        return path


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _opened_by_file(
    node: OperatorNode, frame: DataFrame, decoder: Decoder, *, by_file: bool
) -> OpenedSource:
    """Return an unbounded source, with one partition for each file if Spark tells files apart."""
    named = _with_files(frame) if by_file else None
    if named is None:
        return OpenedSource(node, False, frame, decoder)
    return OpenedSource(node, False, named, ByFile(decoder, _FILE))


def _with_files(frame: DataFrame) -> DataFrame | None:
    """Return a stream with the file of every row in a column of its own; None without files."""
    if "_metadata" in frame.columns or not plan_nodes(frame) <= _KEEP_FILES:
        return None
    try:
        return frame.select("*", F.col("_metadata.file_path").alias(_FILE))
    except AnalysisException:
        # Rows of a log, a socket or a rate have no such column.
        return None


def glob_of(names: Iterable[str]) -> str:
    """Return the pattern of Hadoop's file systems that fits these names and no others."""
    return "{" + ",".join(_GLOB_SIGNS.sub(r"\\\g<0>", name) for name in names) + "}"


def uid_of(node: OperatorNode) -> str:
    """Return the name under which later programs find a source."""
    return node.uid or node.id


def unite(opened: list[OpenedSource]) -> Input:
    """Make one stream of all sources."""
    uids = [uid_of(s.node) for s in opened]
    runners = [s.runner for s in opened if s.runner is not None]
    spools = {i: s.spool for i, s in enumerate(opened) if s.spool is not None}
    kept = {i: s.kept for i, s in enumerate(opened) if s.kept is not None}
    planners = {i: s.planner for i, s in enumerate(opened) if s.planner is not None}
    files = {i: s.files for i, s in enumerate(opened) if s.files is not None}
    made = partial(
        Input,
        uids=uids,
        bounded=all(s.bounded for s in opened),
        runners=runners,
        spools=spools,
        kept=kept,
        planners=planners,
        files=files,
    )
    if len(opened) == 1:
        only = opened[0]
        return made(only.dataframe, (SourceColumns(only.node.index, only.decoder, None),))
    schemas = [s.dataframe.schema for s in opened]
    parts = [_tagged(i, s.dataframe, schemas) for i, s in enumerate(opened)]
    frame = parts[0]
    for part in parts[1:]:
        frame = frame.unionByName(part)
    columns = tuple(SourceColumns(s.node.index, s.decoder, f"s{i}") for i, s in enumerate(opened))
    return made(frame, columns)


def _tagged(index: int, frame: DataFrame, schemas: list[StructType]) -> DataFrame:
    columns = []
    for i, schema in enumerate(schemas):
        if i == index:
            whole = F.struct(*[F.col(f"`{name}`") for name in frame.columns])
            columns.append(whole.alias(f"s{i}"))
        else:
            columns.append(F.lit(None).cast(schema).alias(f"s{i}"))
    return frame.select(*columns)
