"""What people can see and ask of a job while it runs: its `JobHandle`.

Nothing here runs epochs: requests are handed to the checkpoint runner and to the supervisor, and
the caller gets a future.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from weir.checkpoint.paths import new_savepoint_dir, split_location
from weir.checkpoint.rescale import check_parallelism
from weir.checkpoint.retention import CheckpointRef
from weir.errors import JobExecutionError, StorageError, UsageError, WeirError
from weir.graph.plan import JobPlan, OperatorNode, compile_plan
from weir.jobmanager.backlog import Backlog, EngineWatch
from weir.jobmanager.history import HistoryView
from weir.jobmanager.job_states import Rescale, Stop
from weir.jobmanager.logs import LogFile, slot_logs
from weir.jobmanager.operations import (
    JobView,
    SavepointFormat,
    SlotView,
    SubtaskView,
    VertexView,
)
from weir.jobmanager.queries import JobQueries
from weir.jobmanager.supervisor import Supervisor
from weir.jobmanager.timeline import Observation, SlotObservation, Timeline, TimelineView
from weir.runtime.metrics import operator_metrics
from weir.runtime.report import SubtaskReport
from weir.slot.stacks import Stack
from weir.storage.base import Storage
from weir.storage.memory import MemoryStorage
from weir.storage.uri import open_storage

T = TypeVar("T")
log = logging.getLogger("weir.job")
_MKDIR_ATTEMPTS = 10


class JobControl:
    """One job, from any thread; see `weir.jobmanager.operations.JobHandle`."""

    def __init__(self, job: Supervisor, watch: EngineWatch | None = None) -> None:
        """Speak for a job; `watch` is its engine, if that has anything to tell."""
        self._job = job
        self._watch = watch
        self.job_id: str = job.spec.job_id
        self._timeline = Timeline()
        self._observing = threading.Lock()
        self.queries: JobQueries | None = None

    def history(self) -> HistoryView:
        """Return what is known about its checkpoints."""
        return self._job.checkpoints.history.view()

    def savepoint(
        self, directory: str | None = None, form: SavepointFormat = "CANONICAL"
    ) -> Future[str]:
        """Take a savepoint below a directory (None: the default one); gives its path."""
        return _promised(lambda: self._savepoint(directory, form))

    def _savepoint(self, directory: str | None, form: SavepointFormat) -> Future[str]:
        self._refuse_ended()
        self._refuse_batch("a savepoint")

        def take(target: str) -> Future[str]:
            asked = self._job.checkpoints.savepoint(target, native=form == "NATIVE")
            return _then(asked, lambda ref: ref.directory)

        return self._at_new_place(directory, take)

    def stop(
        self,
        directory: str | None = None,
        *,
        drain: bool = False,
        form: SavepointFormat = "CANONICAL",
    ) -> Future[str]:
        """Take a savepoint and finish the job with it; gives its path."""

        def ask() -> Future[str]:
            self._refuse_ended()
            self._refuse_batch("a stop with a savepoint")
            native = form == "NATIVE"
            return self._at_new_place(
                directory, lambda target: self._job.ask(Stop(target, native=native, drain=drain))
            )

        return _promised(ask)

    def cancel_with_savepoint(
        self, directory: str | None = None, form: SavepointFormat = "CANONICAL"
    ) -> Future[str]:
        """Take a savepoint, then cancel the job; without one the job goes on."""
        taken = self.savepoint(directory, form)
        ended: Future[str] = Future()

        def cancel(done: Future[str]) -> None:
            error = done.exception()
            if error is not None:
                ended.set_exception(error)
                return
            self.cancel().add_done_callback(lambda _: ended.set_result(done.result()))

        taken.add_done_callback(cancel)
        return ended

    def checkpoint(self, *, full: bool = False) -> Future[int]:
        """Take a checkpoint now; gives its id."""

        def ask() -> Future[int]:
            self._refuse_ended()
            self._refuse_batch("a checkpoint")
            asked = self._job.checkpoints.checkpoint(full=full)
            return _then(asked, _number)

        return _promised(ask)

    def cancel(self) -> Future[None]:
        """Cancel the job; completes when it has ended."""
        told: Future[None] = Future()
        self._job.cancel()
        self._job.ended.add_done_callback(lambda _: told.set_result(None))
        return told

    def rescale(self, parallelism: int) -> Future[int]:
        """Go on with another parallelism; if that fails, the job goes on as it was."""

        def ask() -> Future[int]:
            self._refuse_ended()
            self._refuse_batch("another parallelism")
            check_parallelism(parallelism)
            return self._job.ask(Rescale(self._plan(parallelism), parallelism))

        return _promised(ask)

    def _plan(self, parallelism: int) -> JobPlan:
        """Compile the program anew; the number of key groups stays what it is."""
        job = self._job
        graph = replace(job.spec.graph, parallelism=parallelism)
        before = {op.id: op.max_parallelism for op in job.plan.operators}
        plan = job.adopt(compile_plan(graph, parallelism))
        for op in plan.operators:
            if op.parallelism > before[op.id]:
                msg = (
                    f"operator '{op.name}' cannot have {op.parallelism} subtasks: its max "
                    f"parallelism is {before[op.id]}, and that is fixed once there is state"
                )
                raise UsageError(msg)
            op.max_parallelism = before[op.id]
            for edge in plan.inputs_of(op.index):
                edge.max_parallelism = before[op.id]
        return plan

    def _at_new_place(
        self, directory: str | None, take: Callable[[str], Future[str]]
    ) -> Future[str]:
        """Let a savepoint be taken in a new directory, which goes if nothing comes of it."""
        target = self._target(directory)
        try:
            taken = take(target)
        except WeirError:
            self._remove_empty(target)
            raise
        taken.add_done_callback(
            lambda done: self._remove_empty(target) if done.exception() is not None else None
        )
        return taken

    def _remove_empty(self, target: str) -> None:
        uri, name = split_location(target)
        try:
            storage = self._storage(uri)
            if not storage.list(name):
                storage.delete_tree(name)
        except StorageError as error:
            log.warning("the empty directory of a savepoint that was not taken stays: %s", error)

    def _target(self, directory: str | None) -> str:
        """Return the URI of a new savepoint directory that can be written.

        Raises:
            UsageError: no directory is known, or it is no place for savepoints.
            StorageError: it cannot be written.
        """
        chosen = directory or self._job.settings.savepoint_dir
        if not chosen:
            msg = (
                "No savepoint location given and no default location configured: name a target "
                "directory, or set execution.checkpointing.savepoint-dir"
            )
            raise UsageError(msg)
        storage = self._storage(chosen)
        if isinstance(storage, MemoryStorage):
            msg = f"savepoint directory {chosen!r} is the memory of one process: name a path"
            raise UsageError(msg)
        for _ in range(_MKDIR_ATTEMPTS):
            name = new_savepoint_dir(self._job.spec.job_id)
            if not storage.list(name):
                # What cannot be written is found out before the job does anything for it.
                storage.create(f"{name}/probe", b"")
                storage.delete(f"{name}/probe")
                return f"{storage.uri.rstrip('/')}/{name}"
        msg = f"no new directory could be made below {chosen!r}"
        raise JobExecutionError(msg)

    def _storage(self, uri: str) -> Storage:
        return open_storage(uri, self._job.settings.storage)

    def _refuse_ended(self) -> None:
        if self._job.ended.done():
            msg = f"job {self.job_id} has ended ({self._job.job.status.name})"
            raise UsageError(msg)

    def _refuse_batch(self, what: str) -> None:
        if self._job.plan.batch:
            msg = (
                f"job {self.job_id} runs in BATCH mode, which has no checkpoints: {what} needs "
                "execution.runtime-mode STREAMING; such a job can be cancelled"
            )
            raise UsageError(msg)

    def view(self) -> JobView:
        """Return how the job is now."""
        job, settings, plan = self._job, self._job.settings, self._job.plan
        reports = job.reports.all()
        states = self.history().states()
        return JobView(
            job_id=self.job_id,
            name=plan.job_name,
            status=job.job.status.name,
            start_ms=job.started_ms,
            now_ms=job.clock.now_ms(),
            end_ms=job.ended_ms,
            attempt=max(job.network.registry.attempt, 0),
            parallelism=plan.slots,
            max_parallelism=max(op.max_parallelism for op in plan.operators),
            epoch=max((r.epoch for r in reports), default=None),
            vertices=tuple(self._vertices(reports, states)),
            slots=tuple(self._slots(reports)),
            exceptions=tuple(job.exceptions),
            configuration=job.spec.configuration,
            checkpoint_settings=settings.checkpoint,
            state_backend=settings.backend.kind,
            checkpoint_dir=settings.checkpoint_dir,
            savepoint_dir=settings.savepoint_dir,
            origins=job.spec.origins,
            epochs=job.epoch_times.view(),
            arrivals=job.epoch_times.arrivals(),
        )

    def timeline(self) -> TimelineView:
        """Return how the job was over time."""
        with self._observing:
            return self._timeline.view()

    def observe(self) -> None:
        """Take the job of now into its timeline; somebody calls this about once a second."""
        with self._observing:
            self._timeline.observe(observation(self.view(), self.history()))

    def logs(self) -> list[LogFile]:
        """Return the logs of its slots on this host."""
        return slot_logs(self._job.network.log_dir)

    def sources(self) -> Backlog:
        """Return how far its sources are behind, as far as that is known."""
        over = self._job.ended.done()
        return Backlog() if self._watch is None or over else self._watch.backlog()

    def stacks(self, subtask: int, duration_ms: int = 0) -> list[Stack]:
        """Return where the threads of a slot are, or were in a while if that is not zero.

        Raises:
            UsageError: there is no such slot now.
            WeirError: it cannot be asked.
        """
        slot = next((s for s in self._job.network.registry.ready() if s.subtask == subtask), None)
        if slot is None:
            msg = f"job {self.job_id} has no slot {subtask} that runs now"
            raise UsageError(msg)
        return self._job.network.stacks(slot, duration_ms)

    def _vertices(
        self, reports: list[SubtaskReport], states: Mapping[str, tuple[str, ...]]
    ) -> list[VertexView]:
        plan = self._job.plan
        subtasks = subtasks_by_operator(reports)
        marks = watermarks(reports)
        return [
            VertexView(
                op.id,
                op.uid,
                op.name,
                op.kind,
                level=op.level,
                parallelism=op.parallelism,
                max_parallelism=op.max_parallelism,
                inputs=tuple(
                    (plan.operators[e.source].id, e.partitioning.name)
                    for e in plan.inputs_of(op.index)
                ),
                records_in=sum(each.records_in for each in subtasks.get(op.index, ())),
                records_out=sum(each.records_out for each in subtasks.get(op.index, ())),
                metrics=operator_metrics(reports, op.index, self._job.clock.now_ms()),
                subtasks=subtasks.get(op.index, ()),
                states=states.get(op.id, ()),
                watermark=_watermark(plan, op, marks),
            )
            for op in plan.operators
        ]

    def _slots(self, reports: list[SubtaskReport]) -> list[SlotView]:
        entries: dict[int, int] = {}
        marks: dict[int, int] = {}
        for report in reports:
            subtask, mark = report.subtask, report.watermark
            entries[subtask] = entries.get(subtask, 0) + report.entries
            marks[subtask] = min(marks.get(subtask, mark), mark)
        now = self._job.clock.monotonic_ms()
        return [
            SlotView(
                slot.subtask,
                slot.host,
                slot.pid,
                slot.ready,
                silent_ms=now - slot.seen_ms if slot.ready else 0,
                log_file=slot.log_file,
                state_entries=entries.get(slot.subtask, 0),
                watermark=marks.get(slot.subtask),
                memory_bytes=None if slot.usage is None else slot.usage.memory_bytes,
                cpu_ms=None if slot.usage is None else slot.usage.cpu_ms,
                busy_ms=None if slot.usage is None else slot.usage.busy_ms,
            )
            for slot in sorted(self._job.network.registry.all(), key=lambda s: s.subtask)
        ]


def subtasks_by_operator(reports: Iterable[SubtaskReport]) -> dict[int, tuple[SubtaskView, ...]]:
    """Return what each subtask said about each operator, by the operator's index."""
    found: dict[int, list[SubtaskView]] = {}
    for report in sorted(reports, key=lambda report: report.place):
        for index, taken in report.records_in.items():
            given = report.records_out.get(index, 0)
            mark = report.watermarks.get(index, report.watermark)
            view = SubtaskView(report.subtask, taken, given, mark)
            found.setdefault(index, []).append(view)
    return {index: tuple(views) for index, views in found.items()}


