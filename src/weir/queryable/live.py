"""Live state: asks the slots that have the key groups, between two of their records.

Whoever asks while a call to the same slot is under way goes with the next one, together with all
others that wait: so a slot is interrupted as seldom as possible, however many ask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from weir.errors import UsageError, WeirError
from weir.graph.plan import JobPlan
from weir.jobmanager.network import SlotNetwork
from weir.jobmanager.queries import (
    QueryLimitError,
    QueryRefusedError,
    StateUnavailableError,
    UnknownKeyGroupLocationError,
)
from weir.keygroup import subtask_of
from weir.offline.keyed import group_batch
from weir.queryable.catalog import KnownState
from weir.queryable.settings import QueryLimits
from weir.slot.lookup import FoundEntries, LookupAnswer, LookupCall, StateLookup

TRIES: Final = 3
PAUSE_S: Final = 0.05
_MOVED: Final = "is not in this slot"
_INSTEAD: Final = (
    "ask again in a moment, or ask for committed state, which is there meanwhile (level: committed)"
)


class _Asked:
    """Look-ups of one caller, and their answer."""

    def __init__(self, lookups: list[StateLookup]) -> None:
        self.lookups = lookups
        self.answer: LookupAnswer | None = None
        self.error: WeirError | None = None

    @property
    def done(self) -> bool:
        return self.answer is not None or self.error is not None


class SlotQueue:
    """The way to one slot: one call at a time, with everything that waits."""

    def __init__(self, send: Callable[[list[StateLookup]], LookupAnswer]) -> None:
        self._send = send
        self._free = threading.Condition()
        self._busy = False
        self._waiting: list[_Asked] = []

    def ask(self, lookups: list[StateLookup]) -> LookupAnswer:
        """Return the answer to some look-ups.

        Raises:
            WeirError: the slot cannot be asked.
        """
        mine = _Asked(lookups)
        with self._free:
            self._waiting.append(mine)
            while self._busy and not mine.done:
                self._free.wait()
            if not mine.done:
                self._busy = True
                batch, self._waiting = self._waiting, []
        if not mine.done:
            try:
                self._call(batch)
            finally:
                with self._free:
                    self._busy = False
                    self._free.notify_all()
        if mine.error is not None:
            raise mine.error
        if mine.answer is None:
            msg = "the call to the slot was broken off"
            raise StateUnavailableError(msg)
        return mine.answer

    def _call(self, batch: list[_Asked]) -> None:
        try:
            answer = self._send([lookup for asked in batch for lookup in asked.lookups])
        except WeirError as error:
            for asked in batch:
                asked.error = error
            return
        found = iter(answer.found)
        for asked in batch:
            asked.answer = LookupAnswer(answer.epoch, [next(found) for _ in asked.lookups])


class LiveReader:
    """Reads what slots hold now; thread-safe."""

    def __init__(
        self,
        network: SlotNetwork,
        plan: Callable[[], JobPlan],
        limits: QueryLimits,
        pause: Callable[[float], object],
    ) -> None:
        self._network = network
        self._plan = plan
        self._limits = limits
        self._pause = pause
        self._lock = threading.Lock()
        self._queues: dict[int, SlotQueue] = {}

    def keys(
        self, state: KnownState, wanted: Mapping[int, list[bytes]]
    ) -> tuple[list[Any], int | None]:
        """Return the rows of encoded keys, given by key group, and the newest epoch in them.

        Raises:
            QueryError: slots cannot be asked, or refuse.
        """
        lookups = [
            StateLookup(state.operator.id, state.described.name, group, keys)
            for group, keys in sorted(wanted.items())
        ]
        return self._found(state, lookups)

    def groups(self, state: KnownState) -> Iterator[tuple[list[Any], int | None]]:
        """Yield the rows of each key group, which are of one moment, and the epoch of them.

        Raises:
            QueryError: slots cannot be asked, or another attempt has begun meanwhile.
        """
        attempt = self._network.registry.attempt
        for group in range(state.operator.max_parallelism):
            lookup = StateLookup(state.operator.id, state.described.name, group)
            yield self._found(state, [lookup])
            if self._network.registry.attempt != attempt:
                msg = f"the job began a new attempt during the scan: {_INSTEAD}"
                raise StateUnavailableError(msg)

    def _found(self, state: KnownState, lookups: list[StateLookup]) -> tuple[list[Any], int | None]:
        """Ask again where key groups have moved, or nobody is there for a moment."""
        left = TRIES
        while True:
            left -= 1
            try:
                return self._once(state, lookups)
            except StateUnavailableError:
                if not left:
                    raise
            self._pause(PAUSE_S)

    def _once(self, state: KnownState, lookups: list[StateLookup]) -> tuple[list[Any], int | None]:
        batches: list[Any] = []
        epochs: list[int] = []
        for subtask, own in self._by_subtask(state, lookups).items():
            try:
                answer = self._queue(subtask).ask(own)
            except StateUnavailableError:
                raise
            except WeirError as error:
                msg = f"live state {state.name!r} cannot be read now ({error}): {_INSTEAD}"
                raise StateUnavailableError(msg) from error
            epochs.append(answer.epoch)
            for lookup, found in zip(own, answer.found, strict=True):
                batches += self._decoded(state, lookup, found)
        return batches, max(epochs, default=None)

    def _by_subtask(
        self, state: KnownState, lookups: list[StateLookup]
    ) -> dict[int, list[StateLookup]]:
        """Deal look-ups out; the parallelism is that of now."""
        operator = next(op for op in self._plan().operators if op.id == state.operator.id)
        dealt: dict[int, list[StateLookup]] = {}
        for lookup in lookups:
            owner = subtask_of(lookup.group, operator.parallelism, operator.max_parallelism)
            dealt.setdefault(owner, []).append(lookup)
        return dealt

    def _decoded(self, state: KnownState, lookup: StateLookup, found: FoundEntries) -> list[Any]:
        if found.refused:
            if _MOVED in found.refused:
                msg = f"UnknownKvStateKeyGroupLocation: {found.refused}: {_INSTEAD}"
                raise UnknownKeyGroupLocationError(msg)
            raise QueryLimitError(found.refused)
        try:
            return [
                group_batch(state.layout, lookup.group, part, "a slot's answer")
                for part in found.parts
            ]
        except UsageError as error:
            # Pickles that are more than plain data: nobody loads them for a caller.
            msg = f"state {state.name!r} cannot be shown: {error}"
            raise QueryRefusedError(msg) from error

    def _queue(self, subtask: int) -> SlotQueue:
        with self._lock:
            queue = self._queues.get(subtask)
            if queue is None:
                queue = self._queues[subtask] = SlotQueue(partial(self._send, subtask))
            return queue

    def _send(self, subtask: int, lookups: list[StateLookup]) -> LookupAnswer:
        call = LookupCall(
            self._network.registry.attempt,
            lookups,
            patience_ms=self._limits.timeout_ms,
            bytes_max=self._limits.bytes_max,
        )
        return self._network.lookup(subtask, call)
