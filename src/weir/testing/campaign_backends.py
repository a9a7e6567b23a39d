"""The kinds of backends and checkpoints that campaigns and harness tests run jobs with.

Settings come from configuration keys, as for a job, so that backends find every option.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from weir.backend.factory import BackendSettings
from weir.config.backend import STATE_BACKEND
from weir.config.state_backends import ROCKSDB, STATE_BACKENDS
from weir.jobmanager.settings import JobSettings

_INCREMENTAL = {"execution.checkpointing.incremental": "true"}
_CHANGELOG = {
    "state.changelog.enabled": "true",
    "state.changelog.periodic-materialize.interval": "25 ms",
    "state.changelog.dstl.dfs.preemptive-persist-threshold": "300 b",
}
# One thread: the same run takes the same steps. In memory where that is possible: the databases
# sync their files, for nothing, since a slot's own disk is never what a restore relies on.
_MEMORY = Path("/dev/shm")
_OWN_OPTIONS: dict[str, dict[str, Any]] = {
    ROCKSDB.name: {
        "state.backend.rocksdb.checkpoint.transfer.thread.num": "1",
        **({"state.backend.rocksdb.localdir": str(_MEMORY)} if _MEMORY.is_dir() else {}),
    }
}
# How often random scenarios take each kind: databases cost more to open than all the rest. The
# order is part of what a seed means; kinds of backends that are not named come behind, once.
_SHARES = {
    "hashmap": 4,
    "hashmap-incremental": 4,
    "hashmap-changelog": 4,
    "rocksdb-incremental": 2,
    "rocksdb-changelog": 1,
    "rocksdb": 1,
}


def _kinds() -> dict[str, dict[str, Any]]:
    found = {}
    for name in (facts.name for facts in STATE_BACKENDS):
        options = {STATE_BACKEND.key: name, **_OWN_OPTIONS.get(name, {})}
        found[name] = options
        found[f"{name}-incremental"] = {**options, **_INCREMENTAL}
        found[f"{name}-changelog"] = {**options, **_CHANGELOG}
    return {kind: found[kind] for kind in [*_SHARES, *(k for k in found if k not in _SHARES)]}


BACKENDS: Final = _kinds()
SHARES: Final = tuple(kind for kind in BACKENDS for _ in range(_SHARES.get(kind, 1)))


@cache
def settings_of(name: str) -> BackendSettings:
    """Return the settings of one kind."""
    return JobSettings.of([BACKENDS[name]]).backend


def sharing() -> list[str]:
    """Return the kinds whose checkpoints share files."""
    every = {name: settings_of(name) for name in BACKENDS}
    return [name for name, found in every.items() if found.incremental or found.changelog]
