"""`ConfiguredProgram`: everything of an environment that only changes its configuration.

The configuration is the one place where settings live; this class spells its keys as methods.
"""

from __future__ import annotations

import logging
import os
from typing import Any, TypeVar

from weir.common._java_types import warn_of_java_types
from weir.common.configuration import Configuration
from weir.common.execution_config import ExecutionConfig
from weir.common.restart_strategy import RestartStrategyConfiguration
from weir.config import ambient, backend, checkpointing, execution
from weir.config.effective import Settings
from weir.config.option import ConfigOption
from weir.config.options import OPTION_BY_KEY
from weir.datastream._checks import check_max_parallelism, check_parallelism, require_type
from weir.datastream._program import Program, ProgramEngine
from weir.datastream._python_dependencies import PythonDependencies
from weir.datastream.checkpoint_config import CheckpointConfig
from weir.datastream.checkpointing_mode import CheckpointingMode
from weir.datastream.execution_mode import RuntimeExecutionMode
from weir.datastream.slot_sharing_group import SlotSharingGroup, warn_about_slot_sharing
from weir.datastream.state_backend import StateBackend
from weir.datastream.time_characteristic import TimeCharacteristic
from weir.errors import UsageError
from weir.notices import warn_once

log = logging.getLogger("weir.datastream")
E = TypeVar("E", bound="ConfiguredProgram")


