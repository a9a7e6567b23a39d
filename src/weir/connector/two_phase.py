"""`TwoPhaseCommitSinkFunction`: users' own exactly-once sinks, one transaction per checkpoint.

At a barrier the current transaction is pre-committed and a new one begins; both go into one
committable of that checkpoint: `{"checkpoint", "pending", "current", "context"}`, where a
transaction is `{"id", "start_ms", "handle"}`. The pending one is committed once the checkpoint
completed, and again on recovery. The current one is aborted on recovery, unless a later
committable of the restored checkpoint shows that it was pre-committed meanwhile, or a newer
checkpoint than the restored one may have committed it.
"""

from __future__ import annotations

import base64
import json
import logging
from abc import abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from weir.codec import pickled
from weir.connector.function_sink import InvokeContext
from weir.connector.sink import Sink, SinkWriter, WriterContext, blame
from weir.errors import CorruptStateError, UsageError
from weir.ids import unique_suffix

_LOG = logging.getLogger(__name__)


class TwoPhaseCommitSinkFunction(Sink):
    """Base class of transactional sinks; a transaction handle is any picklable value.

    Guarantees to the subclass: after `pre_commit(t)` nothing is written to `t` any more.
    `commit(t)` is called once its checkpoint completed; after a crash `recover_and_commit(t)` is
    called, possibly for a transaction that was committed before, so committing must be idempotent
    and must succeed eventually. `writer_context` tells job, attempt and subtask, for unique
    transaction names.

    Example:
        class Bookings(TwoPhaseCommitSinkFunction):
            def begin_transaction(self):
                return []

            def invoke(self, transaction, value, context):
                transaction.append(value)

            def pre_commit(self, transaction):
                return transaction

            def commit(self, transaction):
                print(transaction)

            def abort(self, transaction):
                transaction.clear()
    """

    writer_context: WriterContext
    transaction_timeout_ms: int | None = None
    ignore_failures_after_timeout = False
    timeout_warning_ratio: float | None = None
    _user_context: Any = None

    @abstractmethod
    def begin_transaction(self) -> Any:
        """Start a transaction and return its handle."""

    @abstractmethod
    def invoke(self, transaction: Any, value: Any, context: InvokeContext) -> None:
        """Write one record within a transaction."""

    @abstractmethod
    def pre_commit(self, transaction: Any) -> None:
        """Make the transaction durable, so that `commit` cannot fail for want of data."""

    @abstractmethod
    def commit(self, transaction: Any) -> None:
        """Make the transaction visible. Idempotent."""

    @abstractmethod
    def abort(self, transaction: Any) -> None:
        """Drop the transaction. Idempotent."""

    def recover_and_commit(self, transaction: Any) -> None:
        """Commit a transaction of a process that is gone."""
        self.commit(transaction)

    def recover_and_abort(self, transaction: Any) -> None:
        """Abort a transaction of a process that is gone."""
        self.abort(transaction)

    def recover_superseded(self, transaction: Any) -> None:
        """Decide about a transaction that a newer checkpoint may have committed.

        It was open when the restored checkpoint was taken. Its records come again. Unless a
        subclass can tell whether it was committed, it is left as it is.
        """
        _LOG.warning(
            "transaction %r was open in the restored checkpoint, and a newer checkpoint may have "
            "committed it: it is not aborted, and its records come again; look at it yourself, or "
            "override %s.recover_superseded",
            transaction,
            type(self).__name__,
        )

    def abort_unknown_transactions(self, known: list[Any]) -> None:
        """Abort what earlier attempts left open and no checkpoint knows, except `known`.

        Called once per attempt, on subtask 0. Systems that cannot list transactions do nothing.
        """

    def finish_processing(self, transaction: Any) -> None:
        """Flush: no record will follow in this transaction or a later one."""

    def initialize_user_context(self) -> Any:
        """Return a value to be kept in every checkpoint, None for none."""
        return None

    def finish_recovering_context(self, handled_transactions: list[Any]) -> None:
        """Learn which transactions of the restored `get_user_context()` have been handled."""

    def get_user_context(self) -> Any:
        """Return the restored context, else the one from `initialize_user_context`."""
        return self._user_context

    def set_transaction_timeout(self, timeout_ms: int) -> TwoPhaseCommitSinkFunction:
        """Say after how many milliseconds the external system drops a transaction by itself."""
        if timeout_ms < 0:
            message = f"transaction timeout is {timeout_ms!r} ms, expected 0 or more"
            raise UsageError(message)
        self.transaction_timeout_ms = timeout_ms
        return self

    def ignore_failures_after_transaction_timeout(self) -> TwoPhaseCommitSinkFunction:
        """Log, instead of raise, a failed recovery of a transaction past its timeout.

        Records of that transaction are lost: only for systems that cannot bring it back anyway.
        """
        self.ignore_failures_after_timeout = True
        return self

    def enable_transaction_timeout_warnings(self, ratio: float) -> TwoPhaseCommitSinkFunction:
        """Log a warning when a commit comes after this share of the timeout."""
        if not 0 <= ratio <= 1:
            message = f"transaction timeout warning ratio is {ratio!r}, expected 0 to 1"
            raise UsageError(message)
        self.timeout_warning_ratio = ratio
        return self

    def create_writer(self, context: WriterContext) -> TwoPhaseWriter:
        """Create the writer of one subtask."""
        self.writer_context = context
        return TwoPhaseWriter(self, context)


