"""What a slot does, without the network: apply epochs once, snapshot, commit, answer again.

Invariants: an epoch of a level is applied at most once; asking again gives the same frames from
memory; a slot that failed half-way never applies anything again; a slot takes part in a checkpoint
once, at the end of the epoch or where the barrier overtook rows.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from weir.clock import Clock
from weir.errors import StorageError, UserFunctionError, WeirError
from weir.failpoint import ProcessDeath, reach
from weir.runtime.epoch import Barrier, Epoch
from weir.runtime.event_time import PartitionWatermark
from weir.runtime.frame import Frame, Incoming
from weir.runtime.in_flight import InFlight, keep
from weir.runtime.memory import take_in
from weir.runtime.raised import encodable, user_traceback
from weir.runtime.stateful import OperatorSnapshot
from weir.runtime.subtask import Pauses, Subtask
from weir.runtime.whereabouts import at_work, most_state
from weir.slot.between_records import BetweenRecords
from weir.slot.door import Door
from weir.slot.files import SlotFiles
from weir.slot.lookup import (
    Looking,
    LookupAnswer,
    LookupCall,
    SlotStates,
    decode_lookup,
    encode_answer,
    states_of,
)
from weir.slot.messages import (
    OUT_OF_MEMORY,
    Acknowledge,
    Cut,
    Decline,
    EpochCall,
    SlotFailure,
)
from weir.slot.overtake import Overtake, Slices
from weir.slot.rows import StoredRows
from weir.slot.upload import Upload

ACKNOWLEDGED_BYTES_MAX = 512 << 20
Send = Callable[[Acknowledge | Decline | SlotFailure], None]


class SlotFailedError(WeirError):
    """The slot refused a call: it failed before, or the call is out of order or fenced."""


@dataclass(frozen=True)
class _Share:
    """A slot's share of a checkpoint, before it is written."""

    barrier: Barrier
    rows: InFlight | None
    cut: bool = False
    sync_ms: int = 0
    partitions: list[PartitionWatermark] = field(default_factory=list)


