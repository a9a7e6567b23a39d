"""`CheckpointConfig`: the checkpoint settings of a program, in PyFlink's old and new spellings.

Setters write Flink's keys into the environment's configuration. Getters return what is in effect:
what the program set, else what the command line, the environment or the configuration file says.
Values are checked when they are set, so that a mistake shows where it was made.
"""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from weir.common.configuration import Configuration
from weir.common.time import Duration
from weir.config import ambient, checkpointing
from weir.config.effective import Settings
from weir.config.option import ConfigOption
from weir.datastream._checks import require_type
from weir.datastream.checkpoint_storage import CheckpointStorage, as_checkpoint_storage
from weir.datastream.checkpointing_mode import CheckpointingMode
from weir.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from weir.errors import UsageError
from weir.notices import warn_once

log = logging.getLogger("weir.datastream")
ExternalizedCheckpointCleanup = ExternalizedCheckpointRetention


_MINIMUM_MS = 10
_UNLIMITED_FAILURES = 2**31 - 1


class CheckpointConfig:
    """When checkpoints are taken, how long they may take, and what becomes of them.

    Example:
        config = env.get_checkpoint_config()
        config.set_checkpoint_interval(10_000)
        config.set_min_pause_between_checkpoints(5_000)
    """

    ExternalizedCheckpointCleanup: ClassVar[type[ExternalizedCheckpointRetention]] = (
        ExternalizedCheckpointRetention
    )
    DEFAULT_MODE: ClassVar[CheckpointingMode] = CheckpointingMode.EXACTLY_ONCE
    DEFAULT_TIMEOUT: ClassVar[int] = 10 * 60 * 1000
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS: ClassVar[int] = 0
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS: ClassVar[int] = 1

    def __init__(self, configuration: Configuration) -> None:
        """View a configuration; changes go into it."""
        self._configuration = configuration
        self._storage: CheckpointStorage | None = None

    def is_checkpointing_enabled(self) -> bool:
        """Tell whether an interval is set."""
        return self.get_checkpoint_interval() > 0

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the guarantee of checkpoints."""
        return CheckpointingMode[self._get(checkpointing.MODE)]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Set the guarantee of checkpoints."""
        require_type(checkpointing_mode, CheckpointingMode, "a CheckpointingMode")
        return self._set(checkpointing.MODE, checkpointing_mode.name)

    get_checkpointing_consistency_mode = get_checkpointing_mode
    set_checkpointing_consistency_mode = set_checkpointing_mode

    def get_checkpoint_interval(self) -> int:
        """Return the interval in milliseconds, -1 when checkpoints are off."""
        interval = self._get(checkpointing.INTERVAL)
        return -1 if interval is None else int(interval)

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Take a checkpoint every so many milliseconds."""
        _at_least("checkpoint interval", checkpoint_interval, _MINIMUM_MS)
        return self._set(checkpointing.INTERVAL, _ms(checkpoint_interval))

    def get_checkpoint_timeout(self) -> int:
        """Return after how many milliseconds a checkpoint is given up."""
        return int(self._get(checkpointing.TIMEOUT))

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Give a checkpoint up after so many milliseconds."""
        _at_least("checkpoint timeout", checkpoint_timeout, _MINIMUM_MS)
        return self._set(checkpointing.TIMEOUT, _ms(checkpoint_timeout))

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the least pause between two checkpoints in milliseconds."""
        return int(self._get(checkpointing.MIN_PAUSE))

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: int
    ) -> CheckpointConfig:
        """Leave at least so many milliseconds between two checkpoints."""
        _at_least("pause between checkpoints", min_pause_between_checkpoints, 0)
        return self._set(checkpointing.MIN_PAUSE, _ms(min_pause_between_checkpoints))

    def get_max_concurrent_checkpoints(self) -> int:
        """Return how many checkpoints may be in progress together."""
        return int(self._get(checkpointing.MAX_CONCURRENT))

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Let so many checkpoints be in progress together."""
        _at_least("number of concurrent checkpoints", max_concurrent_checkpoints, 1)
        return self._set(checkpointing.MAX_CONCURRENT, max_concurrent_checkpoints)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Tell whether the first failed checkpoint fails the job."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(
        self, fail_on_checkpointing_errors: bool
    ) -> CheckpointConfig:
        """Fail the job on the first failed checkpoint, or never."""
        tolerated = 0 if fail_on_checkpointing_errors else _UNLIMITED_FAILURES
        return self.set_tolerable_checkpoint_failure_number(tolerated)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many checkpoints may fail one after the other."""
        return int(self._get(checkpointing.TOLERABLE_FAILURES))

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Let so many checkpoints fail one after the other before the job fails."""
        _at_least("number of tolerated failures", tolerable_checkpoint_failure_number, 0)
        return self._set(checkpointing.TOLERABLE_FAILURES, tolerable_checkpoint_failure_number)

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Choose which checkpoints outlive the job."""
        require_type(
            retention_mode, ExternalizedCheckpointRetention, "an ExternalizedCheckpointRetention"
        )
        return self._set(checkpointing.RETENTION, retention_mode.name)

    def enable_externalized_checkpoints(
        self, cleanup_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Choose which checkpoints outlive the job; an older spelling."""
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    set_externalized_checkpoint_cleanup = enable_externalized_checkpoints

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention | None:
        """Return which checkpoints outlive the job."""
        return ExternalizedCheckpointRetention[self._get(checkpointing.RETENTION)]

    get_externalized_checkpoint_cleanup = get_externalized_checkpoint_retention

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Tell whether any checkpoint outlives the job."""
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not none

    def is_prefer_checkpoint_for_recovery(self) -> bool:
        """Return True: recovery always uses the last checkpoint, never a savepoint."""
        return True

    def set_prefer_checkpoint_for_recovery(
        self, prefer_checkpoint_for_recovery: bool
    ) -> CheckpointConfig:
        """Accept the setting; False has no effect, which is said once."""
        if not prefer_checkpoint_for_recovery:
            warn_once(
                log,
                "set_prefer_checkpoint_for_recovery(False) has no effect, because a job always "
                "recovers from its last checkpoint",
            )
        return self

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Tell whether barriers may overtake records."""
        return bool(self._get(checkpointing.UNALIGNED))

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Let barriers overtake records, which are then stored with the checkpoint."""
        return self._set(checkpointing.UNALIGNED, bool(enabled))

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Let barriers wait for the records before them."""
        return self.enable_unaligned_checkpoints(False)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Start unaligned checkpoints aligned, and switch when alignment takes this long."""
        require_type(alignment_timeout, Duration, "a Duration such as Duration.of_seconds(5)")
        return self._set(checkpointing.ALIGNED_TIMEOUT, _ms(alignment_timeout.to_millis()))

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return after which time of alignment a checkpoint switches to unaligned."""
        return Duration.of_millis(int(self._get(checkpointing.ALIGNED_TIMEOUT)))

    set_alignment_timeout = set_aligned_checkpoint_timeout
    get_alignment_timeout = get_aligned_checkpoint_timeout

    def set_force_unaligned_checkpoints(
        self, force_unaligned_checkpoints: bool = True
    ) -> CheckpointConfig:
        """Use unaligned checkpoints also where they are normally refused."""
        return self._set(checkpointing.UNALIGNED_FORCED, bool(force_unaligned_checkpoints))

    def is_force_unaligned_checkpoints(self) -> bool:
        """Tell whether unaligned checkpoints are used also where they are normally refused."""
        return bool(self._get(checkpointing.UNALIGNED_FORCED))

    def set_checkpoint_storage(self, storage: CheckpointStorage | str) -> CheckpointConfig:
        """Choose where checkpoints are kept: a storage object, or the path of a directory."""
        self._storage = as_checkpoint_storage(storage)
        for key, value in self._storage.to_configuration().items():
            self._configuration.set(key, value)
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Keep checkpoints in a directory."""
        return self.set_checkpoint_storage(checkpoint_path)

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Return the storage object that was set, None when the configuration decides."""
        return self._storage

    def _get(self, option: ConfigOption) -> Any:
        program = ambient.program_layer(self._configuration.to_dict())
        return Settings([*ambient.layers(), program]).get(option)

    def _set(self, option: ConfigOption, value: Any) -> CheckpointConfig:
        self._configuration.set(option.key, value)
        return self


def _ms(value: int) -> str:
    return f"{value} ms"


def _at_least(what: str, value: Any, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        unit = " ms" if minimum == _MINIMUM_MS else ""
        msg = f"the {what} must be a whole number of at least {minimum}{unit}, found {value!r}"
        raise UsageError(msg)
