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
from collections.abc import Iterable
from pathlib import Path

from weir.checkpoint.metadata import SourceLayout, SourcePositions
from weir.errors import CorruptStateError

_COMPACT_INTERVAL = 10
_NO_OFFSET = "-"
LOG_DIRECTORY = "@directory"


def read_positions(
    query_dir: Path, batch_id: int, layout: tuple[SourceLayout, ...]
) -> SourcePositions:
    """Return the positions at the end of a batch; Spark logs them before it runs the batch."""
    text = (query_dir / "offsets" / str(batch_id)).read_text()
    return SourcePositions(
        batch_id=batch_id,
        offset_lines=tuple(text.splitlines()),
        commit_lines=("v1", '{"nextBatchWatermarkMs":0}'),
        source_logs={LOG_DIRECTORY: str(query_dir)},
        layout=layout,
    )


def initial_positions(query_dir: Path, layout: tuple[SourceLayout, ...]) -> SourcePositions:
    """Return the positions before the first batch."""
    return SourcePositions(source_logs={LOG_DIRECTORY: str(query_dir)}, layout=layout)


def prepare_query_dir(
    target: Path, positions: SourcePositions | None, layout: tuple[SourceLayout, ...]
) -> None:
    """Fill a fresh query directory so that a query goes on behind the positions.

    A source that was not there before starts at its beginning; one that is gone is dropped.

    Raises:
        CorruptStateError: the source logs that the positions refer to are missing or damaged.
    """
    target.mkdir(parents=True, exist_ok=True)
    if positions is None or not positions.layout:
        return
    origin = Path(positions.source_logs.get(LOG_DIRECTORY, ""))
    if not origin.is_dir():
        # Without the logs a file source would read again what the checkpoint has counted.
        msg = (
            f"the query directory {str(origin)!r}, which the checkpoint's positions refer to, is "
            "missing: set weir.work-dir to a directory that outlives the job's host, and bring the "
            "old one back to resume from this checkpoint"
        )
        raise CorruptStateError(msg)
    before = {entry.uid: entry.index for entry in positions.layout}
    lines = list(positions.offset_lines)
    offsets: list[str] = []
    for entry in layout:
        old = before.get(entry.uid)
        offset = _NO_OFFSET
        if old is not None and positions.batch_id is not None:
            offset = lines[2 + old] if 2 + old < len(lines) else _NO_OFFSET
        offsets.append(offset)
        if old is not None:
            _copy_source_log(
                origin / "sources" / str(old), target / "sources" / str(entry.index), offset
            )
    _write(target / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    if positions.batch_id is None:
        return
    _write(target / "offsets" / "0", "\n".join([*lines[:2], *offsets]))
    _write(target / "commits" / "0", "\n".join(positions.commit_lines))


def _copy_source_log(source: Path, target: Path, offset: str) -> None:
    if not source.is_dir():
        return
    file_offset = _file_log_offset(offset)
    if file_offset is not None:
        _write_file_log(target, _file_log(source), file_offset)
        return
    files = {entry.name: entry.read_text() for entry in _log_files(source)}
    if offset == _NO_OFFSET and any(map(_lists_files, files.values())):
        return  # A file source without a position starts over: what it listed must be listed anew.
    for name, text in files.items():
        _write(target / name, text)


def _lists_files(text: str) -> bool:
    """Tell whether a source's log entry is one of the file source."""
    for line in text.splitlines()[1:2]:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            return False
        return isinstance(entry, dict) and {"path", "batchId"} <= set(entry)
    return False


def _file_log_offset(offset: str) -> int | None:
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


def _write_file_log(target: Path, log: tuple[str, dict[int, list[str]]], last: int) -> None:
    """Write a log that ends at `last`, compacted where Spark expects a compact file."""
    version, entries = log
    compact = (last + 1) // _COMPACT_INTERVAL * _COMPACT_INTERVAL - 1
    if compact >= 0:
        lines = [line for n in sorted(entries) if n <= compact for line in entries[n]]
        _write(target / f"{compact}.compact", "\n".join([version, *lines]))
    for number in range(compact + 1, last + 1):
        if number not in entries:
            msg = f"the source log for {str(target)!r} lacks batch {number}"
            raise CorruptStateError(msg)
        _write(target / str(number), "\n".join([version, *entries[number]]))


def _write(path: Path, text: str) -> None:
    """Write durably; Spark must never read half a log file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.weir")
    with temporary.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)


def layout_of(uids: Iterable[str]) -> tuple[SourceLayout, ...]:
    """Number the sources in plan order."""
    return tuple(SourceLayout(uid, index) for index, uid in enumerate(uids))
