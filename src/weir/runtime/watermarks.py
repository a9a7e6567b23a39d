"""How watermarks of several streams become one: Flink's two rules, as plain values.

`Valve` is for the channels of one input: a channel that comes back from idleness counts again only
when it has caught up. `Combined` is for the inputs of an operator and for the partitions of a
source, which come and go; there a stream that comes back with a lower watermark holds the others
where they are. Both never go back, ignore idle streams, and go to the furthest stream when all of
them are idle.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeGuard

from weir.runtime.frame import MAX_WATERMARK, MIN_WATERMARK


def is_moment(value: object) -> TypeGuard[int]:
    """Tell whether something is a moment of event time: whole milliseconds of 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return MIN_WATERMARK <= value <= MAX_WATERMARK


class _Channel:
    """One channel of a valve; `aligned` means that it takes part in the minimum."""

    __slots__ = ("aligned", "idle", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_WATERMARK
        self.idle = False
        self.aligned = True


class Valve:
    """The watermark behind a fixed set of channels; a silent channel holds it back."""

    def __init__(self, channels: Iterable[Hashable]) -> None:
        """Begin with all channels active, at the minimum."""
        self._channels = {channel: _Channel() for channel in channels}
        self.value = MIN_WATERMARK
        self.idle = False

    def tell(self, channel: Hashable, watermark: int, *, idle: bool) -> None:
        """Take what a channel says at the end of an epoch."""
        if not idle:
            self.mark_active(channel)
        self.emit(channel, watermark)
        if idle:
            self.mark_idle(channel)

    def emit(self, channel: Hashable, watermark: int) -> None:
        """Take a watermark; that of an idle channel is ignored."""
        state = self._channels[channel]
        if self.idle or state.idle or watermark <= state.watermark:
            return
        state.watermark = watermark
        state.aligned = state.aligned or watermark >= self.value
        self._raise_to_minimum()

    def mark_idle(self, channel: Hashable) -> None:
        """Ignore a channel; when all are idle, nobody holds back the one that came furthest."""
        state = self._channels[channel]
        if state.idle:
            return
        state.idle, state.aligned = True, False
        held = state.watermark == self.value
        self.idle = all(other.idle for other in self._channels.values())
        if held and self.idle:
            furthest = max(other.watermark for other in self._channels.values())
            self.value = max(self.value, furthest)
        elif held:
            self._raise_to_minimum()

    def mark_active(self, channel: Hashable) -> None:
        """Look at a channel again; it counts when it has caught up."""
        state = self._channels[channel]
        if state.idle:
            state.idle, self.idle = False, False
            state.aligned = state.watermark >= self.value

    def _raise_to_minimum(self) -> None:
        aligned = [c.watermark for c in self._channels.values() if c.aligned]
        self.value = max(self.value, min(aligned, default=MIN_WATERMARK))


class _Partial:
    __slots__ = ("idle", "watermark")

    def __init__(self, watermark: int) -> None:
        self.watermark = watermark
        self.idle = False


class Combined:
    """The watermark of streams that come and go; without any it stays where it is."""

    def __init__(self) -> None:
        self._partials: dict[Hashable, _Partial] = {}
        self.value = MIN_WATERMARK
        self.idle = False

    def add(self, name: Hashable, watermark: int = MIN_WATERMARK) -> None:
        """Take a stream in, if it is new; it counts from now on."""
        self._partials.setdefault(name, _Partial(watermark))

    def remove(self, name: Hashable) -> None:
        """Let a stream count no longer."""
        self._partials.pop(name, None)

    def emit(self, name: Hashable, watermark: int) -> None:
        """Take a watermark of a stream, which is active by that."""
        partial = self._partials[name]
        partial.idle = False
        partial.watermark = max(partial.watermark, watermark)

    def mark_idle(self, name: Hashable, *, idle: bool = True) -> None:
        """Ignore a stream, or look at it again."""
        self._partials[name].idle = idle

    def update(self) -> int:
        """Return the watermark of the streams as they are now."""
        partials = self._partials.values()
        self.idle = bool(partials) and all(partial.idle for partial in partials)
        counted = [p.watermark for p in partials if self.idle or not p.idle]
        candidate = max(counted) if self.idle else min(counted, default=MIN_WATERMARK)
        self.value = max(self.value, candidate)
        return self.value

    def watermarks(self) -> dict[Hashable, int]:
        """Return how far each stream is."""
        return {name: partial.watermark for name, partial in self._partials.items()}
