"""Choosing the checkpoint to start from, and dealing its state out to the slots."""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from weir.checkpoint.metadata import CheckpointMetadata, FileRecord
from weir.checkpoint.paths import (
    checkpoint_id_of,
    is_uri,
    metadata_path,
    rebase,
    split_location,
)
from weir.checkpoint.retention import CheckpointRef
from weir.checkpoint.store import FileProblem, list_completed, load_checkpoint, look_at_files
from weir.config.execution import BEHIND_COMMITS
from weir.connector.sink import NewerOutput, Sink
from weir.errors import (
    CorruptStateError,
    IncompatibleStateError,
    StorageError,
    UsageError,
    WeirError,
)
from weir.graph.plan import JobPlan, OperatorNode
from weir.jobmanager.owner import has_ended
from weir.storage.base import MissingFileError, Storage
from weir.storage.local import LocalStorage
from weir.storage.options import StorageOptions
from weir.storage.uri import open_storage

log = logging.getLogger("weir.recovery")
# Released to the person who collects them, records are as good as committed.
_COMMITTING = frozenset({"sink", "sink_v2", "spark_sink", "collect"})


@dataclass(frozen=True)
class RestorePoint:
    """A checkpoint whose files were found whole, but for those in `damaged`: these have copies."""

    storage_uri: str
    directory: str
    metadata: CheckpointMetadata
    damaged: tuple[str, ...] = ()


class BehindCommits(enum.Enum):
    """What a job does when it can only go back to before output that was committed."""

    REFUSE = "refuse"
    """It fails, and says what can be done."""
    REPEAT = "repeat"
    """It writes that output again: at least once."""
    TAKE_BACK = "take-back"
    """Its sinks remove that output first: exactly once, for sinks that can."""


def load_restore_point(location: str, options: StorageOptions | None = None) -> RestorePoint:
    """Load and verify what the user asked to restore.

    Raises:
        UsageError: there is no checkpoint at that place.
        CorruptStateError: it is damaged; the message names the files.
    """
    point, problems = _look_at(location, options)
    if problems:
        raise CorruptStateError("; ".join(problem.text for problem in problems))
    return point


def _look_at(
    location: str, options: StorageOptions | None
) -> tuple[RestorePoint, list[FileProblem]]:
    uri, directory = split_location(location)
    storage = open_storage(uri, options)
    metadata = load_checkpoint(storage, directory)
    if any(f.data is None and f.path.startswith("../../") for f in metadata.files):
        # It refers to files of a job before it, which lie beside the job's own directory.
        uri, job = split_location(uri)
        storage, directory = open_storage(uri, options), f"{job}/{directory}"
    return RestorePoint(uri, directory, metadata), look_at_files(storage, directory, metadata)


@dataclass(frozen=True)
class Candidate:
    """A completed checkpoint; `point` is None when it cannot be used, for these reasons.

    With `missing` all that is wrong is that something was not found. If there is a `point` in spite
    of problems, local copies stand in.
    """

    ref: CheckpointRef
    point: RestorePoint | None
    problems: tuple[str, ...] = ()
    missing: bool = False


class Copies(Protocol):
    """What can stand in for files of a checkpoint; see `weir.jobmanager.stand_ins`."""

    def metadata(self, ref: CheckpointRef) -> CheckpointMetadata | None:
        """Return what the metadata of a checkpoint was, if that is known."""

    def replace(self, checkpoint_id: int, files: Iterable[FileRecord]) -> bool:
        """Tell whether an attempt can start although these files cannot be used."""


def candidates(
    storage: Storage,
    refs: Sequence[CheckpointRef],
    options: StorageOptions | None = None,
    copies: Copies | None = None,
) -> Iterator[Candidate]:
    """Look at checkpoints, newest first; each is read when it is asked for.

    Raises:
        StorageError: the storage does not answer; trying again may help.
    """
    for ref in sorted(refs, key=lambda r: r.checkpoint_id, reverse=True):
        try:
            if is_uri(ref.directory):
                candidate = _candidate(ref, *_look_at(ref.directory, options), None)
            else:
                metadata, found = _metadata(storage, ref, copies)
                point = RestorePoint(storage.uri, ref.directory, metadata)
                found += look_at_files(storage, ref.directory, metadata)
                candidate = _candidate(ref, point, found, copies)
        except CorruptStateError as error:
            candidate = Candidate(ref, None, (str(error),))
        except UsageError as error:
            # It was completed, so its metadata was there.
            candidate = Candidate(ref, None, (str(error),), missing=True)
        yield candidate


def _metadata(
    storage: Storage, ref: CheckpointRef, copies: Copies | None
) -> tuple[CheckpointMetadata, list[FileProblem]]:
    known = None if copies is None else copies.metadata(ref)
    try:
        return load_checkpoint(storage, ref.directory), []
    except (CorruptStateError, UsageError, IncompatibleStateError) as error:
        if known is None:
            raise
        return known, [FileProblem(str(error), missing=isinstance(error, UsageError))]


