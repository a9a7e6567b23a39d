"""Raw state: bytes that a function writes itself into every checkpoint, and reads itself.

Raw keyed state is one run of bytes per key group and goes where the group goes. Raw operator state
is a list of partitions and is split like a list of operator state. Weir never looks inside.

Invariant: what an output took before the hook returned is in the checkpoint, and nothing after it.
Raw state is not carried along: a function that does not write it again has none any more.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.snapshot import SnapshotReader, SnapshotWriter

RAW_KEYED = "_raw_keyed"
"""Stands among the names of keyed states for a checkpoint's raw keyed state."""


class RawOutput:
    """What both outputs share: parts that are begun in order and filled one at a time."""

    def __init__(self, begin: str) -> None:
        """Take nothing yet; `begin` is the call that starts a part."""
        self._begin = begin
        self._parts: list[bytearray] = []
        self._open = True

    def write(self, data: Any) -> None:
        """Append bytes, or anything like them, to the part that was begun last.

        Raises:
            UsageError: no part was begun, the hook has returned, or these are no bytes.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            msg = f"raw state is bytes, found {type(data).__name__}: encode the value first"
            raise UsageError(msg)
        self._check_open()
        if not self._parts:
            msg = f"raw state needs a place before it is written: call {self._begin} first"
            raise UsageError(msg)
        self._parts[-1] += data

    def close(self) -> None:
        """Take nothing more."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            msg = "raw state is written only while snapshot_state runs: the checkpoint has it all"
            raise UsageError(msg)

    def _begin_part(self) -> None:
        self._check_open()
        self._parts.append(bytearray())


class RawKeyedOutput(RawOutput):
    """Takes the raw keyed state of one subtask for one checkpoint."""

    def __init__(self, key_groups: KeyGroupRange) -> None:
        super().__init__("start_new_key_group(key_group)")
        self._key_groups = key_groups
        self._started: list[int] = []

    def start_new_key_group(self, key_group: int) -> None:
        """Begin the bytes of a key group.

        Raises:
            UsageError: the subtask does not own it, or it is not above the ones before.
        """
        owned, started = self._key_groups, self._started
        if isinstance(key_group, bool) or not isinstance(key_group, int) or key_group not in owned:
            msg = (
                f"key group {key_group!r} does not belong to this subtask, expected one of "
                f"{owned.start} to {owned.end}"
            )
            raise UsageError(msg)
        if started and key_group <= started[-1]:
            what = "is there already" if key_group in started else f"comes after {started[-1]!r}"
            msg = f"key group {key_group!r} {what}: write each group once, in ascending order"
            raise UsageError(msg)
        self._begin_part()
        started.append(key_group)

    def groups(self) -> dict[int, bytes]:
        """Return what was written, by key group."""
        return {g: bytes(p) for g, p in zip(self._started, self._parts, strict=True)}


class RawOperatorOutput(RawOutput):
    """Takes the raw operator state of one subtask for one checkpoint."""

    def __init__(self) -> None:
        super().__init__("start_new_partition()")

    def start_new_partition(self) -> None:
        """Begin a partition: the smallest piece that moves to another subtask."""
        self._begin_part()

    def partitions(self) -> list[bytes]:
        """Return what was written."""
        return [bytes(part) for part in self._parts]


@dataclass(frozen=True)
class RawKeyedSource:
    """One old snapshot's "raw_keyed" footer part, and the key groups to take from it."""

    reader: SnapshotReader
    part: Mapping[str, Any]
    key_groups: KeyGroupRange


@dataclass(frozen=True)
class RawInputs:
    """The raw state that a subtask was restored with."""

    groups: tuple[tuple[int, bytes], ...] = ()
    partitions: tuple[bytes, ...] = ()

    def keyed_streams(self) -> list[tuple[int, BinaryIO]]:
        """Return every key group with a fresh stream of its bytes, in ascending order."""
        return [(group, io.BytesIO(data)) for group, data in self.groups]

    def operator_streams(self) -> list[BinaryIO]:
        """Return a fresh stream of every partition."""
        return [io.BytesIO(data) for data in self.partitions]


NO_RAW_INPUTS = RawInputs()


def write_raw_keyed(groups: Mapping[int, bytes], writer: SnapshotWriter) -> dict[str, Any]:
    """Write one section per key group and return the "raw_keyed" footer part."""
    sections = writer.slices(groups.values())
    return {"groups": {str(g): list(s) for g, s in zip(groups, sections, strict=True)}}


def read_raw_keyed(sources: Iterable[RawKeyedSource]) -> tuple[tuple[int, bytes], ...]:
    """Return the bytes of the wanted key groups, in ascending order.

    Raises:
        CorruptStateError: a file is damaged.
    """
    found: dict[int, bytes] = {}
    for source in sources:
        stored = {int(g): address for g, address in source.part.get("groups", {}).items()}
        wanted = [g for g in stored if g in source.key_groups]
        found.update(zip(wanted, source.reader.sections(stored[g] for g in wanted), strict=True))
    return tuple(sorted(found.items()))
