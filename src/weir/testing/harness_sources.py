"""The sources of a job in the harness: lists of records, read from a position on.

Invariant: a position is the index of the next record of a source. It travels through checkpoint
metadata as text, so a job that resumes knows nothing but what was written down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from weir.checkpoint.metadata import SourceLayout, SourcePositions
from weir.errors import UsageError
from weir.graph.plan import JobPlan
from weir.graph.sources import CollectionSource, SequenceSource

Records = Sequence[Any] | Mapping[int, Sequence[Any]]
_HEAD = ("v1", "{}")


class HarnessSources:
    """All records of all sources, and how far this execution has read them."""

    def __init__(self, plan: JobPlan) -> None:
        """Take the sources out of a plan, as the engine does before it ships one."""
        self.indexes: list[int] = []
        self._uids: list[str] = []
        self._records: list[list[Any]] = []
        for node in plan.operators:
            if node.kind == "source":
                self.indexes.append(node.index)
                self._uids.append(node.uid or node.id)
                self._records.append(_elements(node.function, node.name))
                node.function = None
        self._next = [0] * len(self.indexes)

    def arrive(self, records: Records) -> None:
        """Append records to sources; a plain list is for the first one."""
        arriving = records if isinstance(records, Mapping) else {0: records}
        for source, values in arriving.items():
            self._records[source].extend(values)

    def inherit(self, other: HarnessSources) -> None:
        """Take over the records that arrived in an earlier job of the same program."""
        self._records = [list(records) for records in other._records]

    def take(self, limit: int | None = None) -> dict[int, list[Any]]:
        """Read on: at most `limit` records of every source, by operator index."""
        taken: dict[int, list[Any]] = {}
        for i, index in enumerate(self.indexes):
            start = self._next[i]
            stop = len(self._records[i]) if limit is None else start + limit
            taken[index] = self._records[i][start:stop]
            self._next[i] = start + len(taken[index])
        return taken

    @property
    def exhausted(self) -> bool:
        """Tell whether every record was read."""
        return all(n == len(r) for n, r in zip(self._next, self._records, strict=True))

    def positions(self, epoch: int) -> SourcePositions:
        """Return where the sources are now."""
        lines = tuple(json.dumps({"next": n}) for n in self._next)
        layout = tuple(SourceLayout(uid, i) for i, uid in enumerate(self._uids))
        return SourcePositions(batch_id=epoch, offset_lines=(*_HEAD, *lines), layout=layout)

    def rewind(self, positions: SourcePositions | None) -> None:
        """Go back to positions of a checkpoint; a source that it does not know starts over."""
        self._next = [0] * len(self.indexes)
        if positions is None:
            return
        before = {entry.uid: entry.index for entry in positions.layout}
        for i, uid in enumerate(self._uids):
            if uid in before:
                line = positions.offset_lines[len(_HEAD) + before[uid]]
                self._next[i] = json.loads(line)["next"]


def _elements(source: Any, name: str) -> list[Any]:
    if isinstance(source, CollectionSource):
        return list(source.elements)
    if isinstance(source, SequenceSource):
        return list(range(source.start, source.end + 1))
    msg = f"source '{name}': the harness reads collections and sequences, found {source!r}"
    raise UsageError(msg)


def split(values: list[Any], parts: int) -> list[list[Any]]:
    """Cut a list into contiguous parts of nearly equal length; order is kept."""
    bounds = [len(values) * i // parts for i in range(parts + 1)]
    return [values[a:b] for a, b in pairwise(bounds)]
