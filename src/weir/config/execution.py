"""Options of how a program runs: parallelism, restarts, Python, and Weir's own."""

from __future__ import annotations

from weir.config.option import (
    BOOLEAN,
    DURATION,
    FLOAT,
    INT,
    LIST,
    MAP,
    MEMORY,
    STRING,
    ConfigOption,
    one_of,
)

_S = "restart-strategy."
_P = "pipeline."

PARALLELISM = ConfigOption(
    "parallelism.default", INT, None, "Parallelism of operators that set none; Spark's by default."
)
MAX_PARALLELISM = ConfigOption(
    _P + "max-parallelism", INT, -1, "Number of key groups; -1 derives it from the parallelism."
)
PIPELINE_NAME = ConfigOption(_P + "name", STRING, None, "Name of the job.")
AUTO_WATERMARK_INTERVAL = ConfigOption(
    _P + "auto-watermark-interval", DURATION, 200, "Time between watermarks."
)
OBJECT_REUSE = ConfigOption(_P + "object-reuse", BOOLEAN, False, "Hand records on without a copy.")
AUTO_GENERATE_UIDS = ConfigOption(
    _P + "auto-generate-uids", BOOLEAN, True, "Accept operators without a uid."
)
GENERIC_TYPES = ConfigOption(_P + "generic-types", BOOLEAN, True, "Accept pickled types.")
OPERATOR_CHAINING = ConfigOption(
    _P + "operator-chaining.enabled",
    BOOLEAN,
    True,
    "Run neighbouring operators in one call.",
    deprecated_keys=(_P + "operator-chaining",),
)
GLOBAL_JOB_PARAMETERS = ConfigOption(
    _P + "global-job-parameters", MAP, {}, "Parameters that every function can read."
)
PIPELINE_JARS = ConfigOption(_P + "jars", LIST, (), "Jar files for Spark.")
PIPELINE_CLASSPATHS = ConfigOption(_P + "classpaths", LIST, (), "Class paths for Spark.")
CACHED_FILES = ConfigOption(_P + "cached-files", STRING, None, "Files to distribute.")
CLOSURE_CLEANER = ConfigOption(
    _P + "closure-cleaner-level",
    one_of("RECURSIVE", "TOP_LEVEL", "NONE"),
    "RECURSIVE",
    "Accepted, without effect.",
)
FORCE_KRYO = ConfigOption(_P + "force-kryo", BOOLEAN, False, "Accepted, without effect.")
FORCE_AVRO = ConfigOption(_P + "force-avro", BOOLEAN, False, "Accepted, without effect.")

RUNTIME_MODE = ConfigOption(
    "execution.runtime-mode",
    one_of("STREAMING", "BATCH", "AUTOMATIC"),
    "STREAMING",
    "STREAMING, BATCH for bounded input (one result per key, no checkpoints), or AUTOMATIC: BATCH "
    "if all sources are bounded.",
)
BUFFER_TIMEOUT = ConfigOption(
    "execution.buffer-timeout.interval",
    DURATION,
    100,
    "Accepted: records travel once an epoch.",
    deprecated_keys=("execution.buffer-timeout",),
)
BUFFER_TIMEOUT_ENABLED = ConfigOption(
    "execution.buffer-timeout.enabled", BOOLEAN, True, "Accepted, without effect."
)
ATTACHED = ConfigOption("execution.attached", BOOLEAN, False, "Wait for the job to end.")
TARGET = ConfigOption("execution.target", STRING, None, "Accepted: Spark's master decides.")

RESTART_STRATEGY = ConfigOption(
    _S + "type",
    one_of("none", "fixed-delay", "failure-rate", "exponential-delay", off="none", disable="none"),
    None,
    "What happens after a failure: exponential-delay with checkpoints, none without, by default.",
    deprecated_keys=("restart-strategy",),
)
FIXED_DELAY_ATTEMPTS = ConfigOption(_S + "fixed-delay.attempts", INT, 1, "Number of restarts.")
FIXED_DELAY_DELAY = ConfigOption(_S + "fixed-delay.delay", DURATION, 1000, "Delay of a restart.")
FAILURE_RATE_MAX = ConfigOption(
    _S + "failure-rate.max-failures-per-interval", INT, 1, "Failures that one interval may have."
)
FAILURE_RATE_INTERVAL = ConfigOption(
    _S + "failure-rate.failure-rate-interval", DURATION, 60_000, "Interval of counting failures."
)
FAILURE_RATE_DELAY = ConfigOption(_S + "failure-rate.delay", DURATION, 1000, "Delay of a restart.")
EXPONENTIAL_INITIAL = ConfigOption(
    _S + "exponential-delay.initial-backoff", DURATION, 1000, "Delay of the first restart."
)
EXPONENTIAL_MAX = ConfigOption(
    _S + "exponential-delay.max-backoff", DURATION, 60_000, "Longest delay."
)
EXPONENTIAL_MULTIPLIER = ConfigOption(
    _S + "exponential-delay.backoff-multiplier", FLOAT, 1.5, "Growth of the delay."
)
EXPONENTIAL_RESET = ConfigOption(
    _S + "exponential-delay.reset-backoff-threshold",
    DURATION,
    3_600_000,
    "Time without a failure after which delays start over.",
)
EXPONENTIAL_JITTER = ConfigOption(
    _S + "exponential-delay.jitter-factor", FLOAT, 0.1, "Part of the delay that varies."
)
EXPONENTIAL_ATTEMPTS = ConfigOption(
    _S + "exponential-delay.attempts-before-reset-backoff",
    INT,
    (1 << 31) - 1,
    "Restarts before the job fails, counted anew when delays start over.",
)

