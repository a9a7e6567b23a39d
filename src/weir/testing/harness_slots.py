"""The slots of one execution attempt in the harness: real services, calls instead of a network.

A call into a slot is a process boundary. What dies inside is gone for the caller too: the slot's
memory is never used again, and the caller sees a broken connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import cloudpickle

from weir.clock import Clock
from weir.errors import WeirError
from weir.graph.plan import JobPlan
from weir.ids import JobId
from weir.runtime.frame import Frame, Incoming, frames_to_batch, payload_views
from weir.runtime.operator import TaskFacts
from weir.runtime.subtask import EpochInfo, Subtask
from weir.slot.channel import ChannelError
from weir.slot.files import SlotFiles
from weir.slot.messages import (
    Acknowledge,
    Assignment,
    Cut,
    Decline,
    SlotFailure,
    decode,
    encode,
)
from weir.slot.overtake import Overtake, Slices
from weir.slot.restore import restore_subtask
from weir.slot.service import SlotService, failure_message
from weir.storage.base import Storage
from weir.testing.faulty_storage import SimulatedCrash

T = TypeVar("T")
Message = Acknowledge | Decline | SlotFailure


class SlotCrash(SimulatedCrash):
    """The slot that is running dies here."""


class DriverCrash(SimulatedCrash):
    """The driver dies here, with everything that it holds in memory."""


class Hooks:
    """What a test may do between the steps of the protocol; this one does nothing."""

    @contextmanager
    def process(self, slot: HarnessSlot | None) -> Iterator[None]:
        """Surround what one process does: a slot, or the driver (None)."""
        yield

    def step(self, label: str) -> None:
        """Take note of a step; may raise `SlotCrash` or `DriverCrash`."""

    def storage(self, inner: Storage, slot: HarnessSlot | None) -> Storage:
        """Return the storage as one process sees it."""
        return inner

    def paused(self, slot: HarnessSlot) -> None:
        """Act between two slices of a level whose barrier may overtake rows."""

    def killed(self, slot: HarnessSlot) -> None:
        """Learn that a slot is gone without having closed anything."""


@dataclass(eq=False)
class HarnessSlot:
    """One slot: alive, dead (its memory is gone), or lost (alive, but nobody hears it)."""

    subtask: int
    attempt: int
    service: SlotService | None = None
    operators: Subtask | None = None
    dead: bool = False
    lost: bool = False
    deferred: list[Callable[[], None]] = field(default_factory=list)
    closed: bool = False


@dataclass(frozen=True)
class SlotSettings:
    """What all slots of a job share."""

    job_id: str
    storage: Storage
    clock: Clock
    receive: Callable[[Message], None]
    hooks: Hooks
    lineage: tuple[str, ...] = ()
    deferred: bool = False
    slice_rows: int = 1


class HarnessSlots:
    """All slots of one attempt; fulfils the checkpoint runner's `Workers`."""

    def __init__(self, plan_bytes: bytes, attempt: int, settings: SlotSettings) -> None:
        """Start without slots."""
        self._plan = plan_bytes
        self.attempt = attempt
        self._settings = settings
        self.job_id = settings.job_id
        self.slots: list[HarnessSlot] = []

    def start(self, assignment: Assignment) -> None:
        """Start the next slot: restore, open, ready."""
        slot = HarnessSlot(len(self.slots), self.attempt)
        self.slots.append(slot)
        self.guarded(slot, lambda: self._build(slot, assignment))

    def _build(self, slot: HarnessSlot, assignment: Assignment) -> None:
        shared = self._settings
        storage = shared.hooks.storage(shared.storage, slot)
        files = SlotFiles(
            storage,
            JobId(shared.job_id),
            slot.subtask,
            self.attempt,
            assignment.inline_bytes,
            assignment.compress,
            assignment.in_memory,
        )
        facts = TaskFacts(
            job_id=shared.job_id,
            job_name=assignment.job_name,
            attempt=self.attempt,
            subtask=slot.subtask,
            clock=shared.clock,
            report=lambda index, kind, values: None,
            lineage=shared.lineage,
            job_parameters=assignment.job_parameters,
            backend=assignment.backend,
            shared_files=files.shared,
            background=_AtOnce(),
        )
        shared.hooks.step("slot starts")
        try:
            plan: JobPlan = cloudpickle.loads(self._plan)
            slot.operators = subtask = Subtask(plan, facts)
            restore_subtask(subtask, assignment, storage)
            shared.hooks.step("slot restored")
            subtask.open()
        except WeirError as error:
            self._send(slot, failure_message(self.attempt, slot.subtask, error))
            raise
        slot.service = SlotService(
            subtask,
            files,
            shared.clock,
            lambda m: self._send(slot, m),
            self._spawner(slot),
            Overtake(_WatchedSlices(slot, shared), hold_s=0.0),
        )
        shared.hooks.step("slot is ready")

    def _spawner(self, slot: HarnessSlot) -> Callable[[Callable[[], None]], None]:
        def spawn(work: Callable[[], None]) -> None:
            if self._settings.deferred:
                slot.deferred.append(work)
            else:
                work()

        return spawn

    def _send(self, slot: HarnessSlot, message: Message) -> None:
        hooks = self._settings.hooks
        hooks.step(f"slot sends {type(message).__name__}")
        sent = decode(encode(message), type(message))
        with hooks.process(None):
            self._settings.receive(sent)
        hooks.step(f"slot has sent {type(message).__name__}")

    def guarded(self, slot: HarnessSlot, work: Callable[[], T]) -> T:
        """Run something inside a slot; its death is a broken connection for the caller."""
        if slot.dead:
            raise _gone(slot)
        try:
            with self._settings.hooks.process(slot):
                result = work()
        except SlotCrash:
            self.kill(slot)
            raise _gone(slot) from None
        if slot.dead or slot.lost:
            raise _gone(slot)
        return result

    def run(
        self, subtask: int, level: int, info: EpochInfo, frames: list[Frame], directory: str
    ) -> list[Frame]:
        """Send an epoch of a level to a slot and return its output."""
        slot = self.slots[subtask]
        incoming = as_incoming(frames)
        hooks = self._settings.hooks

        def work() -> list[Frame]:
            hooks.step(f"level {level} begins")
            out = self._service(slot).run(self.attempt, level, info, incoming, directory)
            hooks.step(f"level {level} is done")
            return out

        return self.guarded(slot, work)

    def run_deferred(self, slots: list[HarnessSlot] | None = None) -> None:
        """Let async phases that wait run now."""
        for slot in self.slots if slots is None else slots:
            while slot.deferred and not slot.dead:
                work = slot.deferred.pop(0)
                with suppress(ChannelError):
                    self.guarded(slot, work)

    def complete(self, checkpoint_id: int) -> list[tuple[str, list[bytes]]]:
        """Let all slots commit."""
        hooks = self._settings.hooks
        staged: list[tuple[str, list[bytes]]] = []
        for slot in self.slots:
            hooks.step("commit is sent")

            def work(slot: HarnessSlot = slot) -> list[tuple[str, list[bytes]]]:
                hooks.step("commit begins")
                done = self._service(slot).notify_complete(self.attempt, checkpoint_id)
                hooks.step("commit is done")
                return done

            staged.extend(self.guarded(slot, work))
        return staged

    def where(self, checkpoint_id: int, epoch: int) -> list[tuple[int, int]]:
        """Ask all slots where they are."""
        return [
            self._called(slot, "where", lambda s: s.where(self.attempt, checkpoint_id, epoch))
            for slot in self.slots
        ]

    def cut(self, cut: Cut) -> bool:
        """Tell all slots where to cut."""
        sent = decode(encode(cut), Cut)
        return all(self._called(slot, "cut", lambda s: s.cut(sent)) for slot in self.slots)

    def revoke(self, checkpoint_id: int) -> bool:
        """Let no slot cut any more."""
        made = False
        for slot in self.slots:
            try:
                done = self._called(slot, "revoke", lambda s: s.revoke(self.attempt, checkpoint_id))
            except ChannelError:
                done = True
            made = made or done
        return made

    def _called(self, slot: HarnessSlot, what: str, call: Callable[[SlotService], T]) -> T:
        def work() -> T:
            self._settings.hooks.step(f"{what} is asked")
            answer = call(self._service(slot))
            self._settings.hooks.step(f"{what} is answered")
            return answer

        return self.guarded(slot, work)

    def aborted(self, checkpoint_id: int) -> None:
        """Tell all slots that a checkpoint was given up; nobody depends on it."""
        for slot in self.slots:
            with suppress(WeirError):
                service = self._service(slot)
                self.guarded(slot, lambda s=service: s.notify_aborted(self.attempt, checkpoint_id))  # type: ignore[misc]

    def kill(self, slot: HarnessSlot) -> None:
        """Take a slot's process away."""
        if not slot.dead:
            slot.dead = True
            slot.deferred.clear()
            self._settings.hooks.killed(slot)

    def leave(self) -> list[HarnessSlot]:
        """Tell all slots to end; returns those that do not hear it."""
        for slot in self.slots:
            if not slot.dead and not slot.lost:
                self.close(slot)
        self.bury()
        return [slot for slot in self.slots if slot.lost and not slot.dead]

    def close(self, slot: HarnessSlot) -> None:
        """Let a slot end in order; it drops what its sinks never prepared."""
        if slot.service is not None:
            with suppress(ChannelError):
                self.guarded(slot, slot.service.close)
                slot.closed = True
        self.kill(slot)

    def bury(self) -> None:
        """Free what dead slots hold in this process, as the end of theirs would have."""
        for slot in self.slots:
            if slot.dead and not slot.closed and slot.operators is not None:
                slot.closed = True
                for operator in slot.operators.operators.values():
                    backend = getattr(operator, "backend", None)
                    if backend is not None:
                        backend.close()

    @staticmethod
    def _service(slot: HarnessSlot) -> SlotService:
        if slot.service is None:
            raise _gone(slot)
        return slot.service