class SlotService:
    """One subtask of every operator, with everything that outlives a call.

    `send` delivers messages to the JobManager; `spawn` runs the async phase (a thread in
    production, inline in the harness).
    """

    def __init__(
        self,
        subtask: Subtask,
        files: SlotFiles,
        clock: Clock,
        send: Send,
        spawn: Callable[[Callable[[], None]], None],
        overtake: Overtake | None = None,
    ) -> None:
        """Wrap an opened subtask."""
        self._subtask = subtask
        self._files = files
        self._clock = clock
        self._send = send
        self._spawn = spawn
        self._lock = threading.RLock()
        self._opening = threading.Lock()
        self._applied: dict[int, int] = {}
        self._outputs: dict[tuple[int, int], list[Frame]] = {}
        self._failure: str | None = None
        self._worked_ms = 0
        self._working_since_ms: int | None = None
        self._between_records = BetweenRecords(self._lock)
        self._overtake = overtake or Overtake(Slices(clock))
        self._looking = Looking(subtask)
        self._door: Door | None = None
        self._epoch = 0

    @property
    def waiting(self) -> bool:
        """Tell whether anything waits for a moment when no record is being handled."""
        return self._between_records.waiting

    @property
    def busy_ms(self) -> int:
        """Return how long epochs have been applied since the slot began, the running one too."""
        since = self._working_since_ms
        running = 0 if since is None else self._clock.monotonic_ms() - since
        return self._worked_ms + max(running, 0)

    @property
    def attempt(self) -> int:
        """Return the execution attempt that this slot belongs to."""
        return self._subtask.facts.attempt

    def most_state(self) -> str:
        """Say which operator holds most state, from any thread."""
        return most_state(list(self._subtask.operators.values()))

    def take_in(self, frames: Iterator[Incoming]) -> list[Incoming]:
        """Return the whole input of a level; what is too much for the memory lies in files."""
        return take_in(frames, self._subtask.facts.memory, self._subtask.facts.local_dir)

    def run(self, call: EpochCall, frames: list[Incoming]) -> list[Frame]:
        """Apply an epoch of a level, or answer from memory when it was applied before."""
        level, epoch = call.level, call.epoch
        number = epoch.number
        with self._lock, self._door_left_alone():
            self._fence(call.attempt)
            known = self._outputs.get((number, level))
            if known is not None:
                return known
            last = self._applied.get(level, -1)
            if number <= last:
                msg = f"epoch {number} of level {level} is over: epoch {last} was applied"
                raise SlotFailedError(msg)
            self._epoch = number
            try:
                with without_collection(), self._working():
                    out = self._apply(level, epoch, frames)
                self._applied[level] = number
                self._outputs = {k: v for k, v in self._outputs.items() if k[0] == number}
                self._outputs[(number, level)] = out
                cut = self._overtake.end() if epoch.overtaking else None
                if cut is not None:
                    self._make(cut)
            except ProcessDeath:
                raise
            except BaseException as error:
                if self._failure is None:
                    self._fail(error)
                if isinstance(error, Exception):
                    raise
                # Something in the program wanted to end the process, or the thread.
                msg = f"the slot failed: {self._failure}"
                raise SlotFailedError(msg) from error
            self._end_epoch(level, epoch, out)
            self._between_records.drain()
            return out

    def _door_left_alone(self) -> AbstractContextManager[None]:
        """Let no other thread wake up for look-ups while this one looks between records."""
        return nullcontext() if self._door is None else self._door.left_to_records()

    @contextmanager
    def _working(self) -> Iterator[None]:
        begun = self._working_since_ms = self._clock.monotonic_ms()
        try:
            yield
        finally:
            self._working_since_ms = None
            self._worked_ms += self._clock.monotonic_ms() - begun

    def _apply(self, level: int, epoch: Epoch, frames: list[Incoming]) -> list[Frame]:
        if not epoch.overtaking:
            return self._subtask.run_level(level, epoch, frames, Pauses(self._between_strides))
        while (cut := self._overtake.begin(epoch.number, level)) is not None:
            self._make(cut)
        pauses = Pauses(self._between_slices, self._overtake.slices)
        return self._subtask.run_level(level, epoch, frames, pauses)

    def _between_slices(self) -> None:
        cut = self._overtake.wanted()
        if cut is not None:
            self._make(cut)
        self._between_strides()

    def _between_strides(self) -> None:
        """Do what waits for a moment like this; a slot that failed in it goes no further."""
        self._between_records.drain()
        if self._failure is not None:
            msg = f"the slot failed: {self._failure}"
            raise SlotFailedError(msg)

    def _make(self, cut: Cut) -> None:
        """Take part in a checkpoint here, in the middle of its epoch."""
        reach("slot.cut")
        output = self._outputs.get((cut.epoch, cut.level))
        rows = self._subtask.cut(cut.barrier, cut.level, output, replayed=cut.replayed)
        self._overtake.made(cut.barrier.checkpoint_id)
        self._start_async_phase(_Share(cut.barrier, rows, cut=True))

    def _end_epoch(self, level: int, epoch: Epoch, out: list[Frame]) -> None:
        """Take part in the epoch's checkpoint after the slot's last level, unless it has."""
        barrier = epoch.barrier
        if barrier is None or level != self._subtask.last_level:
            return
        if self._overtake.has_cut(barrier.checkpoint_id):
            return
        rows = None
        if epoch.overtaking:
            # The barrier may still overtake rows of slower slots at this level.
            self._overtake.aligned(barrier.checkpoint_id)
            rows = keep(self._subtask.plan, level, out, (), replayed=False)
        self._start_async_phase(_Share(barrier, rows))

    def where(self, attempt: int, checkpoint_id: int, epoch: int) -> tuple[int, int]:
        """Return which level of an epoch has begun and which is finished; from then on, hold."""
        self._fence(attempt)
        return self._overtake.where(checkpoint_id, epoch)

    def cut(self, cut: Cut) -> bool:
        """Let a barrier overtake rows; False when this slot has gone beyond the place."""
        self._fence(cut.attempt)
        if not self._overtake.want(cut):
            return False
        if self._overtake.is_idle:
            self._between_records.run(self._make_if_idle)
        return True

    def revoke(self, attempt: int, checkpoint_id: int) -> bool:
        """Let a barrier overtake nothing after all; True when it has done so here."""
        self._fence(attempt)
        return self._overtake.revoke(checkpoint_id)

    def _make_if_idle(self) -> None:
        widths, subtask = self._subtask.plan.level_parallelism, self._subtask.facts.subtask
        cut = self._overtake.idle_cut(lambda level: subtask < widths[level])
        if cut is None:
            return
        try:
            self._make(cut)
        except Exception as error:
            self._fail(error)
            raise

    def _fence(self, attempt: int) -> None:
        if attempt != self.attempt:
            msg = f"this slot belongs to execution attempt {self.attempt}, not {attempt}"
            raise SlotFailedError(msg)
        if self._failure is not None:
            msg = f"the slot failed before: {self._failure}"
            raise SlotFailedError(msg)

    def _fail(self, error: BaseException) -> None:
        text = encodable(str(error))
        self._failure = text.splitlines()[0] if text.strip() else type(error).__name__
        self._send(failure_message(self.attempt, self._subtask.facts.subtask, error))

    def _start_async_phase(self, share: _Share) -> None:
        number = share.barrier.checkpoint_id
        snapshots = self._subtask.take_snapshots(number)
        share = replace(
            share,
            sync_ms=self._subtask.take_sync_ms(number),
            partitions=self._subtask.take_partition_marks(number),
        )
        self._spawn(lambda: self._async_phase(share, snapshots))

    def _async_phase(self, share: _Share, snapshots: list[OperatorSnapshot]) -> None:
        facts, barrier = self._subtask.facts, share.barrier
        started = self._clock.monotonic_ms()
        try:
            files, path = self._files.at(barrier.directory)
            upload = Upload(files, barrier.checkpoint_id)
            stored = None if share.rows is None else StoredRows(self._subtask.plan, share.rows)
            upload.run(path, snapshots, stored)
            upload.keep_copies(barrier.checkpoint_id)
            elapsed = self._clock.monotonic_ms() - started
            refuse_too_long(upload)
            self._send(
                Acknowledge(
                    attempt=facts.attempt,
                    subtask=facts.subtask,
                    checkpoint_id=barrier.checkpoint_id,
                    file=upload.file,
                    operators=upload.shares,
                    created=upload.created,
                    directory=barrier.directory,
                    sync_ms=share.sync_ms,
                    async_ms=elapsed,
                    in_flight=upload.in_flight,
                    cut=share.cut,
                    partitions=share.partitions,
                )
            )
        except ProcessDeath:
            raise
        except BaseException as error:
            reason = encodable(f"{type(error).__name__}: {error}")
            self._send(Decline(facts.attempt, facts.subtask, barrier.checkpoint_id, reason))
        finally:
            self._between_records.run(lambda: _release(snapshots))

    def notify_complete(self, attempt: int, checkpoint_id: int) -> list[tuple[str, list[bytes]]]:
        """Let sinks commit; returns staged files of sinks that the driver commits."""

        def commit() -> list[tuple[str, list[bytes]]]:
            self._fence(attempt)
            try:
                reach("slot.commit")
                self._subtask.notify_complete(checkpoint_id)
                reach("slot.committed")
                if self._files.copies is not None:
                    self._files.copies.completed(checkpoint_id)
            except Exception as error:
                self._fail(error)
                raise
            return self._subtask.take_staged()

        return self._between_records.run(commit)

    def states(self, attempt: int, patience_ms: int) -> SlotStates:
        """Return the keyed states that the operators have asked for so far."""
        self._fence(attempt)
        return self._between_records.run_within(lambda: states_of(self._subtask), patience_ms)

    def lookup(self, call: LookupCall) -> LookupAnswer:
        """Look at keyed state between two records; all answers are of the same moment.

        Raises:
            SlotFailedError: the slot failed, or is of another attempt.
            WeirError: there was no such moment in time.
        """
        self._fence(call.attempt)
        return self._between_records.run_within(lambda: self._look_up(call), call.patience_ms)

    def _look_up(self, call: LookupCall) -> LookupAnswer:
        self._fence(call.attempt)
        return self._looking.answer(call, self._epoch)

    def open_door(self, path: str, token: bytes) -> str:
        """Let a driver on this host look things up without a call for each; returns the path.

        Raises:
            OSError: nobody can listen there.
        """
        with self._opening:
            if self._door is None:
                self._door = Door(path, token, self._lock, self._answer_at_door)
                self._between_records.look_by(self._door.look)
            return self._door.path

    def _answer_at_door(self, data: bytes) -> bytes:
        return encode_answer(self._look_up(decode_lookup(data)))

    def notify_aborted(self, attempt: int, checkpoint_id: int) -> None:
        """Tell operators that a checkpoint was given up, at the next moment for it."""
        self._fence(attempt)
        self._overtake.revoke(checkpoint_id)

        def tell() -> None:
            self._fence(attempt)
            self._subtask.notify_aborted(checkpoint_id)
            if self._files.copies is not None:
                self._files.copies.aborted(checkpoint_id)

        self._between_records.soon(tell)

    def close(self) -> None:
        """Close all operators; what sinks did not prepare is dropped."""
        if self._door is not None:
            self._door.close()
        with self._lock:
            self._failure = self._failure or "the slot was closed"
            self._subtask.close()


