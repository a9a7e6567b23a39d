"""What a PyFlink program meets in Weir: refused, ignored or different, each fact once.

`weir check` looks for the facts in a program, and the guide on moving programs shows the same
tables. Facts about names follow from Weir's own modules, so a name that comes to exist is no longer
reported; what is written here about a missing one is only what to do instead.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Meets(enum.Enum):
    """What happens to a part of a program, the worst first."""

    REFUSED = "refused"
    IGNORED = "ignored"
    DIFFERENT = "different"
    ADVICE = "advice"


@dataclass(frozen=True)
class Fact:
    """One thing that a program may do, and what it meets then; Markdown of one line each.

    Attributes:
        topic: what the program does.
        text: what happens in Weir, and what to do.
        pyflink: what happens in PyFlink, for what is different.
        calls: methods that show it in a program, such as `count_window`.
        names: names of PyFlink's modules that show it, such as `SourceFunction`.
    """

    meets: Meets
    topic: str
    text: str
    pyflink: str = ""
    calls: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def _refused(topic: str, text: str, *calls: str) -> Fact:
    return Fact(Meets.REFUSED, topic, text, calls=calls)


def _ignored(topic: str, text: str, *calls: str) -> Fact:
    return Fact(Meets.IGNORED, topic, text, calls=calls)


def _different(topic: str, pyflink: str, weir: str, **shown_by: tuple[str, ...]) -> Fact:
    return Fact(Meets.DIFFERENT, topic, weir, pyflink, **shown_by)


_CHAINS: Final = "operators between two exchanges always run in one call"
_SLOTS: Final = "every slot runs one subtask of each operator"

REFUSED: Final = (
    Fact(
        Meets.REFUSED,
        "RocksDB, an object store, Kafka, PostgreSQL or Avro without its extra",
        "`UsageError` that names what to install",
    ),
    _refused(
        "`set_file_enumerator`, `set_split_assigner`",
        "`UsageError`: Spark lists the files and hands them out",
        "set_file_enumerator",
        "set_split_assigner",
    ),
    Fact(
        Meets.REFUSED,
        "`create_input` with a format other than `AvroInputFormat`",
        "`UsageError`: use `FileSource` or `env.from_dataframe(spark.read…)`",
    ),
    Fact(
        Meets.REFUSED,
        "`FileCompactor.concat_file_compactor` for Parquet, ORC or Avro",
        "`UsageError`: use `FileCompactor.record_wise_file_compactor()`",
    ),
    Fact(
        Meets.REFUSED,
        "a number where an older state backend expects a path",
        "`UsageError`, unless it is Java's order: `FsStateBackend(path, False)`",
    ),
    Fact(
        Meets.REFUSED,
        "`enable_time_to_live` on operator state",
        "`UsageError`: only keyed state can expire, as in Flink",
    ),
    Fact(
        Meets.REFUSED,
        "keyed state without `key_by`",
        "`UsageError`, before Spark starts if `open` leaves no doubt",
    ),
    Fact(
        Meets.REFUSED,
        "a key of None, a list as a key, or a key that changes",
        "`UsageError`: keys are immutable values with a stable hash",
    ),
    Fact(
        Meets.REFUSED,
        "savepoints, rescaling and a start from state in BATCH mode",
        "`UsageError`: [there is nothing to go on from](../concepts/execution-modes.md)",
    ),
    Fact(
        Meets.REFUSED,
        "packages of a requirements file, or a Python, that are not there",
        "`UsageError` that names [the setting of Spark](#functions-travel)",
    ),
)

IGNORED: Final = (
    _ignored("`start_new_chain`", _CHAINS, "start_new_chain"),
    _ignored("`disable_chaining`", _CHAINS, "disable_chaining"),
    _ignored("`disable_operator_chaining`", _CHAINS, "disable_operator_chaining"),
    _ignored("slot sharing groups", _SLOTS, "slot_sharing_group", "register_slot_sharing_group"),
    _ignored("`set_buffer_timeout`", "records move once an epoch", "set_buffer_timeout"),
    _ignored(
        "`set_auto_watermark_interval`",
        "watermarks move once an epoch",
        "set_auto_watermark_interval",
    ),
    _ignored(
        "the interval of `monitor_continuously`",
        "Spark looks for new files before every batch",
        "monitor_continuously",
    ),
    _ignored(
        "`set_stream_time_characteristic`, but for `IngestionTime`, which is refused",
        "windows and timers say themselves which time is theirs",
        "set_stream_time_characteristic",
    ),
    _ignored(
        "`set_execution_mode`, `set_default_input_dependency_constraint`",
        "Spark exchanges the data and decides when its tasks run",
        "set_execution_mode",
        "set_default_input_dependency_constraint",
    ),
    _ignored(
        "`set_prefer_checkpoint_for_recovery(False)`",
        "a job always recovers from its last checkpoint",
        "set_prefer_checkpoint_for_recovery",
    ),
    _ignored("`cache`", "a program reads its sources again", "cache"),
    _ignored(
        "`with_watermark_alignment`",
        "Spark chooses what is read next",
        "with_watermark_alignment",
    ),
    Fact(
        Meets.IGNORED,
        "Kryo, Avro and POJO settings",
        "there are no Java objects to serialise",
        calls=(
            "enable_force_kryo",
            "enable_force_avro",
            "register_pojo_type",
            "register_kryo_type",
            "register_type_with_kryo_serializer",
            "add_default_kryo_serializer",
            "register_type",
            "disable_auto_type_registration",
        ),
    ),
)

DIFFERENT: Final = (
    _different(
        "unit of processing",
        "a record",
        "an epoch: output, timers and watermarks move at its end",
    ),
    _different(
        "event-time timers",
        "fire between records",
        "fire behind the [other records of their epoch](#events-within-an-epoch)",
        calls=("register_event_time_timer",),
    ),
    _different(
        "processing-time timers",
        "fire at once",
        "fire at the beginning of the next epoch, which they start themselves",
        calls=("register_processing_time_timer",),
    ),
    _different("sources", "Flink connectors", "Spark: `env.from_dataframe(spark.readStream…)`"),
    _different(
        "requirements, the Python and cached files of a program",
        "are installed and shipped",
        "[are Spark's: found there or refused](#functions-travel)",
        calls=("set_python_requirements", "set_python_executable", "register_cached_file"),
    ),
    _different(
        "environment variables of PyFlink's runner",
        "`python`, `BOOT_LOG_DIR` and others are set where functions run",
        "are not set; what Spark's workers have is there",
    ),
    _different(
        "state in RocksDB that has expired",
        "goes when RocksDB compacts its files",
        "goes at the end of epochs, [piece by piece](../state/rocksdb.md)",
    ),
    _different(
        "async functions",
        "may be in flight when a checkpoint is taken",
        "have answered at the end of an epoch, [as late as it takes](async-io.md)",
        names=("AsyncDataStream",),
    ),
    _different(
        "collecting a keyed stream",
        "gives `Row(f0=key, f1=record)`",
        "gives the records",
    ),
    _different(
        "files of `StreamingFileSink` at the end of the input",
        "stay in progress, as `.part-…`",
        "are committed, as those of `FileSink`",
        names=("StreamingFileSink",),
    ),
    _different(
        "files that `enable_compact` joins",
        "are joined by tasks of their own, across subtasks, one checkpoint later",
        "by the subtask that wrote them, at the checkpoint",
        calls=("enable_compact",),
    ),
    _different(
        "jars",
        "connectors, formats",
        "none; packages of Spark's sources where you need them",
        calls=("add_jars", "add_classpaths"),
    ),
    _different(
        "functions in front of the first `key_by`",
        "one instance per subtask",
        "one per Spark task, unless they have `open` or checkpoint hooks",
    ),
    _different("`print`", "on the TaskManager", "in the driver", calls=("print", "print_to_err")),
    _different(
        "job submission",
        "`flink run`",
        "[`weir run`](../operating/running-jobs.md) with the same options, plain Python, or "
        "`spark-submit`",
    ),
    _different(
        "state on disk",
        "Flink's format",
        "[Weir's own](../internals/formats.md); no tool converts one to the other",
    ),
    _different(
        "`SourceFunction`",
        "Java only",
        "runs in the driver, journaled, with timestamps, watermarks and idleness; must produce "
        "the same records again when it is started anew",
        names=("SourceFunction",),
    ),
    _different(
        "watermarks after a restore",
        "begin at the minimum",
        "[begin where they were](../concepts/time-and-watermarks.md#after-a-failure)",
    ),
    _different(
        "numbers that their declared type cannot hold",
        "wrap around (`Types.SHORT()` of 43878 is -21658)",
        "are refused",
    ),
    _different(
        "BATCH mode",
        "backtracks to the stages that failed",
        "[as in Flink](../concepts/execution-modes.md), but a restart begins at the beginning",
        calls=("set_runtime_mode",),
    ),
    _different(
        "count windows",
        "keep what was in windows that fired",
        "are emptied; [more on windows](../concepts/windows.md#differences-from-flink)",
        calls=("count_window", "count_window_all"),
        names=("CountTumblingWindowAssigner", "CountSlidingWindowAssigner"),
    ),
    _different(
        "unaligned checkpoints",
        "for some exchanges",
        "[for all](../concepts/checkpoint-modes.md): all slots cut an epoch at the same level",
        calls=("enable_unaligned_checkpoints",),
    ),
)

FACTS: Final = (*REFUSED, *IGNORED, *DIFFERENT)

# What to do about modules and names that are not there; the longest beginning counts.
INSTEAD: Final = {
    "table": "there is no Table API: use Spark SQL, and env.from_dataframe() to come back",
    "datastream.connectors": (
        "Spark reads and writes it: env.from_dataframe(spark.readStream.format(…)) and "
        "stream.foreach_batch()"
    ),
    "java_gateway": "there is no Java behind a program",
    "util.java_utils": "there is no Java behind a program",
    "datastream.utils": "it is a part of PyFlink's way to Java",
    "common.utils": "it is a part of PyFlink's way to Java",
    "fn_execution": "it is a part of PyFlink's way to Java",
    "dataset": "the DataSet API is gone from Flink, too: use a bounded stream",
    "ml": "there is no Flink ML: use Spark's",
}

# Methods of PyFlink that no class of Weir need have; reported only where none has them.
METHODS: Final = {
    "get_transformer": "there is no Java behind a program",
    "to_append_stream": "there is no Table API",
    "to_retract_stream": "there is no Table API",
    "to_data_stream": "there is no Table API: use env.from_dataframe()",
    "from_data_stream": "there is no Table API: use stream.foreach_batch()",
    "execute_sql": "there is no Table API: use spark.sql()",
    "sql_query": "there is no Table API: use spark.sql()",
}
