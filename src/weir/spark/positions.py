"""Where the sources are: reading Spark's offset log, and making a query start at a position.

A query's directory is never rewound in place. Every execution attempt gets a fresh directory that
says "batch 0 was committed and ended here", so that Spark goes on behind it with batch 1. The file
source's own log is cut to the position, because Spark would otherwise swallow at once all files
that it had listed before.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from weir.checkpoint.metadata import SourceLayout, SourcePositions, log_check
from weir.errors import CorruptStateError, StorageError
from weir.spark.source_logs import (
    NO_OFFSET,
    check_of,
    file_log_offset,
    listed_files,
    source_log,
)

LOG_DIRECTORY = "@directory"


def read_positions(
    query_dir: Path, batch_id: int, layout: tuple[SourceLayout, ...]
) -> SourcePositions:
    """Return the positions at the end of a batch; Spark logs them before it runs the batch.

    Raises:
        StorageError: the log cannot be read.
    """
    with _named(query_dir):
        text = (query_dir / "offsets" / str(batch_id)).read_text()
    return SourcePositions(
        batch_id=batch_id,
        offset_lines=tuple(text.splitlines()),
        commit_lines=("v1", '{"nextBatchWatermarkMs":0}'),
        source_logs={LOG_DIRECTORY: str(query_dir)},
        layout=layout,
    )


def read_time(positions: SourcePositions) -> int | None:
    """Return when Spark decided what the batch reads, by its wall clock; None if it is not said."""
    try:
        said = json.loads(positions.offset_lines[1])["batchTimestampMs"]
    except (IndexError, KeyError, TypeError, ValueError):
        return None
    return said if isinstance(said, int) and said > 0 else None


def initial_positions(query_dir: Path, layout: tuple[SourceLayout, ...]) -> SourcePositions:
    """Return the positions before the first batch."""
    return SourcePositions(source_logs={LOG_DIRECTORY: str(query_dir)}, layout=layout)


def prepare_query_dir(
    target: Path,
    positions: SourcePositions | None,
    layout: tuple[SourceLayout, ...],
    fresh: Collection[int] = (),
) -> None:
    """Fill a fresh query directory so that a query goes on behind the positions.

    A source that was not there before starts at its beginning; one that is gone is dropped. Those
    whose numbers are in `fresh` begin at the beginning too: what they give lies behind the
    positions already.

    Raises:
        CorruptStateError: the source logs that the positions refer to are missing or damaged.
        StorageError: the directory cannot be written, or the one that it belongs in has vanished.
    """
    with _named(target):
        # Not made anew: it held the logs, and what is mounted there may come back.
        target.mkdir(exist_ok=True)
        _fill(target, positions, layout, fresh)


@contextmanager
def _named(directory: Path) -> Iterator[None]:
    """Let what the file system refuses name the directory, and say that it is tried again."""
    try:
        yield
    except OSError as error:
        place = f" ({error.filename})" if error.filename not in (None, str(directory)) else ""
        msg = (
            f"the query directory {str(directory)!r} cannot be used: {error.strerror or error}"
            f"{place}; the restart strategy decides how often it is tried again"
        )
        raise StorageError(msg) from error


def _fill(
    target: Path,
    positions: SourcePositions | None,
    layout: tuple[SourceLayout, ...],
    fresh: Collection[int],
) -> None:
    if positions is None or not positions.layout:
        return
    before = {entry.uid: entry.index for entry in positions.layout}
    offsets: list[str] = []
    logs: dict[str, str] = {}
    for entry in layout:
        old = None if entry.index in fresh else before.get(entry.uid)
        offsets.append(NO_OFFSET if old is None else offset_of(positions, old))
        if old is not None:
            for name, text in log_of(positions, old).items():
                logs[f"sources/{entry.index}/{name}"] = text
    for name, text in logs.items():
        _write(target / name, text)
    _write(target / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    if positions.batch_id is None or set(offsets) <= {NO_OFFSET}:
        return
    _write(target / "offsets" / "0", "\n".join([*positions.offset_lines[:2], *offsets]))
    _write(target / "commits" / "0", "\n".join(positions.commit_lines))


def offset_of(positions: SourcePositions, index: int) -> str:
    """Return the line of Spark's offset log that is a source's."""
    lines = positions.offset_lines
    if positions.batch_id is None or 2 + index >= len(lines):
        return NO_OFFSET
    return lines[2 + index]


def embedded(index: int, log: Mapping[str, str]) -> dict[str, str]:
    """Return a source's log as part of the positions; also an empty log is seen to be there."""
    prefix = f"sources/{index}/"
    return {prefix: "", **{prefix + name: text for name, text in log.items()}}


def log_of(positions: SourcePositions, index: int) -> dict[str, str]:
    """Return the files of a source's log: those in the positions, else those that Spark wrote.

    Raises:
        CorruptStateError: they are missing or damaged.
    """
    prefix = f"sources/{index}/"
    logs = positions.source_logs
    if prefix in logs:
        found = {k.removeprefix(prefix): v for k, v in logs.items() if k.startswith(prefix)}
        del found[""]
        return found
    origin = Path(logs.get(LOG_DIRECTORY, ""))
    if not origin.is_dir():
        # Without the logs a file source would read again what the checkpoint has counted.
        msg = (
            f"the query directory {str(origin)!r}, which the checkpoint's positions refer to, is "
            "missing: set weir.work-dir to a directory that outlives the job's host, and bring the "
            "old one back to resume from this checkpoint"
        )
        raise CorruptStateError(msg)
    source = origin / "sources" / str(index)
    found, check = source_log(source, offset_of(positions, index)), logs.get(log_check(index))
    if check is not None:  # Older checkpoints, and those that never left this process, have none.
        check_of(found).require(check, f"the source log {str(source)!r}")
    return found


def has_listed(positions: SourcePositions, index: int, files: int) -> bool:
    """Tell whether a file source has come to so many files at a position."""
    if file_log_offset(offset_of(positions, index)) is None:
        return files == 0
    return files <= 1 or len(listed_files(log_of(positions, index))) >= files


def _write(path: Path, text: str) -> None:
    """Write durably; Spark must never read half a log file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.weir")
    with temporary.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)
