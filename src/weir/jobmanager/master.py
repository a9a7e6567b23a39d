"""The JobMaster: everything about a job that does not depend on Spark.

Owns the gateway, the slots of the current attempt, the checkpoints and the restart strategy.
Callers come from several threads; the parts it is made of are thread-safe each for itself.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from weir.checkpoint.coordinator import CheckpointCoordinator
from weir.checkpoint.metadata import SourceLayout
from weir.checkpoint.restart import RestartAfter
from weir.checkpoint.retention import CheckpointRef, JobEnd
from weir.clock import Clock
from weir.errors import JobExecutionError, WeirError
from weir.graph.plan import JobPlan
from weir.ids import JobId
from weir.jobmanager import owner
from weir.jobmanager.background import Worker
from weir.jobmanager.checkpoints import CheckpointEvents, CheckpointRunner
from weir.jobmanager.claims import ClaimMode, decide_claim
from weir.jobmanager.cleanup import CheckpointFiles
from weir.jobmanager.failures import from_failure
from weir.jobmanager.gateway import Callbacks, Gateway, SlotCalls
from weir.jobmanager.history import RestoredEntry
from weir.jobmanager.recovery import (
    RestorePoint,
    adopt_max_parallelism,
    assignments,
    in_flight_sources,
    load_restore_point,
    newest_valid,
    rebased,
    refuse_lost_sources,
    remove_abandoned,
    retained_checkpoint,
)
from weir.jobmanager.registry import SlotEntry, SlotRegistry
from weir.jobmanager.settings import JobSettings
from weir.slot.messages import (
    Acknowledge,
    Assignment,
    Decline,
    InFlightSource,
    OperatorRestore,
    SlotFailure,
)
from weir.storage.base import Storage
from weir.storage.memory import MemoryStorage
from weir.storage.uri import open_storage

log = logging.getLogger("weir.jobmanager")


class JobDirectories(Protocol):
    """Where the job keeps things."""

    job_dir: Path
    log_dir: Path
    socket_dir: Path

    @property
    def storage_uri(self) -> str:
        """Return the URI of the checkpoint storage."""

    @property
    def spool(self) -> Path:
        """Return where Python data is spooled."""

    def remove_job_dir(self) -> None:
        """Delete what a job that ended well leaves."""

    def remove_sockets(self) -> None:
        """Delete the socket directory."""


class JobMaster(Callbacks):
    """Supervises one job."""

    def __init__(
        self,
        job_id: JobId,
        plan: JobPlan,
        settings: JobSettings,
        directories: JobDirectories,
        clock: Clock,
    ) -> None:
        """Load what is to be restored; nothing runs yet.

        Raises:
            UsageError, CorruptStateError, IncompatibleStateError: the restore cannot work.
        """
        self.job_id = job_id
        self.plan = plan
        self.settings = settings
        self.directories = directories
        self.clock = clock
        self.token = secrets.token_bytes(32)
        self.registry = SlotRegistry(clock)
        self.calls = SlotCalls(self.registry, self.token)
        self.on_completed: Callable[[CheckpointRef, int], None] = lambda ref, epoch: None
        self.on_staged: Callable[[int, list[tuple[str, list[bytes]]]], None] = lambda n, s: None
        self.initial: RestorePoint | None = None
        if settings.recovery_path:
            self.initial = load_restore_point(settings.recovery_path, settings.storage)
            adopt_max_parallelism(plan, self.initial, settings.allow_non_restored)
            refuse_lost_sources(plan, self.initial, settings.allow_non_restored)
        self._ended_job = self._take_over()
        self.storage = self._open_storage()
        if self.initial is None:
            self._offer_resume()
        self._claim = decide_claim(
            settings.claim_mode, self.initial, self.storage, settings.storage
        )
        self.initial = self._claim.point
        self.checkpoints = self._runner()
        self.reports: dict[tuple[int, int], dict[str, Any]] = {}
        self._epochs: dict[int, int] = {}
        self._failures_ms: list[int] = []
        self._failed = threading.Event()
        self._message: str | None = None
        self._restore: RestorePoint | None = self.initial
        self._slots_restore: list[list[OperatorRestore]] = []
        self._plan_bytes = b""

    def _open_storage(self) -> Storage:
        """Return where checkpoints are: the checkpoint directory, or this process's memory."""
        if self.settings.state_files.in_memory and self.settings.checkpoint_dir is None:
            return MemoryStorage()
        return open_storage(self.directories.storage_uri, self.settings.storage)

    def _runner(self) -> CheckpointRunner:
        claim, settings = self._claim, self.settings.checkpoint
        coordinator = CheckpointCoordinator(
            settings,
            self.job_id,
            next_checkpoint_id=self.initial.metadata.checkpoint_id + 1 if self.initial else 1,
            completed=() if claim.owned is None else (claim.owned,),
        )
        runner = CheckpointRunner(
            coordinator,
            CheckpointFiles(self.storage, self.job_id, claim, self.settings.storage),
            self.calls,
            self.plan,
            self.clock,
            CheckpointEvents(self._completed, self.fail, self._staged, self._overtook),
        )
        runner.background = Worker("weir-checkpoints")
        return runner

    def use(self, plan: JobPlan) -> None:
        """Go on with another plan of the same program, from the next attempt on."""
        self.plan = plan
        self.checkpoints.plan = plan

    def needs_initial(self) -> bool:
        """Tell whether what the job started from may still be needed."""
        if self.initial is None:
            return False
        own = any(
            ref.checkpoint_id > self.initial.metadata.checkpoint_id
            for ref in self.checkpoints.coordinator.completed
        )
        return not own or self.settings.claim_mode is not ClaimMode.NO_CLAIM

    def _take_over(self) -> str | None:
        """Return the job that the restored state is of, if it has ended for certain.

        Its checkpoints that were never completed go: nobody else would ever delete them.
        """
        if self.initial is None:
            return None
        work_root = self.directories.job_dir.parent
        job = remove_abandoned(self.initial, work_root, self.settings.storage)
        facts = self.initial.metadata
        # Who moved a savepoint here may have left the job's own directory anywhere, or nowhere.
        if job is None and facts.kind == "checkpoint":
            log.warning("job %s may still be running: its remains are left alone", facts.job_id)
        return job

    def _offer_resume(self) -> None:
        """Point at a checkpoint that an earlier run of this program left behind."""
        work_root = self.directories.job_dir.parent
        found = retained_checkpoint(self.storage, work_root, self.plan.job_name, self.job_id)
        if found is not None:
            log.warning(
                "an earlier run of %r left checkpoint %s; to resume from it, set "
                "execution.state-recovery.path to that directory (this run starts empty)",
                self.plan.job_name,
                found,
            )

    def open(self, *, local: bool, uids: list[str]) -> None:
        """Start the gateway and name the sources."""
        self.layout = tuple(SourceLayout(uid, i) for i, uid in enumerate(uids))
        owner.claim(self.directories.job_dir, self.plan.job_name)
        self.directories.socket_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.local = local
        self.host = "localhost" if local else driver_host()
        if local:
            self.location = f"grpc+unix://{self.directories.socket_dir}/jm"
        else:
            self.location = f"grpc://{self.host}:0"
        self.gateway = Gateway(self.location, self.token, self.registry, self)
        if not local:
            self.location = f"grpc://{self.host}:{self.gateway.port}"

    def begin_attempt(self, attempt: int, plan_bytes: bytes) -> RestorePoint | None:
        """Fence the attempt before, choose the checkpoint to start from, return it."""
        self.reports.clear()  # first: reports seen beside the new number must be its own
        old = self.registry.begin_attempt(attempt)
        # Gone before the new ones start: what they still write would escape the clean-up.
        self._dismiss(old, "a newer execution attempt begins")
        self.checkpoints.failover(attempt)
        self._plan_bytes = plan_bytes
        self._restore = self._choose()
        self._slots_restore = []
        if self._restore is not None:
            self._restore = rebased(self._restore, self.job_id)
            allow = self.settings.allow_non_restored
            self._slots_restore = assignments(self.plan, self._restore, allow)
            self._note_restored(self._restore)
        self._message = None
        self._failed.clear()
        self.checkpoints.start_periodic()
        return self._restore

    def _note_restored(self, point: RestorePoint) -> None:
        facts = point.metadata
        place = f"{point.storage_uri}/{point.directory}"
        self.checkpoints.history.restored(
            RestoredEntry(
                facts.checkpoint_id, self.clock.now_ms(), facts.kind == "savepoint", place
            )
        )

    def _choose(self) -> RestorePoint | None:
        refs = self.checkpoints.coordinator.completed
        options = self.settings.storage
        point, problems = newest_valid(self.storage, self.storage.uri, refs, options)
        for problem in problems:
            log.warning("%s", problem)
        if point is not None:
            if problems:
                log.warning("falling back to checkpoint %s", point.metadata.checkpoint_id)
            return point
        if refs:
            msg = f"no retained checkpoint can be used: {'; '.join(problems)}"
            raise JobExecutionError(msg)
        return self.initial

    def lineage(self) -> list[str]:
        """Return the ids of ended jobs that this job's state descends from."""
        return [] if self._ended_job is None else [self._ended_job]

    def assignment(self, subtask: int) -> Assignment:
        """Return the work of a slot."""
        restore, files = self._restore, self.settings.state_files
        return Assignment(
            job_id=self.job_id,
            job_name=self.plan.job_name,
            plan=self._plan_bytes,
            storage_uri=self.storage.uri,
            job_dir=str(self.directories.job_dir),
            backend=self.settings.backend,
            lineage=self.lineage(),
            heartbeat_ms=self.settings.heartbeat_ms,
            lease_ms=self.settings.lease_ms,
            checkpoint_id=None if restore is None else restore.metadata.checkpoint_id,
            restore_uri="" if restore is None else restore.storage_uri,
            restore_directory="" if restore is None else restore.directory,
            restore=self._slots_restore[subtask] if self._slots_restore else [],
            job_parameters=self.settings.job_parameters,
            inline_bytes=files.inline_bytes,
            compress=files.compress,
            in_memory=files.in_memory,
            reusable=restore is not None and self._claim.may_refer_to(restore),
            storage=self.settings.storage,
            in_flight=self._in_flight(),
            allow_non_restored=self.settings.allow_non_restored,
        )

    def acknowledge(self, message: Acknowledge) -> None:
        """Take a slot's acknowledgement."""
        self.checkpoints.acknowledge(message)

    def decline(self, message: Decline) -> None:
        """Take a slot's refusal."""
        self.checkpoints.decline(message)

    def failed(self, message: SlotFailure) -> None:
        """Take a slot's failure: the attempt is over."""
        self._failed.set()

    def staged(self, staged: list[tuple[str, list[bytes]]]) -> None:
        """Commit what a restored slot hands over, under the id of the restored checkpoint."""
        if self._restore is not None:
            self.on_staged(self._restore.metadata.checkpoint_id, staged)

    def fail(self, message: str) -> None:
        """End the attempt with a message."""
        if self._message is None:
            self._message = message
        self._failed.set()

    @property
    def attempt_failed(self) -> bool:
        """Tell whether the current attempt is known to have failed."""
        silent = self.registry.silent(self.settings.lease_ms)
        if silent and not self._failed.is_set():
            self.fail(f"slot {silent[0].subtask} has not been heard of (log: {silent[0].log_file})")
        return self._failed.is_set()

    def failure(self) -> WeirError | None:
        """Return why the attempt failed, when slots or checkpoints know."""
        failure = self.registry.failure
        if failure is not None:
            logs = {s.subtask: s.log_file for s in self.registry.all()}
            return from_failure(failure, logs.get(failure.subtask, ""))
        if self._message is not None:
            return JobExecutionError(self._message)
        return None

    def restart_delay(self, error: BaseException) -> int | None:
        """Ask the restart strategy; None means that the job fails for good."""
        self._failures_ms.append(self.clock.monotonic_ms())
        chance = int.from_bytes(os.urandom(4), "little") / 0xFFFFFFFF
        decision = self.settings.restart.next_delay(self._failures_ms, chance)
        return decision.delay_ms if isinstance(decision, RestartAfter) else None

    def note_epoch(self, epoch: int, checkpoint_id: int | None) -> None:
        """Remember which epoch a checkpoint closes."""
        if checkpoint_id is not None:
            self._epochs[checkpoint_id] = epoch

    def take_reports(self, reports: list[dict[str, Any]]) -> None:
        """Keep the newest report of every subtask."""
        for report in reports:
            self.reports[(report["level"], report["subtask"])] = report

    def progress(self) -> dict[str, Any]:
        """Return figures of now: attempt, epoch, records and state entries, slots, checkpoints."""
        reports = list(self.reports.values())
        records: dict[str, int] = {}
        for report in reports:
            for index, count in report["in"].items():
                op = self.plan.operators[index]
                records[op.uid or op.id] = records.get(op.uid or op.id, 0) + count
        past = self.checkpoints.history.view()
        last = past.latest("COMPLETED")
        return {
            "attempt": self.registry.attempt,
            "epoch": max((r["epoch"] for r in reports), default=None),
            "restored_epoch": self._restore.metadata.epoch if self._restore else 0,
            "records_in": records,
            "state_entries": sum(r["entries"] for r in reports),
            "slots": [{"subtask": s.subtask, "pid": s.pid} for s in self.registry.ready()],
            "checkpoints": {
                "completed": past.completed,
                "failed": past.failed,
                "last_bytes": 0 if last is None else last.size,
                "last_duration_ms": 0 if last is None else last.duration_ms,
            },
        }

    def next_timer_ms(self) -> int | None:
        """Return when the next processing-time timer of any slot is due."""
        timers = [r["next_timer"] for r in self.reports.values() if r["next_timer"] is not None]
        return min(timers, default=None)

    def _in_flight(self) -> list[InFlightSource]:
        return in_flight_sources(self._restore, self.settings.without_rows_of)

    @property
    def has_rows_in_flight(self) -> bool:
        """Tell whether the attempt begins with rows that the restored barrier overtook."""
        return bool(self._in_flight())

    def _overtook(self, checkpoint_id: int) -> None:
        # Results of the epoch come again after a restore: they must not be shown by this one.
        if checkpoint_id in self._epochs:
            self._epochs[checkpoint_id] -= 1

    def _completed(self, ref: CheckpointRef) -> None:
        epoch = self._epochs.pop(ref.checkpoint_id, 0)
        self.on_completed(ref, epoch)

    def _staged(self, checkpoint_id: int, staged: list[tuple[str, list[bytes]]]) -> None:
        try:
            self.on_staged(checkpoint_id, staged)
        except Exception as error:
            self.fail(f"committing checkpoint {checkpoint_id} on the driver failed: {error}")

    def end_slots(self, reason: str) -> None:
        """Let all slots leave and see them gone; those that linger on this host are killed."""
        self._dismiss(self.registry.close(), reason)

    def _dismiss(self, slots: list[SlotEntry], reason: str) -> None:
        self.calls.leave(slots, reason)
        mark = str(self.directories.socket_dir)
        for slot in slots:
            if slot.pid is not None and slot.host == self.host:
                _await_end(slot.pid, mark, self.clock)

    def close(self, end: JobEnd) -> None:
        """End the job: slots leave, checkpoints are kept or deleted as retention says."""
        self.end_slots("the job ended")
        self.checkpoints.end(end)
        self.checkpoints.background.close()
        self.gateway.shutdown()
        self.directories.remove_sockets()
        owner.release(self.directories.job_dir)
        if end is not JobEnd.SUSPENDED:
            self.directories.remove_job_dir()


def driver_host() -> str:
    """Return an address of this host that others reach."""
    return os.environ.get("SPARK_LOCAL_IP") or socket.gethostbyname(socket.gethostname())


def _await_end(pid: int, mark: str, clock: Clock) -> None:
    """Wait for one of our slots to end; kill it when it does not."""
    waiter = threading.Event()
    deadline = clock.monotonic_ms() + 5000
    while _is_slot(pid, mark) and clock.monotonic_ms() < deadline:
        waiter.wait(0.02)
    if _is_slot(pid, mark):
        log.warning("slot process %s did not leave and is killed", pid)
        os.kill(pid, signal.SIGKILL)


def _is_slot(pid: int, mark: str) -> bool:
    """Tell whether a pid is alive and a slot of this job, not a process that reused the number."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return False
    return "weir.slot.main" in command and mark in command