def _candidate(
    ref: CheckpointRef, point: RestorePoint, found: list[FileProblem], copies: Copies | None
) -> Candidate:
    """Judge a checkpoint whose metadata is known, by what is wrong with its files."""
    texts = tuple(problem.text for problem in found)
    files = [problem.file for problem in found if problem.file is not None]
    if not found or (copies is not None and copies.replace(ref.checkpoint_id, files)):
        damaged = tuple(file.path for file in files)
        return Candidate(ref, replace(point, damaged=damaged), texts)
    return Candidate(ref, None, texts, all(problem.missing for problem in found))


@dataclass(frozen=True)
class RestoreRules:
    """What a restart goes by.

    `committed` is the newest checkpoint whose commits may have begun. `cannot_take_back` names the
    sinks that keep what they committed. While the job is `patient`, a file that is not there may
    still come.
    """

    committed: int = 0
    behind: BehindCommits = BehindCommits.REFUSE
    cannot_take_back: tuple[str, ...] = ()
    patient: bool = False


@dataclass(frozen=True)
class RestoreDecision:
    """What an attempt starts from, None for nothing, and what becomes of newer output.

    Checkpoints that were `passed_over` are newer and cannot be used.
    """

    point: RestorePoint | None
    newer_output: NewerOutput = NewerOutput.NONE
    passed_over: tuple[CheckpointRef, ...] = ()


def decide_restore(found: Iterable[Candidate], rules: RestoreRules) -> RestoreDecision:
    """Return the newest checkpoint that is whole; nothing when there is none at all.

    Going back behind a checkpoint whose output was committed writes that output again, so only the
    rules allow that.

    Raises:
        MissingFileError: a file is not there, which may be so for a moment only.
        CorruptStateError: the newest checkpoint is damaged, and so are all others, or its output
            was committed.
    """
    unusable: list[Candidate] = []
    for candidate in found:
        if candidate.missing and rules.patient:
            msg = (
                f"{_cannot_be_used(candidate)}. It was complete, so it may be a matter of time: "
                "is the storage mounted? The next restart looks again"
            )
            raise MissingFileError(msg)
        if candidate.point is None:
            unusable.append(candidate)
            continue
        newer = _newer_output(candidate.point, unusable, rules)
        if candidate.problems:
            log.warning(
                "checkpoint %s is restored with local copies: %s",
                candidate.ref.checkpoint_id,
                "; ".join(candidate.problems),
            )
        for problem in map(_cannot_be_used, unusable):
            log.warning("%s", problem)
        if unusable:
            log.warning(
                "falling back to checkpoint %s%s", candidate.ref.checkpoint_id, _THEN[newer]
            )
        return RestoreDecision(candidate.point, newer, tuple(c.ref for c in unusable))
    if unusable:
        problems = "; ".join(map(_cannot_be_used, unusable))
        msg = (
            f"no retained checkpoint can be used: {problems}. Bring the files back and start from "
            f"checkpoint {unusable[0].ref.checkpoint_id}, or start from a savepoint, behind which "
            "output that was committed since then is written again"
        )
        raise CorruptStateError(msg)
    return RestoreDecision(None)


_THEN = {
    NewerOutput.NONE: "",
    NewerOutput.STAYS: "; output committed since then is written again",
    NewerOutput.TAKEN_BACK: "; sinks take back what they committed since then",
}


def _newer_output(
    point: RestorePoint, unusable: Sequence[Candidate], rules: RestoreRules
) -> NewerOutput:
    if point.metadata.checkpoint_id >= rules.committed:
        return NewerOutput.NONE
    if rules.behind is BehindCommits.REPEAT:
        return NewerOutput.STAYS
    if rules.behind is BehindCommits.TAKE_BACK and not rules.cannot_take_back:
        return NewerOutput.TAKEN_BACK
    raise CorruptStateError(_committed_message(point, unusable, rules))


def _cannot_be_used(candidate: Candidate) -> str:
    number, problems = candidate.ref.checkpoint_id, "; ".join(candidate.problems)
    return f"checkpoint {number} cannot be used: {problems}"


