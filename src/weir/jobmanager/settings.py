"""What a job needs of its configuration, resolved and validated once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weir.backend.factory import BackendSettings
from weir.backend.registry import check_backend
from weir.checkpoint.settings import CheckpointingMode, CheckpointSettings, Retention
from weir.common.time import parse_duration_ms
from weir.config import backend as b
from weir.config import checkpointing as c
from weir.config import execution as e
from weir.config import queryable as q
from weir.config import storage as s
from weir.config.directories import local_directories
from weir.config.effective import Settings
from weir.config.effects import without_effect
from weir.config.option import ConfigOption
from weir.config.security import INTERNAL_ENABLED
from weir.errors import UsageError
from weir.graph.runtime_mode import RuntimeMode
from weir.jobmanager.claims import ClaimMode
from weir.jobmanager.dependencies import check_dependencies
from weir.jobmanager.recovery import BehindCommits
from weir.jobmanager.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
    default_restart_strategy,
)
from weir.runtime.memory import MemoryLimits
from weir.storage.options import StorageOptions
from weir.tls import TlsFiles

log = logging.getLogger("weir.config")
_FOR_BACKENDS = (
    *(option for option in vars(b).values() if isinstance(option, ConfigOption)),
    c.FILE_MERGING,
    c.FILE_MERGING_MAX_FILE_SIZE,
    c.FILE_MERGING_MAX_AMPLIFICATION,
)
_STORAGE = (
    s.S3_ENDPOINT,
    s.S3_REGION,
    s.S3_ACCESS_KEY,
    s.S3_SECRET_KEY,
    s.S3_PATH_STYLE,
    s.WEBHDFS_ADDRESS,
)
_INLINE_MAX = 1 << 20
_UNLIMITED = (1 << 31) - 1


@dataclass(frozen=True)
class StateFileSettings:
    """How slots store state; sizes in bytes.

    Files of up to `inline_bytes` travel in the acknowledgement and are kept in the metadata. With
    `in_memory` all of them do, and a bigger state of one operator is refused.
    """

    inline_bytes: int = 20 << 10
    compress: bool = False
    in_memory: bool = False


@dataclass(frozen=True)
class LocalRecovery:
    """Whether slots keep copies of state files on their hosts, and read them when they restore.

    Without `dirs` copies are where the host has temporary files.
    """

    backup: bool = False
    restore: bool = False
    dirs: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobSettings:
    """Resolved settings of one job; times in milliseconds.

    `without_rows_of` is a checkpoint whose rows in flight are not to be restored. Files of a
    checkpoint that are not there count as lost after `missing_files_ms`.
    """

    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    checkpoint_dir: str | None = None
    savepoint_dir: str | None = None
    restart: RestartStrategy = field(default_factory=NoRestart)
    recovery_path: str | None = None
    allow_non_restored: bool = False
    without_rows_of: int = -1
    behind_commits: BehindCommits = BehindCommits.REFUSE
    trust_foreign_files: bool = False
    missing_files_ms: int = 300_000
    parallelism: int | None = None
    available_now: bool = False
    runtime_mode: RuntimeMode = RuntimeMode.STREAMING
    trigger_interval_ms: int | None = None
    backend: BackendSettings = field(default_factory=BackendSettings)
    state_files: StateFileSettings = field(default_factory=StateFileSettings)
    claim_mode: ClaimMode = ClaimMode.NO_CLAIM
    lease_ms: int = 10_000
    heartbeat_ms: int = 2_000
    log_dir: str | None = None
    batch_rows: int = 100_000
    batch_files: int = 0
    direct_bytes: int = 1 << 20
    job_parameters: dict[str, str] = field(default_factory=dict)
    python_files: tuple[str, ...] = ()
    python_archives: tuple[str, ...] = ()
    work_dir: str | None = None
    storage: StorageOptions = field(default_factory=StorageOptions)
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    tls: TlsFiles | None = None
    local: LocalRecovery = field(default_factory=LocalRecovery)
    queryable: bool = False

    @classmethod
    def of(cls, layers: Sequence[Mapping[str, Any]]) -> JobSettings:
        """Resolve layers of configuration, weakest first.

        Raises:
            UsageError: a value does not parse, a key is misspelt, or settings contradict.
        """
        settings = Settings(layers)
        for warning in settings.validate():
            log.warning("%s", warning)
        _warn_of_no_effect(settings)
        check_dependencies(settings)
        get = settings.get
        checkpoint = _checkpoint(settings)
        _check_backlog(settings, checkpoint)
        trigger = str(get(e.TRIGGER))
        parallelism = get(e.PARALLELISM) if settings.is_set(e.PARALLELISM) else None
        parameters = get(e.GLOBAL_JOB_PARAMETERS) or {}
        return cls(
            checkpoint=checkpoint,
            checkpoint_dir=get(c.CHECKPOINT_DIR),
            savepoint_dir=get(c.SAVEPOINT_DIR),
            restart=_restart(settings, checkpointing=checkpoint.interval_ms is not None),
            recovery_path=get(c.RECOVERY_PATH),
            claim_mode=_claim_mode(settings),
            backend=_backend(settings),
            state_files=_state_files(settings, checkpoint),
            allow_non_restored=get(c.IGNORE_UNCLAIMED_STATE),
            without_rows_of=get(c.WITHOUT_CHANNEL_STATE),
            behind_commits=BehindCommits(get(e.BEHIND_COMMITS)),
            trust_foreign_files=get(e.FOREIGN_FILES) == "trust",
            missing_files_ms=get(e.MISSING_FILES),
            parallelism=parallelism,
            available_now=trigger == "available-now",
            runtime_mode=RuntimeMode(str(get(e.RUNTIME_MODE)).upper()),
            trigger_interval_ms=_trigger_interval(trigger),
            lease_ms=get(e.SLOT_LEASE),
            heartbeat_ms=get(e.SLOT_HEARTBEAT),
            log_dir=get(e.LOG_DIR),
            batch_rows=get(e.SOURCE_BATCH_ROWS),
            batch_files=get(e.SOURCE_BATCH_FILES),
            direct_bytes=get(e.DIRECT_BYTES),
            job_parameters={str(k): str(v) for k, v in dict(parameters).items()},
            python_files=tuple(get(e.PYTHON_FILES) or ()),
            python_archives=tuple(get(e.PYTHON_ARCHIVES) or ()),
            work_dir=get(e.WORK_DIR),
            storage=StorageOptions.of({option.key: get(option) for option in _STORAGE}),
            memory=MemoryLimits(get(e.EPOCH_MEMORY), get(e.OUTPUT_LIMIT), get(e.PROCESS_MEMORY)),
            tls=TlsFiles.wanted(settings, INTERNAL_ENABLED),
            local=_local(settings),
            queryable=get(q.QUERIES_ENABLE),
        )


def for_batch(settings: JobSettings) -> JobSettings:
    """Return the settings of a job in BATCH mode: no periodic checkpoints, nothing to resume.

    Raises:
        UsageError: the job is to start from a savepoint or checkpoint.
    """
    if settings.recovery_path is not None:
        msg = (
            f"{c.RECOVERY_PATH.key} is {settings.recovery_path!r}, and the program runs in BATCH "
            f"mode, which begins at the beginning: set {e.RUNTIME_MODE.key} to STREAMING to go on "
            "from stored state"
        )
        raise UsageError(msg)
    if settings.checkpoint.interval_ms is None:
        return settings
    log.warning(
        "Disabled Checkpointing. Checkpointing is not supported and not needed when executing jobs "
        "in BATCH mode: a job that is restarted begins at the beginning"
    )
    return replace(
        settings, checkpoint=replace(settings.checkpoint, interval_ms=None, unaligned=False)
    )


def _trigger_interval(trigger: str) -> int | None:
    if trigger in ("default", "available-now"):
        return None
    try:
        return parse_duration_ms(trigger)
    except UsageError as error:
        msg = (
            f"{e.TRIGGER.key} is {trigger!r}, expected 'default', 'available-now' or a time "
            "such as '5 s'"
        )
        raise UsageError(msg) from error


def _backend(settings: Settings) -> BackendSettings:
    kind, changelog = settings.state_backend(), settings.get(b.CHANGELOG)
    check_backend(kind, changelog)
    local_directories(settings.get(b.ROCKSDB_LOCALDIR) or "", b.ROCKSDB_LOCALDIR.key)
    return BackendSettings(
        kind=kind,
        incremental=settings.get(c.INCREMENTAL),
        changelog=changelog,
        options={option.key: settings.get(option) for option in _FOR_BACKENDS},
    )


def _state_files(settings: Settings, checkpoint: CheckpointSettings) -> StateFileSettings:
    threshold = settings.get(c.DATA_INLINE_THRESHOLD)
    if not 0 <= threshold <= _INLINE_MAX:
        msg = (
            f"{c.DATA_INLINE_THRESHOLD.key} is {threshold!r} bytes, expected 0 to {_INLINE_MAX!r}: "
            "the metadata file is no place for more"
        )
        raise UsageError(msg)
    compress = settings.get(c.SNAPSHOT_COMPRESSION)
    storage = settings.checkpoint_storage()
    # Without periodic checkpoints there is still one at the end of bounded input, for the sinks.
    # Flink has none there, so a limit on its size would fail jobs that Flink finishes.
    if storage != "jobmanager" or checkpoint.interval_ms is None:
        return StateFileSettings(threshold, compress)
    if checkpoint.retention is not Retention.NO_EXTERNALIZED_CHECKPOINTS and not settings.get(
        c.CHECKPOINT_DIR
    ):
        log.warning(
            "%s asks to keep checkpoints, but without %s they are in the driver's memory and go "
            "with the job",
            c.RETENTION.key,
            c.CHECKPOINT_DIR.key,
        )
    return StateFileSettings(settings.get(c.MEMORY_STATE_SIZE), compress, in_memory=True)


def _local(settings: Settings) -> LocalRecovery:
    """Return the settings of local recovery; both halves are needed for it to be of use."""
    backup, restore = settings.get(c.LOCAL_BACKUP), settings.get(c.RECOVERY_FROM_LOCAL)
    if backup != restore:
        on, off = c.LOCAL_BACKUP.key, c.RECOVERY_FROM_LOCAL.key
        on, off = (on, off) if backup else (off, on)
        log.warning("%s is set, but %s is not: state is not restored from copies", on, off)
    if not backup:
        return LocalRecovery(backup, restore)
    chosen = settings.get(c.LOCAL_BACKUP_DIRS) or settings.get(b.TMP_DIRS) or ""
    return LocalRecovery(backup, restore, local_directories(chosen, c.LOCAL_BACKUP_DIRS.key))


def _claim_mode(settings: Settings) -> ClaimMode:
    mode = ClaimMode(str(settings.get(c.CLAIM_MODE)).upper())
    if mode is ClaimMode.LEGACY:
        log.warning(
            "%s LEGACY is deprecated: use CLAIM or NO_CLAIM, which say who may delete the files",
            c.CLAIM_MODE.key,
        )
    return mode


def _warn_of_no_effect(settings: Settings) -> None:
    """Say in one message which settings are understood but change nothing."""
    found = without_effect(settings)
    if found:
        log.warning("settings without effect here: %s", "; ".join(found))


def _check_backlog(settings: Settings, checkpoint: CheckpointSettings) -> None:
    option, interval = c.INTERVAL_DURING_BACKLOG, checkpoint.interval_ms
    found = settings.get(option)
    if found and interval is not None and found < interval:
        msg = (
            f"{option.key} is {found!r} ms, expected 0 or at least {c.INTERVAL.key}, "
            f"which is {interval!r} ms"
        )
        raise UsageError(msg)


def _checkpoint(settings: Settings) -> CheckpointSettings:
    get = settings.get
    return CheckpointSettings(
        interval_ms=get(c.INTERVAL) or None,
        mode=CheckpointingMode(str(get(c.MODE)).upper()),
        timeout_ms=get(c.TIMEOUT),
        min_pause_ms=get(c.MIN_PAUSE),
        max_concurrent=get(c.MAX_CONCURRENT),
        tolerable_failures=get(c.TOLERABLE_FAILURES),
        unaligned=get(c.UNALIGNED),
        aligned_timeout_ms=get(c.ALIGNED_TIMEOUT),
        retention=Retention(get(c.RETENTION)),
        num_retained=get(c.NUM_RETAINED),
    )


def _restart(settings: Settings, *, checkpointing: bool) -> RestartStrategy:
    get = settings.get
    chosen = get(e.RESTART_STRATEGY)
    if chosen is None:
        return default_restart_strategy(checkpointing=checkpointing)
    if chosen == "none":
        return NoRestart()
    if chosen == "fixed-delay":
        return FixedDelayRestart(
            attempts=get(e.FIXED_DELAY_ATTEMPTS), delay_ms=get(e.FIXED_DELAY_DELAY)
        )
    if chosen == "failure-rate":
        return FailureRateRestart(
            max_failures=get(e.FAILURE_RATE_MAX),
            interval_ms=get(e.FAILURE_RATE_INTERVAL),
            delay_ms=get(e.FAILURE_RATE_DELAY),
        )
    attempts = get(e.EXPONENTIAL_ATTEMPTS)
    return ExponentialDelayRestart(
        initial_ms=get(e.EXPONENTIAL_INITIAL),
        max_ms=get(e.EXPONENTIAL_MAX),
        multiplier=get(e.EXPONENTIAL_MULTIPLIER),
        reset_ms=get(e.EXPONENTIAL_RESET),
        jitter=get(e.EXPONENTIAL_JITTER),
        attempts=None if attempts >= _UNLIMITED else attempts,
    )
