"""Where the threads of a process are: once, or many times in a while, as a profiler does.

Looks at frames from another thread and touches nothing else, so records are handled meanwhile. It
costs a little while it looks, and nothing before and after that.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from types import FrameType
from typing import Final

import msgspec

INTERVAL_S: Final = 0.01
DURATION_MAX_MS: Final = 10_000
_DEPTH_MAX: Final = 200
_one_at_a_time = threading.Lock()


class Stack(msgspec.Struct, frozen=True):
    """A thread at a place, outermost call first, and how often it was seen there."""

    thread: str
    frames: tuple[str, ...]
    count: int = 1


decode_stacks = msgspec.msgpack.Decoder(list[Stack]).decode


def current_stacks() -> list[Stack]:
    """Return where every thread but this one is now."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    return [
        Stack(names.get(ident, f"thread {ident}"), frames_of(frame))
        for ident, frame in sys._current_frames().items()
        if ident != own
    ]


def sampled_stacks(duration_ms: int) -> list[Stack]:
    """Look at all threads for a while; whoever comes second waits for the first."""
    waiter = threading.Event()
    rounds = max(1, int(min(duration_ms, DURATION_MAX_MS) / 1000 / INTERVAL_S))
    seen: Counter[tuple[str, tuple[str, ...]]] = Counter()
    with _one_at_a_time:
        for _ in range(rounds):
            seen.update((stack.thread, stack.frames) for stack in current_stacks())
            waiter.wait(INTERVAL_S)
    return [Stack(thread, frames, count) for (thread, frames), count in seen.items()]


def stacks(duration_ms: int) -> list[Stack]:
    """Return where threads are now, or were in a while if that is not zero."""
    return sampled_stacks(duration_ms) if duration_ms > 0 else current_stacks()


def frames_of(innermost: FrameType | None) -> tuple[str, ...]:
    """Return the calls that lead to a frame, outermost first, those nearest to it if many."""
    found: list[str] = []
    frame = innermost
    while frame is not None and len(found) < _DEPTH_MAX:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        found.append(f"{name} ({_short(code.co_filename)}:{frame.f_lineno})")
        frame = frame.f_back
    return tuple(reversed(found))


def _short(file: str) -> str:
    """Return the last parts of a path: enough to find a module, little enough to read."""
    return "/".join(file.rsplit("/", 3)[-3:])
