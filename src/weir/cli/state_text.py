"""How checkpoints and savepoints look in a terminal: few lines, columns, sizes for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from urllib.parse import unquote

from weir.offline.model import (
    Description,
    OperatorDescription,
    StateDescription,
    Summary,
)

_UNITS = ("KB", "MB", "GB", "TB")
_PICKLED = "PICKLED_BYTE_ARRAY"
_RIGHT = frozenset({"id", "size", "entries"})
_WINDOWS = {"TUPLE<LONG, LONG>": "time window", "LONG": "count window"}
_OF_WINDOWS = ("_window_contents", "_trigger.", "_timer.")


def size_text(size: int) -> str:
    """Return a number of bytes with the unit that people would use."""
    if size < 1024:
        return f"{size} B"
    scaled = float(size)
    for unit in _UNITS:
        scaled /= 1024
        if scaled < 1000 or unit == _UNITS[-1]:
            break
    return f"{scaled:.1f} {unit}"


def time_text(timestamp_ms: int) -> str:
    """Return a moment in local time."""
    return datetime.fromtimestamp(timestamp_ms / 1000).isoformat(" ", "seconds")


def place(location: str) -> str:
    """Return a location as it can be given to commands: local ones as plain paths."""
    local = location.removeprefix("file://")
    return location if local == location else unquote(local)


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lay a table out; the last column may be as long as it likes."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if name in _RIGHT else cell.ljust(width)
            for name, cell, width in zip(head, row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def listing_lines(found: Sequence[Summary]) -> Iterator[str]:
    """Return the lines of `weir state ls`."""
    readable = [summary for summary in found if summary.problem is None]
    rows = [
        (
            time_text(summary.timestamp_ms or 0),
            summary.kind or "",
            str(summary.checkpoint_id),
            summary.job_name or "",
            size_text(summary.bytes or 0),
            place(summary.location),
        )
        for summary in readable
    ]
    if rows:
        yield from columns(("taken", "kind", "id", "job", "size", "path"), rows)
    for summary in found:
        if summary.problem is not None:
            yield f"unreadable: {place(summary.location)}: {summary.problem}"
    if not found:
        yield "There are no checkpoints or savepoints."


def show_lines(found: Description) -> Iterator[str]:
    """Return the lines of `weir state show`."""
    yield from _head(found)
    stateful = [operator for operator in found.operators if operator.has_state]
    for operator in stateful:
        yield ""
        yield from _operator(operator)
    others = [operator.name for operator in found.operators if not operator.has_state]
    if others:
        yield ""
        yield f"Without state: {', '.join(others)}"
    if found.sources:
        yield ""
        yield from columns(("source", "position"), [(s.uid, s.position) for s in found.sources])
    if found.in_flight:
        records = sum(rows.records for rows in found.in_flight)
        size = sum(rows.bytes for rows in found.in_flight)
        yield ""
        yield f"Rows in flight: {records:,} at {len(found.in_flight)} places, {size_text(size)}"


def _head(found: Description) -> Iterator[str]:
    kind = found.kind.capitalize()
    form = f", {found.savepoint_format.lower()} format" if found.savepoint_format else ""
    yield f"{kind} {found.checkpoint_id} of job {found.job_name!r} ({found.job_id})"
    yield f"  path     {place(found.location)}"
    yield f"  taken    {time_text(found.timestamp_ms)}, at the end of epoch {found.epoch}"
    shared = f", {size_text(found.shared_bytes)} of them shared" if found.shared_bytes else ""
    yield f"  size     {size_text(found.bytes)} in {_files(found.files)}{shared}"
    yield f"  version  {found.format_version}{form}"
    if found.problems:
        yield f"  files    {len(found.problems)} missing or damaged"
    elif found.verified:
        yield "  files    sound: every checksum is right"
    else:
        yield "  files    all there; --verify compares their checksums"
    if found.relocatable:
        yield "  moving   the directory can be moved"
    else:
        yield f"  moving   cannot be moved: {'; '.join(found.outside)}"


def _files(count: int) -> str:
    if count == 0:
        return "its metadata"
    return "1 file" if count == 1 else f"{count} files"


def _operator(operator: OperatorDescription) -> Iterator[str]:
    uid = f"uid {operator.uid!r}" if operator.uid else f"no uid, id {operator.id}"
    yield (
        f"{operator.name} ({uid}): parallelism {operator.parallelism} of at most "
        f"{operator.max_parallelism}, {size_text(operator.bytes)}"
    )
    rows = [_state_row(state) for state in operator.states if state.entries != 0]
    rows += [
        (
            kept.name,
            f"operator state, {kept.mode}",
            _types(kept.types),
            f"{kept.elements:,}",
            size_text(kept.bytes),
            "",
        )
        for kept in operator.operator_states
    ]
    if operator.raw_key_groups is not None:
        size = size_text(operator.raw_bytes)
        rows.append(("", "raw keyed state", "", "", size, operator.raw_key_groups))
    head = ("state", "kind", "type", "entries", "size", "key groups")
    yield from (f"  {line}" for line in columns(head, rows))
    if operator.database_bytes:
        size = size_text(operator.database_bytes)
        yield f"  Keyed state is in the files of a database, {size} together."
    for subtask in operator.subtasks:
        groups = subtask.key_groups
        owned = "" if groups is None else f", key groups {groups[0]}-{groups[1]}"
        uses = ", ".join(f"{_short(file.path)} ({size_text(file.bytes)})" for file in subtask.files)
        yield f"  subtask {subtask.index}{owned}: {uses}"


def _state_row(state: StateDescription) -> tuple[str, ...]:
    entries = "" if state.entries is None else f"{state.entries:,}"
    if state.changes:
        entries = f"{state.changes:,} changes"
    kind = f"{state.kind}, expires" if state.expires else state.kind
    size = "" if state.bytes is None else size_text(state.bytes)
    types = _types(state.types)
    window = _WINDOWS.get(state.types.get("namespace", ""))
    if window is not None and state.name.startswith(_OF_WINDOWS):
        types = f"{types} and {window}"
    return state.name, kind, types, entries, size, _shortened(state.key_groups or "")


def _types(types: dict[str, str]) -> str:
    """Return the types that a reader needs: by key, then what is stored."""
    value = types.get("value", "").replace(_PICKLED, "any")
    if "map_key" in types:
        value = f"{types['map_key'].replace(_PICKLED, 'any')} to {value}"
    key = types.get("key", "").replace(_PICKLED, "any")
    return f"{value} by {key}" if key else value


def _short(path: str) -> str:
    parts = path.split("/")
    return "/".join(parts[-2:]) if path.startswith("../") else path


def _shortened(groups: str) -> str:
    return groups if len(groups) <= 40 else f"{groups[:36]} …"
