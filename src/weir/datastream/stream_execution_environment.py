"""`StreamExecutionEnvironment`: where a program begins (sources) and ends (`execute`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar, overload

from weir.common._html import facts, table
from weir.common.configuration import Configuration
from weir.common.job_client import JobClient
from weir.common.job_execution_result import JobExecutionResult
from weir.common.typeinfo import TypeInformation, Types
from weir.common.types import Row
from weir.common.watermark_strategy import WatermarkStrategy
from weir.config import ambient, backend
from weir.config.effective import Settings
from weir.config.execution import PIPELINE_NAME
from weir.connector.builtin_sources import (
    CollectionSource,
    DataFrameSource,
    FunctionSource,
    SequenceSource,
    TextFileSource,
)
from weir.connector.formats.avro import AvroInputFormat
from weir.connector.source import Source
from weir.datastream._checks import require_type
from weir.datastream._configured_program import ConfiguredProgram
from weir.datastream._notebook import kernel_line, live_line
from weir.datastream._plain_functions import require_instance
from weir.datastream._program import ProgramEngine
from weir.datastream._spark_session import (
    ActiveSessionEngine,
    active_session,
    declare_dataframe,
)
from weir.datastream._stream import declared_type
from weir.datastream.data_stream import DataStream
from weir.datastream.functions import SourceFunction
from weir.errors import UsageError
from weir.graph.kinds import SOURCE
from weir.graph.transformation import DEFAULT_JOB_NAME, Edge
from weir.runtime.raised import whole

__all__ = [
    "StreamExecutionEnvironment",
]

R = TypeVar("R")


class StreamExecutionEnvironment(ConfiguredProgram):
    """The context of one program: its settings, its operators, its execution.

    An environment may execute several programs one after the other; each starts with the operators
    declared since the last `execute()`.

    Example:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([1, 2, 3], Types.LONG()).map(lambda n: n * n, Types.LONG()).print()
    """

    def __init__(
        self, configuration: Configuration | None = None, engine: ProgramEngine | None = None
    ) -> None:
        """Create an environment; programs use `get_execution_environment()`.

        Args:
            configuration: settings to start from; copied.
            engine: what runs the program, Spark unless given.
        """
        super().__init__(Configuration(), engine or ActiveSessionEngine())
        if configuration is not None:
            self.configure(configuration)

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | None = None,
    ) -> StreamExecutionEnvironment:
        """Return a new environment that runs its programs on Spark."""
        return StreamExecutionEnvironment(configuration)

    @overload
    def from_collection(
        self, collection: Iterable[Any], type_info: TypeInformation[R]
    ) -> DataStream[R]: ...

    @overload
    def from_collection(self, collection: Iterable[R], type_info: None = None) -> DataStream[R]: ...

    @overload
    def from_collection(
        self, collection: Iterable[Any], type_info: list[Any]
    ) -> DataStream[Row]: ...

    def from_collection(self, collection: Iterable[Any], type_info: Any = None) -> DataStream:
        """Return a stream of the elements of a collection, in order, from one subtask.

        Raises:
            UsageError: an element does not fit the declared type.
        """
        declared = declared_type(type_info, "type_info")
        elements = list(whole(collection))
        if declared is not None:
            elements = [declared.check(element) for element in elements]
        source = CollectionSource(elements, declared)
        return self._source(source, "Collection Source", declared).force_non_parallel()

    def from_elements(self, *elements: Any, type_info: Any = None) -> DataStream:
        """Return a stream of the given elements."""
        return self.from_collection(elements, type_info)

    def from_sequence(self, start: int, end: int) -> DataStream[int]:
        """Return a stream of the whole numbers from `start` to `end`, both included."""
        return self._source(SequenceSource(start, end), "Sequence Source", Types.LONG())

    def generate_sequence(self, start: int, end: int) -> DataStream[int]:
        """Return a stream of whole numbers; an older name of `from_sequence`."""
        return self.from_sequence(start, end)

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream[str]:
        """Return a stream of the lines of a file or of the files of a directory."""
        source = TextFileSource(str(file_path), charset_name)
        return self._source(source, "Text File Source", Types.STRING())

    def create_input(self, input_format: Any, type_info: Any = None) -> DataStream:
        """Return a stream of the records that an input format reads, such as `AvroInputFormat`.

        Raises:
            UsageError: it is a format of Java.
        """
        if not isinstance(input_format, AvroInputFormat):
            msg = (
                f"create_input({input_format!r}) reads with a format of Java: use FileSource, "
                "read_text_file(), or from_dataframe(spark.read…) for other formats"
            )
            raise UsageError(msg)
        source, strategy = input_format.source(), WatermarkStrategy.no_watermarks()
        return self.from_source(source, strategy, "Avro File Source", type_info)

    def from_dataframe(
        self,
        dataframe: Any,
        type_info: Any = None,
        name: str = "DataFrame Source",
        partition_by: Sequence[str] = (),
    ) -> DataStream:
        """Return a stream of the rows of a Spark DataFrame, streaming or static.

        Records are rows with the DataFrame's columns, unless another type is declared. Rows with
        the same values in the columns `partition_by` are one partition of the source: watermarks
        follow the partition that is slowest. With Kafka's columns `topic`, `partition` and `offset`
        in a stream, those are Kafka's partitions; otherwise a stream is one partition, and of a
        static DataFrame every file that Spark writes of it is one.
        """
        declared = declared_type(type_info, "type_info")
        names = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        source = DataFrameSource(dataframe, declared, names)
        stream = self._source(source, name, declared)
        if declared is None:
            declare_dataframe(stream.edges[0].source)
        return stream

    def add_source(
        self, source_func: Any, source_name: str = "Custom Source", type_info: Any = None
    ) -> DataStream:
        """Return a stream of the records that a `SourceFunction` collects.

        Sources in the older spelling, such as `FlinkKafkaConsumer`, are taken as well.
        """
        if isinstance(source_func, Source):
            strategy = WatermarkStrategy.no_watermarks()
            return self.from_source(source_func, strategy, source_name, type_info)
        require_instance(source_func, "SourceFunction")
        require_type(source_func, SourceFunction, "a SourceFunction")
        declared = declared_type(type_info, "type_info")
        stream = self._source(FunctionSource(source_func, declared), source_name, declared)
        return stream.force_non_parallel()

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: Any = None,
    ) -> DataStream:
        """Return a stream of the records of a source object, with timestamps and watermarks."""
        require_type(source, Source, "a Source such as FileSource or NumberSequenceSource")
        require_type(watermark_strategy, WatermarkStrategy, "a WatermarkStrategy")
        declared = declared_type(type_info, "type_info") or source.get_produced_type()
        readers = tuple(
            self._source(each, source_name, declared).edges[0].source for each in source.parts()
        )
        stream = DataStream(self, [Edge(reader) for reader in readers], readers)
        if not _does_anything(watermark_strategy):
            return stream
        timed = stream.assign_timestamps_and_watermarks(watermark_strategy).edges[0].source
        # Name and uid belong to the source, as if it assigned the timestamps itself.
        return DataStream(self, [Edge(timed)], (*readers, timed))

    def get_spark(self) -> Any:
        """Return the Spark session that programs of this environment run in."""
        return active_session()

    def get_execution_plan(self) -> str:
        """Return the program declared so far as JSON."""
        return self.execution_plan()

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program and wait for its end.

        Raises:
            JobExecutionError: the job ended in failure. It is a `UserFunctionError` when a function
                of the program raised, and a `UsageError`, `StorageError`, … besides when it is
                of that kind.
            JobCancellationError: the job was cancelled. One that is stopped with a savepoint ends
                normally.
            UsageError: the program has no operators, or they contradict each other; nothing ran.
        """
        with live_line(kernel_line()) as line:
            job = self.submit(self._job_name(job_name))
            with nullcontext() if line is None else line.following(job):
                result: JobExecutionResult = job.get_job_execution_result().result()
        return result

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start the program and return its handle at once."""
        return self.submit(self._job_name(job_name))

    def close(self) -> None:
        """Drop what was declared and not executed; a running job goes on."""
        self._declared = []

    def _repr_html_(self) -> str:
        """Show a notebook the operators that were declared, and the settings that count most."""
        rows = [
            (t.id, t.name, t.uid, t.parallelism or self.get_parallelism(), t.output_type)
            for t in self._declared
        ]
        interval = self.get_checkpoint_interval()
        settings = [
            ("parallelism", self.get_parallelism()),
            ("checkpoints", f"every {interval} ms" if interval > 0 else "off"),
            ("state backend", self._get(backend.STATE_BACKEND)),
        ]
        operators = table(("id", "operator", "uid", "parallelism", "type"), rows)
        return facts("StreamExecutionEnvironment", settings) + (operators if rows else "")

    def _job_name(self, job_name: str | None) -> str:
        if job_name is not None and job_name != "":
            return job_name
        layers = [*ambient.layers(), ambient.program_layer(self._configuration.to_dict())]
        return Settings(layers).get(PIPELINE_NAME) or DEFAULT_JOB_NAME

    def _source(self, source: Any, name: str, declared: Any) -> DataStream:
        operator = self.declare(SOURCE, f"Source: {name}", function=source, output_type=declared)
        return DataStream(self, [Edge(operator)], (operator,))


def _does_anything(strategy: WatermarkStrategy) -> bool:
    assigns = strategy.timestamp_assigner is not None
    return assigns or strategy.generator is not None or strategy.out_of_orderness_ms is not None
