"""The operator of async functions: many records at a time, on an event loop.

Nothing is in flight when a watermark or a barrier passes: `settle` waits for all results. So
checkpoints hold nothing of this operator, and results never cross a watermark. It lives in slots
alone: what level 0 sends must be the same when it is sent again, and an answer from outside is not.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from itertools import repeat
from typing import Any

from weir.errors import UsageError
from weir.graph.plan import OperatorNode
from weir.runtime.async_calls import AsyncCalls, Call, LoopThread, WaitSettings
from weir.runtime.context import RuntimeContext
from weir.runtime.frame import Chunk
from weir.runtime.operator import TaskFacts
from weir.runtime.stateful import StatefulOperator


class AsyncRuntimeContext(RuntimeContext):
    """The runtime context of a function that has no current key: records overlap."""

    def _keyed(self, descriptor: Any) -> Any:
        msg = (
            f"an AsyncFunction has no keyed state, and asks for {descriptor.get_name()!r}: its "
            "records are handled at the same time; keep state in a function before or behind it"
        )
        raise UsageError(msg)


class AsyncWait(StatefulOperator):
    """Calls `async_invoke` for every record, at most `capacity` at a time."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        # Keys only say where records go: nothing is kept under them.
        super().__init__(replace(node, keyed=False), facts)
        self.runtime_context = AsyncRuntimeContext(node, facts, self.metrics.group, None)
        options = node.options
        self._settings = WaitSettings(
            ordered=options["ordered"],
            timeout_ms=options["timeout_ms"],
            capacity=options["capacity"],
            retry=options["retry"],
            retry_on=options["retry_on"],
        )
        self._in_flight = 0
        self._calls = AsyncCalls(self.function, self._settings)
        self.loop: LoopThread | None = None

    def open(self) -> None:
        """Start the event loop, then open the user's function."""
        name = f"weir-async-{self.node.index}-{self.facts.subtask}"
        self.loop = loop = LoopThread(name, self._calls.broken)
        try:
            super().open()
        except BaseException:
            loop.end()
            raise

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Start calls, wait while too many are unfinished, and hand on what is finished."""
        self.records_in += len(chunk.values)
        self._in_flight += len(chunk.values)
        stamps = repeat(None) if chunk.timestamps is None else chunk.timestamps
        records = list(zip(chunk.values, stamps))  # noqa: B905 - repeat() never ends
        self._hand_on(self._calls.take_in(records))

    def settle(self) -> None:
        """Wait for all results."""
        if self._in_flight or self._calls.failure is not None:
            self._hand_on(self._calls.drain())

    def _hand_on(self, coming: Coroutine[Any, Any, list[Call]]) -> None:
        if self.loop is None:
            msg = f"operator '{self.node.name}' was given records before it was opened"
            raise RuntimeError(msg)
        finished = self.loop.run(coming)
        failure = self._calls.failure
        if failure is not None:
            raise self.failed(failure.error, failure.value) from None
        self._in_flight -= len(finished)
        out: list[Any] = []
        stamps: list[int | None] = []
        for call in finished:
            results = call.results or ()
            out.extend(results)
            stamps.extend(repeat(call.stamp, len(results)))
        self.emit_results(out, None if all(t is None for t in stamps) else stamps)

    def close(self) -> None:
        """Cancel what is in flight, run the user's `close`, and end the event loop."""
        try:
            if self.loop is not None:
                self.loop.soon(self._calls.cancel)
            super().close()
        finally:
            if self.loop is not None:
                self.loop.end()
