"""Typed reading of single settings out of an environment's configuration."""

from __future__ import annotations

from typing import Any

from weir.common.configuration import Configuration

_DEFAULTS: dict[str, Any] = {
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.interval": None,
    "execution.checkpointing.timeout": "600000 ms",
    "execution.checkpointing.min-pause": "0 ms",
    "execution.checkpointing.max-concurrent-checkpoints": 1,
    "execution.checkpointing.tolerable-failed-checkpoints": 0,
    "execution.checkpointing.externalized-checkpoint-retention": "NO_EXTERNALIZED_CHECKPOINTS",
    "execution.checkpointing.unaligned.enabled": False,
    "execution.checkpointing.aligned-checkpoint-timeout": "0 ms",
    "execution.checkpointing.unaligned.forced": False,
}


def configured(configuration: Configuration, key: str) -> Any:
    """Return the typed value of a key, or its default."""
    value = configuration.get(key, _DEFAULTS.get(key))
    if isinstance(value, str) and value.endswith(" ms"):
        return int(value.removesuffix(" ms"))
    return value
