"""What a job of the crash campaign left on the storage, beside what its sinks wrote."""

from __future__ import annotations

from collections.abc import Sequence

from weir.checkpoint.store import list_completed, verify_files
from weir.offline.describe import describe
from weir.storage.memory import MemoryStorage


def damaged(storage: MemoryStorage, savepoints: str) -> list[str]:
    """Return what is wrong with checkpoints that exist, whoever they belong to."""
    jobs = [name for name in storage.list() if not name.startswith(savepoints)]
    stored = [s for job in jobs for s in list_completed(storage, job)]
    problems = [p for s in stored for p in verify_files(storage, s.directory, s.metadata)]
    return [f"complete checkpoint is damaged: {problem}" for problem in problems]


def left_checkpoint(storage: MemoryStorage, job_id: str) -> bool:
    """Tell whether a job left a checkpoint that others can start from."""
    names = storage.list(job_id)
    return any("_metadata" in storage.list(f"{job_id}/{name}") for name in names)


def state_left(savepoint: str, uids: Sequence[str]) -> list[str]:
    """Return which state operators still have in a savepoint, after time has come to its end."""
    return [
        f"state left: {state.name} of {operator.uid}, {state.entries} entries"
        for operator in describe(savepoint).operators
        if operator.uid in uids
        for state in operator.states
        if state.entries != 0
    ]