class ConfiguredProgram(PythonDependencies, Program):
    """A program with its settings."""

    def __init__(self, configuration: Configuration, engine: ProgramEngine) -> None:
        """Start with a configuration, which this environment owns from now on."""
        super().__init__(configuration, engine)
        self._execution_config = ExecutionConfig(configuration)
        self._checkpoint_config = CheckpointConfig(configuration)
        self._state_backend: StateBackend | None = None
        self._local_parallelism = 0
        self._time_characteristic = TimeCharacteristic.EventTime

    def register_type(self, type_class_name: str) -> None:
        """Keep the name of a Java type; it has no effect, which is said once."""
        warn_of_java_types("register_type")
        self._execution_config.register_pojo_type(type_class_name)

    def add_default_kryo_serializer(self, type_class_name: str, serializer_class_name: str) -> None:
        """Keep the default serialiser of a Java type; it has no effect, which is said once."""
        self._execution_config.add_default_kryo_serializer(type_class_name, serializer_class_name)

    def register_type_with_kryo_serializer(
        self, type_class_name: str, serializer_class_name: str
    ) -> None:
        """Keep the serialiser of a Java type; it has no effect, which is said once."""
        config = self._execution_config
        config.register_type_with_kryo_serializer(type_class_name, serializer_class_name)

    def get_config(self) -> ExecutionConfig:
        """Return the execution settings."""
        return self._execution_config

    def get_configuration(self) -> Configuration:
        """Return the environment's own configuration."""
        return self._configuration

    def configure(self, configuration: Configuration) -> None:
        """Take over every key of a configuration; later settings win, whatever their spelling."""
        given = {key: configuration.get(key) for key in configuration.key_set()}
        for key in sorted(given):
            option = OPTION_BY_KEY.get(key)
            current = key if option is None else option.key
            if current == key or current not in given:
                self._configuration.set(current, given[key])
            if current == backend.STATE_BACKEND.key:
                self._state_backend = None

    def set_parallelism(self: E, parallelism: int) -> E:
        """Set the parallelism of operators that have none of their own."""
        check_parallelism(parallelism, "environment")
        self._execution_config.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the parallelism of operators that have none of their own.

        When nobody set one it is the number of this machine's processors, which is what a local
        engine takes.
        """
        outside = self._get(execution.PARALLELISM) or self.get_default_local_parallelism()
        return self.default_parallelism() or int(outside)

    def set_max_parallelism(self: E, max_parallelism: int) -> E:
        """Set the max parallelism of operators that have none of their own."""
        check_max_parallelism(max_parallelism, "environment")
        self._execution_config.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the max parallelism of operators that have none of their own, -1 if unset."""
        return self.default_max_parallelism() or -1

    def get_default_local_parallelism(self) -> int:
        """Return the number of processors of this machine, or what was set instead."""
        return self._local_parallelism or os.cpu_count() or 1

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Set the parallelism that is used when nothing else says one."""
        check_parallelism(parallelism, "environment")
        self._local_parallelism = parallelism

    def default_parallelism(self) -> int:
        """Return the parallelism of operators without their own; 0 lets the engine choose."""
        own = self._execution_config.get_parallelism()
        return own if own > 0 else self._local_parallelism

    def default_max_parallelism(self) -> int | None:
        """Return the max parallelism of operators without their own; None derives it."""
        own = self._execution_config.get_max_parallelism()
        return own if own > 0 else None

    def effective_configuration(self) -> Configuration:
        """Return the configuration that a job submitted now would get, as a copy."""
        copy = super().effective_configuration()
        if self._state_backend is not None:
            for key, value in self._state_backend.to_configuration().items():
                copy.set(key, value)
        return copy

    def set_runtime_mode(self: E, execution_mode: RuntimeExecutionMode) -> E:
        """Set the execution mode."""
        self._configuration.set(execution.RUNTIME_MODE.key, execution_mode.name)
        return self

    def set_buffer_timeout(self: E, timeout_millis: int) -> E:
        """Accept the setting; epochs decide when records move, not buffers."""
        if timeout_millis < -1:
            msg = f"the buffer timeout must be -1 or at least 0 ms, found {timeout_millis!r}"
            raise UsageError(msg)
        self._configuration.set(execution.BUFFER_TIMEOUT.key, timeout_millis)
        return self

    def get_buffer_timeout(self) -> int:
        """Return the buffer timeout in milliseconds."""
        return int(self._get(execution.BUFFER_TIMEOUT))

    def disable_operator_chaining(self: E) -> E:
        """Switch chaining off for the whole program."""
        self._configuration.set(execution.OPERATOR_CHAINING.key, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Tell whether operators may be chained."""
        return bool(self._get(execution.OPERATOR_CHAINING))

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Return True: key groups are each operator's own, chained or not."""
        return True

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return the checkpoint settings."""
        return self._checkpoint_config

    def enable_checkpointing(self: E, interval: int, mode: CheckpointingMode | None = None) -> E:
        """Take a checkpoint every `interval` milliseconds."""
        self._checkpoint_config.set_checkpoint_interval(interval)
        if mode is not None:
            self._checkpoint_config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        """Return the checkpoint interval in milliseconds, -1 when checkpoints are off."""
        return self._checkpoint_config.get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the guarantee of checkpoints."""
        return self._checkpoint_config.get_checkpointing_mode()

    get_checkpointing_consistency_mode = get_checkpointing_mode

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Tell whether barriers may overtake records."""
        return self._checkpoint_config.is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Tell whether unaligned checkpoints are used also where they are normally refused."""
        return self._checkpoint_config.is_force_unaligned_checkpoints()

    def set_state_backend(self: E, state_backend: StateBackend) -> E:
        """Choose where working state is kept; later changes of the object still count."""
        require_type(state_backend, StateBackend, "a StateBackend such as HashMapStateBackend()")
        self._state_backend = state_backend
        for key, value in state_backend.to_configuration().items():
            self._configuration.set(key, value)
        return self

    def get_state_backend(self) -> StateBackend | None:
        """Return the backend that was set, None when the configuration decides."""
        return self._state_backend

    def enable_changelog_state_backend(self: E, enabled: bool) -> E:
        """Keep a log of state changes, so that checkpoints are short."""
        self._configuration.set(backend.CHANGELOG.key, bool(enabled))
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Tell whether a log of state changes is kept; None when nobody said."""
        if not self._configuration.contains_key(backend.CHANGELOG.key):
            return None
        return bool(self._get(backend.CHANGELOG))

    def set_default_savepoint_directory(self: E, directory: str) -> E:
        """Set where savepoints go when a command names no directory."""
        self._configuration.set(checkpointing.SAVEPOINT_DIR.key, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return where savepoints go when a command names no directory."""
        found: str | None = self._get(checkpointing.SAVEPOINT_DIR)
        return found

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> None:
        """Choose what happens after a failure."""
        self._execution_config.set_restart_strategy(restart_strategy_configuration)

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """Return the strategy that was set; the fallback one when the configuration decides."""
        return self._execution_config.get_restart_strategy()

    def register_slot_sharing_group(self: E, slot_sharing_group: SlotSharingGroup) -> E:
        """Accept the wish, which has no effect, and warn once: all operators share all slots."""
        require_type(slot_sharing_group, SlotSharingGroup, "a SlotSharingGroup")
        warn_about_slot_sharing("register_slot_sharing_group()")
        return self

    def set_stream_time_characteristic(self, characteristic: TimeCharacteristic) -> None:
        """Accept the setting; watermarks and timers of both times always work.

        Raises:
            UsageError: it is IngestionTime, which would give records other timestamps.
        """
        if characteristic is TimeCharacteristic.IngestionTime:
            msg = (
                "set_stream_time_characteristic(IngestionTime) is not supported: let a timestamp "
                "assigner of assign_timestamps_and_watermarks() return the current time"
            )
            raise UsageError(msg)
        if characteristic is TimeCharacteristic.ProcessingTime:
            warn_once(
                log,
                "set_stream_time_characteristic(ProcessingTime) has no effect, because windows and "
                "timers say themselves which time is theirs",
            )
        self._time_characteristic = characteristic

    def get_stream_time_characteristic(self) -> TimeCharacteristic:
        """Return the time characteristic that was set."""
        return self._time_characteristic

    def _get(self, option: ConfigOption) -> Any:
        program = ambient.program_layer(self._configuration.to_dict())
        return Settings([*ambient.layers(), program]).get(option)
