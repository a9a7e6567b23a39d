"""Settings that change nothing, each with the reason: known options, and Flink's further keys.

A configuration written for Flink is accepted as it is. Who sets one of these to something else
than its default is told once, and the reference lists them apart. An option that comes into use
leaves this table; a test compares it with what the code reads.
"""

from __future__ import annotations

from weir.config import backend as b
from weir.config import checkpointing as c
from weir.config import execution as e
from weir.config import queryable as q
from weir.config.effective import Settings, is_known
from weir.config.flink_keys import CHAINS, CHANGELOG, JVM, ROCKSDB, why_nothing
from weir.config.option import ConfigOption
from weir.config.options import OPTION_BY_KEY

_EPOCHS = "records move once an epoch"
_DATA_FILE = "a slot writes one data file for all its states"
_LATENCY = "access to state is not measured"
_QUERIES = "slots answer the driver on the connection that it has to them"
_IN_FLIGHT = "rows in flight are part of the slot's data file"

_REASONS: tuple[tuple[ConfigOption, str], ...] = (
    (e.AUTO_WATERMARK_INTERVAL, _EPOCHS),
    (e.OBJECT_REUSE, "records are handed on without a copy wherever that is safe"),
    (e.GENERIC_TYPES, "Python objects without a declared type are always accepted"),
    (e.OPERATOR_CHAINING, CHAINS),
    (e.PIPELINE_JARS, "for jars of Spark's sources set spark.jars before Spark starts"),
    (e.PIPELINE_CLASSPATHS, "set spark.driver.extraClassPath and spark.executor.extraClassPath"),
    (e.CACHED_FILES, "only functions of Java can ask for them; set spark.files for Spark's"),
    (e.CLOSURE_CLEANER, JVM),
    (e.FORCE_KRYO, JVM),
    (e.FORCE_AVRO, JVM),
    (e.BUFFER_TIMEOUT, _EPOCHS),
    (e.BUFFER_TIMEOUT_ENABLED, _EPOCHS),
    (e.ATTACHED, "execute() waits, execute_async() does not"),
    (e.TARGET, "Spark's master decides"),
    (e.PYTHON_PATH, "set PYTHONPATH by spark.executorEnv.PYTHONPATH, or use python.files"),
    (e.PYTHON_CLIENT_EXECUTABLE, "the running interpreter is used"),
    (e.PYTHON_BUNDLE_SIZE, "an epoch is the bundle"),
    (e.PYTHON_BUNDLE_TIME, "an epoch is the bundle"),
    (e.PYTHON_EXECUTION_MODE, "functions always run in processes of their own"),
    (e.PYTHON_METRIC_ENABLED, "metrics of functions are always reported"),
    (c.UNALIGNED_FORCED, "unaligned checkpoints are never refused"),
    (c.UNALIGNED_MAX_SUBTASKS_PER_FILE, _IN_FLIGHT),
    (c.UNALIGNED_INTERRUPTIBLE_TIMERS, "timers fire as one part of an epoch"),
    (c.UNALIGNED_INTERMEDIATE_WATERMARKS, "timers fire as one part of an epoch"),
    (c.UNALIGNED_RECOVER_DOWNSTREAM, "rows in flight are always kept by the receiver"),
    (c.DURING_RECOVERY, "rows in flight are restored before the first epoch"),
    (c.CREATE_SUBDIR, "every job has a directory of its own"),
    (c.WRITE_BUFFER_SIZE, "files are written whole"),
    (c.AFTER_TASKS_FINISH, "checkpoints go on until the last source has ended"),
    (c.INTERVAL_DURING_BACKLOG, "Spark's sources do not tell that they catch up"),
    (c.CLEANER_PARALLEL, "old checkpoints are deleted beside the job, one after the other"),
    (c.SYNC_PHASE_TIMEOUT, "the timeout of the checkpoint is the limit"),
    (c.FILE_MERGING_ACROSS, _DATA_FILE),
    (c.FILE_MERGING_POOL_BLOCKING, _DATA_FILE),
    (c.FILE_MERGING_MAX_SUBTASKS, _DATA_FILE),
    (c.APPROXIMATE_LOCAL_RECOVERY, "state is always restored as it was"),
    (b.LATENCY_TRACKING, _LATENCY),
    (b.LATENCY_SAMPLE_INTERVAL, _LATENCY),
    (b.LATENCY_HISTORY_SIZE, _LATENCY),
    (b.LATENCY_STATE_NAME, _LATENCY),
    (b.ROCKSDB_HIGH_PRIO_RATIO, ROCKSDB),
    (b.ROCKSDB_LOG_LEVEL, ROCKSDB),
    (b.ROCKSDB_OVERLAP_THRESHOLD, ROCKSDB),
    (b.ROCKSDB_INGEST_RESTORE, ROCKSDB),
    (b.ROCKSDB_ASYNC_COMPACT, ROCKSDB),
    (b.ROCKSDB_DELETE_IN_RANGE, ROCKSDB),
    (b.CHANGELOG_STORAGE, CHANGELOG),
    (b.CHANGELOG_BASE_PATH, CHANGELOG),
    (b.CHANGELOG_COMPRESSION, CHANGELOG),
    (b.CHANGELOG_PERSIST_DELAY, CHANGELOG),
    (b.CHANGELOG_PERSIST_SIZE, CHANGELOG),
    (b.CHANGELOG_UPLOAD_TIMEOUT, CHANGELOG),
    (q.SERVER_PORTS, _QUERIES),
    (q.SERVER_NETWORK_THREADS, _QUERIES),
    (q.SERVER_QUERY_THREADS, _QUERIES),
    (q.PROXY_NETWORK_THREADS, "Arrow Flight has as many as it needs"),
    (q.CLIENT_NETWORK_THREADS, "Arrow Flight has as many as it needs"),
)
WITHOUT_EFFECT: dict[str, str] = {option.key: reason for option, reason in _REASONS}


def without_effect(settings: Settings) -> list[str]:
    """Return 'key (reason)' of everything that was set and changes nothing, in order of keys."""
    found = []
    for key in sorted(WITHOUT_EFFECT):
        option = OPTION_BY_KEY[key]
        if settings.is_set(option) and settings.get(option) != option.default:
            found.append(f"{key} ({WITHOUT_EFFECT[key]})")
    reported = {unknown.key for unknown in settings.unknown_keys()}
    for key in sorted(settings.to_dict()):
        reason = reason_of(key)
        if reason is not None and key not in reported:
            found.append(f"{key} ({reason})")
    return found


def reason_of(key: str) -> str | None:
    """Return why a key of Flink that Weir does not know changes nothing, None for other keys."""
    if is_known(key):
        return None
    return why_nothing(key)
