"""What runs inside Spark's Python workers: level 0 and the pipes.

Both are stateless: everything they need travels with the task, everything that lasts is in a
slot. Parsed plans are remembered per process, because a worker serves many epochs.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from weir.clock import SystemClock
from weir.connector.decoder import END, Decoder, Piece
from weir.errors import WeirError
from weir.failpoint import reach
from weir.graph.plan import JobPlan
from weir.runtime.frame import (
    FRAME_SCHEMA,
    REPORT_EDGE,
    Frame,
    frames_to_batch,
    load_program,
    origin,
    pack_frames,
    pack_report,
    size_of,
)
from weir.runtime.operator import TaskFacts
from weir.runtime.report import SourceReport
from weir.runtime.source_side import SourceSide
from weir.slot.channel import Channel, ChannelError
from weir.slot.memory_watch import watch_memory
from weir.slot.messages import EpochCall, SlotFailure
from weir.slot.service import failure_message, out_of_memory, without_collection
from weir.slot.spawn import Contact, start_slot
from weir.spark.code import unpacked_at, working_in

CONTROL_ROW = -2
PACKED_ROW = -3
EPOCH_PROPERTY = "weir.epoch"
_CHANNELS_MAX = 64
log = logging.getLogger("weir.worker")
_plans: dict[str, JobPlan] = {}
_channels: dict[str, Channel] = {}
_slots: dict[tuple[str, int, int], str] = {}
_running: dict[str, SourceTask] = {}


@dataclass(frozen=True)
class SourceColumns:
    """How the rows of one source arrive, and what makes records of them.

    `column` is the struct column of this source when several are united, else None.
    """

    operator: int
    decoder: Decoder
    column: str | None


class TaskCall(msgspec.Struct, frozen=True):
    """What the driver tells the tasks of an epoch.

    With `allowance` level 0 returns its frames to the driver, if they have no more bytes than that.
    The source operators in `over` are read to their end with this epoch: rows cannot say it where
    there are none.
    """

    call: EpochCall
    allowance: int | None = None
    over: tuple[int, ...] = ()


_decode_call = msgspec.json.Decoder(TaskCall).decode


def _told() -> TaskCall:
    """Return what the driver told the tasks of this epoch.

    The tasks themselves stay the same from epoch to epoch, so that nothing has to be pickled and
    analysed again.
    """
    return _decode_call(_task().getLocalProperty(EPOCH_PROPERTY) or "")


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        msg = "no Spark task is running here"
        raise RuntimeError(msg)
    return task


@dataclass(frozen=True)
class SourceTask:
    """Level 0 of the epochs of one attempt."""

    plan_id: str
    plan: bytes
    sources: tuple[SourceColumns, ...]
    salts: tuple[int, ...]
    attempt: int
    job_id: str
    contact: Contact

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn source rows into frames."""
        _watch_memory(self)
        try:
            # Spark collects garbage when the task is over.
            with working_in(unpacked_at(self.contact)), without_collection():
                yield from self._frames(batches)
        except Exception as error:
            report_failure(self.contact, failure_message(self.attempt, -1, error))
            raise

    def _frames(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        told = _told()
        rest = iter(batches)
        lists = self._run(rest, told.over)
        if told.allowance is not None:
            packed = _packed(lists, told.allowance)
            for _ in rest:
                """Spark fails a task that leaves input unread, sooner or later."""
            yield packed
            return
        salt = self.salts.__getitem__
        for frames in lists:
            yield frames_to_batch(frames, salt)

    def _run(
        self, batches: Iterable[pa.RecordBatch], over: tuple[int, ...]
    ) -> Iterator[list[Frame]]:
        plan = load_plan(self.plan_id, self.plan)
        partition = _task().partitionId()
        facts = TaskFacts(
            job_id=self.job_id,
            job_name=plan.job_name,
            attempt=self.attempt,
            subtask=partition,
            clock=SystemClock(),
            report=lambda index, kind, values: None,
        )
        begun_ms, since_ms = facts.clock.monotonic_ms(), facts.clock.now_ms()
        side = SourceSide(plan, facts)
        rows = size = sent = 0
        for batch in batches:
            reach("worker.source")
            rows += batch.num_rows
            size += batch.nbytes
            for operator, decoded in self._decoded(batch):
                side.take(operator, decoded)
                frames = side.take_frames()
                if frames:
                    sent += size_of(frames)
                    yield frames
        for operator in over:
            side.take(operator, END)
        frames = [*side.take_frames(), *side.finish()]
        sent += size_of(frames)
        elapsed_ms = facts.clock.monotonic_ms() - begun_ms
        told = SourceReport(
            partition,
            rows,
            size,
            sent,
            undecoded=side.undecoded,
            busy_ms=elapsed_ms,
            begun_ms=since_ms,
        )
        report = pack_report(told)
        yield [*frames, Frame(0, REPORT_EDGE, origin(partition, 0), report)]

    def _decoded(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Piece]]:
        """Return what the rows of a batch hold, piece by piece, by source operator."""
        for source in self.sources:
            part = batch
            if source.column is not None:
                column = batch.column(source.column)
                part = _struct_rows(column)
            if part.num_rows:
                for decoded in source.decoder.decode(part):
                    yield source.operator, decoded


