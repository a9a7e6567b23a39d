"""Frames of thousands of records, made of chunks of a few.

Records become columns or pickles at once, when they are written: what a function changes in an
object after it has emitted it, or a timer later on, does not change what was sent. Only the packed
form is gathered, and a few records at a time, as timers send them, that nobody can change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.backend.isolation import is_immutable
from weir.graph.plan import EdgeNode
from weir.graph.transformation import Partitioning
from weir.runtime.columnar import ColumnarChunk
from weir.runtime.exchange import EdgeWriter
from weir.runtime.frame import Chunk, Frame, join_chunks, join_pickles

# Enough that a frame's own cost does not count; far below what one row of Spark can hold.
FRAME_ROWS = 8192
FRAME_BYTES = 4 << 20
# Chunks below this are not worth a batch of their own; this many records of them are.
FEW = 64
LOOSE_ROWS = 1024

_BY_RECORD = (
    Partitioning.REBALANCE,
    Partitioning.RESCALE,
    Partitioning.SHUFFLE,
    Partitioning.CUSTOM,
)


class GatheringWriter(EdgeWriter):
    """The sending side of an edge between slots; `sent` is told the bytes of each frame."""

    def __init__(
        self,
        edge: EdgeNode,
        sender: int,
        operator_name: str,
        giver: str | None = None,
        sent: Callable[[int], None] = lambda size: None,
    ) -> None:
        super().__init__(edge, sender, operator_name, giver)
        self._sent = sent
        self._loose_limit = 1  # until it is known how wide records are
        self._clear()

    def _clear(self) -> None:
        self._loose: list[Chunk] = []
        self._loose_rows = 0
        self._batches: list[pa.RecordBatch] = []
        self._owners: list[npt.NDArray[Any]] = []
        self._pickles: dict[int, list[bytes]] = {}
        self._rows = 0
        self._bytes = 0

    def restart(self) -> None:
        """Begin a new epoch; what was gathered in one that failed is gone."""
        super().restart()
        self._clear()

    def write(self, chunk: Chunk) -> None:
        """Pack records, and send them when there are enough."""
        if isinstance(chunk, ColumnarChunk):
            self.flush()
            super().write(chunk)
        elif chunk.values and self._columnar:
            self._gather_columns(chunk)
        else:
            super().write(chunk)  # which ends in `_send`
        self._rows += len(chunk)
        if self._rows >= FRAME_ROWS or self._bytes >= FRAME_BYTES:
            self.flush()

    def _gather_columns(self, chunk: Chunk) -> None:
        if len(chunk) < FEW and all(map(is_immutable, chunk.values)):
            self._loose.append(chunk)
            self._loose_rows += len(chunk)
            if self._loose_rows >= self._loose_limit:
                self._bind()
        else:
            self._bind()
            self._add(chunk)

    def _bind(self) -> None:
        """Make columns of the records that came a few at a time."""
        loose, self._loose, self._loose_rows = self._loose, [], 0
        if loose:
            self._add(loose[0] if len(loose) == 1 else join_chunks(loose))

    def _add(self, chunk: Chunk) -> None:
        batch = self._batch(chunk)
        if self._batches and self._batches[0].schema != batch.schema:
            self._flush_columns()  # only some have timestamps
        rows, size = batch.num_rows, batch.nbytes
        self._loose_limit = min(LOOSE_ROWS, 1 + rows * FRAME_BYTES // (1 + size))
        self.records += rows
        self._batches.append(batch)
        self._bytes += size
        if self.edge.partitioning in _BY_RECORD:
            self._owners.append(self._spread(chunk))

    def _send(self, target: int, payload: Any) -> None:
        if payload.__class__ is bytes:  # pickled; columns are buffers
            self._pickles.setdefault(target, []).append(payload)
            self._bytes += len(payload)
        else:
            self._put(target, payload)

    def _put(self, target: int, payload: Any) -> None:
        super()._send(target, payload)
        self._sent(len(memoryview(payload)))

    def flush(self) -> None:
        """Send what was gathered."""
        self._bind()
        self._flush_columns()
        for target, payloads in self._pickles.items():
            self._put(target, join_pickles(payloads))
        self._clear()

    def _flush_columns(self) -> None:
        batches, owners = self._batches, self._owners
        self._batches, self._owners = [], []
        if not batches:
            return
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        if owners:
            self._send_split(batch, np.concatenate(owners))
        else:
            self._route_columns(batch)

    def take_frames(self) -> list[Frame]:
        """Hand over everything that was written."""
        self.flush()
        return super().take_frames()
