"""Options of state backends, with Flink's keys and defaults."""

from __future__ import annotations

from weir.config.option import (
    BOOLEAN,
    DURATION,
    FLOAT,
    INT,
    MEMORY,
    STRING,
    ConfigOption,
    OptionType,
    one_of,
)
from weir.config.state_backends import DEFAULT_STATE_BACKEND, FORM, chosen_backend

_R = "state.backend.rocksdb."
_C = "state.changelog."

STATE_BACKEND = ConfigOption(
    "state.backend.type",
    OptionType("enum", FORM, chosen_backend),
    DEFAULT_STATE_BACKEND,
    "The state backend; filesystem and jobmanager are old names that also choose a storage.",
    deprecated_keys=("state.backend",),
)
TMP_DIRS = ConfigOption(
    "io.tmp.dirs", STRING, None, "Where slots keep files while they live; the first of several."
)
LATENCY_TRACKING = ConfigOption(
    "state.latency-track.keyed-state-enabled",
    BOOLEAN,
    False,
    "Measure how long state access takes.",
    deprecated_keys=("state.backend.latency-track.keyed-state-enabled",),
)
LATENCY_SAMPLE_INTERVAL = ConfigOption(
    "state.latency-track.sample-interval",
    INT,
    100,
    "Measure every so many accesses.",
    deprecated_keys=("state.backend.latency-track.sample-interval",),
)
LATENCY_HISTORY_SIZE = ConfigOption(
    "state.latency-track.history-size",
    INT,
    128,
    "Measurements to keep.",
    deprecated_keys=("state.backend.latency-track.history-size",),
)
LATENCY_STATE_NAME = ConfigOption(
    "state.latency-track.state-name-as-variable",
    BOOLEAN,
    True,
    "Measure each state on its own.",
    deprecated_keys=("state.backend.latency-track.state-name-as-variable",),
)

