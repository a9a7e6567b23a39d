"""One recipe for exactly-once sinks: rows and a marker in one atomic step, after the checkpoint.

Between barriers rows are kept by the writer. At a barrier they become a committable, which holds
the rows themselves, so it is as durable as the checkpoint, moves with savepoints and needs no
cleaning up::

    {"identity", "checkpoint", "prepared_ms", "rows", "size", "data": base64 of zstd of the rows,
     "places": where their marker will lie}

After the checkpoint is complete, and again after every restore, whoever holds committables

1. fences all their identities, so that nobody who prepared or committed under one before can go on;
2. asks, for each, which checkpoint of it is the newest that is visible;
3. writes the rows of later ones, each with its marker, atomically.

Subtasks do not wait for each other's fences: the rows and markers of two identities have nothing to
do with each other, and step 2 comes behind the fence of its own identity.

Invariant: the marker belongs to the identity that *prepared* the rows (job, operator, subtask), not
to who commits them, and all committables of an identity are committed by one subtask, in order of
checkpoints. So rescaling, and several jobs that start from one savepoint, write nothing twice.
"""

from __future__ import annotations

import base64
import logging
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from weir.connector.sink import Sink, SinkWriter, WriterContext
from weir.errors import CorruptStateError
from weir.notices import warn_once

log = logging.getLogger("weir.sink")


class CommitTarget(ABC):
    """A place outside that can take rows and a marker in one atomic step; for one thread."""

    retention_ms: int | None = None
    """For how long a marker is kept when nothing is committed; None for ever."""
    remembers_rows: bool = False
    """Whether `write` may be given rows as they are, by who prepared them, instead of decoded."""

    @abstractmethod
    def fence(self, identities: Sequence[str]) -> None:
        """Keep out whoever wrote under these identities before: no call of theirs succeeds now."""

    @abstractmethod
    def committed(self, identity: str) -> int | None:
        """Return the newest checkpoint of a fenced identity whose rows are visible."""

    def places_of(self, rows: list[Any]) -> list[str]:
        """Return where the marker of rows lies, if that depends on them; by default nowhere else.

        A target that names places is asked about those alone, by `committed_in`.
        """
        return []

    def committed_in(self, identity: str, places: Sequence[str]) -> int | None:
        """Return the newest checkpoint of a fenced identity that has a marker in these places."""
        return self.committed(identity)

    @abstractmethod
    def write(self, identity: str, checkpoint: int, rows: list[Any]) -> None:
        """Make rows visible together with their marker, or not at all.

        Raises:
            StorageError: nothing was written, or nobody knows: fence and ask again.
        """

    def encode(self, rows: list[Any]) -> bytes:
        """Return rows as bytes, for a checkpoint."""
        return msgspec.msgpack.encode(rows)

    def decode(self, data: bytes) -> list[Any]:
        """Return the rows of such bytes."""
        found: list[Any] = msgspec.msgpack.decode(data)
        return found

    def close(self) -> None:  # noqa: B027
        """Free connections; may be called twice."""


class Commits:
    """Steps 1 to 3 of the recipe for one target, by whoever holds what was prepared.

    Invariant: what an identity has committed is committed in order of checkpoints. So when this
    process has written one, nobody has written a later one.
    """

    def __init__(self, target: CommitTarget) -> None:
        """Nobody is fenced yet."""
        self._target = target
        self._fenced: set[str] = set()
        self._written: dict[str, int] = {}
        self._found: dict[tuple[str, tuple[str, ...]], int | None] = {}

    def fence(self, identities: Iterable[str]) -> None:
        """Fence those identities that are not fenced yet."""
        new = sorted(set(identities) - self._fenced)
        if new:
            self._target.fence(new)
            self._fenced.update(new)

    def newest(self, identity: str, places: Sequence[str] = ()) -> int | None:
        """Return the newest checkpoint whose rows are visible; fences the identity first.

        Of one that has its marker elsewhere than in these places, nothing may be known.
        """
        if identity in self._written:
            return self._written[identity]
        self.fence([identity])
        asked = (identity, tuple(places))
        if asked not in self._found:
            self._found[asked] = self._target.committed_in(identity, places)
        return self._found[asked]

    def write(self, identity: str, checkpoint: int, rows: Any) -> None:
        """Write rows that are not visible yet."""
        # What is raised leaves it unknown whether the rows are visible: ask before the next try.
        self._fenced.discard(identity)
        self._written.pop(identity, None)
        self._found = {asked: n for asked, n in self._found.items() if asked[0] != identity}
        self._target.write(identity, checkpoint, rows)
        self._fenced.add(identity)
        self._written[identity] = checkpoint


class Committable(msgspec.Struct, frozen=True):
    """Rows that a checkpoint holds; see the module."""

    identity: str
    checkpoint: int
    prepared_ms: int
    rows: int
    size: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    data: str
    places: list[str] = []


def _decode(committable: bytes) -> Committable:
    try:
        return _decoder.decode(committable)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"a committable of a sink is damaged: {error}; restore another checkpoint"
        raise CorruptStateError(msg) from error


_decoder = msgspec.json.Decoder(Committable)
_UNREADABLE: Final = (
    *(ValueError, OSError, OverflowError, MemoryError, RecursionError),
    *(pa.ArrowException, msgspec.MsgspecError),
)