def _committed_message(
    older: RestorePoint, unusable: Sequence[Candidate], rules: RestoreRules
) -> str:
    number = older.metadata.checkpoint_id
    known = "; ".join(map(_cannot_be_used, unusable))
    problems = known or f"checkpoint {rules.committed} is gone"
    run = f"'weir run -s {older.storage_uri.rstrip('/')}/{older.directory}"
    repeat, take_back = BehindCommits.REPEAT.value, BehindCommits.TAKE_BACK.value
    exact, automatic = f"not exactly once, because {_named(rules.cannot_take_back)}", f"{repeat!r}"
    if not rules.cannot_take_back:
        exact = (
            f"exactly once with {run} -D {BEHIND_COMMITS.key}={take_back} ...', which removes what "
            "the sinks committed since then"
        )
        automatic = f"{repeat!r} or {take_back!r}"
    return (
        f"{problems}. Output up to checkpoint {rules.committed} was committed, and going back to "
        f"checkpoint {number} would write a part of it again. Bring the files back and start from "
        f"checkpoint {rules.committed}, or start from checkpoint {number}: {exact}; at least once "
        f"with {run} ...'. Where {BEHIND_COMMITS.key} is {automatic}, a restart does that by itself"
    )


def _named(sinks: Iterable[str]) -> str:
    return f"{', '.join(map(repr, sinks))} cannot take back what was committed"


def cannot_take_back_message(sinks: Iterable[str]) -> str:
    """Say why newer output stays where it is, and what can be done."""
    return (
        f"{BEHIND_COMMITS.key} is '{BehindCommits.TAKE_BACK.value}', but {_named(sinks)}: use "
        f"'{BehindCommits.REPEAT.value}' for output at least once, or "
        f"'{BehindCommits.REFUSE.value}'"
    )


def commits_output(plan: JobPlan) -> bool:
    """Tell whether completed checkpoints of a program make anything visible outside of it."""
    return any(map(_commits, plan.operators))


def keep_what_they_commit(plan: JobPlan) -> tuple[str, ...]:
    """Return the names of operators that cannot take back what completed checkpoints committed."""
    return tuple(
        op.name
        for op in plan.operators
        if _commits(op) and not (isinstance(op.function, Sink) and op.function.can_take_back())
    )


def _commits(op: OperatorNode) -> bool:
    return op.kind in _COMMITTING or hasattr(op.function, "notify_checkpoint_complete")


def newer_of_job(point: RestorePoint, storage: Storage, options: StorageOptions) -> list[int]:
    """Return newer checkpoints of the job that took this one, newest first, as far as can be seen.

    Damaged ones count: once there is metadata, commits may have begun. Looks beside the checkpoint
    and on the given storage.

    Raises:
        StorageError: a storage does not answer.
    """
    facts = point.metadata
    folder, _, name = point.directory.rpartition("/")
    places = [(storage, facts.job_id)]
    if checkpoint_id_of(name) is not None:
        places.append((open_storage(point.storage_uri, options), folder))
    newer: set[int] = set()
    for there, directory in places:
        for child in there.list(directory):
            number = checkpoint_id_of(child)
            path = metadata_path(f"{directory}/{child}".lstrip("/"))
            if number is not None and number > facts.checkpoint_id and there.exists(path):
                newer.add(number)
    return sorted(newer, reverse=True)


def rebased(point: RestorePoint, job_id: str) -> RestorePoint:
    """Name the shared files of another job's checkpoint so that this job's may refer to them."""
    files = tuple(
        replace(file, path=rebase(point.directory, file.path, job_id))
        for file in point.metadata.files
    )
    return replace(point, metadata=replace(point.metadata, files=files))


def retained_checkpoint(
    storage: Storage, work_root: Path, job_name: str, job_id: str
) -> str | None:
    """Return where the newest complete checkpoint of an ended job of that name is, if any.

    Looks at jobs whose work directory is here: of others nobody can tell that they have ended.
    """
    newest: tuple[int, str] | None = None
    for job in storage.list():
        if job == job_id or not has_ended(work_root / job):
            continue
        try:
            found = list_completed(storage, job)[:1]
        except WeirError as error:
            log.debug("%s", error)
            continue
        for checkpoint in found:
            facts = checkpoint.metadata
            if facts.job_name == job_name and (newest is None or facts.timestamp_ms > newest[0]):
                newest = (facts.timestamp_ms, checkpoint.directory)
    return None if newest is None else f"{storage.uri}/{newest[1]}"


def remove_abandoned(point: RestorePoint, work_root: Path, options: StorageOptions) -> str | None:
    """Delete checkpoints that the restored job began and, having ended, will never complete.

    Returns that job's id when it has ended for certain, None when nothing was touched.
    """
    job = point.metadata.job_id
    storage = open_storage(point.storage_uri, options)
    folder = "" if storage.uri.rstrip("/").endswith(f"/{job}") else job
    job_dir = work_root / job
    if isinstance(storage, LocalStorage) and not job_dir.is_dir():
        job_dir = Path(storage.root) / folder
    if not has_ended(job_dir):
        return None
    try:
        for name in storage.list(folder):
            directory = f"{folder}/{name}".lstrip("/")
            abandoned = not storage.exists(metadata_path(directory))
            if checkpoint_id_of(name) is not None and abandoned:
                storage.delete_tree(directory)
    except StorageError as error:
        log.warning("remains of job %s stay: %s", job, error)
    return job