ROCKSDB_LOCALDIR = ConfigOption(
    _R + "localdir", STRING, None, "Directories of the databases, separated by ',' or ':'."
)
ROCKSDB_PLACEMENT = ConfigOption(
    _R + "localdir.placement",
    one_of("random", "round-robin", "least-loaded"),
    "random",
    "How a database is given one of several directories.",
)
ROCKSDB_TIMERS = ConfigOption(
    _R + "timer-service.factory", one_of("ROCKSDB", "HEAP"), "ROCKSDB", "Where timers are kept."
)
ROCKSDB_TIMER_CACHE = ConfigOption(
    _R + "timer-service.cache-size", INT, 128, "Timers kept in memory per key group."
)
ROCKSDB_TRANSFER_THREADS = ConfigOption(
    _R + "checkpoint.transfer.thread.num", INT, 4, "Threads that transfer files."
)
ROCKSDB_PREDEFINED = ConfigOption(
    _R + "predefined-options",
    one_of(
        "DEFAULT",
        "SPINNING_DISK_OPTIMIZED",
        "SPINNING_DISK_OPTIMIZED_HIGH_MEM",
        "FLASH_SSD_OPTIMIZED",
    ),
    "DEFAULT",
    "A set of options for a kind of disk.",
)
ROCKSDB_OPTIONS_FACTORY = ConfigOption(
    _R + "options-factory", STRING, None, "module:function that changes the options."
)
ROCKSDB_MANAGED_MEMORY = ConfigOption(
    _R + "memory.managed", BOOLEAN, True, "Share one bounded memory between the states of a slot."
)
ROCKSDB_FIXED_PER_SLOT = ConfigOption(
    _R + "memory.fixed-per-slot", MEMORY, None, "Memory of all databases of a slot."
)
ROCKSDB_FIXED_PER_HOST = ConfigOption(
    _R + "memory.fixed-per-tm", MEMORY, None, "Memory of all databases of a host."
)
ROCKSDB_WRITE_BUFFER_RATIO = ConfigOption(
    _R + "memory.write-buffer-ratio", FLOAT, 0.5, "Part of the memory for write buffers."
)
ROCKSDB_HIGH_PRIO_RATIO = ConfigOption(
    _R + "memory.high-prio-pool-ratio", FLOAT, 0.1, "Part of the memory for indexes and filters."
)
ROCKSDB_PARTITIONED_INDEX = ConfigOption(
    _R + "memory.partitioned-index-filters", BOOLEAN, False, "Partition indexes and filters."
)
ROCKSDB_THREADS = ConfigOption(_R + "thread.num", INT, 2, "Threads of flushes and compactions.")
ROCKSDB_OPEN_FILES = ConfigOption(_R + "files.open", INT, -1, "Open files; -1 for no limit.")
ROCKSDB_LOG_FILE_SIZE = ConfigOption(_R + "log.max-file-size", MEMORY, 25 << 20, "Log file size.")
ROCKSDB_LOG_FILES = ConfigOption(_R + "log.file-num", INT, 4, "Log files to keep.")
ROCKSDB_LOG_DIR = ConfigOption(_R + "log.dir", STRING, None, "Directory of the logs.")
ROCKSDB_LOG_LEVEL = ConfigOption(
    _R + "log.level",
    one_of("DEBUG_LEVEL", "INFO_LEVEL", "WARN_LEVEL", "ERROR_LEVEL", "FATAL_LEVEL", "HEADER_LEVEL"),
    "INFO_LEVEL",
    "Detail of the logs.",
)
ROCKSDB_COMPACTION_STYLE = ConfigOption(
    _R + "compaction.style", one_of("LEVEL", "UNIVERSAL", "FIFO", "NONE"), "LEVEL", "Compaction."
)
ROCKSDB_DYNAMIC_LEVELS = ConfigOption(
    _R + "compaction.level.use-dynamic-size", BOOLEAN, False, "Size levels by the last one."
)
ROCKSDB_TARGET_FILE_SIZE = ConfigOption(
    _R + "compaction.level.target-file-size-base", MEMORY, 64 << 20, "Size of files of level 1."
)
ROCKSDB_LEVEL_BASE = ConfigOption(
    _R + "compaction.level.max-size-level-base", MEMORY, 256 << 20, "Size of level 1."
)
ROCKSDB_COMPRESSION = ConfigOption(
    _R + "compression.per.level", STRING, "SNAPPY_COMPRESSION", "Compression of each level."
)
ROCKSDB_WRITE_BUFFER_SIZE = ConfigOption(
    _R + "writebuffer.size", MEMORY, 64 << 20, "Size of a write buffer."
)
ROCKSDB_WRITE_BUFFERS = ConfigOption(_R + "writebuffer.count", INT, 2, "Write buffers per state.")
ROCKSDB_WRITE_BUFFER_MERGE = ConfigOption(
    _R + "writebuffer.number-to-merge", INT, 1, "Write buffers merged into one file."
)
ROCKSDB_BLOCK_SIZE = ConfigOption(_R + "block.blocksize", MEMORY, 4 << 10, "Size of a block.")
ROCKSDB_METADATA_BLOCK_SIZE = ConfigOption(
    _R + "block.metadata-blocksize", MEMORY, 4 << 10, "Size of a block of an index."
)
ROCKSDB_BLOCK_CACHE = ConfigOption(
    _R + "block.cache-size", MEMORY, 8 << 20, "Block cache of a state without shared memory."
)
ROCKSDB_WRITE_BATCH = ConfigOption(
    _R + "write-batch-size", MEMORY, 2 << 20, "Size of a write batch; 0 limits only their number."
)
ROCKSDB_BLOOM_FILTER = ConfigOption(_R + "use-bloom-filter", BOOLEAN, False, "Use Bloom filters.")
ROCKSDB_BLOOM_BITS = ConfigOption(
    _R + "bloom-filter.bits-per-key", FLOAT, 10.0, "Bits of a Bloom filter per key."
)
ROCKSDB_BLOOM_BLOCK_BASED = ConfigOption(
    _R + "bloom-filter.block-based-mode", BOOLEAN, False, "Use a filter per block."
)
ROCKSDB_OVERLAP_THRESHOLD = ConfigOption(
    _R + "restore-overlap-fraction-threshold", FLOAT, 0.0, "Overlap from which a file is reused."
)
ROCKSDB_INGEST_RESTORE = ConfigOption(
    _R + "use-ingest-db-restore-mode", BOOLEAN, False, "Restore by ingesting files."
)
ROCKSDB_ASYNC_COMPACT = ConfigOption(
    _R + "incremental-restore-async-compact-after-rescale",
    BOOLEAN,
    False,
    "Compact after rescaling.",
)
ROCKSDB_DELETE_IN_RANGE = ConfigOption(
    _R + "rescaling.use-delete-files-in-range", BOOLEAN, False, "Drop whole files when rescaling."
)
ROCKSDB_TTL_QUERY_ENTRIES = ConfigOption(
    _R + "compaction.filter.query-time-after-num-entries",
    INT,
    1000,
    "Entries between two looks at the clock while expired state is compacted away.",
)
ROCKSDB_TTL_COMPACTION_TIME = ConfigOption(
    _R + "compaction.filter.periodic-compaction-time",
    DURATION,
    30 * 86_400_000,
    "Files older than this are compacted again.",
)