class _WatchedSlices(Slices):
    """Slices of a fixed length, with a place for a test to act between them."""

    def __init__(self, slot: HarnessSlot, settings: SlotSettings) -> None:
        super().__init__(settings.clock, settings.slice_rows, settings.slice_rows)
        self._slot = slot
        self._hooks = settings.hooks

    def pause(self) -> None:
        """Let the test act, then do what is to be done."""
        self._hooks.step("slice")
        self._hooks.paused(self._slot)
        super().pause()


class _AtOnce:
    """Background work that is done when it is asked for, so that every run is the same."""

    def submit(self, work: Callable[[], Any], /) -> None:
        """Do it; what it raises is nobody's concern, as in a thread."""
        with suppress(WeirError):
            work()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """There is nothing to wait for."""


def _gone(slot: HarnessSlot) -> ChannelError:
    return ChannelError(f"slot {slot.subtask} of attempt {slot.attempt} is gone")


def as_incoming(frames: list[Frame]) -> list[Incoming]:
    """Carry frames over a shuffle: into Arrow and back, as Spark and Flight do."""
    if not frames:
        return []
    batch = frames_to_batch(frames, lambda target: target)
    columns: list[Any] = [batch.column(i).to_pylist() for i in (1, 2)]
    payloads = payload_views(batch.column(3))
    return [Incoming(e, o, p) for e, o, p in zip(*columns, payloads, strict=True)]
