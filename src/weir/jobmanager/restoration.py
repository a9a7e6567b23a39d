"""What the attempts of a job start from: the state before the job, then its own checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weir.checkpoint.coordinator import CheckpointCoordinator
from weir.checkpoint.held import HeldCheckpoints
from weir.checkpoint.paths import is_uri, metadata_path
from weir.checkpoint.retention import CheckpointRef
from weir.clock import Clock
from weir.connector.sink import NewerOutput
from weir.graph.plan import JobPlan
from weir.graph.transformation import StreamGraph
from weir.ids import JobId
from weir.jobmanager.assignments import assignments, in_flight_sources, partition_watermarks
from weir.jobmanager.background import Background
from weir.jobmanager.checkpoints import CheckpointEvents, CheckpointRunner, CommittingSlots
from weir.jobmanager.claims import Claim, ClaimMode
from weir.jobmanager.cleanup import CheckpointFiles
from weir.jobmanager.foreign_state import refuse_foreign
from weir.jobmanager.history import RestoredEntry
from weir.jobmanager.recovery import (
    RestoreDecision,
    RestorePoint,
    RestoreRules,
    candidates,
    commits_output,
    decide_restore,
    keep_what_they_commit,
    rebased,
)
from weir.jobmanager.settings import JobSettings
from weir.jobmanager.stand_ins import StandIns
from weir.slot.messages import Assignment, InFlightSource, OperatorRestore
from weir.storage.base import MissingFileError, Storage

log = logging.getLogger("weir.recovery")


@dataclass(frozen=True)
class JobSpec:
    """What does not change in the life of a job, but for the plan, which a rescaling replaces.

    `graph` is the program that `plan` was compiled from, with its sources.
    `claim` is what the job starts from. `lineage` are the ended jobs that its state descends from.
    `configuration` is what people are shown, `origins` where it was set. With `one_host` all slots
    run on the driver's host.
    """

    job_id: JobId
    plan: JobPlan
    settings: JobSettings
    storage: Storage
    graph: StreamGraph
    claim: Claim = field(default_factory=Claim)
    lineage: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    one_host: bool = True


class Restoration:
    """What the current attempt was restored from; `point` is None when it started empty.

    `held` are checkpoints that somebody reads meanwhile.
    """

    def __init__(self, spec: JobSpec, clock: Clock) -> None:
        self.point: RestorePoint | None = spec.claim.point
        self.held = HeldCheckpoints(clock)
        self.stand_ins = StandIns(spec.settings.local, one_host=spec.one_host)
        self._spec = spec
        self._clock = clock
        self._slots: list[list[OperatorRestore]] = []
        self._newer_output = NewerOutput.NONE
        self._missing_since_ms: int | None = None
        self._given_up: set[int] = set()

    def runner(
        self, slots: CommittingSlots, events: CheckpointEvents, background: Background
    ) -> CheckpointRunner:
        """Return what takes the job's checkpoints, numbered behind the one it starts from."""
        spec, claim = self._spec, self._spec.claim
        coordinator = CheckpointCoordinator(
            spec.settings.checkpoint,
            spec.job_id,
            next_checkpoint_id=claim.point.metadata.checkpoint_id + 1 if claim.point else 1,
            completed=() if claim.owned is None else (claim.owned,),
        )
        files = CheckpointFiles(
            spec.storage,
            spec.job_id,
            claim,
            spec.settings.storage,
            completed=self.stand_ins.keep,
            held=self.held,
        )
        return CheckpointRunner(
            coordinator, files, slots, self._clock, events=events, background=background
        )

    def choose(
        self, plan: JobPlan, refs: Sequence[CheckpointRef], commits_begun: int
    ) -> RestorePoint | None:
        """Choose what the next attempt starts from, and deal it out to its slots.

        Raises:
            UsageError: another user could have written it.
            CorruptStateError, IncompatibleStateError, StorageError: it cannot be used.
        """
        spec, settings = self._spec, self._spec.settings
        usable = [ref for ref in refs if ref.checkpoint_id not in self._given_up]
        decision = self._decide(usable, self._rules(plan, commits_begun))
        point = spec.claim.point if decision.point is None else decision.point
        if point is not None:
            refuse_foreign(point, settings)
        if decision.newer_output is NewerOutput.TAKEN_BACK:
            self._give_up(decision.passed_over)
        self._newer_output = decision.newer_output
        if self._is_start(point) and decision.newer_output is NewerOutput.NONE:
            self._newer_output = spec.claim.newer_output
        slots: list[list[OperatorRestore]] = []
        if point is not None:
            point = rebased(point, spec.job_id)
            slots = assignments(plan, point, settings.allow_non_restored)
        self.point, self._slots = point, slots
        return point

    def _rules(self, plan: JobPlan, commits_begun: int) -> RestoreRules:
        settings, since = self._spec.settings, self._missing_since_ms
        waited = 0 if since is None else self._clock.monotonic_ms() - since
        return RestoreRules(
            committed=commits_begun if commits_output(plan) else 0,
            behind=settings.behind_commits,
            cannot_take_back=keep_what_they_commit(plan),
            patient=waited < settings.missing_files_ms,
        )

    def _decide(self, refs: Sequence[CheckpointRef], rules: RestoreRules) -> RestoreDecision:
        spec, copies = self._spec, self.stand_ins if self.stand_ins.wanted else None
        found = candidates(spec.storage, refs, spec.settings.storage, copies)
        try:
            decision = decide_restore(found, rules)
        except MissingFileError:
            if self._missing_since_ms is None:
                self._missing_since_ms = self._clock.monotonic_ms()
            raise
        self._missing_since_ms = None
        return decision

    def failed(self, error: BaseException) -> None:
        """Learn why the current attempt failed."""
        if self.point is not None:
            self.stand_ins.failed(error, self.point.metadata.checkpoint_id)

    def _give_up(self, refs: Sequence[CheckpointRef]) -> None:
        """Make sure that nobody restores checkpoints whose output is going to be taken back.

        Raises:
            StorageError: a storage does not let that happen.
        """
        for ref in refs:
            self._given_up.add(ref.checkpoint_id)
            if is_uri(ref.directory):
                log.warning("never start from %s: its output is taken back", ref.directory)
            else:
                self._spec.storage.delete(metadata_path(ref.directory))

    def _is_start(self, point: RestorePoint | None) -> bool:
        start = self._spec.claim.point
        return point is not None and start is not None and point.metadata == start.metadata

    @property
    def epoch(self) -> int:
        """The last epoch whose records are in the restored state."""
        return 0 if self.point is None else self.point.metadata.epoch

    @property
    def has_rows_in_flight(self) -> bool:
        """Tell whether the attempt begins with rows that the restored barrier overtook."""
        return bool(self._in_flight())

    def _in_flight(self) -> list[InFlightSource]:
        return in_flight_sources(self.point, self._spec.settings.without_rows_of)

    def still_needed(self, completed: Sequence[CheckpointRef]) -> tuple[str, ...]:
        """Return the checkpoint or savepoint before this job that it may still need."""
        initial = self._spec.claim.point
        if initial is None:
            return ()
        own = any(ref.checkpoint_id > initial.metadata.checkpoint_id for ref in completed)
        if own and self._spec.settings.claim_mode is ClaimMode.NO_CLAIM:
            return ()
        return (f"{initial.storage_uri}/{initial.directory}",)

    def assignment(self, subtask: int, plan: JobPlan, plan_bytes: bytes) -> Assignment:
        """Return the work of a slot."""
        spec, settings, point = self._spec, self._spec.settings, self.point
        return Assignment(
            job_id=spec.job_id,
            job_name=plan.job_name,
            plan=plan_bytes,
            storage_uri=spec.storage.uri,
            backend=settings.backend,
            lineage=list(spec.lineage),
            heartbeat_ms=settings.heartbeat_ms,
            lease_ms=settings.lease_ms,
            checkpoint_id=None if point is None else point.metadata.checkpoint_id,
            restore_uri="" if point is None else point.storage_uri,
            restore_directory="" if point is None else point.directory,
            restore=self._slots[subtask] if self._slots else [],
            job_parameters=settings.job_parameters,
            inline_bytes=settings.state_files.inline_bytes,
            compress=settings.state_files.compress,
            in_memory=settings.state_files.in_memory,
            # What is damaged would be missed by every checkpoint that refers to it.
            reusable=point is not None and not point.damaged and spec.claim.may_refer_to(point),
            storage=settings.storage,
            in_flight=self._in_flight(),
            allow_non_restored=settings.allow_non_restored,
            newer_output=self._newer_output,
            from_savepoint=point is not None and point.metadata.kind == "savepoint",
            memory=settings.memory,
            copies=self.stand_ins.place,
            damaged=[] if point is None else list(point.damaged),
            partitions=[] if point is None else partition_watermarks(point),
            queryable=settings.queryable,
        )


def restored_entry(point: RestorePoint, now_ms: int) -> RestoredEntry:
    """Return what the history of checkpoints says about a restore."""
    facts = point.metadata
    place = f"{point.storage_uri}/{point.directory}"
    return RestoredEntry(facts.checkpoint_id, now_ms, facts.kind == "savepoint", place)
