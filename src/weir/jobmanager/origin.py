"""What a job starts from: a checkpoint or savepoint that the user named, or nothing."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from weir.config.execution import BEHIND_COMMITS
from weir.connector.sink import NewerOutput
from weir.errors import CorruptStateError, UsageError
from weir.graph.plan import JobPlan
from weir.ids import JobId
from weir.jobmanager.assignments import adopt_max_parallelism, refuse_lost_sources
from weir.jobmanager.claims import Claim, decide_claim
from weir.jobmanager.foreign_state import refuse_foreign
from weir.jobmanager.recovery import (
    BehindCommits,
    RestorePoint,
    cannot_take_back_message,
    commits_output,
    keep_what_they_commit,
    load_restore_point,
    newer_of_job,
    remove_abandoned,
    retained_checkpoint,
)
from weir.jobmanager.settings import JobSettings
from weir.storage.base import Storage

log = logging.getLogger("weir.recovery")


@dataclass(frozen=True)
class Origin:
    """Where a job's state comes from; `lineage` are the ended jobs that it descends from."""

    claim: Claim
    lineage: tuple[str, ...] = ()


def start_from(
    point: RestorePoint | None, plan: JobPlan, settings: JobSettings, storage: Storage
) -> Claim:
    """Let a plan begin with restored state; it gets the max parallelisms of that state.

    Raises:
        UsageError: newer output of the job before cannot be taken back, or need not be.
        IncompatibleStateError: the program does not fit the state.
    """
    if point is None:
        return Claim()
    adopt_max_parallelism(plan, point, settings.allow_non_restored)
    refuse_lost_sources(plan, point, settings.allow_non_restored)
    claim = decide_claim(settings.claim_mode, point, storage, settings.storage)
    return replace(claim, newer_output=_newer_output(point, plan, settings, storage))


def _newer_output(
    point: RestorePoint, plan: JobPlan, settings: JobSettings, storage: Storage
) -> NewerOutput:
    """Decide what becomes of what the job before committed after the checkpoint.

    Who names a checkpoint has chosen to go back to it, so nothing is refused. Committed output is
    taken back for checkpoints only: a savepoint may be the beginning of another branch.

    Raises:
        UsageError: output cannot be taken back, or need not be.
    """
    facts, newer = point.metadata, newer_of_job(point, storage, settings.storage)
    is_behind = bool(newer) and commits_output(plan)
    cannot = keep_what_they_commit(plan)
    if settings.behind_commits is BehindCommits.TAKE_BACK and facts.kind == "checkpoint":
        if is_behind and cannot:
            raise UsageError(cannot_take_back_message(cannot))
        if is_behind:
            _refuse_if_whole(point, newer, settings)
        # Also if nothing newer is seen: a job that did the same may have died in the middle of it.
        return NewerOutput.NONE if cannot else NewerOutput.TAKEN_BACK
    if not is_behind:
        return NewerOutput.NONE
    log.warning(
        "%s %s is not the newest of job %s, which went on to checkpoint %s: output that it "
        "committed since then is written again",
        facts.kind,
        facts.checkpoint_id,
        facts.job_id,
        newer[0],
    )
    return NewerOutput.STAYS


def _refuse_if_whole(point: RestorePoint, newer: list[int], settings: JobSettings) -> None:
    older = point.metadata.checkpoint_id
    place = f"{point.storage_uri}/{point.directory.rpartition('/')[0]}".rstrip("/")
    for number in newer:
        try:
            load_restore_point(f"{place}/chk-{number}", settings.storage)
        except (UsageError, CorruptStateError):
            continue
        msg = (
            f"checkpoint {number} in {place!r} is newer than checkpoint {older} and whole, so its "
            f"output is not taken back: start from it, or delete {place + f'/chk-{number}'!r} first"
        )
        raise UsageError(msg)


def find_origin(
    job_id: JobId, plan: JobPlan, settings: JobSettings, storage: Storage, work_root: Path
) -> Origin:
    """Load what the settings say; `work_root` holds the working directories of other jobs.

    Raises:
        UsageError, CorruptStateError, IncompatibleStateError: the restore cannot work.
    """
    cannot = keep_what_they_commit(plan)
    if settings.behind_commits is BehindCommits.TAKE_BACK and cannot:
        log.warning("%s", cannot_take_back_message(cannot))
    if not settings.recovery_path:
        _offer_resume(job_id, plan, storage, work_root)
        return Origin(Claim())
    point = load_restore_point(settings.recovery_path, settings.storage)
    refuse_foreign(point, settings)
    claim = start_from(point, plan, settings, storage)
    ended = remove_abandoned(point, work_root, settings.storage)
    # Who moved a savepoint here may have left the job's own directory anywhere, or nowhere.
    if ended is None and point.metadata.kind == "checkpoint":
        if claim.newer_output is NewerOutput.TAKEN_BACK:
            _refuse_if_newer(point, newer_of_job(point, storage, settings.storage))
        log.warning(
            "job %s may still be running: its remains are left alone", point.metadata.job_id
        )
    return Origin(claim, () if ended is None else (ended,))


def _refuse_if_newer(point: RestorePoint, newer: list[int]) -> None:
    """Refuse to take output of a job back that may be writing more of it."""
    if newer:
        msg = (
            f"job {point.metadata.job_id} may still be running, as far as can be told from here, "
            f"so what it committed up to checkpoint {newer[0]} is not taken back: start from "
            f"checkpoint {point.metadata.checkpoint_id} on the host where that job ran, or set "
            f"{BEHIND_COMMITS.key} to '{BehindCommits.REPEAT.value}' for output at least once"
        )
        raise UsageError(msg)


def _offer_resume(job_id: JobId, plan: JobPlan, storage: Storage, work_root: Path) -> None:
    """Point at a checkpoint that an earlier run of this program left behind."""
    found = retained_checkpoint(storage, work_root, plan.job_name, job_id)
    if found is not None:
        log.warning(
            "an earlier run of %r left checkpoint %s; to resume from it, set "
            "execution.state-recovery.path to that directory (this run starts empty)",
            plan.job_name,
            found,
        )