CHANGELOG = ConfigOption(
    _C + "enabled",
    BOOLEAN,
    False,
    "Log every change of state as it happens.",
    deprecated_keys=("state.backend.changelog.enabled",),
)
CHANGELOG_STORAGE = ConfigOption(
    _C + "storage",
    one_of("memory", "filesystem"),
    "memory",
    "Where changes are logged.",
    deprecated_keys=("state.backend.changelog.storage",),
)
CHANGELOG_MATERIALIZE = ConfigOption(
    _C + "periodic-materialize.enabled",
    BOOLEAN,
    True,
    "Write whole state now and then and cut the log.",
    deprecated_keys=("state.backend.changelog.periodic-materialize.enabled",),
)
CHANGELOG_MATERIALIZE_INTERVAL = ConfigOption(
    _C + "periodic-materialize.interval",
    DURATION,
    600_000,
    "Time between two materialisations.",
    deprecated_keys=("state.backend.changelog.periodic-materialize.interval",),
)
CHANGELOG_MAX_FAILURES = ConfigOption(
    _C + "max-failures-allowed",
    INT,
    3,
    "Failed materialisations in a row before the job fails.",
    deprecated_keys=("state.backend.changelog.max-failures-allowed",),
)
CHANGELOG_BASE_PATH = ConfigOption(
    _C + "dstl.dfs.base-path",
    STRING,
    None,
    "Directory of the log.",
    deprecated_keys=("dstl.dfs.base-path",),
)
CHANGELOG_COMPRESSION = ConfigOption(
    _C + "dstl.dfs.compression.enabled",
    BOOLEAN,
    False,
    "Compress the log.",
    deprecated_keys=("dstl.dfs.compression.enabled",),
)
CHANGELOG_PERSIST_THRESHOLD = ConfigOption(
    _C + "dstl.dfs.preemptive-persist-threshold",
    MEMORY,
    5 << 20,
    "Changes that are written before a checkpoint asks for them.",
    deprecated_keys=("dstl.dfs.preemptive-persist-threshold",),
)
CHANGELOG_PERSIST_DELAY = ConfigOption(
    _C + "dstl.dfs.batch.persist-delay",
    DURATION,
    10,
    "How long changes of several operators are gathered.",
    deprecated_keys=("dstl.dfs.batch.persist-delay",),
)
CHANGELOG_PERSIST_SIZE = ConfigOption(
    _C + "dstl.dfs.batch.persist-size-threshold",
    MEMORY,
    10 << 20,
    "Changes of several operators that are not gathered any longer.",
    deprecated_keys=("dstl.dfs.batch.persist-size-threshold",),
)
CHANGELOG_UPLOAD_ATTEMPTS = ConfigOption(
    _C + "dstl.dfs.upload.max-attempts",
    INT,
    3,
    "How often writing a part of the log is tried.",
    deprecated_keys=("dstl.dfs.upload.max-attempts",),
)
CHANGELOG_UPLOAD_TIMEOUT = ConfigOption(
    _C + "dstl.dfs.upload.timeout",
    DURATION,
    1_000,
    "Time for one attempt.",
    deprecated_keys=("dstl.dfs.upload.timeout",),
)
CHANGELOG_UPLOAD_IN_FLIGHT = ConfigOption(
    _C + "dstl.dfs.upload.max-in-flight",
    MEMORY,
    100 << 20,
    "Changes that wait to be written, before records have to wait.",
    deprecated_keys=("dstl.dfs.upload.max-in-flight",),
)
