"""Running a user's `SourceFunction` in the driver and journaling what it says.

The journal is what makes a function replayable: its records with their timestamps, and behind the
records of each file the watermark and idleness that held there. A program that is started again
skips as many records as were journaled or read before: `run` is expected to produce the same
sequence again. A `CheckpointedFunction` therefore always starts as new, and its state is never
stored: the journal is the position.

The function runs once a job, through all attempts. Slots of a new attempt know the watermarks of a
checkpoint at most, and nothing of idleness, so what the function said last is said to them again,
behind everything that was journaled.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

from weir.clock import SystemClock
from weir.connector.decoder import Mark
from weir.connector.spool import Spool, SpoolWriter, coerce, journal_table
from weir.errors import UsageError, UserFunctionError, WeirError
from weir.runtime.context import InitializationContext, RuntimeContext
from weir.runtime.frame import MAX_WATERMARK
from weir.runtime.raised import user_traceback
from weir.runtime.watermarks import is_moment
from weir.state.operator_state import OperatorStateStore

_FLUSH_RECORDS = 10_000
_FLUSH_MS = 200


class JournalingContext:
    """The `ctx` of `run`: journals what the function says; any thread may call it.

    A file of the journal holds what was said within a fifth of a second, or 10,000 records.
    """

    def __init__(self, spool: Spool, type_info: Any) -> None:
        """Go on behind the records that are journaled; as many are skipped."""
        self._type_info = type_info
        self._lock = threading.RLock()
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

    def flush(self) -> None:
        """Write what is not in the journal yet; nothing while records are skipped."""
        with self._lock:
            changed = self._mark != self._journaled_mark
            if self._skip > 0 or not (self._values or changed):
                return
            stamped = any(stamp is not None for stamp in self._timestamps)
            # Without a word in between, what held before still holds behind these records.
            mark = self._mark if changed else None
            stamps = self._timestamps if stamped else None
            self._writer.append(journal_table(self._values, stamps, mark))
            self._journaled_mark = self._mark
            self._values, self._timestamps = [], []

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
                self.flush()


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
        self._stop = stop
        self._clock = SystemClock()
        self._context = context
        self._source = JournalingContext(spool, type_info)
        self._canceled = False
        self.error: WeirError | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Run the function, once; later attempts hear what it said last."""
        if self._thread is not None:
            self._source.say_again()
            if self.finished:
                self._source.flush()
            return
        self._thread = threading.Thread(target=self._run, name="source-function", daemon=True)
        self._thread.start()
        threading.Thread(target=self._flush_often, daemon=True).start()

    @property
    def finished(self) -> bool:
        """Tell whether the function returned and everything is in the journal."""
        return self._thread is not None and not self._thread.is_alive()

    def cancel(self) -> None:
        """Ask the function to return."""
        cancel = getattr(self._function, "cancel", None)
        if cancel is not None and not self.finished:
            self._canceled = True
            cancel()

    def _run(self) -> None:
        # A thread ends without a word at SystemExit: to the job that would be the function's end.
        try:
            self._run_function()
        except BaseException as error:
            self._fail(error)
        self._flush()

    def _flush(self) -> None:
        """Write the journal; records that cannot be written are an error of the function."""
        try:
            self._source.flush()
        except WeirError as error:
            self.error = self.error or type(error)(f"{self._name}: {error}")
        except BaseException as error:
            self._fail(error)

    @property
    def _name(self) -> str:
        return f"source function {type(self._function).__name__}"

    def _fail(self, error: BaseException) -> None:
        self.error = self.error or UserFunctionError(self._name, "", user_traceback(error))

    def _run_function(self) -> None:
        """Run the function with Flink's life cycle; its end is the end of event time."""
        function = self._function
        initialize = getattr(function, "initialize_state", None)
        if initialize is not None:
            initialize(InitializationContext(None, OperatorStateStore(), None))
        try:
            function.open(self._context)
            function.run(self._source)
            if not self._canceled:
                self._source.emit_watermark(MAX_WATERMARK)
        finally:
            function.close()

    def _flush_often(self) -> None:
        while not self.finished and not self._stop.wait(_FLUSH_MS / 1000):
            self._flush()


def _milliseconds(method: str, timestamp: Any) -> int:
    if not is_moment(timestamp):
        msg = (
            f"{method}: the timestamp is {timestamp!r}, expected milliseconds as an int of 64 bits"
        )
        raise UsageError(msg)
    return timestamp
