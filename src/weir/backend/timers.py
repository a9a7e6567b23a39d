"""Timers of one operator subtask: event time or processing time, one queue each.

A timer is (timestamp, key, namespace), registered once however often it is asked for. Timers
fire in timestamp order; equal timestamps by key group, then in the order of registration, which
snapshots keep. They are stored as a keyed state of a reserved name, so they follow their keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from weir.backend.address import address_of, split_address
from weir.backend.base import (
    RESERVED_PREFIX,
    VOID,
    KeyedPart,
    RestoreSource,
    SnapshotOutput,
    Timer,
)
from weir.backend.group_format import AddressTypes, GroupFormat
from weir.backend.kinds import TIMER_KIND
from weir.backend.restored import read_states
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange

EVENT_TIMERS = RESERVED_PREFIX + "event"
PROCESSING_TIMERS = RESERVED_PREFIX + "processing"
_LIMIT = 1 << 63
_COMPACT_FROM = 64


def check_timestamp(timestamp: Any) -> None:
    """Refuse what is no time of a timer.

    Raises:
        UsageError: it is not a 64-bit integer.
    """
    if timestamp.__class__ is not int or not -_LIMIT <= timestamp < _LIMIT:
        msg = f"a timer needs a 64-bit integer of milliseconds, found {timestamp!r}"
        raise UsageError(msg)


def check_owned(key_groups: KeyGroupRange, group: int, key: Any) -> None:
    """Refuse a timer of a key that another subtask owns.

    Raises:
        UsageError: its key group is not among these.
    """
    if group not in key_groups:
        msg = f"key group {group} of key {key!r} is not owned by this subtask"
        raise UsageError(msg)


class TimerQueue:
    """The timers of one time domain, in memory; see `weir.backend.base.Timers`.

    `name` is `EVENT_TIMERS` or `PROCESSING_TIMERS`.
    """

    def __init__(
        self, name: str, key_type: Any, key_groups: KeyGroupRange, namespace_type: Any = None
    ) -> None:
        """Make an empty queue for keys and namespaces of a type (None: any, stored pickled)."""
        self.name = name
        self.key_groups = key_groups
        self._format = GroupFormat.of(None, AddressTypes(key_type, namespace_type), Types.LONG())
        # By group, (timestamp, address) -> sequence number; the heap entry with the same number
        # is alive, any other is left over from a deleted timer and skipped.
        self._live: dict[int, dict[tuple[int, Any], int]] = {}
        self._heap: list[tuple[int, int, int, Any]] = []
        self._sequence = 0
        self._count = 0

    def __len__(self) -> int:
        """Count the timers."""
        return self._count

    def register(self, timestamp: int, key: Any, group: int, namespace: Any = VOID) -> bool:
        """Add a timer; return False when it was there already.

        Raises:
            UsageError: the timestamp is not a 64-bit integer, or there is no key.
        """
        check_timestamp(timestamp)
        address = address_of(key, namespace)
        live = self._live.get(group)
        if live is None:
            check_owned(self.key_groups, group, key)
            live = self._live[group] = {}
        timer = (timestamp, address)
        if timer in live:
            return False
        self._sequence += 1
        live[timer] = self._sequence
        self._count += 1
        heappush(self._heap, (timestamp, group, self._sequence, address))
        return True

    def delete(self, timestamp: int, key: Any, group: int, namespace: Any = VOID) -> bool:
        """Remove a timer; return False when there was none."""
        live = self._live.get(group, {})
        timer = (timestamp, address_of(key, namespace))
        if timer not in live:
            return False
        del live[timer]
        self._count -= 1
        if len(self._heap) > _COMPACT_FROM and len(self._heap) > 2 * self._count:
            self._rebuild()
        return True

    def next_timestamp(self) -> int | None:
        """Return the timestamp of the next timer, None when there is none."""
        while self._heap:
            timestamp, group, sequence, address = self._heap[0]
            if self._live[group].get((timestamp, address)) == sequence:
                return timestamp
            heappop(self._heap)
        return None

    def pop_due(self, up_to_ms: int) -> Iterator[Timer]:
        """Remove and yield all timers up to a time, inclusive, one by one.

        Timers that are registered or deleted meanwhile, by the functions that the yielded ones
        call, are taken into account.
        """
        while True:
            due = self.next_timestamp()
            if due is None or due > up_to_ms:
                return
            timestamp, group, _, address = heappop(self._heap)
            del self._live[group][(timestamp, address)]
            self._count -= 1
            yield Timer(timestamp, group, *split_address(address))

    def snapshot(self, checkpoint_id: int) -> TimerSnapshot:
        """Copy the timers, in the order they were registered."""
        groups = {group: list(live) for group, live in self._live.items() if live}
        return TimerSnapshot(checkpoint_id, self.name, self._format, groups)

    def restore(self, sources: list[RestoreSource]) -> None:
        """Fill an empty queue with the timers of the key groups that it owns.

        Raises:
            UsageError: there are timers already.
            CorruptStateError: a file is damaged; the queue stays empty.
            IncompatibleStateError: the timers were stored for keys of another type.
        """
        if self._sequence:
            msg = f"timers {self.name!r} are restored once, before any timer is registered"
            raise UsageError(msg)
        state = read_states(sources, self.key_groups, timers=True).get(self.name)
        if state is None or not state.groups:
            return
        reader = state.reader_format(TIMER_KIND, self._format)
        decoded = {
            group: [e for part in parts for e in reader.decode(part.data, part.origin)]
            for group, parts in state.groups.items()
        }
        for group in sorted(decoded):
            for address, timestamp in decoded[group]:
                self.register(timestamp, *_key_and_rest(address, group))

    def _rebuild(self) -> None:
        self._heap = [
            (timestamp, group, sequence, address)
            for group, live in self._live.items()
            for (timestamp, address), sequence in live.items()
        ]
        heapify(self._heap)


class TimerSnapshot:
    """The timers of one queue as they were when `TimerQueue.snapshot` was called."""

    def __init__(
        self,
        checkpoint_id: int,
        name: str,
        group_format: GroupFormat,
        groups: dict[int, list[tuple[int, Any]]],
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self._name = name
        self._format = group_format
        self._groups = groups

    def write(self, out: SnapshotOutput) -> KeyedPart:
        """Write the timers into the checkpoint's own file; on any thread."""
        groups = {}
        for group, timers in self._groups.items():
            data = self._format.encode([t[1] for t in timers], [t[0] for t in timers])
            groups[str(group)] = [[*out.writer.section(data), len(timers), 0]]
        entry = {"kind": TIMER_KIND, "type": self._format.describe(), "groups": groups}
        return KeyedPart({self._name: entry})

    def release(self) -> None:
        """Drop the copies."""
        self._groups = {}


def _key_and_rest(address: Any, group: int) -> tuple[Any, int, Any]:
    key, namespace = split_address(address)
    return key, group, namespace
