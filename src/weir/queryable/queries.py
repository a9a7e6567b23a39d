"""Answers queries about the state of one job; see `weir.jobmanager.queries.JobQueries`.

Nothing of a caller is unpickled, and nothing that was pickled is loaded for one: keys of no
declared type are plain data, and values of none are shown as bytes.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from weir.checkpoint.metadata import CheckpointMetadata
from weir.codec.plain import loads_plain
from weir.errors import CorruptStateError, UsageError
from weir.jobmanager.queries import (
    Answer,
    Entries,
    Facts,
    KeyRange,
    QueryError,
    QueryLimitError,
    StateTooOldError,
    StateUnavailableError,
    StateView,
    Terms,
)
from weir.jobmanager.supervisor import Supervisor
from weir.keys import one_nan_many, plain
from weir.offline.keys import key_from_json, key_from_text
from weir.offline.tables import KEY
from weir.queryable.catalog import Catalog, KnownState
from weir.queryable.committed import CommittedReader, PinnedCheckpoint
from weir.queryable.live import LiveReader
from weir.queryable.protocol import ReadBy, with_facts
from weir.queryable.settings import QueryLimits, StreamPlace
from weir.queryable.wanted import Wanted, is_ordered, is_ordered_in_slots, rows_wanted

T = TypeVar("T")
_STATES_PATIENCE_MS: Final = 2_000
_FEW_ROWS: Final = 10_000


class Bound(Protocol):
    """How much may be read."""

    def refuse_larger(self, size: int, what: str) -> None:
        """Refuse what is too large.

        Raises:
            QueryLimitError: it is.
        """


class StateQueries:
    """The queries of one job; thread-safe."""

    def __init__(
        self,
        job: Supervisor,
        limits: QueryLimits | None = None,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """Ask a job; `pause` is what is done before it is asked again."""
        self.limits = limits or QueryLimits()
        self.clock = job.clock
        self._job = job
        wait = pause or threading.Event().wait
        self._live = LiveReader(job.network, lambda: job.plan, self.limits, wait, clock=job.clock)
        # Who reads slowly is given up before the checkpoint is.
        self._committed = CommittedReader(job, lease_ms=2 * self.limits.timeout_ms)
        self.catalog = Catalog(
            lambda: job.plan,
            lambda: job.network.states(_STATES_PATIENCE_MS),
            everything=self.limits.states == "all",
        )

    def states(self) -> list[StateView]:
        """Return the states that can be queried."""
        self._refuse_ended()
        with self.limits.admitted():
            return [state.view() for state in self.catalog.states()]

    def key(self, state: str | KnownState, value: Any, *, text: bool = False) -> Any:
        """Return the key that a JSON value stands for, or a text that a person typed."""
        layout = self._found_state(state).layout
        try:
            return key_from_text(value, layout.key) if text else key_from_json(value, layout.key)
        except UsageError as error:
            raise QueryError(str(error)) from error

    def encoded_keys(self, state: str, keys: Sequence[bytes], key_type: Any) -> list[Any]:
        """Return the keys that a client has encoded by the type that it takes keys for.

        Raises:
            QueryError: keys are of another type, or bytes are none.
        """
        known = self.catalog.find(state)
        if key_type != known.key_type:
            msg = f"keys of state {state!r} are {known.key_type!r}, and the query has {key_type!r}"
            raise QueryError(msg)
        of, data = known.layout.key, b""
        try:
            return [of.codec.decode(data := key) for key in keys]
        except (UsageError, CorruptStateError, ValueError, TypeError) as error:
            msg = f"{len(data)} bytes are no key of {of.type_info!r}: {error}"
            raise QueryError(msg) from error

    def _found_state(self, state: str | KnownState) -> KnownState:
        return state if isinstance(state, KnownState) else self.catalog.find(state)

    def get(
        self,
        state: str | KnownState,
        keys: Sequence[Any],
        terms: Terms,
        namespace: Any = None,
        moment: PinnedCheckpoint | None = None,
    ) -> Answer:
        """Return the rows of some keys; committed ones of a given moment, or the newest."""
        self._refuse_ended()
        with self.limits.admitted():
            known = self._found_state(state)
            wanted = self._by_group(known, keys)
            if terms.level == "live":
                batches, epoch = self._live.keys(known, _encoded(known, wanted))
                facts = self._live_facts(epoch)
            else:
                facts, batches = self._of(moment, partial(self._keys, known, wanted, terms))
            table = pa.Table.from_batches(batches, known.layout.schema)
            left = rows_wanted(known, KeyRange(namespace=namespace))
            table = table if left is None else left(table)
            cut = terms.limit is not None and table.num_rows > terms.limit
            table = table.slice(0, terms.limit) if cut else table
            self.limits.refuse_larger(table.nbytes, f"the answer from state {known.name!r}")
            return Answer(facts, table, known.opaque, truncated=cut)

    def _keys(
        self,
        known: KnownState,
        wanted: dict[int, list[Any]],
        terms: Terms,
        pinned: PinnedCheckpoint,
    ) -> tuple[Facts, list[Any]]:
        facts = self._committed_facts(pinned.metadata)
        self.refuse_old(facts, terms)
        in_time = self._deadline("look-up")
        batches: list[Any] = []
        for group, own in wanted.items():
            batches += pinned.keys(known, {group: own})
            in_time()
        return facts, batches

    def committed(self, read: Callable[[PinnedCheckpoint], T]) -> T:
        """Return what is read from the last completed checkpoint: all of it is of one moment.

        It is read anew from a newer one when the first is lost.

        Raises:
            QueryError: there is none that can be read.
        """
        return self._committed.read(read)

    def _of(self, moment: PinnedCheckpoint | None, read: Callable[[PinnedCheckpoint], T]) -> T:
        return self._committed.read(read) if moment is None else read(moment)

    def entries(self, state: str, keys: Sequence[Any], read_by: ReadBy) -> Entries | None:
        """Return the live entries of some keys, for who reads the state by the types it has.

        None stands for types that differ, or of which columns alone tell what they are.

        Raises:
            QueryError: there is no answer.
        """
        self._refuse_ended()
        known = self.catalog.find(state)
        if read_by != known.read_by:
            return None
        with self.limits.admitted():
            wanted = self._by_group(known, keys)
            parts, epoch = self._live.entries(known, _encoded(known, wanted))
            self.limits.refuse_larger(sum(map(len, parts)), f"the answer from state {state!r}")
            return Entries(self._live_facts(epoch), parts, known.layout.expires)

    def scan(
        self,
        state: str | KnownState,
        wanted: KeyRange,
        terms: Terms,
        moment: PinnedCheckpoint | None = None,
        *,
        bound: Bound | None = None,
    ) -> Answer:
        """Return the rows of keys in a range, in the order of keys, up to the limit.

        What is read is refused by the limit of answers, or by another bound.
        """
        self._refuse_ended()
        with self.limits.admitted():
            known = self._found_state(state)
            scan = _Scan(known, rows_wanted(known, wanted), terms, bound or self.limits)
            if terms.level == "live":
                facts, found = self._scanned_live(scan)
            else:
                facts, found = self._of(moment, partial(self._scanned, scan))
            return Answer(facts, found.first(), known.opaque, truncated=found.truncated)

    def _scanned(self, scan: _Scan, pinned: PinnedCheckpoint) -> tuple[Facts, _Found]:
        facts = self._committed_facts(pinned.metadata)
        self.refuse_old(facts, scan.terms)
        return facts, self._found(scan, pinned.batches(scan.known))

    def _scanned_live(self, scan: _Scan) -> tuple[Facts, _Found]:
        """Read one key group after the other: the answer is as old as the first of them."""
        known, left, terms = scan.known, scan.left, scan.terms
        began, epochs = self.clock.monotonic_ms(), [-1]
        # More than a few rows, or some of a range, slots give whole. One more tells that there are.
        limit = None if terms.limit is None else terms.limit + 1
        if left is not None or not is_ordered_in_slots(known) or (limit or 0) > _FEW_ROWS + 1:
            limit = None

        def groups() -> Iterator[Any]:
            for batches, epoch in self._live.groups(known, limit):
                epochs.append(-1 if epoch is None else epoch)
                yield from batches or (None,)

        found = self._found(scan, groups())
        newest = max(epochs)
        age = self.clock.monotonic_ms() - began
        facts = self._live_facts(None if newest < 0 else newest, age)
        self.refuse_old(facts, terms)
        return facts, found

    def _found(self, scan: _Scan, batches: Iterable[Any]) -> _Found:
        """Return the rows that are wanted, within all limits; None stands for no rows."""
        in_time, left = self._deadline("scan"), scan.left
        found = _Found(scan.known, scan.terms.limit)
        for batch in batches:
            if batch is not None:
                found.add(batch if left is None else left(batch))
                what = f"the answer from state {scan.known.name!r}"
                scan.bound.refuse_larger(found.nbytes, what)
            in_time()
        return found

    def _deadline(self, what: str) -> Callable[[], None]:
        """Return what refuses to go on once the time is over."""
        clock = self.clock
        end = clock.monotonic_ms() + self.limits.timeout_ms

        def in_time() -> None:
            if clock.monotonic_ms() > end:
                msg = f"the {what} took more than {self.limits.timeout_ms} ms and was given up"
                raise QueryLimitError(msg)

        return in_time

    def stream(
        self, state: str, terms: Terms, wanted: KeyRange | None = None
    ) -> tuple[Any, Iterator[Any]]:
        """Return the schema and all rows of a state that are wanted, in batches.

        The schema tells how true they are: the checkpoint, or since when slots are asked.
        """
        self._refuse_ended()
        known = self.catalog.find(state)
        left = rows_wanted(known, wanted or KeyRange())
        with ExitStack() as stack:
            place = stack.enter_context(self.limits.stream_place(self.clock))
            batches: Iterator[Any]
            if terms.level == "live":
                facts = self._live_facts(None)
                batches = (b for found, _ in self._live.groups(known) for b in found)
            else:
                pinned = stack.enter_context(self._committed.pinned())
                facts = self._committed_facts(pinned.metadata)
                batches = pinned.batches(known)
            self.refuse_old(facts, terms)
            found = batches if left is None else map(left, batches)
            rows = _streamed(found, terms.limit, place, stack.pop_all())
            return with_facts(known.layout.schema, facts), rows

    def table(
        self,
        known: KnownState,
        terms: Terms,
        keys: Sequence[Any] | None = None,
        moment: PinnedCheckpoint | None = None,
        bound: Bound | None = None,
    ) -> Answer:
        """Return all rows of a state, up to a bound, or those of some keys, up to the limits."""
        if keys is not None:
            return self.get(known, keys, terms, moment=moment)
        return self.scan(known, KeyRange(), terms, moment, bound=bound)

    def rows(self, answer: Answer) -> list[dict[str, Any]]:
        """Return the rows of an answer as JSON values; pickles are shown as their sizes."""
        return [
            {
                name: _plain_key(cell)
                if name == KEY and name in answer.opaque
                else _as_json(cell, name in answer.opaque)
                for name, cell in row.items()
            }
            for row in answer.table.to_pylist()
        ]

    def _refuse_ended(self) -> None:
        if self._job.ended.done():
            msg = f"job {self._job.spec.job_id} has ended: read its savepoint or checkpoint instead"
            raise StateUnavailableError(msg)

    def _by_group(self, known: KnownState, keys: Sequence[Any]) -> dict[int, list[Any]]:
        wanted: dict[int, list[Any]] = {}
        # A pickle of plain data is read by who runs no code, one of a number of numpy is not.
        same = plain if KEY in known.opaque else _itself
        try:
            for key in map(same, one_nan_many(list(keys))):
                wanted.setdefault(known.group_of(key), []).append(key)
        except (UsageError, TypeError) as error:
            raise QueryError(str(error)) from error
        return {group: list(dict.fromkeys(own)) for group, own in wanted.items()}

    def _live_facts(self, epoch: int | None, age_ms: int = 0) -> Facts:
        completed = [ref.checkpoint_id for ref in self._job.checkpoints.coordinator.completed]
        attempt = max(self._job.network.registry.attempt, 0)
        return Facts("live", attempt, max(completed, default=None), epoch, age_ms=age_ms)

    def _committed_facts(self, metadata: CheckpointMetadata) -> Facts:
        age = max(0, self.clock.now_ms() - metadata.timestamp_ms)
        attempt = max(self._job.network.registry.attempt, 0)
        return Facts("committed", attempt, metadata.checkpoint_id, metadata.epoch, age_ms=age)

    @staticmethod
    def refuse_old(facts: Facts, terms: Terms) -> None:
        """Refuse what is older than it may be.

        Raises:
            StateTooOldError: it is.
        """
        if terms.max_age_ms is None or facts.age_ms <= terms.max_age_ms:
            return
        if facts.level == "live":
            msg = (
                f"the rows that were read first are {facts.age_ms} ms old, and at most "
                f"{terms.max_age_ms} ms are wanted: ask for fewer rows, or for some keys"
            )
        else:
            msg = (
                f"checkpoint {facts.checkpoint_id} is {facts.age_ms} ms old, and at most "
                f"{terms.max_age_ms} ms are wanted: ask for live state, or take checkpoints more "
                "often (execution.checkpointing.interval)"
            )
        raise StateTooOldError(msg)


def _streamed(
    batches: Iterator[Any], limit: int | None, place: StreamPlace, held: ExitStack
) -> Iterator[Any]:
    """Yield rows up to a limit, as long as somebody takes them; then let go of what is held."""
    with held:
        place.wanted()
        left = limit
        for batch in batches:
            if left is not None:
                if left <= 0:
                    return
                batch = batch.slice(0, left)
                left -= batch.num_rows
            place.given()
            yield batch
            place.wanted()


def _itself(key: Any) -> Any:
    return key


def _encoded(known: KnownState, wanted: dict[int, list[Any]]) -> list[tuple[int, bytes]]:
    encode = known.layout.key.codec.encode
    return [(group, encode(key)) for group, own in wanted.items() for key in own]


@dataclass(frozen=True)
class _Scan:
    """Which rows of a state are read, and how many bytes of them at most."""

    known: KnownState
    left: Wanted | None
    terms: Terms
    bound: Bound


class _Found:
    """Rows of a scan; of those beyond the limit few are kept at any time."""

    def __init__(self, known: KnownState, limit: int | None) -> None:
        self._ordered = is_ordered(known)
        self._limit = limit
        self._tables = [known.layout.schema.empty_table()]
        self._rows = 0
        self._seen = 0
        self.nbytes = 0

    @property
    def truncated(self) -> bool:
        """Tell whether there are rows beyond the limit."""
        return self._limit is not None and self._seen > self._limit

    def add(self, batch: Any) -> None:
        """Take some rows."""
        self._tables.append(pa.Table.from_batches([batch]))
        self._rows += batch.num_rows
        self._seen += batch.num_rows
        self.nbytes += batch.nbytes
        if self._limit is not None and self._rows > 2 * self._limit + _FEW_ROWS:
            self._tables = [self.first()]
            self._rows, self.nbytes = self._tables[0].num_rows, self._tables[0].nbytes

    def first(self) -> Any:
        """Return the first rows by key; without an order of keys those that were found first."""
        table = pa.concat_tables(self._tables)
        if self._ordered and table.num_rows > 1:
            table = table.sort_by([(KEY, "ascending")])
        return table if self._limit is None else table.slice(0, self._limit)


def _plain_key(data: Any) -> Any:
    """Return a key of no declared type where it is plain data, which whoever asks knows anyway."""
    try:
        key = loads_plain(data) if isinstance(data, bytes) else data
    except (UsageError, CorruptStateError):
        return _as_json(data, True)
    return _as_json(key, False) if isinstance(key, (str, int, float, tuple)) else repr(key)


def _as_json(value: Any, opaque: bool) -> Any:
    if isinstance(value, bytes):
        return {"opaque_bytes": len(value)} if opaque else base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no such numbers, and null would be no value: the texts that JSON lines have.
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(name): _as_json(part, opaque) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(part, opaque) for part in value]
    return value