def _watch_memory(task: SourceTask) -> None:
    """Let this worker fail by name before the kernel kills it; one thread is enough for its life.

    The limit of slots does not count here: a worker holds batches of Spark as well.
    """
    begun = bool(_running)
    _running["task"] = task
    if not begun:
        watch = (None, threading.Event(), _out_of_memory)
        threading.Thread(target=watch_memory, args=watch, name="memory", daemon=True).start()


def _out_of_memory(reason: str) -> None:
    task = _running["task"]
    report_failure(task.contact, out_of_memory(task.attempt, -1, reason))
    os._exit(1)


def _packed(lists: Iterable[list[Frame]], allowance: int) -> pa.RecordBatch:
    """Return all frames as one row; with more bytes than the allowance, one without any.

    What is not read then is read again by the tasks that do without the driver.
    """
    kept: list[Frame] = []
    size = 0
    for frames in lists:
        size += size_of(frames)
        if size > allowance:
            return frames_to_batch([Frame(0, PACKED_ROW, 0, b"")], int)
        kept += frames
    return frames_to_batch([Frame(0, PACKED_ROW, 0, pack_frames(kept))], int)


def _struct_rows(column: pa.Array) -> pa.RecordBatch:
    """Return the rows of one source of a union as columns."""
    if column.null_count:
        column = column.drop_null()
    return pa.RecordBatch.from_struct_array(column)


def load_plan(plan_id: str, data: bytes) -> JobPlan:
    """Unpickle a plan once per process."""
    plan = _plans.get(plan_id)
    if plan is None:
        _plans.clear()
        plan = _plans[plan_id] = load_program(data)
    return plan


@dataclass(frozen=True)
class PipeTask:
    """One level in the epochs of one attempt: the partition to its slot, its output back."""

    level: int
    job_id: str
    salts: tuple[int, ...]
    next_salts: tuple[int, ...]
    contact: Contact

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run inside `mapInArrow`."""
        subtask = _task().partitionId()
        call = msgspec.structs.replace(_told().call, level=self.level)
        table = np.array(self.next_salts or (0,), np.int32)
        whole = False
        try:
            channel = connected(self._locate(call.attempt, subtask), self.contact)
            for batch in channel.exchange(call, self._frames(batches, subtask)):
                targets = batch.column(0).to_numpy()
                salts = pa.array(table[targets] if len(self.next_salts) else targets)
                yield pa.RecordBatch.from_arrays([salts, *batch.columns[1:]], schema=FRAME_SCHEMA)
            whole = True
        except ChannelError as error:
            lost = SlotFailure(call.attempt, subtask, "SlotLost", str(error))
            report_failure(self.contact, lost)
            raise
        finally:
            if not whole:
                forget_connections()

    def _frames(self, batches: Iterable[pa.RecordBatch], subtask: int) -> Iterator[pa.RecordBatch]:
        expected = self.salts[subtask]
        for batch in batches:
            edges = batch.column(1).to_numpy()
            salts = batch.column(0).to_numpy()
            if len(salts) and not (salts == expected).all():
                msg = f"partition {subtask} holds rows of another subtask: shuffle went astray"
                raise RuntimeError(msg)
            if (edges == CONTROL_ROW).any():
                keep = np.flatnonzero(edges != CONTROL_ROW)
                if not len(keep):
                    continue
                batch = batch.take(pa.array(keep))
            reach("worker.pipe")
            yield batch

    def _locate(self, attempt: int, subtask: int) -> str:
        """Ask where a slot is; within an attempt it stays there."""
        place = (self.job_id, attempt, subtask)
        if place not in _slots:
            _slots[place] = self._ask(attempt, subtask)
        return _slots[place]

    def _ask(self, attempt: int, subtask: int) -> str:
        driver = connected(self.contact.location, self.contact)
        body = msgspec.msgpack.encode((attempt, subtask))
        host = host_name(self.contact)
        while True:
            answer = driver.call("locate", body, timeout_s=60.0)
            status, unix, tcp, slot_host, message = msgspec.msgpack.decode(answer)
            if status == "ready":
                return str(unix if slot_host == host or not tcp else tcp)
            if status == "start":
                directory = unpacked_at(self.contact)
                start_slot(self.contact, attempt, subtask, host, directory=directory)
            elif status != "wait":
                msg = f"slot {subtask}: {status} ({message})"
                raise ChannelError(msg)


def connected(location: str, contact: Contact) -> Channel:
    """Return a connection of this process, kept from epoch to epoch."""
    channel = _channels.get(location)
    if channel is not None and channel.has(contact.token):
        return channel
    if channel is not None or len(_channels) >= _CHANNELS_MAX:
        forget_connections()
    channel = _channels[location] = Channel(location, contact.token, contact.tls)
    return channel


def forget_connections() -> None:
    """Close all connections: one of them broke off, or has answers that nobody read."""
    for channel in _channels.values():
        channel.close()
    _channels.clear()
    _slots.clear()


def host_name(contact: Contact) -> str:
    """Return an address of this host that other hosts reach; loopback in local mode."""
    if not contact.tcp:
        return "localhost"
    local = os.environ.get("SPARK_LOCAL_IP")
    return local or socket.gethostbyname(socket.gethostname())


def report_failure(contact: Contact, failure: SlotFailure) -> None:
    """Tell the JobManager why this task is about to fail; it may know better already."""
    try:
        driver = Channel(contact.location, contact.token, contact.tls)
        driver.call_struct("failure", failure, timeout_s=5.0)
        driver.close()
    except WeirError as error:
        log.warning("%s", error)
