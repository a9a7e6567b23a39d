"""What can be known of a submission before an engine runs: everything that would refuse it.

Reads the program, its settings, the host's jobs and the metadata of what it is to start from.
Creates nothing and keeps nothing, so a program that is refused leaves nothing behind.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weir.checkpoint.paths import split_location
from weir.checkpoint.settings import Retention
from weir.checkpoint.store import load_checkpoint
from weir.config import execution as e
from weir.config.effective import Settings
from weir.config.state_backends import state_backend
from weir.connector.sink import Sink
from weir.connector.source import Source
from weir.errors import StorageError, UsageError
from weir.graph.keyed_use import refuse_state_without_keys
from weir.graph.plan import JobPlan, compile_plan, detach_sources
from weir.graph.runtime_mode import runs_in_batch
from weir.graph.transformation import DEFAULT_BATCH_JOB_NAME, DEFAULT_JOB_NAME, StreamGraph
from weir.graph.uids import check_uids, warn_of_missing_uids
from weir.jobmanager.announcement import refuse_twin
from weir.jobmanager.assignments import adopt_max_parallelism, refuse_lost_sources
from weir.jobmanager.foreign_state import foreign_directory, refuse_foreign_directory
from weir.jobmanager.recovery import RestorePoint
from weir.jobmanager.settings import JobSettings, for_batch
from weir.runtime.program import dump_program
from weir.storage.base import Storage
from weir.storage.local import LocalStorage
from weir.storage.memory import MemoryStorage
from weir.storage.uri import open_storage

log = logging.getLogger("weir.job")


@dataclass(frozen=True)
class Prepared:
    """A program whose settings are resolved, and that nothing known so far refuses.

    With `batch` it runs in BATCH mode.
    """

    settings: JobSettings
    resolved: Settings
    batch: bool = False


def prepare(graph: StreamGraph, layers: Sequence[Mapping[str, Any]]) -> Prepared:
    """Resolve the settings and look for whatever would refuse the program later.

    A max parallelism in the settings becomes that of the graph, unless it has its own; without a
    name of its own a job in BATCH mode has Flink's.

    Raises:
        UsageError: the program, its settings or a path cannot work, or the job runs already.
        IncompatibleStateError: the program does not fit the state that it is to start from.
        CorruptStateError: the metadata of that state is damaged.
        StorageError: a directory cannot be used.
    """
    settings, resolved = JobSettings.of(layers), Settings(layers)
    batch = runs_in_batch(graph, settings.runtime_mode, all_end=settings.available_now)
    if batch:
        settings = for_batch(settings)
        if graph.job_name == DEFAULT_JOB_NAME:
            graph.job_name = DEFAULT_BATCH_JOB_NAME
    check_uids(graph, auto_generate=resolved.get(e.AUTO_GENERATE_UIDS))
    if settings.recovery_path or _keeps_checkpoints(settings):
        warn_of_missing_uids(graph)
    most = resolved.get(e.MAX_PARALLELISM)
    if graph.max_parallelism is None and most > 0:
        graph.max_parallelism = most
    # Where the engine decides on the parallelism, one is what never refuses too much.
    plan = compile_plan(graph, settings.parallelism or 1, batch=batch)
    refuse_twin(plan.job_name, settings)
    require_backend(settings)
    check_directories(settings)
    refuse_state_without_keys(graph)
    for source in detach_sources(plan).values():
        if isinstance(source, Source):
            source.check()
    for op in plan.operators:
        if isinstance(op.function, Sink) and not batch:
            op.function.check(settings.checkpoint.interval_ms)
    _check_program(plan)
    _check_restore(plan, settings)
    return Prepared(settings, resolved, batch)


def _keeps_checkpoints(settings: JobSettings) -> bool:
    """Tell whether checkpoints are to outlive the job, so that another program starts from them."""
    periodic = settings.checkpoint.interval_ms is not None
    return periodic and settings.checkpoint.retention is Retention.RETAIN_ON_CANCELLATION


def require_backend(settings: JobSettings) -> None:
    """Refuse a state backend whose package is not installed.

    Raises:
        UsageError: it is not.
    """
    facts = state_backend(settings.backend.kind)
    if facts.needs is not None and importlib.util.find_spec(facts.needs[0]) is None:
        package, extra = facts.needs
        msg = (
            f"the state backend {facts.name!r} needs the package {package}: install it with "
            f"pip install 'weir-spark[{extra}]', on the hosts of executors too"
        )
        raise UsageError(msg)


def check_directories(settings: JobSettings) -> None:
    """Refuse directories that cannot hold what the job is going to write.

    Raises:
        UsageError: the storage is none that slots share, or its package is missing,
            or another user has a hand in what the job would restart from.
        StorageError: a local directory cannot be made or written.
    """
    checkpoints = checkpoint_storage(settings)
    _check_writable("checkpoint", checkpoints)
    refuse_foreign_directory("checkpoint", checkpoints, settings)
    if settings.savepoint_dir is not None:
        savepoints = open_storage(settings.savepoint_dir, settings.storage)
        _check_writable("savepoint", savepoints)
        # A job can do without restarting from one: its next checkpoint is newer.
        if problem := foreign_directory("savepoint", savepoints, settings):
            log.warning("%s", problem)
    if settings.work_dir is not None:
        work = open_storage(settings.work_dir)
        _check_writable("work", work)
        refuse_foreign_directory("work", work, settings)


def checkpoint_storage(settings: JobSettings) -> Storage | None:
    """Open the storage of the checkpoint directory, None when none was chosen.

    Raises:
        UsageError: slots cannot share it, or its package is missing.
    """
    given = settings.checkpoint_dir
    storage = None if given is None else open_storage(given, settings.storage)
    if isinstance(storage, MemoryStorage):
        msg = (
            f"checkpoint directory {given!r} is the memory of one process, which slots do not "
            "share: use a path, s3://, gs://, abfss:// or hdfs://"
        )
        raise UsageError(msg)
    return storage


def _check_writable(kind: str, storage: Storage | None) -> None:
    if not isinstance(storage, LocalStorage):
        return
    root = Path(storage.root)
    nearest = next(path for path in (root, *root.parents) if path.exists())
    if not nearest.is_dir():
        reason = f"{str(nearest)!r} is a file"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        reason = f"{str(nearest)!r} cannot be written by this user"
    else:
        return
    msg = f"the {kind} directory {storage.root!r} cannot be used: {reason}"
    raise StorageError(msg)


def _check_program(plan: JobPlan) -> None:
    """Refuse what cannot be sent to slots; functions of Spark writers stay in the driver."""
    for op in plan.operators:
        if op.kind == "spark_sink":
            op.function = None
    dump_program(plan)


def _check_restore(plan: JobPlan, settings: JobSettings) -> None:
    """Refuse state that is not there or does not fit; its data files are not read yet."""
    if not settings.recovery_path:
        return
    uri, directory = split_location(settings.recovery_path)
    metadata = load_checkpoint(open_storage(uri, settings.storage), directory)
    point = RestorePoint(uri, directory, metadata)
    adopt_max_parallelism(plan, point, settings.allow_non_restored)
    refuse_lost_sources(plan, point, settings.allow_non_restored)
