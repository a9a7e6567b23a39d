"""What a job needs of its configuration, resolved and validated once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weir.checkpoint.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
    default_restart_strategy,
)
from weir.checkpoint.settings import CheckpointingMode, CheckpointSettings, Retention
from weir.common.time import parse_duration_ms
from weir.config import backend as b
from weir.config import checkpointing as c
from weir.config import execution as e
from weir.config import storage as s
from weir.config.effective import Settings
from weir.errors import UsageError
from weir.storage.options import StorageOptions

log = logging.getLogger("weir.config")
_UNAVAILABLE = (
    b.CHANGELOG,
    c.FILE_MERGING,
    c.INCREMENTAL,
    c.LOCAL_BACKUP,
    c.SNAPSHOT_COMPRESSION,
)
_STORAGE = (
    s.S3_ENDPOINT,
    s.S3_REGION,
    s.S3_ACCESS_KEY,
    s.S3_SECRET_KEY,
    s.S3_PATH_STYLE,
    s.WEBHDFS_ADDRESS,
)
_UNLIMITED = (1 << 31) - 1


@dataclass(frozen=True)
class JobSettings:
    """Resolved settings of one job; times in milliseconds."""

    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    checkpoint_dir: str | None = None
    restart: RestartStrategy = field(default_factory=NoRestart)
    recovery_path: str | None = None
    allow_non_restored: bool = False
    parallelism: int | None = None
    available_now: bool = False
    trigger_interval_ms: int | None = None
    state_backend: str = "hashmap"
    lease_ms: int = 10_000
    heartbeat_ms: int = 2_000
    log_dir: str | None = None
    batch_rows: int = 100_000
    job_parameters: dict[str, str] = field(default_factory=dict)
    python_files: tuple[str, ...] = ()
    work_dir: str | None = None
    storage: StorageOptions = field(default_factory=StorageOptions)

    @classmethod
    def of(cls, layers: Sequence[Mapping[str, Any]]) -> JobSettings:
        """Resolve layers of configuration, weakest first.

        Raises:
            UsageError: a value does not parse, a key is misspelt, or settings contradict.
        """
        settings = Settings(layers)
        for warning in settings.validate():
            log.warning("%s", warning)
        _warn_of_unavailable(settings)
        get = settings.get
        backend = settings.state_backend()
        if backend != "hashmap":
            msg = f"state backend {backend!r} is not available in this release: use 'hashmap'"
            raise UsageError(msg)
        checkpoint = _checkpoint(settings)
        trigger = str(get(e.TRIGGER))
        batch = str(get(e.RUNTIME_MODE)).upper() == "BATCH"
        parallelism = get(e.PARALLELISM) if settings.is_set(e.PARALLELISM) else None
        parameters = get(e.GLOBAL_JOB_PARAMETERS) or {}
        return cls(
            checkpoint=checkpoint,
            checkpoint_dir=get(c.CHECKPOINT_DIR),
            restart=_restart(settings, checkpointing=checkpoint.interval_ms is not None),
            recovery_path=get(c.RECOVERY_PATH),
            allow_non_restored=get(c.IGNORE_UNCLAIMED_STATE),
            parallelism=parallelism,
            available_now=batch or trigger == "available-now",
            trigger_interval_ms=_trigger_interval(trigger),
            lease_ms=get(e.SLOT_LEASE),
            heartbeat_ms=get(e.SLOT_HEARTBEAT),
            log_dir=get(e.LOG_DIR),
            batch_rows=get(e.SOURCE_BATCH_ROWS),
            job_parameters={str(k): str(v) for k, v in dict(parameters).items()},
            python_files=tuple(get(e.PYTHON_FILES) or ()),
            work_dir=get(e.WORK_DIR),
            storage=StorageOptions.of({option.key: get(option) for option in _STORAGE}),
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


def _warn_of_unavailable(settings: Settings) -> None:
    """Say which settings are understood but have no effect in this release."""
    for option in _UNAVAILABLE:
        if settings.is_set(option) and settings.get(option) != option.default:
            log.warning("%s has no effect in this release", option.key)


def _checkpoint(settings: Settings) -> CheckpointSettings:
    get = settings.get
    if get(c.UNALIGNED):
        log.warning(
            "unaligned checkpoints are not available in this release: checkpoints are aligned"
        )
    mode = CheckpointingMode(str(get(c.MODE)).upper())
    if mode is CheckpointingMode.AT_LEAST_ONCE:
        log.warning("at-least-once mode runs as exactly-once in this release")
    return CheckpointSettings(
        interval_ms=get(c.INTERVAL) or None,
        mode=CheckpointingMode.EXACTLY_ONCE,
        timeout_ms=get(c.TIMEOUT),
        min_pause_ms=get(c.MIN_PAUSE),
        max_concurrent=get(c.MAX_CONCURRENT),
        tolerable_failures=get(c.TOLERABLE_FAILURES),
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