@dataclass(frozen=True)
class _Transaction:
    id: str
    start_ms: int
    handle: Any

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "start_ms": self.start_ms, "handle": _encode(self.handle)}

    @staticmethod
    def from_json(entry: dict[str, Any]) -> _Transaction:
        identity, start_ms = entry["id"], entry["start_ms"]
        if type(identity) is not str or type(start_ms) is not int:
            msg = f"transaction {identity!r} began at {start_ms!r}"
            raise TypeError(msg)
        return _Transaction(identity, start_ms, _decode(entry["handle"]))


@dataclass(frozen=True)
class _Prepared:
    """What a committable holds; `context` is None where the function has none."""

    checkpoint: int
    pending: _Transaction
    current: _Transaction | None
    context: Any


class TwoPhaseWriter(SinkWriter):
    """Drives a `TwoPhaseCommitSinkFunction`."""

    def __init__(self, function: TwoPhaseCommitSinkFunction, context: WriterContext) -> None:
        """Begin nothing yet: restored transactions come first."""
        self._function = function
        self._clock = context.clock
        self._uid = unique_suffix(16)
        self._begun = 0
        self._current: _Transaction | None = None
        self._open: dict[str, _Transaction] = {}
        self._finished = False
        self._ready = False

    def write_batch(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        """Write records into the current transaction."""
        if self._finished:
            message = f"sink {type(self._function).__name__} got a record after finish()"
            raise UsageError(message)
        if self._current is None:
            self._current = self._begin()
        handle, invoke = self._current.handle, self._function.invoke
        context = InvokeContext(self._clock.now_ms(), self.current_watermark)
        value: Any = None
        try:
            for index, value in enumerate(values):
                context._timestamp = timestamps[index] if timestamps is not None else None
                invoke(handle, value, context)
        except BaseException as error:
            blame(error, value)
            raise

    def _begin(self) -> _Transaction:
        if not self._ready:
            self._ready = True
            if self._function._user_context is None:
                self._function._user_context = self._function.initialize_user_context()
        identity = f"{self._uid}-{self._begun}"
        self._begun += 1
        return _Transaction(identity, self._clock.now_ms(), self._function.begin_transaction())

    def prepare(self, checkpoint_id: int) -> list[bytes]:
        """Pre-commit the current transaction and begin the next one."""
        if self._current is None and self._finished:
            return []
        pending = self._current or self._begin()
        self._current = pending
        self._function.pre_commit(pending.handle)
        # If the next one cannot begin, this one is still current, and `abort` drops it.
        self._current = None if self._finished else self._begin()
        self._open[pending.id] = pending
        user_context = self._function.get_user_context()
        entry = {
            "checkpoint": checkpoint_id,
            "pending": pending.to_json(),
            "current": None if self._current is None else self._current.to_json(),
            "context": None if user_context is None else _encode(user_context),
        }
        return [json.dumps(entry).encode()]

    def commit(self, committables: list[bytes]) -> None:
        """Commit pending transactions; all are tried, then the first error is raised."""
        first = _FirstError()
        # One that is damaged is refused before another one is committed.
        for prepared in list(map(_load, committables)):
            pending = prepared.pending
            with first:
                self._warn_if_late(pending)
                live = self._open.get(pending.id)
                if live is not None:
                    self._function.commit(live.handle)
                else:
                    self._function.recover_and_commit(pending.handle)
                self._open.pop(pending.id, None)
        first.raise_if_any()

    def restore(self, committables: list[bytes]) -> None:
        """Commit the pending transactions of the restored checkpoint, in their order."""
        for entry in sorted(map(_load, committables), key=lambda entry: entry.checkpoint):
            self._recover(entry.pending)
            if entry.context is not None:
                self._function._user_context = entry.context
                handled = [entry.pending.handle]
                if entry.current is not None:
                    handled.append(entry.current.handle)
                self._function.finish_recovering_context(handled)

    def _recover(self, pending: _Transaction) -> None:
        self._warn_if_late(pending)
        try:
            self._function.recover_and_commit(pending.handle)
        except Exception:
            if self._may_be_lost(pending):
                _LOG.exception("transaction %r timed out and is lost", pending.handle)
                return
            raise

    def _may_be_lost(self, transaction: _Transaction) -> bool:
        timeout = self._function.transaction_timeout_ms
        if timeout is None or not self._function.ignore_failures_after_timeout:
            return False
        return self._clock.now_ms() - transaction.start_ms > timeout

    def _warn_if_late(self, transaction: _Transaction) -> None:
        timeout = self._function.transaction_timeout_ms
        ratio = self._function.timeout_warning_ratio
        if timeout is None or ratio is None:
            return
        elapsed = self._clock.now_ms() - transaction.start_ms
        if elapsed > timeout * ratio:
            _LOG.warning(
                "transaction %r is open for %d ms, close to its timeout of %d ms: checkpoint "
                "more often, or raise the timeout of the external system",
                transaction.handle,
                elapsed,
                timeout,
            )

    def discard_leftovers(self, keep: list[bytes]) -> None:
        """Abort the transactions that were open when the restored checkpoint was taken."""
        pending, still_open = _split(keep)
        for handle in still_open:
            self._function.recover_and_abort(handle)
        self._function.abort_unknown_transactions(pending)

    def leave_newer(self, keep: list[bytes]) -> None:
        """Abort none of them: a newer checkpoint may have committed it."""
        pending, still_open = _split(keep)
        for handle in still_open:
            self._function.recover_superseded(handle)
        self._function.abort_unknown_transactions([*pending, *still_open])

    def finish(self) -> None:
        """Flush; the last `prepare` begins no further transaction."""
        if self._finished:
            return
        if self._current is not None:
            self._function.finish_processing(self._current.handle)
        self._finished = True

    def abort(self) -> None:
        """Abort the current transaction; pre-committed ones stay."""
        current, self._current = self._current, None
        if current is not None:
            self._function.abort(current.handle)


class _FirstError:
    """Lets a loop go on after an error and raises the first one behind it."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self._error = self._error or error
        return True

    def raise_if_any(self) -> None:
        if self._error is not None:
            raise self._error


def _load(committable: bytes) -> _Prepared:
    try:
        entry: dict[str, Any] = json.loads(committable)
        checkpoint, current = entry["checkpoint"], entry.get("current")
        if type(checkpoint) is not int:
            msg = f"checkpoint is {checkpoint!r}"
            raise TypeError(msg)
        return _Prepared(
            checkpoint,
            _Transaction.from_json(entry["pending"]),
            None if current is None else _Transaction.from_json(current),
            None if entry.get("context") is None else _decode(entry["context"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        message = f"transaction committable {committable!r} is damaged: {error!r}"
        raise CorruptStateError(message) from error


def _split(keep: list[bytes]) -> tuple[list[Any], list[Any]]:
    """Return the handles of pending transactions, and of those that were only open."""
    entries = [_load(committable) for committable in keep]
    ids = {entry.pending.id for entry in entries}
    currents = [entry.current for entry in entries if entry.current is not None]
    still_open = [current.handle for current in currents if current.id not in ids]
    return [entry.pending.handle for entry in entries], still_open


def _encode(value: Any) -> dict[str, Any]:
    """Describe a handle as JSON where that is exact, else pickled: readable where possible."""
    if value is None or type(value) in (str, bool, int):
        return {"json": value}
    return {"pickle": base64.b64encode(pickled.dumps(value)).decode()}


def _decode(entry: dict[str, Any]) -> Any:
    if "json" in entry:
        return entry["json"]
    data = base64.b64decode(entry["pickle"], validate=True)
    try:
        return pickled.loads(data)
    except Exception as error:
        # A class that is gone, or whatever its own code comes across.
        msg = f"the pickled handle of a transaction cannot be loaded: {error!r}"
        raise CorruptStateError(msg) from error
