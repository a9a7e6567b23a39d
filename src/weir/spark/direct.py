"""Small epochs go through the driver: it hands the frames to the slots, level after level.

A stage of Spark costs more than everything that a slot does with a few rows. So level 0 of an
epoch that is expected to be small returns its frames to the driver, and an epoch without input
needs no Spark job at all. The driver never holds much: tasks of level 0 return nothing when they
have more than their allowance, and a level that sends too much on is not handed on. Then the epoch
is run by Spark alone; what slots have applied of it they answer from memory.

Slots cannot tell the difference: the calls are those that a pipe makes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from weir.failpoint import reach
from weir.jobmanager.background import in_thread
from weir.runtime.frame import (
    REPORT_EDGE,
    Frame,
    frames_to_batch,
    payload_views,
    size_of,
    split_frames,
)
from weir.runtime.report import SourceReport, SubtaskReport
from weir.slot.channel import Channel, ChannelError, Hangup
from weir.slot.messages import LOST, EpochCall, SlotFailure
from weir.slot.spawn import Contact
from weir.spark.worker import report_failure

# Frames of more partitions than this would take the driver longer than a shuffle takes Spark.
PARTITIONS_MAX = 64
ALLOWANCE_MIN = 16 << 10
# What slots send on may be more than was expected by this factor, before the driver gives up.
RELAY_FACTOR = 16
_TICK_S = 0.05


@dataclass(frozen=True)
class EpochTraffic:
    """The bytes of frames that an epoch moved: by partition of level 0, and between slots."""

    sources: tuple[int, ...] = ()
    slots: int = 0

    @classmethod
    def of(cls, sources: Sequence[SourceReport], subtasks: Sequence[SubtaskReport]) -> EpochTraffic:
        """Sum up what the partitions of level 0 and the subtasks reported."""
        return cls(
            tuple(report.bytes_sent for report in sources),
            sum(report.bytes_sent for report in subtasks),
        )


def allowance(limit: int, partitions: int) -> int:
    """Return how many bytes one of the partitions of level 0 may return to the driver.

    Records are seldom spread evenly, so that small partitions may return more than an even split.
    """
    return max(limit // max(partitions, 1), min(limit, ALLOWANCE_MIN))


def fits(traffic: EpochTraffic, limit: int) -> bool:
    """Tell whether an epoch that moves as much as another would go through the driver."""
    partitions = len(traffic.sources)
    return (
        partitions <= PARTITIONS_MAX
        and sum(traffic.sources) + traffic.slots <= limit
        and all(size <= allowance(limit, partitions) for size in traffic.sources)
    )


def is_direct(limit: int, *, has_input: bool, before: EpochTraffic | None) -> bool:
    """Decide whether to try; `before` is what the last epoch with input moved, if there was one."""
    if limit <= 0:
        return False
    return not has_input or (before is not None and fits(before, limit))


def by_target(frames: Sequence[Frame], width: int) -> list[list[Frame]]:
    """Return the frames of each subtask of a level.

    Raises:
        RuntimeError: a frame is for a subtask that the level does not have.
    """
    parts: list[list[Frame]] = [[] for _ in range(width)]
    for frame in frames:
        if not 0 <= frame.target < width:
            msg = f"a frame is for subtask {frame.target} of a level that has {width}"
            raise RuntimeError(msg)
        parts[frame.target].append(frame)
    return parts


class Relay:
    """Hands frames to the slots of one attempt; one epoch at a time.

    `locate` returns the addresses of all slots when all of them take epochs. `watch` is called
    again and again while slots work, and raises when nobody wants the epoch any more.
    """

    def __init__(
        self,
        widths: Sequence[int],
        contact: Contact,
        limit: int,
        locate: Callable[[], list[str] | None],
        watch: Callable[[], None],
    ) -> None:
        """Connect to nobody yet."""
        self.limit = limit
        self._widths = widths
        self._contact = contact
        self._locate = locate
        self._watch = watch
        self._channels: list[Channel] = []

    def connect(self) -> bool:
        """Get ready for epochs; False while a slot is missing."""
        if self._channels:
            return True
        addresses = self._locate()
        if addresses is None:
            return False
        contact = self._contact
        self._channels = [Channel(address, contact.token, contact.tls) for address in addresses]
        return True

    def run(self, call: EpochCall, frames: list[Frame]) -> list[Frame] | None:
        """Run all levels over the frames of level 0; return the reports, None if it is too much.

        Raises:
            ChannelError: a slot failed or was lost; the JobManager knows.
        """
        for level in range(1, len(self._widths)):
            # Reports go through the slots as well: who calls a level again gets them again, and
            # those of a level that a barrier overtakes are in its checkpoint.
            parts = by_target(frames, self._widths[level])
            reach("driver.relay")
            sent = self._run_level(msgspec.structs.replace(call, level=level), parts)
            if sent is None:
                return None
            frames = sent
        return [frame for frame in frames if frame.edge == REPORT_EDGE]

    def _run_level(self, call: EpochCall, parts: list[list[Frame]]) -> list[Frame] | None:
        """Let all subtasks of a level work at the same time; nobody begins the next one before."""
        hangup = Hangup()
        budget = _Budget(self.limit * RELAY_FACTOR)
        futures = [
            in_thread(_exchange, channel, call, part, budget=budget, hangup=hangup)
            for channel, part in zip(self._channels, parts, strict=False)
        ]
        try:
            answers = self._await(call, futures)
        except BaseException:
            hangup.now()
            # They may have answers that nobody read, and threads that are about to let them go.
            self._channels = []
            raise
        return None if budget.exceeded else [frame for answer in answers for frame in answer]

    def _await(self, call: EpochCall, futures: list[Future[list[Frame]]]) -> list[list[Frame]]:
        while True:
            done, waiting = wait(futures, _TICK_S, FIRST_EXCEPTION)
            for subtask, future in enumerate(futures):
                error = future.exception() if future in done else None
                if isinstance(error, ChannelError):
                    lost = SlotFailure(call.attempt, subtask, LOST, str(error))
                    report_failure(self._contact, lost)
                if error is not None:
                    raise error
            if not waiting:
                return [future.result() for future in futures]
            self._watch()

    def close(self) -> None:
        """Close the connections."""
        for channel in self._channels:
            channel.close()
        self._channels = []


class _Budget:
    """Counts what the slots of a level send on, in several threads."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = threading.Lock()

    @property
    def exceeded(self) -> bool:
        return self._left < 0

    def spend(self, size: int) -> bool:
        """Take note of some bytes; False when there were too many."""
        with self._lock:
            self._left -= size
            return self._left >= 0


def _exchange(
    channel: Channel, call: EpochCall, part: list[Frame], budget: _Budget, hangup: Hangup
) -> list[Frame]:
    """Call one slot; what goes beyond the budget is read and dropped."""
    kept: list[Frame] = []
    batches = [frames_to_batch(frames, int) for frames in split_frames(part)]
    for batch in channel.exchange(call, batches, hangup):
        frames = _frames(batch)
        if budget.spend(size_of(frames)):
            kept += frames
        else:
            kept = []
    return kept


def _frames(batch: pa.RecordBatch) -> list[Frame]:
    columns = (batch.column(n).to_pylist() for n in range(3))
    return list(map(Frame, *columns, payload_views(batch.column(3))))
