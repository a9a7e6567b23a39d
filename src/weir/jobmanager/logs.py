"""Logs that can be read from this host: those of slots, and what the driver logged.

Names come from a directory of the job and have one form; what is a link is no log. The driver's
log is a bounded number of lines of the loggers of Weir, in memory.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DRIVER_LINES: Final = 5_000
NAME: Final = r"slot-[0-9]{1,6}-attempt-[0-9]{1,9}\.log"
_NAME: Final = re.compile(NAME)


@dataclass(frozen=True)
class LogFile:
    """One log; `path` is where it is, which nobody but the driver needs to know."""

    name: str
    subtask: int
    size: int
    modified_ms: int
    path: Path


def slot_logs(folder: Path | None) -> list[LogFile]:
    """Return the logs of slots in a directory, the newest first; none if it cannot be read."""
    found: list[LogFile] = []
    if folder is None:
        return found
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                facts = entry.stat(follow_symlinks=False)
                if match is not None and stat.S_ISREG(facts.st_mode):
                    changed = facts.st_mtime_ns // 1_000_000
                    path = folder / entry.name
                    subtask = int(entry.name.split("-")[1])
                    found.append(
                        LogFile(entry.name, subtask, facts.st_size, modified_ms=changed, path=path)
                    )
    except (OSError, ValueError):  # a name with a NUL, say, is none
        return found
    return sorted(found, key=lambda log: (log.modified_ms, log.name), reverse=True)


def read_part(path: Path, start: int, size: int) -> bytes:
    """Return a part of a file; a negative start counts from its end.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        whole = file.seek(0, os.SEEK_END)
        file.seek(min(start, whole) if start >= 0 else max(0, whole + start))
        return file.read(size)


class DriverLog(logging.Handler):
    """Keeps the last lines that loggers of Weir wrote in this process.

    It takes nothing away: where nobody else handles a record, it is shown on standard error, as
    Python shows records of loggers without handlers.
    """

    def __init__(self, lines: int = DRIVER_LINES) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._most = lines
        self._lines: deque[bytes] = deque()
        self._forgotten = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record as text."""
        try:
            self._keep(f"{self.format(record)}\n".encode(errors="replace"))
        except (TypeError, ValueError):
            self.handleError(record)
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and self._is_alone(record):
            last.handle(record)

    def _is_alone(self, record: logging.LogRecord) -> bool:
        """Tell whether this is the first of its kind that sees a record, and no other kind does."""
        logger: logging.Logger | None = logging.getLogger(record.name)
        found: list[logging.Handler] = []
        while logger is not None:
            found += logger.handlers
            logger = logger.parent if logger.propagate else None
        return found[:1] == [self] and all(isinstance(each, DriverLog) for each in found)

    def _keep(self, line: bytes) -> None:
        # Under the lock of the handler, which `part` takes too.
        self._lines.append(line)
        if len(self._lines) > self._most:
            self._forgotten += len(self._lines.popleft())

    def text(self) -> str:
        """Return all lines that are kept."""
        return self.part(0, sys.maxsize)[1].decode()

    def last(self, size: int) -> str:
        """Return the last lines that have at most so many bytes together."""
        begin, data = self.part(-size, size)
        # A line that is cut is left out, unless the part begins with the first one of all.
        whole = data if begin == self._forgotten else data.partition(b"\n")[2]
        return whole.decode()

    def end(self) -> int:
        """Return how many bytes were ever written, which is where the next line begins."""
        with self._locked():
            return self._forgotten + sum(map(len, self._lines))

    def part(self, start: int, size: int) -> tuple[int, bytes]:
        """Return where a part begins, and the part; a negative start counts from the end.

        Places count from the first line ever, so that who follows the log finds the next line also
        when the first ones are forgotten; a part of those begins with the oldest line that is kept.
        """
        with self._locked():
            data, gone = b"".join(self._lines), self._forgotten
        begin = max(0, start - gone if start >= 0 else len(data) + start)
        return gone + begin, data[begin : begin + size]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()
