"""`ExecutionConfig`: PyFlink's setters over the keys of a `Configuration`.

It keeps nothing of its own: what a setter stores, the configuration shows under Flink's key.
Settings about Java serialisers are stored and have no effect.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from weir.common._java_types import JavaTypes
from weir.common.configuration import Configuration
from weir.common.execution_mode import ExecutionMode
from weir.common.input_dependency_constraint import InputDependencyConstraint
from weir.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from weir.common.time import parse_duration_ms, to_ms
from weir.errors import UsageError
from weir.keygroup import MAX_PARALLELISM_BOUND
from weir.notices import warn_once

__all__ = ["ExecutionConfig"]

log = logging.getLogger("weir.common")


class ExecutionConfig(JavaTypes):
    """How the program runs.

    Example:
        env.get_config().set_parallelism(4).set_max_parallelism(128)
    """

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, configuration: Configuration | None = None) -> None:
        """Work on the given configuration, or on a new one."""
        super().__init__()
        self._configuration = Configuration() if configuration is None else configuration
        self._restart_strategy: RestartStrategyConfiguration | None = None
        self._execution_mode = ExecutionMode.PIPELINED
        self._input_constraint = InputDependencyConstraint.ANY

    def __eq__(self, other: object) -> bool:
        """Compare what is set."""
        return isinstance(other, ExecutionConfig) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """Hash what is set now."""
        return self._configuration.__hash__()

    def _set(self, key: str, value: Any) -> ExecutionConfig:
        self._configuration.set(key, value)
        return self

    def _get_ms(self, key: str, default: int) -> int:
        value = self._configuration.get(key, default)
        return parse_duration_ms(value) if isinstance(value, str) else to_ms(value)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the parallelism of operators that set none; PARALLELISM_DEFAULT takes it back."""
        if parallelism == self.PARALLELISM_UNKNOWN:
            return self
        if parallelism == self.PARALLELISM_DEFAULT:
            self._configuration.remove_config("parallelism.default")
            return self
        if not isinstance(parallelism, int) or parallelism < 1:
            msg = f"the parallelism must be at least 1, got {parallelism!r}"
            raise UsageError(msg)
        return self._set("parallelism.default", parallelism)

    def get_parallelism(self) -> int:
        """Return the parallelism, PARALLELISM_DEFAULT when none is set."""
        return self._configuration.get_integer("parallelism.default", self.PARALLELISM_DEFAULT)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the number of key groups."""
        if not isinstance(max_parallelism, int) or not 0 < max_parallelism <= MAX_PARALLELISM_BOUND:
            msg = f"the maximum parallelism must lie in 1..{MAX_PARALLELISM_BOUND}"
            msg = f"{msg}, got {max_parallelism!r}"
            raise UsageError(msg)
        return self._set("pipeline.max-parallelism", max_parallelism)

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, -1 when none is set."""
        return self._configuration.get_integer("pipeline.max-parallelism", -1)

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Set how often watermarks are emitted, in milliseconds."""
        if to_ms(interval) < 0:
            msg = f"the watermark interval must not be negative, got {interval!r}"
            raise UsageError(msg)
        return self._set("pipeline.auto-watermark-interval", to_ms(interval))

    def get_auto_watermark_interval(self) -> int:
        """Return the interval of watermarks in milliseconds."""
        return self._get_ms("pipeline.auto-watermark-interval", 200)

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Set the interval of latency marks in milliseconds; 0 or less switches them off."""
        return self._set("metrics.latency.interval", to_ms(interval))

    def get_latency_tracking_interval(self) -> int:
        """Return the interval of latency marks in milliseconds."""
        return self._get_ms("metrics.latency.interval", 0)

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Set the time between attempts to cancel a task, in milliseconds."""
        return self._set("task.cancellation.interval", to_ms(interval))

    def get_task_cancellation_interval(self) -> int:
        """Return the time between attempts to cancel a task, in milliseconds."""
        return self._get_ms("task.cancellation.interval", 30_000)

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Set how long a cancellation may take, in milliseconds; 0 for ever."""
        return self._set("task.cancellation.timeout", to_ms(timeout))

    def get_task_cancellation_timeout(self) -> int:
        """Return how long a cancellation may take, in milliseconds."""
        return self._get_ms("task.cancellation.timeout", 180_000)

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> ExecutionConfig:
        """Choose what happens after a failure."""
        self._restart_strategy = restart_strategy_configuration
        for key, value in restart_strategy_configuration.to_config().items():
            self._configuration.set(key, value)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """Return the strategy that was set, the configuration's when none was."""
        return self._restart_strategy or RestartStrategies.fall_back_restart()

    def set_execution_mode(self, execution_mode: ExecutionMode) -> ExecutionConfig:
        """Store the execution mode; it has no effect, which is said once."""
        self._execution_mode = execution_mode
        warn_once(log, "set_execution_mode() has no effect, because Spark exchanges the data")
        return self

    def get_execution_mode(self) -> ExecutionMode:
        """Return the execution mode."""
        return self._execution_mode

    def set_default_input_dependency_constraint(
        self, input_dependency_constraint: InputDependencyConstraint
    ) -> ExecutionConfig:
        """Store the constraint; it has no effect, which is said once."""
        self._input_constraint = input_dependency_constraint
        warn_once(
            log,
            "set_default_input_dependency_constraint() has no effect, because Spark decides when "
            "its tasks run",
        )
        return self

    def get_default_input_dependency_constraint(self) -> InputDependencyConstraint:
        """Return the constraint."""
        return self._input_constraint

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Choose whether full snapshots are compressed."""
        return self._set(
            "execution.checkpointing.snapshot-compression", bool(use_snapshot_compression)
        )

    def is_use_snapshot_compression(self) -> bool:
        """Tell whether full snapshots are compressed."""
        return self._flag("execution.checkpointing.snapshot-compression", False)

    def set_global_job_parameters(
        self, global_job_parameters_dict: Mapping[str, Any]
    ) -> ExecutionConfig:
        """Store parameters that every function can read, as text."""
        texts = {str(key): str(value) for key, value in global_job_parameters_dict.items()}
        return self._set("pipeline.global-job-parameters", texts)

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return the parameters that every function can read."""
        return dict(self._configuration.get("pipeline.global-job-parameters", {}))

    def _flag(self, key: str, default: bool) -> bool:
        return self._configuration.get_boolean(key, default)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Allow records to be handed on without a copy."""
        return self._set("pipeline.object-reuse", True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Take back `enable_object_reuse`."""
        return self._set("pipeline.object-reuse", False)

    def is_object_reuse_enabled(self) -> bool:
        """Tell whether records may be handed on without a copy."""
        return self._flag("pipeline.object-reuse", False)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Give operators without a uid a generated one."""
        return self._set("pipeline.auto-generate-uids", True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuse programs with operators that have no uid."""
        return self._set("pipeline.auto-generate-uids", False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """Tell whether operators may go without a uid."""
        return self._flag("pipeline.auto-generate-uids", True)

    def enable_generic_types(self) -> ExecutionConfig:
        """Store the setting; pickled types are always allowed."""
        return self._set("pipeline.generic-types", True)

    def disable_generic_types(self) -> ExecutionConfig:
        """Store the setting, which has no effect: pickled types are always allowed."""
        return self._set("pipeline.generic-types", False)

    def has_generic_types_disabled(self) -> bool:
        """Return the stored setting."""
        return not self._flag("pipeline.generic-types", True)

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Store the setting; it has no effect."""
        return self._set("pipeline.closure-cleaner-level", "RECURSIVE")

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Store the setting; it has no effect."""
        return self._set("pipeline.closure-cleaner-level", "NONE")

    def is_closure_cleaner_enabled(self) -> bool:
        """Return the stored setting."""
        return self._configuration.get_string("pipeline.closure-cleaner-level", "") != "NONE"

    def enable_force_kryo(self) -> ExecutionConfig:
        """Store the setting; it has no effect."""
        return self._set("pipeline.force-kryo", True)

    def disable_force_kryo(self) -> ExecutionConfig:
        """Store the setting; it has no effect."""
        return self._set("pipeline.force-kryo", False)

    def is_force_kryo_enabled(self) -> bool:
        """Return the stored setting."""
        return self._flag("pipeline.force-kryo", False)

    def enable_force_avro(self) -> ExecutionConfig:
        """Store the setting; it has no effect."""
        return self._set("pipeline.force-avro", True)

    def disable_force_avro(self) -> ExecutionConfig:
        """Store the setting; it has no effect."""
        return self._set("pipeline.force-avro", False)

    def is_force_avro_enabled(self) -> bool:
        """Return the stored setting."""
        return self._flag("pipeline.force-avro", False)
