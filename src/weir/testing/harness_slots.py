"""The slots of a job in the harness: real services, calls instead of a network.

A call into a slot is a process boundary. What dies inside is gone for the caller too: the slot's
memory is never used again, and the caller sees a broken connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from weir.errors import WeirError
from weir.jobmanager.network import Reception, Staged
from weir.jobmanager.registry import SlotEntry, SlotRegistry
from weir.runtime.epoch import Epoch
from weir.runtime.frame import Frame, Incoming, frames_to_batch, incoming_of
from weir.runtime.subtask import Subtask
from weir.slot.build import SlotIdentity, build_slot
from weir.slot.channel import ChannelError
from weir.slot.lookup import LookupAnswer, LookupCall, SlotStates
from weir.slot.messages import (
    Acknowledge,
    Assignment,
    Cut,
    Decline,
    EpochCall,
    Hello,
    Register,
    SlotFailure,
    decode,
    encode,
)
from weir.slot.overtake import Overtake, Slices
from weir.slot.service import SlotService, failure_message
from weir.slot.stacks import Stack, stacks
from weir.storage.base import Storage
from weir.testing.clock import ManualClock
from weir.testing.faulty_storage import SimulatedCrash

T = TypeVar("T")
_LEASES_MAX = 20
Message = Acknowledge | Decline | SlotFailure


class SlotCrash(SimulatedCrash):
    """The slot that is running dies here."""


class SlotHang(SimulatedCrash):
    """The slot that is running does nothing from here on, and lives."""


class Stuck(SimulatedCrash):
    """Nothing would ever happen again in this job."""


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

    def begins(self) -> None:
        """Act when an attempt is prepared; may raise what an engine may."""

    def fails(self) -> None:
        """Act while the engine runs an epoch; may raise what an engine may."""

    def storage(self, inner: Storage, slot: HarnessSlot | None) -> Storage:
        """Return the storage as one process sees it."""
        return inner

    def paused(self, slot: HarnessSlot) -> None:
        """Act between two slices of a level whose barrier may overtake rows."""

    def killed(self, slot: HarnessSlot) -> None:
        """Learn that a slot is gone without having closed anything."""


@dataclass(eq=False)
class HarnessSlot:
    """One slot: alive, dead (its memory is gone), lost (alive, but nobody hears it), or hanging."""

    subtask: int
    attempt: int
    job_id: str = ""
    service: SlotService | None = None
    operators: Subtask | None = None
    dead: bool = False
    lost: bool = False
    hangs: bool = False
    deferred: list[Callable[[], None]] = field(default_factory=list)
    closed: bool = False


@dataclass(frozen=True)
class SlotSettings:
    """What all slots of a job share.

    With `deferred` async phases wait until they are told to run. In epochs whose barrier may
    overtake rows, slots handle `slice_rows` records at a time.
    """

    storage: Storage
    clock: ManualClock
    hooks: Hooks
    lease_ms: int = 10_000
    deferred: bool = False
    slice_rows: int = 1


class InProcessNetwork:
    """All slots of a job in this process; fulfils `SlotNetwork`.

    `slots` are those of the current attempt, `zombies` those of earlier ones that did not hear
    that they are not wanted any more. A test sets `gone` when the driver is dead.
    """

    def __init__(self, settings: SlotSettings) -> None:
        self.registry = SlotRegistry(settings.clock, settings.lease_ms)
        self.slots: list[HarnessSlot] = []
        self.zombies: list[HarnessSlot] = []
        self.gone = False
        self._settings = settings
        self._reception: Reception | None = None

    @property
    def log_dir(self) -> Path | None:
        """Slots in this process write no logs of their own."""
        return None

    @property
    def attempt(self) -> int:
        """The attempt whose slots are the current ones."""
        return self.registry.attempt

    def open(self, reception: Reception) -> None:
        """Let slots reach the job."""
        self._reception = reception

    def start(self, subtask: int) -> None:
        """Start a slot of the current attempt: hello, restore, open, register.

        A slot that fails or dies on the way says so, or does not; either way this returns.
        """
        if self.slots and self.slots[0].attempt != self.attempt:
            self.slots = []
        slot = HarnessSlot(subtask, self.attempt)
        self.slots.append(slot)
        with suppress(ChannelError, SlotHang):
            self.guarded(slot, lambda: self._run(slot))

    def _run(self, slot: HarnessSlot) -> None:
        hooks = self._settings.hooks
        hooks.step("slot is started")
        hello = decode(encode(Hello(slot.attempt, slot.subtask, 0, "", log_file="")), Hello)
        try:
            assignment = self._told(lambda reception: reception.hello(hello))
        except WeirError:
            self.kill(slot)  # Nobody wants it.
            return
        hooks.step("slot has its work")
        try:
            staged = self._build(slot, decode(encode(assignment), Assignment))
            hooks.step("slot is ready")
            ready = Register(slot.attempt, slot.subtask, "", "", staged=staged)
            sent = decode(encode(ready), Register)
            self._told(lambda reception: reception.register(sent))
        except Exception as error:
            self._send(slot, failure_message(slot.attempt, slot.subtask, error))
        hooks.step("slot is registered")

    def _told(self, tell: Callable[[Reception], T]) -> T:
        """Let the driver take a message; it is another process."""
        if self._reception is None or self.gone:
            msg = "the JobManager cannot be reached"
            raise ChannelError(msg)
        with self._settings.hooks.process(None):
            return tell(self._reception)

    def _build(self, slot: HarnessSlot, assignment: Assignment) -> Staged:
        shared = self._settings
        slot.job_id = assignment.job_id
        subtask, files = build_slot(
            assignment,
            SlotIdentity(slot.attempt, slot.subtask),
            shared.clock,
            adapt=lambda facts: replace(facts, background=_AtOnce()),
            storage=shared.hooks.storage(shared.storage, slot),
            reach=shared.hooks.step,
        )
        slot.operators = subtask
        slot.service = SlotService(
            subtask,
            files,
            shared.clock,
            lambda message: self._send(slot, message),
            spawn=self._spawner(slot),
            overtake=Overtake(_WatchedSlices(slot, shared), hold_s=0.0),
        )
        return subtask.take_staged()

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
        if self._reception is not None and not self.gone:
            with hooks.process(None):
                self._take(self._reception, sent)
        hooks.step(f"slot has sent {type(message).__name__}")

    @staticmethod
    def _take(reception: Reception, message: Message) -> None:
        match message:
            case Acknowledge():
                reception.acknowledge(message)
            case Decline():
                reception.decline(message)
            case SlotFailure():
                reception.failure(message)

    def stacks(self, slot: SlotEntry, duration_ms: int) -> list[Stack]:
        """Return where the threads of this process are: slots have none of their own."""
        return stacks(duration_ms)

    def watch(self) -> None:
        """Renew the leases of slots that live and are heard, as their own threads do."""
        for slot in self.slots:
            if not slot.dead and not slot.lost and not slot.hangs:
                self.registry.heartbeat(slot.attempt, slot.subtask)

    def guarded(self, slot: HarnessSlot, work: Callable[[], T]) -> T:
        """Run something inside a slot; its death is a broken connection for the caller."""
        if slot.dead or slot.hangs:
            raise _gone(slot)
        try:
            with self._settings.hooks.process(slot):
                result = work()
        except SlotHang:
            slot.hangs = True
            raise _gone(slot) from None
        except SlotCrash:
            self.kill(slot)
            raise _gone(slot) from None
        if slot.dead or slot.lost:
            raise _gone(slot)
        return result

    def run(self, subtask: int, level: int, epoch: Epoch, frames: list[Frame]) -> list[Frame]:
        """Send an epoch of a level to a slot and return its output."""
        slot = self._located(subtask)
        incoming = as_incoming(frames)
        call = decode(encode(EpochCall(slot.attempt, level, epoch)), EpochCall)
        hooks = self._settings.hooks

        def work() -> list[Frame]:
            hooks.step(f"level {level} begins")
            service = self._service(slot)
            out = service.run(call, service.take_in(iter(incoming)))
            hooks.step(f"level {level} is done")
            return out

        return self.guarded(slot, work)

    def _ready(self) -> list[HarnessSlot]:
        """Return the slots that the job can call."""
        ready = {entry.subtask for entry in self.registry.ready()}
        return [s for s in self.slots if s.attempt == self.attempt and s.subtask in ready]

    def _located(self, subtask: int) -> HarnessSlot:
        """Find a slot as a pipe does: time passes while one that is not ready is waited for.

        Raises:
            ChannelError: the attempt failed, or is over.
        """
        for _ in range(_LEASES_MAX):
            self.watch()
            found = self.registry.locate(self.attempt, subtask, 0)
            if found.status == "ready":
                return self.slots[subtask]
            if found.status != "wait":
                msg = f"slot {subtask}: {found.status} ({found.message})"
                raise ChannelError(msg)
            self._settings.clock.advance(self._settings.lease_ms)
        msg = f"slot {subtask} was waited for in vain, and nobody noticed"
        raise Stuck(msg)

    def run_deferred(self, slots: list[HarnessSlot] | None = None) -> None:
        """Let async phases that wait run now."""
        for slot in self.slots if slots is None else slots:
            while slot.deferred and not slot.dead:
                work = slot.deferred.pop(0)
                with suppress(ChannelError):
                    self.guarded(slot, work)

    def complete(self, checkpoint_id: int) -> list[tuple[str, list[bytes]]]:
        """Let all slots commit; as all are asked at once, none goes free because another fails."""
        hooks = self._settings.hooks
        staged: list[tuple[str, list[bytes]]] = []
        errors: list[WeirError] = []
        for slot in self._ready():
            hooks.step("commit is sent")

            def work(slot: HarnessSlot = slot) -> list[tuple[str, list[bytes]]]:
                hooks.step("commit begins")
                done = self._service(slot).notify_complete(slot.attempt, checkpoint_id)
                hooks.step("commit is done")
                return done

            try:
                staged.extend(self.guarded(slot, work))
            except WeirError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return staged

    def where(self, checkpoint_id: int, epoch: int) -> list[tuple[int, int]]:
        """Ask all slots where they are."""
        return [
            self._called(slot, "where", lambda s: s.where(self.attempt, checkpoint_id, epoch))
            for slot in self._ready()
        ]

    def cut(self, cut: Cut) -> bool:
        """Tell all slots where to cut."""
        sent = decode(encode(cut), Cut)
        return all(self._called(slot, "cut", lambda s: s.cut(sent)) for slot in self._ready())

    def revoke(self, checkpoint_id: int) -> bool:
        """Let no slot cut any more."""
        made = False
        for slot in self._ready():
            try:
                done = self._called(slot, "revoke", lambda s: s.revoke(self.attempt, checkpoint_id))
            except ChannelError:
                done = True
            made = made or done
        return made

    def states(self, patience_ms: int) -> list[SlotStates]:
        """Ask all slots which keyed states they know."""
        return [
            self._called(slot, "states", lambda s: s.states(self.attempt, patience_ms))
            for slot in self._ready()
        ]

    def lookup(self, subtask: int, call: LookupCall) -> LookupAnswer:
        """Let a slot look at its keyed state."""
        slot = next((s for s in self._ready() if s.subtask == subtask), None)
        if slot is None:
            msg = f"slot {subtask} is not there"
            raise ChannelError(msg)
        return self._called(slot, "lookup", lambda s: s.lookup(call))

    def _called(self, slot: HarnessSlot, what: str, call: Callable[[SlotService], T]) -> T:
        def work() -> T:
            self._settings.hooks.step(f"{what} is asked")
            answer = call(self._service(slot))
            self._settings.hooks.step(f"{what} is answered")
            return answer

        return self.guarded(slot, work)

    def aborted(self, checkpoint_id: int) -> None:
        """Tell all slots that a checkpoint was given up; nobody depends on it."""
        for slot in self._ready():
            with suppress(WeirError):
                service = self._service(slot)
                self.guarded(slot, lambda s=service: s.notify_aborted(self.attempt, checkpoint_id))  # type: ignore[misc]

    def kill(self, slot: HarnessSlot) -> None:
        """Take a slot's process away."""
        if not slot.dead:
            slot.dead = True
            slot.deferred.clear()
            self._settings.hooks.killed(slot)

    def dismiss(self, slots: list[SlotEntry], reason: str) -> list[SlotFailure]:
        """Tell all slots to end; those that do not hear it are among `zombies` afterwards."""
        ended = [self.end(slot) for slot in self.slots if not slot.dead and not slot.lost]
        self.bury()
        self.zombies += [slot for slot in self.slots if slot.lost and not slot.dead]
        return [failure for failure in ended if failure is not None]

    def close(self) -> None:
        """Let nobody reach the job any more."""
        self._reception = None

    def end(self, slot: HarnessSlot) -> SlotFailure | None:
        """Let a slot end in order; it drops what its sinks never prepared.

        What goes wrong meanwhile keeps no process alive: the next attempt finds what is left. It
        is returned if the slot lived to tell.
        """
        failure = None
        if slot.service is not None:
            try:
                self.guarded(slot, slot.service.close)
                slot.closed = True
            except ChannelError:
                pass
            except WeirError as error:
                failure = failure_message(slot.attempt, slot.subtask, error)
        self.kill(slot)
        return None if failure is None else decode(encode(failure), SlotFailure)

    def bury(self) -> None:
        """Free what dead slots hold in this process, as the end of theirs would have."""
        for slot in self.slots:
            if slot.dead and not slot.closed and slot.operators is not None:
                slot.closed = True
                for operator in slot.operators.operators.values():
                    backend = getattr(operator, "backend", None)
                    if backend is not None:
                        backend.close()
                    loop = getattr(operator, "loop", None)
                    if loop is not None:
                        loop.end()

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

    def pause(self, between: Callable[[], None]) -> None:
        """Let the test act, then do what is to be done."""
        self._hooks.step("slice")
        self._hooks.paused(self._slot)
        super().pause(between)


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
    return incoming_of(frames_to_batch(frames, lambda target: target))