def _release(snapshots: list[OperatorSnapshot]) -> None:
    for snapshot in snapshots:
        snapshot.release()


def refuse_too_long(upload: Upload) -> None:
    """Refuse to send more state in one message than messages can be long.

    Raises:
        StorageError: the files that travel in the acknowledgement are too long together.
    """
    handles = [handle for share in upload.shares for handle in (*share.layers, *share.attachments)]
    own = [] if upload.file is None else [upload.file]
    size = sum(len(handle.data) for handle in (*own, *handles) if handle.data is not None)
    if size > ACKNOWLEDGED_BYTES_MAX:
        msg = (
            f"the state of this slot has {size} bytes, and one message takes at most "
            f"{ACKNOWLEDGED_BYTES_MAX}: set execution.checkpointing.dir to a directory that all "
            "hosts share"
        )
        raise StorageError(msg)


@contextmanager
def without_collection() -> Iterator[None]:
    """Put off the cyclic garbage collector: it would look again and again at an epoch's records.

    Nearly all of them are gone when the epoch ends, and then it catches up.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def failure_message(attempt: int, subtask: int, error: BaseException) -> SlotFailure:
    """Describe an error so that the driver can raise it as what it is."""
    if isinstance(error, UserFunctionError):
        return SlotFailure(
            attempt,
            subtask,
            "UserFunctionError",
            encodable(error.user_traceback),
            operator=encodable(error.operator),
            record=encodable(error.record),
        )
    if isinstance(error, WeirError):
        return SlotFailure(attempt, subtask, type(error).__name__, encodable(str(error)))
    return SlotFailure(attempt, subtask, "internal", user_traceback(error))


def out_of_memory(attempt: int, subtask: int, reason: str, most: str = "") -> SlotFailure:
    """Describe a process that has to end, the operator at work in it, and who has most state."""
    found = at_work()
    text = "no operator was at work" if found is None else f"at work: {found}"
    text += f"; {most}" if most else ""
    return SlotFailure(attempt, subtask, OUT_OF_MEMORY, encodable(f"{reason}; {text}"))
