"""Settings of workload k that Weir, PyFlink and Flink have in common.

Nothing here knows an engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contenders.kafka_rows import PARTITIONS

# Flink keeps a transaction open from one checkpoint to the next; brokers allow 15 minutes.
TRANSACTION_MS = "600000"


def common(told: dict[str, Any]) -> dict[str, str]:
    """Return what all have: checkpoints every second, two subtasks."""
    return {
        "state.backend.type": "hashmap",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.mode": told["mode"],
        "execution.checkpointing.dir": Path(told["folder"], "checkpoints").as_uri(),
        "execution.checkpointing.num-retained": "1",
        "parallelism.default": str(PARTITIONS),
        # A mistake is to be seen, not repeated.
        "restart-strategy.type": "none",
    }


def flink() -> dict[str, str]:
    """Return what a cluster of Flink has in one process."""
    return {
        "taskmanager.numberOfTaskSlots": str(PARTITIONS),
        "taskmanager.memory.network.min": "128m",
        "taskmanager.memory.network.max": "128m",
        "pipeline.object-reuse": "true",
    }
