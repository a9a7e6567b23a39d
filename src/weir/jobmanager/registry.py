"""Who the slots of the current execution attempt are, where they are, and whether they live.

Thread-safe. Decisions about starting a slot are made here, so that exactly one pipe starts each.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from weir.clock import Clock
from weir.slot.messages import Hello, Register, SlotFailure

START_PATIENCE_MS = 30_000


@dataclass
class SlotEntry:
    """What is known about one slot."""

    subtask: int
    starting_since_ms: int | None = None
    pid: int | None = None
    host: str = ""
    log_file: str = ""
    unix: str = ""
    tcp: str = ""
    seen_ms: int = 0
    ready: bool = False


@dataclass(frozen=True)
class Located:
    """The answer to a pipe: where the slot is, or that the pipe must start it, or wait."""

    status: str
    unix: str = ""
    tcp: str = ""
    host: str = ""
    message: str = ""


class SlotRegistry:
    """Slots of one attempt; `begin_attempt` forgets all of the attempt before."""

    def __init__(self, clock: Clock) -> None:
        """Start without an attempt."""
        self._clock = clock
        self._changed = threading.Condition()
        self._slots: dict[int, SlotEntry] = {}
        self.attempt = -1
        self.failure: SlotFailure | None = None
        self.closed = False

    def begin_attempt(self, attempt: int) -> list[SlotEntry]:
        """Fence the previous attempt; return its slots, which have to be told to leave."""
        with self._changed:
            old = list(self._slots.values())
            self._slots = {}
            self.attempt = attempt
            self.failure = None
            self._changed.notify_all()
            return old

    def locate(self, attempt: int, subtask: int, patience_s: float) -> Located:
        """Tell a pipe where its slot is; waits a while for a slot that is starting."""
        deadline = self._clock.monotonic_ms() + int(patience_s * 1000)
        with self._changed:
            while True:
                answer = self._locate(attempt, subtask)
                left = deadline - self._clock.monotonic_ms()
                if answer.status != "wait" or left <= 0:
                    return answer
                self._changed.wait(min(left, 500) / 1000)

    def _locate(self, attempt: int, subtask: int) -> Located:
        if attempt != self.attempt or self.closed:
            return Located("fenced", message=f"execution attempt {attempt} is over")
        if self.failure is not None:
            return Located("failed", message=self.failure.message)
        now = self._clock.monotonic_ms()
        slot = self._slots.setdefault(subtask, SlotEntry(subtask))
        if slot.ready:
            return Located("ready", slot.unix, slot.tcp, slot.host)
        since = slot.starting_since_ms
        if slot.pid is None and (since is None or now - since > START_PATIENCE_MS):
            slot.starting_since_ms = now
            return Located("start")
        return Located("wait")

    def hello(self, message: Hello) -> bool:
        """Note a slot process that begins to restore; False when it is not wanted."""
        with self._changed:
            slot = self._slots.get(message.subtask)
            if message.attempt != self.attempt or slot is None or slot.pid is not None:
                return False
            slot.pid = message.pid
            slot.host = message.host
            slot.log_file = message.log_file
            slot.seen_ms = self._clock.monotonic_ms()
            return True

    def register(self, message: Register) -> bool:
        """Note a slot that can take epochs."""
        with self._changed:
            slot = self._slots.get(message.subtask)
            if message.attempt != self.attempt or slot is None:
                return False
            slot.unix, slot.tcp, slot.ready = message.unix, message.tcp, True
            slot.seen_ms = self._clock.monotonic_ms()
            self._changed.notify_all()
            return True

    def heartbeat(self, attempt: int, subtask: int) -> bool:
        """Renew a lease; False tells the slot to leave."""
        with self._changed:
            slot = self._slots.get(subtask)
            if attempt != self.attempt or slot is None or self.closed:
                return False
            slot.seen_ms = self._clock.monotonic_ms()
            return True

    def fail(self, failure: SlotFailure) -> bool:
        """Note the first failure of the attempt; later ones are consequences."""
        with self._changed:
            if failure.attempt != self.attempt or self.failure is not None:
                return False
            self.failure = failure
            self._changed.notify_all()
            return True

    def silent(self, lease_ms: int) -> list[SlotEntry]:
        """Return slots that were ready and have not been heard of for longer than the lease."""
        now = self._clock.monotonic_ms()
        with self._changed:
            return [s for s in self._slots.values() if s.ready and now - s.seen_ms > lease_ms]

    def ready(self) -> list[SlotEntry]:
        """Return the slots that take epochs."""
        with self._changed:
            return [s for s in self._slots.values() if s.ready]

    def addresses(self, attempt: int, slots: int) -> list[str] | None:
        """Return where the driver reaches each slot; None unless all take epochs."""
        with self._changed:
            found = [self._slots.get(subtask) for subtask in range(slots)]
            if attempt != self.attempt or self.closed or self.failure is not None:
                return None
            ready = [slot.tcp or slot.unix for slot in found if slot is not None and slot.ready]
            return ready if len(ready) == slots else None

    def all(self) -> list[SlotEntry]:
        """Return every slot of the attempt."""
        with self._changed:
            return list(self._slots.values())

    def close(self) -> list[SlotEntry]:
        """End for good: every pipe is refused, every slot has to leave."""
        with self._changed:
            self.closed = True
            old = list(self._slots.values())
            self._slots = {}
            self._changed.notify_all()
            return old