class CommitSink(Sink):
    """A sink by the recipe: says what its target is, and what becomes of records."""

    when_unknown: str = "fail"
    """What to do with rows whose marker may have expired: `fail`, `write` or `drop` them."""

    @abstractmethod
    def open_target(self, context: WriterContext) -> CommitTarget:
        """Return the target for one subtask."""

    @abstractmethod
    def rows_of(self, values: list[Any], timestamps: list[int | None] | None) -> Iterable[Any]:
        """Return what the target takes of some records."""

    def check(self, interval_ms: int | None) -> None:
        """Say that rows wait for checkpoints where there are none."""
        if interval_ms is None:
            warn_once(
                log,
                f"{type(self).__name__} shows rows when a checkpoint is complete, and there are "
                "none: it shows nothing before the job ends, and keeps all rows in memory; see "
                "env.enable_checkpointing()",
            )

    def create_writer(self, context: WriterContext) -> CommitWriter:
        """Create the writer of one subtask."""
        return CommitWriter(self, self.open_target(context), context)


class CommitWriter(SinkWriter):
    """Keeps rows until the barrier, and commits by the recipe."""

    def __init__(self, sink: CommitSink, target: CommitTarget, context: WriterContext) -> None:
        """Begin with nothing; no identity is fenced yet."""
        self._sink = sink
        self._target = target
        self._context = context
        self._identity = identity_of(context)
        self._rows: list[Any] = []
        self._prepared: dict[int, list[Any]] = {}
        self._commits = Commits(target)

    def write_batch(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        """Keep what becomes of the records."""
        self._rows.extend(self._sink.rows_of(values, timestamps))

    def prepare(self, checkpoint_id: int) -> list[bytes]:
        """Return the rows so far as a committable."""
        if not self._rows:
            return []
        data = self._target.encode(self._rows)
        packed = pa.compress(data, codec="zstd", asbytes=True)
        made = Committable(
            self._identity,
            checkpoint_id,
            prepared_ms=self._context.clock.now_ms(),
            rows=len(self._rows),
            size=len(data),
            data=base64.b64encode(packed).decode(),
            places=self._target.places_of(self._rows),
        )
        if self._target.remembers_rows:
            self._prepared[checkpoint_id] = self._rows
        self._rows = []
        return [msgspec.json.encode(made)]

    def share(self, committables: list[bytes], subtask: int, parallelism: int) -> list[bytes]:
        """Take all committables of an identity, or none: they have an order."""
        mine = [(c, _decode(c).identity) for c in committables]
        return [c for c, identity in mine if zlib.crc32(identity.encode()) % parallelism == subtask]

    def commit(self, committables: list[bytes]) -> None:
        """Fence all who prepared, then write what is not visible yet, in order of checkpoints."""
        given = sorted(map(_decode, committables), key=lambda c: (c.identity, c.checkpoint))
        self._commits.fence(one.identity for one in given)
        for one in given:
            self._commit(one)

    def _commit(self, one: Committable) -> None:
        own = one.identity == self._identity
        remembered = self._prepared.pop(one.checkpoint, None) if own else None
        done = self._commits.newest(one.identity, one.places)
        if done is not None and one.checkpoint <= done:
            return
        if done is None and self._may_have_expired(one):
            return
        rows = self._rows_of(one) if remembered is None else remembered
        self._commits.write(one.identity, one.checkpoint, rows)

    def _rows_of(self, one: Committable) -> list[Any]:
        try:
            packed = base64.b64decode(one.data, validate=True)
            data = pa.decompress(packed, decompressed_size=one.size, codec="zstd", asbytes=True)
            rows = self._target.decode(data)
        except _UNREADABLE as error:
            msg = f"rows of checkpoint {one.checkpoint} of {one.identity!r} are damaged: {error}"
            raise CorruptStateError(msg) from error
        found = len(rows) if isinstance(rows, list) else None
        if found != one.rows:
            there = "something else is there" if found is None else f"{found} are there"
            msg = f"{one.identity!r} prepared {one.rows} rows, and {there}"
            raise CorruptStateError(msg)
        return rows

    def _may_have_expired(self, one: Committable) -> bool:
        """Tell whether to leave out rows that may be visible already, since nobody can know."""
        kept, age = self._target.retention_ms, self._context.clock.now_ms() - one.prepared_ms
        if kept is None or age <= kept or self._sink.when_unknown == "write":
            return False
        what = (
            f"{one.rows} rows that checkpoint {one.checkpoint} of {one.identity!r} prepared "
            f"{age // 86_400_000} days ago may be visible already: markers are kept for "
            f"{kept // 86_400_000} days"
        )
        if self._sink.when_unknown == "drop":
            log.warning("%s; they are left out", what)
            return True
        msg = f"{what}; look at the output, then choose what to do with them: 'write' or 'drop'"
        raise CorruptStateError(msg)

    def abort(self) -> None:
        """Drop what was not prepared."""
        self._rows = []

    def close(self) -> None:
        """Close the target."""
        self.abort()
        self._prepared.clear()
        self._target.close()


def identity_of(context: WriterContext) -> str:
    """Return who prepares rows: a subtask of an operator of one job, in whatever attempt."""
    return f"{context.job_id}.{context.operator_id[:16]}.{context.subtask}"
