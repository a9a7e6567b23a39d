"""When a part file is closed, and how it is called.

Every format closes its files at every checkpoint, because a closed file is the only thing that
can be made visible atomically. A policy can only close them earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from weir.errors import UsageError


@dataclass(frozen=True)
class RollingPolicy:
    """Limits after which a part file is closed before the checkpoint; None is no limit.

    Example:
        sink = FileSink.for_row_format("/out", Encoder.simple_string_encoder())
        sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
    """

    part_size_bytes: int | None = None
    rollover_interval_ms: int | None = None
    inactivity_interval_ms: int | None = None

    def __post_init__(self) -> None:
        """Refuse limits that would close every file at once."""
        for name, limit in vars(self).items():
            if limit is not None and limit <= 0:
                message = f"rolling policy: {name} is {limit!r}, expected a positive number"
                raise UsageError(message)

    def is_full(self, size_bytes: int) -> bool:
        """Tell whether a file of this size must be closed."""
        return self.part_size_bytes is not None and size_bytes >= self.part_size_bytes

    def is_due(self, age_ms: int, idle_ms: int) -> bool:
        """Tell whether a file of this age, not written to for so long, must be closed."""
        rollover, inactivity = self.rollover_interval_ms, self.inactivity_interval_ms
        return (rollover is not None and age_ms >= rollover) or (
            inactivity is not None and idle_ms >= inactivity
        )

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 * 1024 * 1024,
        rollover_interval: int = 60_000,
        inactivity_interval: int = 60_000,
    ) -> DefaultRollingPolicy:
        """Close at a size in bytes, an age or an idle time in milliseconds, and at checkpoints."""
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """Close at checkpoints only."""
        return OnCheckpointRollingPolicy()


class DefaultRollingPolicy(RollingPolicy):
    """Size, age, idle time, checkpoints.

    Example:
        RollingPolicy.default_rolling_policy(part_size=64 << 20)
    """


class OnCheckpointRollingPolicy(RollingPolicy):
    """Checkpoints only.

    Example:
        RollingPolicy.on_checkpoint_rolling_policy()
    """


@dataclass(frozen=True)
class OutputFileConfig:
    """Prefix and suffix of part files: `<prefix>-<uid>-s<subtask>-<n><suffix>`.

    Example:
        OutputFileConfig.builder().with_part_prefix("part").with_part_suffix(".txt").build()
    """

    OutputFileConfigBuilder: ClassVar[type[Any]]
    part_prefix: str = "part"
    part_suffix: str = ""

    def __post_init__(self) -> None:
        """Refuse names that readers would skip or that leave the bucket directory."""
        prefix, suffix = self.part_prefix, self.part_suffix
        if not prefix or prefix[0] in "._" or "/" in prefix + suffix or "\0" in prefix + suffix:
            message = (
                f"output file config: prefix {prefix!r} and suffix {suffix!r} must not contain "
                "'/', and the prefix must not be empty or start with '.' or '_' (readers skip "
                "such files)"
            )
            raise UsageError(message)

    def get_part_prefix(self) -> str:
        """Return the prefix."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """Return the suffix."""
        return self.part_suffix

    @staticmethod
    def builder() -> _Builder:
        """Start from prefix "part" and no suffix."""
        return _Builder()


class OutputFileConfigBuilder:
    """Collects prefix and suffix."""

    def __init__(self) -> None:
        self.part_prefix = "part"
        self.part_suffix = ""

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        """Set the prefix."""
        self.part_prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        """Set the suffix, with its dot."""
        self.part_suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        """Return the checked value."""
        return OutputFileConfig(self.part_prefix, self.part_suffix)


_Builder = OutputFileConfigBuilder
OutputFileConfig.OutputFileConfigBuilder = OutputFileConfigBuilder
