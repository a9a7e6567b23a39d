"""How far a pipeline is, noted from inside it, and the checksum of what came out.

Every subtask appends lines to a file of its own: a monotonic time, which all processes of one
machine share, rows since the line before, and in a verifying run their checksum. A timed run does
no more per row than counting.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.workloads.checksum import Checksum, of_rows

EVERY = 256
# Nobody reads the times of a verifying run, and fingerprints are cheaper by the thousand.
EVERY_VERIFIED = 16_384


class Progress:
    """Counts rows; keeps and fingerprints them if `groups` are given."""

    def __init__(self, directory: str, groups: Sequence[Sequence[int]] | None) -> None:
        """Open the file."""
        self._groups = groups
        self._every = EVERY if groups is None else EVERY_VERIFIED
        self._rows: list[Any] = []
        self._count = 0
        self._file = Path(directory, f"{uuid.uuid4().hex}.marks").open("w")  # noqa: SIM115

    def row(self, row: Any) -> None:
        """Take one row."""
        self._count += 1
        if self._groups is not None:
            self._rows.append(tuple(row))
        if self._count >= self._every:
            self.mark()

    def batch(self, rows: Sequence[Any]) -> None:
        """Take many rows."""
        self._count += len(rows)
        if self._groups is not None:
            self._rows.extend(tuple(row) for row in rows)
        if self._count >= self._every:
            self.mark()

    def mark(self) -> None:
        """Write a line."""
        now = time.monotonic()
        found = of_rows(self._rows, self._groups) if self._groups is not None else None
        line = [now, self._count, found.to_json() if found else None]
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        self._rows, self._count = [], 0

    def close(self) -> None:
        """Write what is left."""
        if not self._file.closed:
            self.mark()
            self._file.close()


def read(directory: Path) -> tuple[list[tuple[float, int]], Checksum]:
    """Return all marks in order of time, and the checksum of everything."""
    marks: list[tuple[float, int]] = []
    total = Checksum()
    for file in directory.glob("*.marks"):
        for line in file.read_text().splitlines():
            at, count, form = json.loads(line)
            marks.append((at, count))
            if form is not None:
                total += Checksum.from_json(form)
    return sorted(marks), total


def steady_part(marks: list[tuple[float, int]], warm_outputs: int) -> tuple[float, float, int]:
    """Return when the warm-up was through, when all was, and the output rows of a timed run.

    Raises:
        ValueError: nothing came out behind the warm-up.
    """
    seen = 0
    start = None
    for at, count in marks:
        seen += count
        if start is None and seen > warm_outputs:
            start = at
    if start is None or marks[-1][0] <= start:
        msg = f"{seen} rows came out, none of them behind the {warm_outputs} of the warm-up"
        raise ValueError(msg)
    return start, marks[-1][0], seen
