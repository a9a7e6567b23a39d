"""An edge from the source side to windows: rows of one key and slice of time travel as one.

Fewer rows are routed, shuffled and looked at in the slot. What is sent is exact
(`weir.runtime.window_slices`), and so are the counters: a row says how many records it is made of.
Where windows need every single record, nothing is combined: late ones that make a window fire
again, or that a side output shows.

Rows are held until there are many, or the partition ends. A task whose rows have next to no keys in
common sends them as they are.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from weir.graph.kinds import WINDOW
from weir.graph.plan import EdgeNode, JobPlan
from weir.graph.transformation import Partitioning
from weir.runtime.exchange import EdgeWriter
from weir.runtime.frame import MERGED, TIMES, TIMESTAMPS
from weir.runtime.window_slices import Slices, can_take_columns
from weir.window.spec import COUNT, WindowSpec

HELD_ROWS = 1 << 20
"""So many rows wait to be combined."""
HELD_BYTES = 64 << 20
_WORTH = 0.9
"""Combined rows are sent where they are not more than this part of all."""


def can_combine(plan: JobPlan, edge: EdgeNode) -> bool:
    """Tell whether rows of an edge have the effect of what they are combined to."""
    target = plan.operators[edge.target]
    if plan.batch or target.kind != WINDOW.name or edge.partitioning is not Partitioning.HASH:
        return False
    spec: WindowSpec = target.options["window"]
    aggregate = spec.contents.aggregate
    if aggregate is None or not can_take_columns(spec, edge):
        return False
    assigner: Any = spec.assigner
    # Which of equal records of several slices came first is not told any more.
    if assigner.slide > assigner.size or (
        assigner.slide < assigner.size and aggregate.op.endswith("_by")
    ):
        return False
    late = None if spec.late_tag is None else spec.late_tag.tag_id
    shown = late is not None and any(e.tag == late for e in plan.outputs_of(target.index))
    return not shown and not (assigner.is_event_time() and spec.lateness_ms)


class CombiningWriter(EdgeWriter):
    """Packs the records of an edge for which `can_combine` is true."""

    def __init__(
        self, edge: EdgeNode, sender: int, names: tuple[str, str], spec: WindowSpec
    ) -> None:
        """Prepare for one sender; `names` are of who takes the records, and of who gives them."""
        super().__init__(edge, sender, names[0], giver=names[1])
        self._slices = Slices(spec, edge)
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._combines: bool | None = None  # until the first rows have shown whether it is worth it

    def _send_keyed_columns(self, batch: pa.RecordBatch) -> None:
        if self._combines is None:
            combined = self._combined(batch)
            self._combines = combined is not None and _is_worth_it(combined, batch)
        if not self._combines:
            super()._send_keyed_columns(batch)
            return
        if self._held and self._held[0].schema != batch.schema:
            self.flush()  # only some have timestamps
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= HELD_ROWS or self._bytes >= HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what is held."""
        held, self._held, self._rows, self._bytes = self._held, [], 0, 0
        if not held:
            return
        batch = held[0] if len(held) == 1 else pa.concat_batches(held)
        combined = self._combined(batch)
        if combined is not None and _is_worth_it(combined, batch):
            super()._send_keyed_columns(combined)
            return
        for batch in held:
            super()._send_keyed_columns(batch)

    def _combined(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return rows that stand for all rows; None when there are none that do so exactly."""
        slices, names = self._slices, batch.schema.names
        stamps = batch.column(TIMESTAMPS) if TIMESTAMPS in names else None
        # In processing time all of an epoch's rows have the same windows, whenever that is.
        rows = slices.measured(batch, stamps, None, now=0)
        made = None if rows is None else slices.of(batch, rows, counted=True)
        if made is None:
            return None
        found, _ = made
        combined = batch.take(pa.array(found.rows))
        field = slices.field(batch.schema)
        if field is not None:
            column = pa.array(found.values, batch.column(field).type)
            combined = combined.set_column(field, batch.schema.field(field), column)
        name = TIMES if slices.op == COUNT else MERGED
        return combined.append_column(name, pa.array(found.counts))


def _is_worth_it(combined: pa.RecordBatch, batch: pa.RecordBatch) -> bool:
    return bool(combined.num_rows <= batch.num_rows * _WORTH)
