"""Who the slots of the current execution attempt are, where they are, and whether they live.

Thread-safe. Decisions about starting a slot are made here, so that exactly one pipe starts each.
Whoever asks for a slot, or for the state of all, finds out about leases that ran out: a slot is
watched from the moment when somebody was told to start it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

import msgspec

from weir.clock import Clock
from weir.slot.messages import LOST, Hello, Register, SlotFailure, SlotUsage

# A new process needs a while before it can speak, longer on a busy host: so many leases.
STARTING_LEASES = 3
# A process that breaks off a connection may need a moment to end.
_ENDING_S = 1.0
_LOOK_MS = 200


@dataclass
class SlotEntry:
    """What is known about one slot.

    `pid` is what it said about itself, `process` what its starter knows on the driver's host.
    """

    subtask: int
    pid: int | None = None
    process: int | None = None
    host: str = ""
    log_file: str = ""
    unix: str = ""
    tcp: str = ""
    seen_ms: int = 0
    ready: bool = False
    usage: SlotUsage | None = None


@dataclass(frozen=True)
class Located:
    """The answer to a pipe: where the slot is, or that the pipe must start it, or wait."""

    status: str
    unix: str = ""
    tcp: str = ""
    host: str = ""
    message: str = ""


class SlotProcesses(Protocol):
    """The processes of slots, as far as they can be seen from the driver."""

    def has_ended(self, slot: SlotEntry, patience_s: float = 0.0) -> bool:
        """Tell whether the process of a slot is seen to be gone, after a while to end in."""

    def explain(self, slot: SlotEntry, attempt: int, patience_s: float) -> str:
        """Say how a lost slot ended, after a while in which it may end; "" if that is not known."""


class UnseenProcesses:
    """Nothing is known about processes: slots are lost when their lease is over."""

    def has_ended(self, slot: SlotEntry, patience_s: float = 0.0) -> bool:
        """Nobody knows."""
        return False

    def explain(self, slot: SlotEntry, attempt: int, patience_s: float) -> str:
        """Nobody knows."""
        return ""


class SlotRegistry:
    """Slots of one attempt; `begin_attempt` forgets all of the attempt before."""

    def __init__(self, clock: Clock, lease_ms: int, processes: SlotProcesses | None = None) -> None:
        self._processes = processes or UnseenProcesses()
        self._looked_ms = clock.monotonic_ms()
        self._clock = clock
        self._lease_ms = lease_ms
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

    def look(self) -> None:
        """Notice slots whose process is gone, also before they have spoken; looks now and then."""
        if self._clock.monotonic_ms() - self._looked_ms >= _LOOK_MS:
            self.look_now()

    def look_now(self) -> None:
        """Notice slots whose process is gone.

        Connections of a process break off after it is seen to be gone: whoever looks when something
        failed finds the slot that was lost before.
        """
        self._looked_ms = self._clock.monotonic_ms()
        attempt = self.attempt  # What ends from here on may do so because the attempt is over.
        if self.failure is not None:
            return
        for slot in self.all():
            if self._processes.has_ended(slot):
                what = "while it took epochs" if slot.ready else "before it was ready"
                self.fail(SlotFailure(attempt, slot.subtask, LOST, f"it ended {what}"))

    def has_ended(self, slot: SlotEntry) -> bool:
        """Tell whether the process of a slot that broke off a call is seen to be gone."""
        return self._processes.has_ended(slot, _ENDING_S)

    def locate(self, attempt: int, subtask: int, patience_s: float) -> Located:
        """Tell a pipe where its slot is; waits a while for a slot that is starting."""
        deadline = self._clock.monotonic_ms() + int(patience_s * 1000)
        while True:
            self.look()
            with self._changed:
                self._notice_lapsed()
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
        slot = self._slots.get(subtask)
        if slot is None:
            now = self._clock.monotonic_ms()
            self._slots[subtask] = SlotEntry(subtask, seen_ms=now)
            return Located("start")
        return Located("ready", slot.unix, slot.tcp, slot.host) if slot.ready else Located("wait")

    def started(self, attempt: int, subtask: int, process: int) -> None:
        """Note the process of a slot that was started on the driver's host."""
        with self._changed:
            slot = self._slots.get(subtask)
            if slot is not None and attempt == self.attempt:
                slot.process = process

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

    def heartbeat(self, attempt: int, subtask: int, usage: SlotUsage | None = None) -> bool:
        """Renew a lease; False tells the slot to leave."""
        with self._changed:
            slot = self._slots.get(subtask)
            if attempt != self.attempt or slot is None or self.closed:
                return False
            slot.seen_ms = self._clock.monotonic_ms()
            slot.usage = usage or slot.usage
            return True

    def fail(self, failure: SlotFailure) -> bool:
        """Note the first failure of the attempt; later ones are consequences."""
        failure = self._explained(failure)
        with self._changed:
            if failure.attempt != self.attempt or self.failure is not None:
                return False
            self.failure = failure
            self._changed.notify_all()
            return True

    def _explained(self, failure: SlotFailure) -> SlotFailure:
        """Add how a slot ended that others have lost."""
        with self._changed:
            slot = self._slots.get(failure.subtask)
            known = self.failure is not None or failure.attempt != self.attempt
        if known or slot is None or failure.kind != LOST:
            return failure
        text = failure.message + self._processes.explain(slot, failure.attempt, _ENDING_S)
        return msgspec.structs.replace(failure, message=text)

    def notice_lapsed(self) -> SlotFailure | None:
        """Return the failure of the attempt, which is a lease that ran out if nothing else is."""
        with self._changed:
            self._notice_lapsed()
            return self.failure

    def _notice_lapsed(self) -> None:
        if self.failure is not None or self.closed:
            return
        now = self._clock.monotonic_ms()
        for slot in self._slots.values():
            leases = 1 if slot.pid is not None else STARTING_LEASES
            if now - slot.seen_ms > leases * self._lease_ms:
                text = _lapsed(slot, now - slot.seen_ms)
                text += self._processes.explain(slot, self.attempt, 0.0)
                self.failure = SlotFailure(self.attempt, slot.subtask, LOST, text)
                self._changed.notify_all()
                return

    def known_failure(self, attempt: int) -> tuple[SlotFailure, str] | None:
        """Return what failed an attempt first, and where the log of that slot is."""
        with self._changed:
            failure = self.failure
            if failure is None or failure.attempt != attempt:
                return None
            slot = self._slots.get(failure.subtask)
            return failure, "" if slot is None else slot.log_file

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


def _lapsed(slot: SlotEntry, silent_ms: int) -> str:
    if slot.ready:
        what = "has not been heard of"
    elif slot.pid is not None:
        what = "has not been heard of since it began to restore its state"
    else:
        what = "was started and never spoke"
    return f"it {what} for {silent_ms} ms"
