"""The log: encoded changes in segments, each a layer of delta parts.

Changes come in at epoch ends and are encoded at once, because the values may change afterwards.
A checkpoint closes the open segment; a segment that has become big enough is closed before. Small
ones are merged when another is closed, so that a checkpoint refers to few files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weir.backend.base import SharedFiles
from weir.backend.changelog.pieces import Piece
from weir.backend.changes import StateChanges
from weir.backend.delta import encode_delta
from weir.snapshot import SnapshotWriter


@dataclass(frozen=True)
class Part:
    """Bytes of one key group: changes, or with `whole` all entries."""

    data: bytes
    count: int
    whole: bool


@dataclass
class LoggedState:
    """The parts of one state; with `anew` what older layers say of it does not count."""

    kind: str
    types: dict[str, Any]
    anew: bool
    groups: dict[int, list[Part]] = field(default_factory=dict)


class ChangeBatch:
    """Encoded changes of all states, in order."""

    def __init__(self) -> None:
        self.states: dict[str, LoggedState] = {}
        self.size = 0

    def add(self, changes: list[StateChanges]) -> None:
        """Encode changes and append them; costs time proportional to them."""
        for change in changes:
            logged = LoggedState(change.kind.name, change.format.describe(), change.whole)
            for group, delta in change.groups.items():
                if change.whole:
                    data = change.format.encode(list(delta.put), list(delta.put.values()))
                elif len(delta):
                    data = encode_delta(change.format, delta)
                else:
                    continue
                logged.groups[group] = [Part(data, len(delta), change.whole)]
            if logged.groups or logged.anew:
                self._append(change.name, logged)

    def extend(self, later: ChangeBatch) -> None:
        """Append what came later; the other batch stays as it is."""
        for name, logged in later.states.items():
            self._append(name, logged)

    def _append(self, name: str, logged: LoggedState) -> None:
        size = sum(len(p.data) for parts in logged.groups.values() for p in parts)
        self.size += size + len(name)
        state = self.states.get(name)
        if state is None or logged.anew:
            groups = {group: list(parts) for group, parts in logged.groups.items()}
            self.states[name] = LoggedState(logged.kind, logged.types, logged.anew, groups)
            return
        for group, parts in logged.groups.items():
            state.groups.setdefault(group, []).extend(parts)

    def write(self, writer: SnapshotWriter) -> dict[str, Any]:
        """Write a layer and return its footer part."""
        footer = {}
        for name, state in self.states.items():
            groups = {
                str(group): [[*writer.section(p.data), p.count, int(not p.whole)] for p in parts]
                for group, parts in state.groups.items()
            }
            footer[name] = {"kind": state.kind, "type": state.types, "groups": groups}
        return footer


@dataclass
class Segment:
    """A closed part of the log, from one number up to another, exclusive.

    `batch` is there as long as the segment may be merged with others.
    """

    begin: int
    end: int
    size: int
    piece: Piece
    batch: ChangeBatch | None


def merge_start(sizes: Sequence[int], limit: int) -> int:
    """Decide from which of the closed segments on they become one with the last.

    A segment is merged with younger ones that are as big as it together, up to a limit: so there
    are few segments, and each change is written again only a few times.
    """
    start = len(sizes) - 1
    total = sizes[start]
    while start > 0 and sizes[start - 1] <= total and total + sizes[start - 1] <= limit:
        start -= 1
        total += sizes[start]
    return start


class ChangeLog:
    """All changes since the state was last written as a whole. Used on the backend's thread."""

    def __init__(self, shared: SharedFiles, *, attempts: int, limit: int) -> None:
        """Begin empty; segments of `limit` bytes or more are not merged."""
        self.segments: list[Segment] = []
        self._shared = shared
        self._attempts = attempts
        self._limit = limit
        self._open = ChangeBatch()
        self._next = 0

    @property
    def open_size(self) -> int:
        """Return the bytes that are not in a closed segment yet."""
        return self._open.size

    def append(self, changes: list[StateChanges]) -> None:
        """Log changes."""
        self._open.add(changes)

    def close_segment(self) -> list[Piece]:
        """Close the open segment, if anything is in it; return pieces that were replaced."""
        if not self._open.states:
            return []
        mergeable = [s for s in self.segments if s.batch is not None]
        start = merge_start([*(s.size for s in mergeable), self._open.size], self._limit)
        merged, batch = mergeable[start:], ChangeBatch()
        for segment in merged:
            if segment.batch is not None:
                batch.extend(segment.batch)
        batch.extend(self._open)
        begin = merged[0].begin if merged else self._next
        self._next += 1
        piece = Piece(self._shared, batch.write, attempts=self._attempts)
        kept = self.segments[: len(self.segments) - len(merged)]
        self.segments = [*kept, Segment(begin, self._next, batch.size, piece, batch=batch)]
        self._open = ChangeBatch()
        self._forget_batches()
        return [segment.piece for segment in merged]

    def _forget_batches(self) -> None:
        """Keep no more bytes in memory than could be merged."""
        total = 0
        for segment in reversed(self.segments):
            total += segment.size
            if total > self._limit:
                segment.batch = None

    def cut(self) -> tuple[int, list[Piece]]:
        """Close the open segment; return the number at which later changes begin.

        Segments on both sides of a cut are never merged. Also returns replaced pieces.
        """
        replaced = self.close_segment()
        for segment in self.segments:
            segment.batch = None
        return self._next, replaced

    def truncate(self, before: int) -> list[Piece]:
        """Forget the segments up to a cut; return their pieces."""
        old = [s.piece for s in self.segments if s.end <= before]
        self.segments = [s for s in self.segments if s.end > before]
        return old

    def clear(self) -> list[Piece]:
        """Forget everything; return the pieces."""
        cut, replaced = self.cut()
        return replaced + self.truncate(cut)

    def unwritten(self) -> list[Segment]:
        """Return the closed segments that are in memory only."""
        return [s for s in self.segments if not s.piece.made]