PYTHON_FILES = ConfigOption("python.files", LIST, (), "Python files for the workers.")
PYTHON_REQUIREMENTS = ConfigOption("python.requirements", STRING, None, "Requirements file.")
PYTHON_ARCHIVES = ConfigOption(
    "python.archives", LIST, (), "Archives that are unpacked where functions run."
)
PYTHON_PATH = ConfigOption("python.pythonpath", STRING, None, "Extra PYTHONPATH of the workers.")
PYTHON_EXECUTABLE = ConfigOption("python.executable", STRING, None, "Python of the workers.")
PYTHON_CLIENT_EXECUTABLE = ConfigOption(
    "python.client.executable", STRING, None, "Accepted: the running interpreter is used."
)
PYTHON_BUNDLE_SIZE = ConfigOption(
    "python.fn-execution.bundle.size", INT, 1000, "Accepted: an epoch is the bundle."
)
PYTHON_BUNDLE_TIME = ConfigOption(
    "python.fn-execution.bundle.time", INT, 1000, "Accepted: an epoch is the bundle."
)
PYTHON_EXECUTION_MODE = ConfigOption(
    "python.execution-mode", STRING, "process", "Accepted, without effect."
)
PYTHON_METRIC_ENABLED = ConfigOption(
    "python.metric.enabled", BOOLEAN, True, "Report the metrics of functions."
)

TRIGGER = ConfigOption(
    "weir.trigger",
    STRING,
    "default",
    "When epochs start: default, available-now, or an interval such as '5 s'.",
)
SLOT_LEASE = ConfigOption(
    "weir.slot.lease", DURATION, 10_000, "A slot ends itself when the JobManager is gone this long."
)
SLOT_HEARTBEAT = ConfigOption(
    "weir.slot.heartbeat", DURATION, 2000, "Time between signs of life of a slot."
)
LOG_DIR = ConfigOption("weir.log.dir", STRING, None, "Directory of the slots' logs.")
WORK_DIR = ConfigOption(
    "weir.work-dir",
    STRING,
    None,
    "Directory that all hosts share, for Spark's query logs, spooled and staged records; by "
    "default the checkpoint directory, or a local temporary one when that is remote.",
)
DIRECT_BYTES = ConfigOption(
    "weir.epoch.direct-size",
    MEMORY,
    1 << 20,
    "After an epoch that moved no more than this between operators, the next one is handed to the "
    "slots by the driver, without a shuffle, as long as no level moves more than 16 times as much; "
    "0 leaves every epoch to Spark.",
)
EPOCH_MEMORY = ConfigOption(
    "weir.epoch.memory",
    MEMORY,
    256 << 20,
    "Of the input of a level, and of its output, a slot keeps this much in memory; what goes "
    "beyond lies in files without a name in io.tmp.dirs.",
)
OUTPUT_LIMIT = ConfigOption(
    "weir.epoch.output-limit",
    MEMORY,
    16 << 30,
    "A slot fails when the operators of a level send more than this in one epoch.",
)
PROCESS_MEMORY = ConfigOption(
    "taskmanager.memory.process.size",
    MEMORY,
    None,
    "A slot that uses more memory than this fails and names the operator at work. Without it, a "
    "slot fails when the host or its container has next to none left and the slot has half of it.",
)
BEHIND_COMMITS = ConfigOption(
    "weir.recovery.behind-commits",
    one_of("refuse", "repeat", "take-back", true="repeat", false="refuse"),
    "refuse",
    "What a job does when the newest checkpoint is damaged and output was committed since the one "
    "before it: refuse fails, repeat writes that output again (at least once), take-back removes "
    "it first (exactly once), where all sinks can. The last also holds when a job starts from an "
    "older checkpoint of a job that has ended.",
)
FOREIGN_FILES = ConfigOption(
    "weir.recovery.foreign-files",
    one_of("refuse", "trust", true="trust", false="refuse"),
    "refuse",
    "What a job does when another user than its own and root could have written the checkpoint or "
    "savepoint on a local disk from which it is to start or restart, or when one can write to its "
    "checkpoint or work directory: refuse fails, trust unpickles what is there, which runs code of "
    "that user. Other storages, and file systems of other hosts, are not looked at.",
)
MISSING_FILES = ConfigOption(
    "weir.recovery.missing-files-timeout",
    DURATION,
    300_000,
    "How long restarts look again for files of a checkpoint that are not there, such as on a "
    "storage that is not mounted, before they count as lost. The restart strategy says how often.",
)
SOURCE_BATCH_ROWS = ConfigOption(
    "weir.source.batch-rows", INT, 100_000, "Rows of a collection in one epoch."
)
SOURCE_BATCH_FILES = ConfigOption(
    "weir.source.batch-files",
    INT,
    0,
    "Files of bounded input (FileSource, read_text_file) in one epoch; 0 is all of them. With "
    "fewer, checkpoints are taken on the way, and each file is a partition in time: records that "
    "are older than what files of earlier epochs have brought event time to are late.",
    minimum=0,
)
