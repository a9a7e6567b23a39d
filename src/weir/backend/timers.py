"""Timers of one operator subtask: event time or processing time, one queue each.

A timer is (timestamp, key, namespace), registered once however often it is asked for. Timers
fire in timestamp order; equal timestamps by key group, then in the order of registration, which
snapshots keep. They are stored as a keyed state of a reserved name, so they follow their keys.
Many timers of one time, as windows have them, cost a place in a dict each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        # By time and group, the addresses in the order of registration. A bucket is in the heap
        # once it is there; what the heap has beside that is left over, and skipped.
        self._buckets: dict[tuple[int, int], dict[Any, None]] = {}
        self._heap: list[tuple[int, int]] = []
        # What is left of buckets that others overtook while they fired.
        self._begun: dict[tuple[int, int], Iterator[Any]] = {}
        self._count = 0
        self._used = False
        self._overtaken = False
        self._firing: tuple[int, int] | None = None

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
        bucket = self._buckets.get((timestamp, group))
        if bucket is None:
            self._open(timestamp, group, address)
        elif address in bucket:
            return False
        else:
            bucket[address] = None
        self._count += 1
        return True

    def _open(self, timestamp: int, group: int, address: Any) -> dict[Any, None]:
        """Make a bucket with its first timer."""
        when = (timestamp, group)
        bucket = {address: None}
        check_owned(self.key_groups, group, split_address(address)[0])
        self._used = True
        self._buckets[when] = bucket
        heappush(self._heap, when)
        self._overtaken = self._overtaken or (self._firing is not None and when < self._firing)
        return bucket

    def register_all(
        self, timestamp: int, keys: Sequence[Any], groups: Sequence[int], namespace: Any = VOID
    ) -> None:
        """Add a timer for each of some keys, where there is none yet."""
        if not keys:
            return
        check_timestamp(timestamp)
        buckets: dict[int, dict[Any, None]] = {}
        for key, group in zip(keys, groups, strict=True):
            address = address_of(key, namespace)
            bucket = buckets.get(group)
            if bucket is None:
                found = self._buckets.get((timestamp, group))
                if found is None:
                    buckets[group] = self._open(timestamp, group, address)
                    self._count += 1
                    continue
                bucket = buckets[group] = found
            before = len(bucket)
            bucket[address] = None
            self._count += len(bucket) - before

    def register_group(self, timestamp: int, group: int, addresses: Sequence[Any]) -> None:
        """Add a timer for each of some addresses of a key group, where there is none yet."""
        if not addresses:
            return
        check_timestamp(timestamp)
        bucket = self._buckets.get((timestamp, group))
        if bucket is None:
            bucket = self._open(timestamp, group, addresses[0])
            self._count += 1
        before = len(bucket)
        bucket.update(dict.fromkeys(addresses))
        self._count += len(bucket) - before

    def delete(self, timestamp: int, key: Any, group: int, namespace: Any = VOID) -> bool:
        """Remove a timer; return False when there was none."""
        when, address = (timestamp, group), address_of(key, namespace)
        bucket = self._buckets.get(when, {})
        if address not in bucket:
            return False
        self._remove(when, bucket, address)
        if len(self._heap) > _COMPACT_FROM and len(self._heap) > 2 * len(self._buckets):
            self._heap = list(self._buckets)
            heapify(self._heap)
        return True

    def _remove(self, when: tuple[int, int], bucket: dict[Any, None], address: Any) -> None:
        del bucket[address]
        self._count -= 1
        if not bucket:
            del self._buckets[when]
            self._begun.pop(when, None)

    def _next(self) -> tuple[int, int] | None:
        """Return the first bucket."""
        heap, buckets = self._heap, self._buckets
        while heap:
            if heap[0] in buckets:
                return heap[0]
            heappop(heap)
        return None

    def next_timestamp(self) -> int | None:
        """Return the timestamp of the next timer, None when there is none."""
        when = self._next()
        return None if when is None else when[0]

    def pop_due(self, up_to_ms: int) -> Iterator[Timer]:
        """Remove and yield all timers up to a time, inclusive, one by one.

        Timers that are registered or deleted meanwhile, by the functions that the yielded ones
        call, are taken into account.
        """
        try:
            while True:
                when = self._firing = self._next()
                if when is None or when[0] > up_to_ms:
                    return
                yield from self._fire(when)
        finally:
            self._firing = None

    def _fire(self, when: tuple[int, int]) -> Iterator[Timer]:
        """Remove and yield the timers of a bucket, until one is registered that comes before."""
        bucket, (timestamp, group) = self._buckets[when], when
        self._overtaken = False
        rest = self._begun.get(when)
        if rest is None:
            rest = self._begun[when] = iter(list(bucket))
        for address in rest:
            if address in bucket:
                self._remove(when, bucket, address)
                yield Timer(timestamp, group, *split_address(address))
                if self._overtaken:
                    return
        self._begun.pop(when, None)

    def pop_buckets(self, up_to_ms: int) -> Iterator[tuple[int, int, list[Any]]]:
        """Remove and yield all timers up to a time: a time and key group, and all addresses."""
        while True:
            when = self._next()
            if when is None or when[0] > up_to_ms:
                return
            addresses = list(self._buckets.pop(when))
            self._begun.pop(when, None)
            self._count -= len(addresses)
            yield (*when, addresses)

    def snapshot(self, checkpoint_id: int) -> TimerSnapshot:
        """Copy the timers; those of one time and group stay in the order of registration."""
        groups: dict[int, list[tuple[int, list[Any]]]] = {}
        for (timestamp, group), bucket in self._buckets.items():
            groups.setdefault(group, []).append((timestamp, list(bucket)))
        return TimerSnapshot(checkpoint_id, self.name, self._format, groups)

    def restore(self, sources: list[RestoreSource]) -> None:
        """Fill an empty queue with the timers of the key groups that it owns.

        Raises:
            UsageError: there are timers already.
            CorruptStateError: a file is damaged; the queue stays empty.
            IncompatibleStateError: the timers were stored for keys of another type.
        """
        if self._used:
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


class TimerSnapshot:
    """The timers of one queue as they were when `TimerQueue.snapshot` was called."""

    def __init__(
        self,
        checkpoint_id: int,
        name: str,
        group_format: GroupFormat,
        groups: dict[int, list[tuple[int, list[Any]]]],
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self._name = name
        self._format = group_format
        self._groups = groups

    def write(self, out: SnapshotOutput) -> KeyedPart:
        """Write the timers into the checkpoint's own file; on any thread."""
        groups = {}
        for group, buckets in self._groups.items():
            addresses = [address for _, found in buckets for address in found]
            times = [timestamp for timestamp, found in buckets for _ in found]
            data = self._format.encode(addresses, times)
            groups[str(group)] = [[*out.writer.section(data), len(times), 0]]
        entry = {"kind": TIMER_KIND, "type": self._format.describe(), "groups": groups}
        return KeyedPart({self._name: entry})

    def release(self) -> None:
        """Drop the copies."""
        self._groups = {}


def _key_and_rest(address: Any, group: int) -> tuple[Any, int, Any]:
    key, namespace = split_address(address)
    return key, group, namespace
