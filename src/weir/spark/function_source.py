"""Running a user's `SourceFunction` in the driver and journaling what it says.

The journal is what makes a function replayable: its records with their timestamps, and behind the
records of each file the watermark and idleness that held there. A program that is started again
skips as many records as were journaled or read before: `run` is expected to produce the same
sequence again. A `CheckpointedFunction` therefore always starts as new, and its state is never
stored: the journal is the position.

The function runs through all attempts, and another one does not touch it. Slots of a new attempt
know the watermarks of a checkpoint at most, and nothing of idleness, so what the function said last
is said to them again, behind everything that was journaled. If the function itself has failed, the
next attempt runs a copy of it, as it was before it ran, and skips what it has journaled: as in
Flink a source begins again where its state is.

If the journal cannot be written, that is no fault of the function: its records are kept, it waits
when they are many, and the attempt fails. Who can write again goes on.
"""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from weir.codec.pickled import dumps, loads
from weir.connector.decoder import Mark
from weir.connector.spool import Spool, SpoolWriter, coerce, journal_table
from weir.errors import StorageError, UsageError, UserFunctionError, WeirError
from weir.runtime.context import InitializationContext, RuntimeContext
from weir.runtime.frame import MAX_WATERMARK
from weir.runtime.raised import user_traceback
from weir.runtime.watermarks import is_moment
from weir.state.operator_state import OperatorStateStore

_FLUSH_RECORDS = 10_000
_FLUSH_MS = 200
_ALL = 1 << 62
log = logging.getLogger("weir.spark")


class JournalingContext:
    """The `ctx` of `run`: journals what the function says; any thread may call it.

    A file of the journal holds what was said within a fifth of a second, or 10,000 records.
    """

    def __init__(
        self,
        spool: Spool,
        type_info: Any,
        stop: threading.Event | None = None,
        name: str = "a source function",
    ) -> None:
        """Go on behind the records that are journaled; as many are skipped."""
        self._type_info = type_info
        self._stop = stop
        self._name = name
        self.unwritable: StorageError | None = None
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._writer = SpoolWriter(spool.directory)
        self._skip = spool.journaled()
        self._values: list[Any] = []
        self._timestamps: list[int | None] = []
        self._mark = Mark()
        # As long as the function says nothing about time, neither does its journal.
        self._journaled_mark = Mark()

    def collect(self, element: Any) -> None:
        """Take a record without a timestamp."""
        self._take(element, None)

    def collect_with_timestamp(self, element: Any, timestamp: int) -> None:
        """Take a record with its event timestamp in milliseconds."""
        self._take(element, _milliseconds("collect_with_timestamp", timestamp))

    def emit_watermark(self, timestamp: int) -> None:
        """Take a watermark; one that is not above the last one changes nothing, as in Flink."""
        watermark = _milliseconds("emit_watermark", timestamp)
        with self._lock:
            before = self._mark.watermark
            self._mark = Mark(watermark if before is None else max(before, watermark))

    def mark_as_temporarily_idle(self) -> None:
        """Hold no watermark back until the next record or watermark."""
        with self._lock:
            self._mark = Mark(self._mark.watermark, idle=True)

    def get_checkpoint_lock(self) -> AbstractContextManager[Any]:
        """Return the lock under which the clock journals nothing: a group of records stays one.

        It is for programs that are written for it. A source function's state is not stored, so
        that nothing else depends on it.
        """
        return self._lock

    @property
    def is_written(self) -> bool:
        """Tell whether nothing is left that the journal lacks; nothing is while it skips."""
        with self._lock:
            changed = self._mark != self._journaled_mark
            return self._skip > 0 or not (self._values or changed)

    def flush(self) -> None:
        """Write what is not in the journal yet; nothing while records are skipped.

        Raises:
            StorageError: the journal cannot be written; what was said is kept for the next time.
        """
        with self._lock:
            if self.is_written:
                return
            changed = self._mark != self._journaled_mark
            stamped = any(stamp is not None for stamp in self._timestamps)
            # Without a word in between, what held before still holds behind these records.
            mark = self._mark if changed else None
            stamps = self._timestamps if stamped else None
            self._append(journal_table(self._values, stamps, mark))
            self._journaled_mark = self._mark
            self._values, self._timestamps = [], []

    def _append(self, table: pa.Table) -> None:
        try:
            self._writer.append(table)
        except (OSError, StorageError) as error:
            msg = (
                f"{self._name}: its journal {str(self._writer.directory)!r} cannot be written: "
                f"{error}; its records are kept, and the restart strategy decides how often it is "
                "tried again"
            )
            self.unwritable = StorageError(msg)
            raise self.unwritable from error
        self.unwritable = None

    def leave(self) -> None:
        """Journal nothing any more: another run of the function goes on here."""
        with self._lock:
            self._skip = _ALL

    def say_again(self) -> None:
        """Let slots that know nothing yet hear the last mark."""
        with self._lock:
            self._journaled_mark = Mark()

    def _take(self, element: Any, timestamp: int | None) -> None:
        with self._lock:
            if self._mark.idle:
                self._mark = Mark(self._mark.watermark)
            if self._skip > 0:
                self._skip -= 1
                return
            self._values.append(coerce(element, self._type_info))
            self._timestamps.append(timestamp)
            if len(self._values) >= _FLUSH_RECORDS:
                self._flush_or_wait()

    def _flush_or_wait(self) -> None:
        """Make room: a function that goes on would fill the memory, one that fails did nothing."""
        while not self._flushed():
            self._room.wait(_FLUSH_MS / 1000)

    def _flushed(self) -> bool:
        """Tell whether nobody has to wait: all is written, or nobody wants it any more."""
        try:
            self.flush()
        except StorageError:
            if self._stop is None:
                raise
            return self._stop.is_set()
        return True


