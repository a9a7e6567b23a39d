"""When the sources were looked at: the time that silence is counted in.

Between two looks nobody knows whether a partition has records: slots work, Spark plans, or the next
trigger is far. So a slot's clock tells nothing about silence. The driver says with each epoch when
the sources were last looked at, by its own monotonic clock, and all slots count the same silence.
"""

from __future__ import annotations


class Looks:
    """What the driver has said in this attempt.

    At `seen_ms` the sources were looked at; all that they had then was given to the slots in this
    epoch or an earlier one. `now_ms` is the begin of the epoch, `since_ms` that of the first one.
    They are None until it is said.
    """

    def __init__(self) -> None:
        """Begin without an epoch."""
        self.seen_ms: int | None = None
        self.now_ms: int | None = None
        self.since_ms: int | None = None

    def begin_epoch(self, looked_ms: int | None, begun_ms: int | None) -> None:
        """Take what an epoch says; None is nothing new. Time does not go back."""
        self.seen_ms = _later(self.seen_ms, looked_ms)
        self.now_ms = _later(self.now_ms, begun_ms)
        if self.since_ms is None:
            self.since_ms = begun_ms


class IdleTimer:
    """Tells when something has been silent for longer than it may."""

    def __init__(self, looks: Looks, allowed_ms: int | None) -> None:
        """Begin with the epoch, or with the first one to come; None allows silence for ever."""
        self._looks = looks
        self._allowed_ms = allowed_ms
        self._active_ms = looks.now_ms

    def active(self) -> None:
        """Note that something was heard in this epoch."""
        self._active_ms = self._looks.now_ms

    @property
    def expired(self) -> bool:
        """Tell whether it was silent for too long when the sources were last looked at."""
        due, seen_ms = self.due_ms(), self._looks.seen_ms
        return due is not None and seen_ms is not None and due <= seen_ms

    def due_ms(self) -> int | None:
        """Return from which look on it has been silent for too long, None for never.

        A millisecond more than is allowed is too long.
        """
        active_ms = self._looks.since_ms if self._active_ms is None else self._active_ms
        if self._allowed_ms is None or active_ms is None:
            return None
        return active_ms + self._allowed_ms + 1


def _later(before: int | None, said: int | None) -> int | None:
    return said if before is None or (said is not None and said > before) else before
