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
from urllib.parse import unquote

from weir.checkpoint.metadata import SourceLayout, SourcePositions
from weir.errors import CorruptStateError, StorageError

_COMPACT_INTERVAL = 10
NO_OFFSET = "-"
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
    return source_log(origin / "sources" / str(index), offset_of(positions, index))


def source_log(source: Path, offset: str) -> dict[str, str]:
    """Return the files, by name, of the log that Spark keeps for a source, up to a position."""
    if not source.is_dir():
        return {}
    last = file_log_offset(offset)
    if last is not None:
        return _file_log_until(source, last)
    files = {entry.name: entry.read_text() for entry in _log_files(source)}
    if offset == NO_OFFSET and any(map(_lists_files, files.values())):
        return {}  # A file source without a position starts over: all must be listed anew.
    return files


def listed_files(log: Mapping[str, str]) -> set[str]:
    """Return the names of the files that a file source's log says were read."""
    names = set()
    for text in log.values():
        for line in text.splitlines()[1:]:
            names.add(unquote(str(json.loads(line)["path"])).rsplit("/", 1)[-1])
    return names


def has_listed(positions: SourcePositions, index: int, files: int) -> bool:
    """Tell whether a file source has come to so many files at a position."""
    if file_log_offset(offset_of(positions, index)) is None:
        return files == 0
    return files <= 1 or len(listed_files(log_of(positions, index))) >= files


def _lists_files(text: str) -> bool:
    """Tell whether a source's log entry is one of the file source."""
    for line in text.splitlines()[1:2]:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            return False
        return isinstance(entry, dict) and {"path", "batchId"} <= set(entry)
    return False


def file_log_offset(offset: str) -> int | None:
    """Return the log offset of a file source, None for any other source."""
    try:
        parsed = json.loads(offset)
    except json.JSONDecodeError:
        return None
    if isinstance(parsed, dict) and set(parsed) == {"logOffset"}:
        return int(parsed["logOffset"])
    return None


def _log_files(directory: Path) -> list[Path]:
    return [p for p in directory.iterdir() if p.is_file() and not p.name.startswith(".")]


def _file_log(directory: Path) -> tuple[str, dict[int, list[str]]]:
    """Return version and entries, by batch, of a file source's log, compact files resolved."""
    entries: dict[int, list[str]] = {}
    version = "v1"
    for path in sorted(_log_files(directory), key=_log_number):
        lines = path.read_text().splitlines()
        if not lines or not lines[0].startswith("v"):
            msg = f"{str(path)!r} is not a source log of Spark: it begins with {lines[:1]!r}"
            raise CorruptStateError(msg)
        version = lines[0]
        by_batch: dict[int, list[str]] = {}
        for line in lines[1:]:
            by_batch.setdefault(int(json.loads(line)["batchId"]), []).append(line)
        entries.update(by_batch)
    return version, entries


def _log_number(path: Path) -> int:
    name = path.name.removesuffix(".compact")
    return int(name) if name.isdigit() else -1


def _file_log_until(source: Path, last: int) -> dict[str, str]:
    """Return a log that ends at `last`, compacted where Spark expects a compact file."""
    version, entries = _file_log(source)
    compact = (last + 1) // _COMPACT_INTERVAL * _COMPACT_INTERVAL - 1
    files = {}
    if compact >= 0:
        lines = [line for n in sorted(entries) if n <= compact for line in entries[n]]
        files[f"{compact}.compact"] = "\n".join([version, *lines])
    for number in range(compact + 1, last + 1):
        if number not in entries:
            msg = f"the source log {str(source)!r} lacks batch {number}"
            raise CorruptStateError(msg)
        files[str(number)] = "\n".join([version, *entries[number]])
    return files


def _write(path: Path, text: str) -> None:
    """Write durably; Spark must never read half a log file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.weir")
    with temporary.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)