class FunctionRunner:
    """One source function, running until it returns or the job ends."""

    def __init__(
        self,
        function: Any,
        spool: Spool,
        type_info: Any,
        stop: threading.Event,
        context: RuntimeContext | None = None,
    ) -> None:
        """Prepare; `start` runs the function in a thread. `open` is given the context."""
        self._function = function
        self._spool = spool
        self._type_info = type_info
        self._stop = stop
        self._context = context
        self._source = self._new_source()
        self._canceled = False
        self._failed: WeirError | None = None
        # What a function does to itself while it runs is not what it begins with.
        self._as_new = _pickled(function)
        self._thread: threading.Thread | None = None

    def _new_source(self) -> JournalingContext:
        return JournalingContext(self._spool, self._type_info, self._stop, self._name)

    @property
    def error(self) -> WeirError | None:
        """Return why the function failed, or why what it says cannot be kept at the moment."""
        return self._failed or self._source.unwritable

    def start(self) -> None:
        """Run the function; later attempts hear what it said last, and run again what failed."""
        if self._thread is None:
            self._run_in_thread()
        elif self._failed is not None:
            self._start_again()
        else:
            self._source.say_again()
            if self._source.unwritable is not None or not self._thread.is_alive():
                self._flush(self._source)

    def _start_again(self) -> None:
        if isinstance(self._as_new, UsageError):
            msg = (
                f"{self._failed}\n{self._name} is not run again: {self._as_new}; make it "
                "picklable, and let `open` make what is not"
            )
            self._failed = UsageError(msg)
            return
        log.warning("%s has failed and runs again, behind what is journaled", self._name)
        # It runs on if it was not itself that failed, but a record of it in the journal.
        self._source.leave()
        self.cancel()
        self._function, self._canceled = loads(self._as_new), False
        self._source, self._failed = self._new_source(), None
        self._run_in_thread()

    def _run_in_thread(self) -> None:
        source = self._source
        self._thread = threading.Thread(
            target=self._run, args=(self._function, source), name="source-function", daemon=True
        )
        self._thread.start()
        arguments = (self._thread, source)
        threading.Thread(target=self._flush_often, args=arguments, daemon=True).start()

    @property
    def finished(self) -> bool:
        """Tell whether the function returned and everything is in the journal."""
        ended = self._thread is not None and not self._thread.is_alive()
        return ended and self._source.is_written

    def cancel(self) -> None:
        """Ask the function to return."""
        cancel = getattr(self._function, "cancel", None)
        alive = self._thread is not None and self._thread.is_alive()
        if cancel is not None and alive:
            self._canceled = True
            cancel()

    def _run(self, function: Any, source: JournalingContext) -> None:
        # A thread ends without a word at SystemExit: to the job that would be the function's end.
        failed = None
        try:
            self._run_function(function, source)
        except BaseException as error:
            failed = error
        self._flush(source)
        if failed is not None:
            self._fail(source, UserFunctionError(self._name, "", user_traceback(failed)))

    def _flush(self, source: JournalingContext) -> None:
        """Write the journal; records that cannot be pickled are an error of the function."""
        try:
            source.flush()
        except StorageError as error:
            log.debug("%s", error)  # The attempt fails of it, and says so.
        except WeirError as error:
            self._fail(source, type(error)(f"{self._name}: {error}"))
        except BaseException as error:
            self._fail(source, UserFunctionError(self._name, "", user_traceback(error)))

    @property
    def _name(self) -> str:
        return f"source function {type(self._function).__name__}"

    def _fail(self, source: JournalingContext, error: WeirError) -> None:
        if source is self._source:
            self._failed = self._failed or error

    def _run_function(self, function: Any, source: JournalingContext) -> None:
        """Run the function with Flink's life cycle; its end is the end of event time."""
        initialize = getattr(function, "initialize_state", None)
        if initialize is not None:
            initialize(InitializationContext(None, OperatorStateStore(), None))
        try:
            function.open(self._context)
            function.run(source)
            if not self._canceled:
                source.emit_watermark(MAX_WATERMARK)
        finally:
            function.close()

    def _flush_often(self, thread: threading.Thread, source: JournalingContext) -> None:
        while not self._stop.wait(_FLUSH_MS / 1000):
            over = not thread.is_alive() and source.is_written
            if over or self._failed is not None or source is not self._source:
                return
            self._flush(source)


def _pickled(function: Any) -> bytes | UsageError:
    try:
        return dumps(function)
    except UsageError as error:
        return error


def _milliseconds(method: str, timestamp: Any) -> int:
    if not is_moment(timestamp):
        msg = (
            f"{method}: the timestamp is {timestamp!r}, expected milliseconds as an int of 64 bits"
        )
        raise UsageError(msg)
    return timestamp