def watermarks(reports: Iterable[SubtaskReport]) -> dict[int, int]:
    """Return the lowest watermark that subtasks have told of each operator, by its index."""
    found: dict[int, int] = {}
    for report in reports:
        for index, mark in report.watermarks.items():
            found[index] = min(found.get(index, mark), mark)
    return found


def _watermark(plan: JobPlan, op: OperatorNode, marks: Mapping[int, int]) -> int | None:
    """Beside the sources an operator is where those are that make its watermarks."""
    makers = plan.watermark_generators(op.index) if op.level == 0 else [op.index]
    known = [marks[maker] for maker in makers if maker in marks]
    return min(known) if known and len(known) == len(makers) else None


def observation(view: JobView, history: HistoryView) -> Observation:
    """Return what the timeline of a job takes from its view."""
    level_1 = [vertex for vertex in view.vertices if vertex.level > 0]
    outside = {vertex.id for vertex in view.vertices if vertex.level == 0}
    first = [v for v in level_1 if any(sender in outside for sender, _ in v.inputs)]
    read = {sender for vertex in view.vertices for sender, _ in vertex.inputs}
    marks = [slot.watermark for slot in view.slots if slot.watermark is not None]
    return Observation(
        now_ms=view.now_ms,
        status=view.status,
        attempt=view.attempt,
        parallelism=view.parallelism,
        records_in=sum(vertex.records_in for vertex in first),
        records_out=sum(vertex.records_in for vertex in level_1 if vertex.id not in read),
        state_entries=sum(slot.state_entries for slot in view.slots),
        watermark=min(marks, default=None),
        epochs=view.epochs,
        slots=tuple(
            SlotObservation(slot.subtask, slot.memory_bytes, slot.cpu_ms or 0, slot.busy_ms or 0)
            for slot in view.slots
            if slot.memory_bytes is not None
        ),
        history=history,
        failure=view.exceptions[-1].message if view.exceptions else "",
    )


def _number(ref: CheckpointRef) -> int:
    return ref.checkpoint_id


def _promised(ask: Callable[[], Future[T]]) -> Future[T]:
    """Ask, and make a refusal the future's error."""
    try:
        return ask()
    except WeirError as error:
        refused: Future[T] = Future()
        refused.set_exception(error)
        return refused


def _then(first: Future[Any], change: Callable[[Any], T]) -> Future[T]:
    """Return a future with the changed value of another."""
    second: Future[T] = Future()

    def done(future: Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            second.set_exception(error)
        else:
            second.set_result(change(future.result()))

    first.add_done_callback(done)
    return second
