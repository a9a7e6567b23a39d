"""How much of an epoch a slot keeps in memory: what goes beyond lies in files that nobody sees.

Such a file has no name and is mapped into memory, so a payload in it is used like any other, by
whoever sends it, answers with it again or stores it in a checkpoint. The system keeps its pages
only while there is room. It is gone with its last payload, or with the process.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from weir.errors import StorageError, WeirError
from weir.runtime.frame import Frame, Incoming


class MemoryLimits(msgspec.Struct, frozen=True):
    """In bytes: of a level's input and output in memory, of its output at all, of a process.

    Without a limit for the process it ends before the host, or its container, has no memory left.
    """

    held: int = 256 << 20
    output: int = 16 << 30
    process: int | None = None


class OutputLimitError(WeirError):
    """An operator sends more in one epoch than it may."""


class Sending(Protocol):
    """What sends the records of one edge."""

    frames: list[Frame]


class LevelOutput:
    """What the operators of a level have sent in an epoch; sizes are looked at frame by frame."""

    def __init__(self, limits: MemoryLimits, directory: Path | None) -> None:
        self._limits = limits
        self._directory = directory
        self._writers: list[Sending] = []
        self._done: list[int] = []
        self._held = 0
        self._total = 0

    def add_writer(self, writer: Sending) -> None:
        """Look after one more edge."""
        self._writers.append(writer)
        self._done.append(0)

    def restart(self) -> None:
        """Begin a new epoch."""
        self._held = self._total = 0
        self._done = [0] * len(self._writers)

    def added(self, operator: str, size: int) -> None:
        """Take note of a frame that an operator sends.

        Raises:
            OutputLimitError: it is too much in one epoch.
            StorageError: what is too much for the memory cannot be written.
        """
        self._held += size
        self._total += size
        if self._total > self._limits.output:
            msg = (
                f"operator '{operator}' has sent {self._total} bytes in one epoch, and "
                f"weir.epoch.output-limit is {self._limits.output}: a function that never stops "
                "yielding, or an epoch that is too large, which the options of the source limit"
            )
            raise OutputLimitError(msg)
        if self._held > self._limits.held:
            self._spill()

    def _spill(self) -> None:
        for number, writer in enumerate(self._writers):
            frames = writer.frames[self._done[number] :]
            stored = offload([frame.payload for frame in frames], self._directory)
            writer.frames[self._done[number] :] = [
                frame._replace(payload=payload)
                for frame, payload in zip(frames, stored, strict=True)
            ]
            self._done[number] = len(writer.frames)
        self._held = 0


def take_in(
    frames: Iterable[Incoming], limits: MemoryLimits, directory: Path | None
) -> list[Incoming]:
    """Return the whole input of a level, with no more of it in memory than there may be.

    Raises:
        StorageError: what is too much for the memory cannot be written.
    """
    taken: list[Incoming] = []
    held = done = 0
    for frame in frames:
        taken.append(frame)
        held += frame.payload.size
        if held > limits.held:
            stored = offload([f.payload for f in taken[done:]], directory)
            taken[done:] = [
                Incoming(f.edge, f.origin, payload)
                for f, payload in zip(taken[done:], stored, strict=True)
            ]
            held, done = 0, len(taken)
    return taken


def offload(payloads: list[Any], directory: Path | None) -> list[pa.Buffer]:
    """Write payloads to a file without a name, and return them as they lie in it.

    A payload that is sent to several subtasks is written once.

    Raises:
        StorageError: the file cannot be written.
    """
    places: dict[int, tuple[int, int]] = {}
    size = 0
    where = str(directory) if directory is not None else tempfile.gettempdir()
    try:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(prefix="weir-epoch-", dir=where) as file:
            for payload in payloads:
                if id(payload) not in places:
                    places[id(payload)] = (size, file.write(memoryview(payload)))
                    size += places[id(payload)][1]
            file.flush()
            if not size:
                return [pa.py_buffer(b"") for _ in payloads]
            stored = pa.py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    except OSError as error:
        msg = (
            f"an epoch is too large for the memory that weir.epoch.memory gives it, and cannot be "
            f"written to {where!r}: {error.strerror or error}; io.tmp.dirs chooses another "
            "directory"
        )
        raise StorageError(msg) from error
    return [stored.slice(*places[id(payload)]) for payload in payloads]
