"""Options of checkpoints, savepoints and recovery, with Flink's keys and defaults."""

from __future__ import annotations

from weir.config.option import BOOLEAN, DURATION, FLOAT, INT, MEMORY, STRING, ConfigOption, one_of

_C = "execution.checkpointing."
_R = "execution.state-recovery."

INTERVAL = ConfigOption(
    _C + "interval",
    DURATION,
    None,
    "Time between checkpoints; checkpoints are off without it.",
    minimum=10,
    off=0,
)
MODE = ConfigOption(
    _C + "mode", one_of("EXACTLY_ONCE", "AT_LEAST_ONCE"), "EXACTLY_ONCE", "The guarantee."
)
TIMEOUT = ConfigOption(
    _C + "timeout", DURATION, 600_000, "A checkpoint is given up after this.", minimum=10
)
MIN_PAUSE = ConfigOption(_C + "min-pause", DURATION, 0, "Least time between two checkpoints.")
MAX_CONCURRENT = ConfigOption(
    _C + "max-concurrent-checkpoints",
    INT,
    1,
    "Checkpoints in progress at the same time; one when they are unaligned.",
    minimum=1,
)
TOLERABLE_FAILURES = ConfigOption(
    _C + "tolerable-failed-checkpoints",
    INT,
    0,
    "Failed checkpoints in a row before the job fails.",
    minimum=0,
)
RETENTION = ConfigOption(
    _C + "externalized-checkpoint-retention",
    one_of("NO_EXTERNALIZED_CHECKPOINTS", "DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "What happens to checkpoints when the job ends.",
)
NUM_RETAINED = ConfigOption(
    _C + "num-retained",
    INT,
    1,
    "Completed checkpoints to keep.",
    deprecated_keys=("state.checkpoints.num-retained",),
    minimum=1,
)
UNALIGNED = ConfigOption(
    _C + "unaligned.enabled",
    BOOLEAN,
    False,
    "Let barriers overtake data and store that data in the checkpoint.",
    deprecated_keys=(_C + "unaligned",),
)
ALIGNED_TIMEOUT = ConfigOption(
    _C + "aligned-checkpoint-timeout",
    DURATION,
    0,
    "How long an unaligned checkpoint tries to align first.",
    deprecated_keys=(_C + "alignment-timeout",),
)
UNALIGNED_FORCED = ConfigOption(
    _C + "unaligned.forced", BOOLEAN, False, "Allow unaligned checkpoints where Flink refuses them."
)
UNALIGNED_MAX_SUBTASKS_PER_FILE = ConfigOption(
    _C + "unaligned.max-subtasks-per-channel-state-file",
    INT,
    5,
    "Subtasks that share one file of in-flight data.",
)
UNALIGNED_INTERRUPTIBLE_TIMERS = ConfigOption(
    _C + "unaligned.interruptible-timers.enabled",
    BOOLEAN,
    False,
    "Let a checkpoint interrupt the firing of timers.",
)
UNALIGNED_INTERMEDIATE_WATERMARKS = ConfigOption(
    _C + "unaligned.interruptible-timers.emit-intermediate-watermarks",
    BOOLEAN,
    True,
    "Emit watermarks between interrupted timers.",
)
UNALIGNED_RECOVER_DOWNSTREAM = ConfigOption(
    _C + "unaligned.recover-output-on-downstream.enabled",
    BOOLEAN,
    False,
    "Let the receiving subtask restore in-flight output.",
)
DURING_RECOVERY = ConfigOption(
    _C + "during-recovery.enabled",
    BOOLEAN,
    False,
    "Take checkpoints while in-flight data is being restored.",
    deprecated_keys=(_C + "unaligned.during-recovery.enabled",),
)
INCREMENTAL = ConfigOption(
    _C + "incremental",
    BOOLEAN,
    False,
    "Store only what changed since the previous checkpoint.",
    deprecated_keys=("state.backend.incremental",),
)
STORAGE = ConfigOption(
    _C + "storage",
    one_of("jobmanager", "filesystem"),
    None,
    "Where checkpoints are kept; by default a filesystem when a directory is set.",
    deprecated_keys=("state.checkpoint-storage",),
)
CHECKPOINT_DIR = ConfigOption(
    _C + "dir",
    STRING,
    None,
    "Directory of checkpoints.",
    deprecated_keys=("state.checkpoints.dir", "state.backend.fs.checkpointdir"),
)
SAVEPOINT_DIR = ConfigOption(
    _C + "savepoint-dir",
    STRING,
    None,
    "Default directory of savepoints.",
    deprecated_keys=("state.savepoints.dir", "savepoints.state.backend.fs.dir"),
)
CREATE_SUBDIR = ConfigOption(
    _C + "create-subdir",
    BOOLEAN,
    True,
    "Give every job a directory of its own below the checkpoint directory.",
    deprecated_keys=("state.checkpoints.create-subdir",),
)
DATA_INLINE_THRESHOLD = ConfigOption(
    _C + "data-inline-threshold",
    MEMORY,
    20 << 10,
    "State below this size is stored in the metadata file.",
    deprecated_keys=("state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold"),
)
MEMORY_STATE_SIZE = ConfigOption(
    "weir.checkpoint.jobmanager-max-state-size",
    MEMORY,
    5 << 20,
    "Largest state of an operator's subtask that the jobmanager storage takes.",
)
WRITE_BUFFER_SIZE = ConfigOption(
    _C + "write-buffer-size",
    INT,
    4096,
    "Buffer of checkpoint files in bytes.",
    deprecated_keys=("state.storage.fs.write-buffer-size", "state.backend.fs.write-buffer-size"),
)
LOCAL_BACKUP = ConfigOption(
    _C + "local-backup.enabled",
    BOOLEAN,
    False,
    "Keep a copy of the newest checkpoint's files on the hosts of the slots that wrote them.",
    deprecated_keys=("state.backend.local-recovery",),
)
LOCAL_BACKUP_DIRS = ConfigOption(
    _C + "local-backup.dirs",
    STRING,
    None,
    "Directories of local copies, on every host; those for temporary files unless set.",
    deprecated_keys=("taskmanager.state.local.root-dirs",),
)
AFTER_TASKS_FINISH = ConfigOption(
    _C + "checkpoints-after-tasks-finish",
    BOOLEAN,
    True,
    "Take checkpoints when part of the sources has ended.",
    deprecated_keys=(_C + "checkpoints-after-tasks-finish.enabled",),
)
INTERVAL_DURING_BACKLOG = ConfigOption(
    _C + "interval-during-backlog",
    DURATION,
    None,
    "Time between checkpoints while a source catches up; 0 for none.",
)
SNAPSHOT_COMPRESSION = ConfigOption(
    _C + "snapshot-compression", BOOLEAN, False, "Compress full snapshots."
)
CLEANER_PARALLEL = ConfigOption(
    _C + "cleaner.parallel-mode",
    BOOLEAN,
    True,
    "Delete old checkpoints in parallel.",
    deprecated_keys=("state.checkpoint.cleaner.parallel-mode",),
)
SYNC_PHASE_TIMEOUT = ConfigOption(
    _C + "sync-phase-timeout", DURATION, 0, "Limit of the synchronous part; 0 for none."
)
FILE_MERGING = ConfigOption(
    _C + "file-merging.enabled", BOOLEAN, False, "Put small files of state into one."
)
FILE_MERGING_ACROSS = ConfigOption(
    _C + "file-merging.across-checkpoint-boundary",
    BOOLEAN,
    False,
    "Put the state of several checkpoints into one file.",
)
FILE_MERGING_MAX_FILE_SIZE = ConfigOption(
    _C + "file-merging.max-file-size", MEMORY, 32 << 20, "Largest merged file."
)
FILE_MERGING_POOL_BLOCKING = ConfigOption(
    _C + "file-merging.pool-blocking", BOOLEAN, False, "Wait for a free file."
)
FILE_MERGING_MAX_SUBTASKS = ConfigOption(
    _C + "file-merging.max-subtasks-per-file", INT, 4, "Subtasks that share one file."
)
FILE_MERGING_MAX_AMPLIFICATION = ConfigOption(
    _C + "file-merging.max-space-amplification",
    FLOAT,
    2.0,
    "Most space of a merged file per byte in use.",
)

RECOVERY_PATH = ConfigOption(
    _R + "path",
    STRING,
    None,
    "Savepoint or checkpoint to start from.",
    deprecated_keys=("execution.savepoint.path",),
)
IGNORE_UNCLAIMED_STATE = ConfigOption(
    _R + "ignore-unclaimed-state",
    BOOLEAN,
    False,
    "Start although state of the savepoint has no operator in the program.",
    deprecated_keys=("execution.savepoint.ignore-unclaimed-state",),
)
CLAIM_MODE = ConfigOption(
    _R + "claim-mode",
    one_of("NO_CLAIM", "CLAIM", "LEGACY"),
    "NO_CLAIM",
    "Who owns the files that the job starts from.",
    deprecated_keys=("execution.savepoint-restore-mode",),
)
RECOVERY_FROM_LOCAL = ConfigOption(
    _R + "from-local",
    BOOLEAN,
    False,
    "Restore from local copies where they are whole, also if the checkpoint's files are not.",
    deprecated_keys=("state.backend.local-recovery",),
)
APPROXIMATE_LOCAL_RECOVERY = ConfigOption(
    _R + "approximate-local-recovery",
    BOOLEAN,
    False,
    "Accepted, without effect.",
    deprecated_keys=(_C + "approximate-local-recovery",),
)
WITHOUT_CHANNEL_STATE = ConfigOption(
    _R + "without-channel-state.checkpoint-id",
    INT,
    -1,
    "Ignore the in-flight data of this checkpoint.",
    deprecated_keys=(_C + "recover-without-channel-state.checkpoint-id",),
)
