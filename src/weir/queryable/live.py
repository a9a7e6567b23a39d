"""Live state: asks the slots that have the key groups, between two of their records.

Whoever asks while a call to the same slot is under way goes with the next one, together with all
others that wait: so a slot is interrupted as seldom as possible, however many ask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from weir.clock import Clock
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
from weir.offline.keyed import group_batch, keys_batch
from weir.queryable.catalog import KnownState
from weir.queryable.settings import QueryLimits
from weir.slot.lookup import FoundEntries, LookupAnswer, LookupCall, StateLookup

TRIES: Final = 3
PAUSE_S: Final = 0.05
_MOVED: Final = "is not in this slot"
_ORIGIN: Final = "a slot's answer"
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
        *,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._network = network
        self._plan = plan
        self._limits = limits
        self._pause = pause
        self._lock = threading.Lock()
        self._queues: dict[int, SlotQueue] = {}

    def keys(
        self, state: KnownState, wanted: Iterable[tuple[int, bytes]]
    ) -> tuple[list[Any], int | None]:
        """Return the rows of encoded keys, each given with its key group, and the newest epoch.

        Raises:
            QueryError: slots cannot be asked, or refuse.
        """
        parts, epoch = self.entries(state, wanted)
        return self._rows(state, lambda: [_of_keys(state, part) for part in parts]), epoch

    def entries(
        self, state: KnownState, wanted: Iterable[tuple[int, bytes]]
    ) -> tuple[list[bytes], int | None]:
        """Return the same as slots encode them, in parts of the format of a key group.

        Raises:
            QueryError: slots cannot be asked, or refuse.
        """
        pairs = sorted(wanted)
        return self._found(state, [group for group, _ in pairs], [key for _, key in pairs])

    def groups(
        self, state: KnownState, limit: int | None = None
    ) -> Iterator[tuple[list[Any], int | None]]:
        """Yield the rows of each key group, which are of one moment, and the epoch of them.

        With a limit it is that many entries of each group, those of its first keys.

        Raises:
            QueryError: slots cannot be asked, or another attempt has begun meanwhile.
        """
        attempt = self._network.registry.attempt
        for group in range(state.operator.max_parallelism):
            parts, epoch = self._found(state, [group], None, limit)
            yield self._rows(state, partial(_of_group, state, group, parts)), epoch
            if self._network.registry.attempt != attempt:
                msg = f"the job began a new attempt during the scan: {_INSTEAD}"
                raise StateUnavailableError(msg)

    def _found(
        self,
        state: KnownState,
        groups: list[int],
        keys: list[bytes] | None,
        limit: int | None = None,
    ) -> tuple[list[bytes], int | None]:
        """Ask again where key groups have moved, or nobody is there for a moment."""
        left, deadline = TRIES, self._clock.monotonic_ms() + self._limits.timeout_ms
        while True:
            left -= 1
            try:
                return self._once(state, groups, keys, limit)
            except StateUnavailableError:
                if not left or self._clock.monotonic_ms() >= deadline:
                    raise
            self._pause(PAUSE_S)

    def _once(
        self, state: KnownState, groups: list[int], keys: list[bytes] | None, limit: int | None
    ) -> tuple[list[bytes], int | None]:
        parts: list[bytes] = []
        epochs: list[int] = []
        for subtask, lookup in self._dealt(state, groups, keys, limit).items():
            try:
                answer = self._queue(subtask).ask([lookup])
            except StateUnavailableError:
                raise
            except WeirError as error:
                msg = f"live state {state.name!r} cannot be read now ({error}): {_INSTEAD}"
                raise StateUnavailableError(msg) from error
            epochs.append(answer.epoch)
            for found in answer.found:
                _refuse(found)
                parts += found.parts
        return parts, max(epochs, default=None)

    def _dealt(
        self, state: KnownState, groups: list[int], keys: list[bytes] | None, limit: int | None
    ) -> dict[int, StateLookup]:
        """Deal look-ups out; the parallelism is that of now."""
        operator = next(op for op in self._plan().operators if op.id == state.operator.id)
        owners = [subtask_of(g, operator.parallelism, operator.max_parallelism) for g in groups]
        dealt: dict[int, StateLookup] = {}
        for owner in dict.fromkeys(owners):
            own = [place for place, found in enumerate(owners) if found == owner]
            dealt[owner] = StateLookup(
                state.operator.id,
                state.described.name,
                [groups[place] for place in own],
                None if keys is None else [keys[place] for place in own],
                limit=limit,
                types=state.types_mark,
            )
        return dealt

    @staticmethod
    def _rows(state: KnownState, decode: Callable[[], list[Any]]) -> list[Any]:
        try:
            return decode()
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


def _refuse(found: FoundEntries) -> None:
    if found.refused:
        if _MOVED in found.refused:
            msg = f"UnknownKvStateKeyGroupLocation: {found.refused}: {_INSTEAD}"
            raise UnknownKeyGroupLocationError(msg)
        if found.for_now:
            msg = f"{found.refused}: {_INSTEAD}"
            raise StateUnavailableError(msg)
        raise QueryLimitError(found.refused)


def _of_keys(state: KnownState, part: bytes) -> Any:
    return keys_batch(state.layout, state.group_of, part, _ORIGIN)


def _of_group(state: KnownState, group: int, parts: list[bytes]) -> list[Any]:
    return [group_batch(state.layout, group, part, _ORIGIN) for part in parts]
