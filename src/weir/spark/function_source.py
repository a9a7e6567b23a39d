"""Running a user's `SourceFunction` in the driver and journaling what it collects.

The journal is what makes a function's records replayable. A program that is started again skips as
many records as were journaled or read before: `run` is expected to produce the same sequence
again. A `CheckpointedFunction` therefore always starts as new, and its state is never
stored: the journal is the position.
"""

from __future__ import annotations

import threading
from typing import Any

from weir.clock import SystemClock
from weir.errors import UserFunctionError, WeirError
from weir.runtime.context import InitializationContext
from weir.runtime.operator import user_traceback
from weir.spark.spool import Spool, SpoolWriter, coerce, pickled_table
from weir.state.operator_state import OperatorStateStore

_FLUSH_RECORDS = 10_000
_FLUSH_MS = 200


class FunctionRunner:
    """One source function, running until it returns or the job ends."""

    def __init__(self, function: Any, spool: Spool, type_info: Any, stop: threading.Event) -> None:
        """Prepare; `start` runs the function in a thread."""
        self._function = function
        self._type_info = type_info
        self._stop = stop
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._buffer: list[Any] = []
        self._writer = SpoolWriter(spool.directory)
        self._skip = spool.journaled()
        self.error: WeirError | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Run the function, once."""
        if self._thread is None:
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
            cancel()

    def collect(self, element: Any) -> None:
        """Take a record (the `ctx` of `run`)."""
        with self._lock:
            if self._skip > 0:
                self._skip -= 1
                return
            self._buffer.append(coerce(element, self._type_info))
            if len(self._buffer) >= _FLUSH_RECORDS:
                self._flush()

    def _run(self) -> None:
        try:
            initialize = getattr(self._function, "initialize_state", None)
            if initialize is not None:
                initialize(InitializationContext(None, OperatorStateStore(), None))
            self._function.run(self)
        except Exception as error:
            name = f"source function {type(self._function).__name__}"
            self.error = UserFunctionError(name, "", user_traceback(error))
        with self._lock:
            self._flush()

    def _flush_often(self) -> None:
        while not self.finished and not self._stop.wait(_FLUSH_MS / 1000):
            with self._lock:
                self._flush()

    def _flush(self) -> None:
        if self._buffer:
            self._writer.append(pickled_table(self._buffer))
            self._buffer = []
