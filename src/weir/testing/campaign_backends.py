"""The kinds of backends and checkpoints that campaigns and harness tests run jobs with.

Settings come from configuration keys, as for a job, so that backends find every option.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from weir.backend.factory import BackendSettings
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
_ROCKSDB = {
    "state.backend.type": "rocksdb",
    "state.backend.rocksdb.checkpoint.transfer.thread.num": "1",
    **({"state.backend.rocksdb.localdir": str(_MEMORY)} if _MEMORY.is_dir() else {}),
}
BACKENDS: Final[dict[str, dict[str, Any]]] = {
    "hashmap": {},
    "hashmap-incremental": _INCREMENTAL,
    "hashmap-changelog": _CHANGELOG,
    "rocksdb-incremental": {**_ROCKSDB, **_INCREMENTAL},
    "rocksdb-changelog": {**_ROCKSDB, **_CHANGELOG},
    "rocksdb": _ROCKSDB,
}


@cache
def settings_of(name: str) -> BackendSettings:
    """Return the settings of one kind."""
    return JobSettings.of([BACKENDS[name]]).backend


def sharing() -> list[str]:
    """Return the kinds whose checkpoints share files."""
    every = {name: settings_of(name) for name in BACKENDS}
    return [name for name, found in every.items() if found.incremental or found.changelog]


SHARES: Final = (
    *("hashmap",) * 4,
    *("hashmap-incremental",) * 4,
    *("hashmap-changelog",) * 4,
    *("rocksdb-incremental",) * 2,
    "rocksdb-changelog",
    "rocksdb",
)
"""How often random scenarios take each kind: databases cost more to open than all the rest."""
