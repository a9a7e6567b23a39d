"""Types, key groups and source positions as text for people; takes whatever is stored.

Every function accepts any JSON-like data: what a file says is shown, not trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from weir.checkpoint.metadata import SourceLayout, SourcePositions

_HEAD_LINES = 2
_KINDS = {
    "VALUE": "ValueState",
    "LIST": "ListState",
    "MAP": "MapState",
    "REDUCING": "ReducingState",
    "AGGREGATING": "AggregatingState",
    "TIMER": "timers",
}


def kind_text(kind: str) -> str:
    """Return the name by which users know a kind of state."""
    return _KINDS.get(kind, kind)


def type_text(stored: Any) -> str:
    """Return a stored type description as one line, such as ``MAP<STRING, LONG>``."""
    if not isinstance(stored, dict) or not stored.get("type"):
        return "?"
    kind = str(stored["type"])
    if kind == "STAMPED":
        return type_text(stored.get("value"))
    if "element" in stored:
        return f"{kind}<{type_text(stored['element'])}>"
    if kind == "MAP":
        return f"MAP<{type_text(stored.get('key'))}, {type_text(stored.get('value'))}>"
    fields = stored.get("fields")
    if isinstance(fields, list):
        names = stored.get("names")
        texts = [type_text(part) for part in fields]
        if isinstance(names, list) and len(names) == len(texts):
            texts = [f"{name} {text}" for name, text in zip(names, texts, strict=True)]
        return f"{kind}<{', '.join(texts)}>"
    return kind


def types_text(stored: Any) -> dict[str, str]:
    """Return the types of a state by role."""
    return {str(r): type_text(t) for r, t in stored.items()} if isinstance(stored, dict) else {}


def expires(stored: Any) -> bool:
    """Tell from its types whether entries of a state expire."""
    value = stored.get("value") if isinstance(stored, dict) else None
    return isinstance(value, dict) and value.get("type") == "STAMPED"


def ranges_text(groups: Iterable[int]) -> str | None:
    """Return numbers as ranges, such as ``0-5, 9``; None when there are none."""
    runs: list[list[int]] = []
    for group in sorted(set(groups)):
        if runs and runs[-1][1] == group - 1:
            runs[-1][1] = group
        else:
            runs.append([group, group])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or None


def offset_of(positions: SourcePositions, source: SourceLayout) -> str | None:
    """Return the line of a source in Spark's offset log entry, None when it has none."""
    line = _HEAD_LINES + source.index
    if positions.batch_id is None or not _HEAD_LINES <= line < len(positions.offset_lines):
        return None
    offset = positions.offset_lines[line]
    return None if offset == "-" else offset


def position_text(offset: str | None, records: int | None = None) -> str:
    """Return how far a source was read; offsets of unknown form are shown as they are."""
    if records is not None:
        return f"{records:,} records read"
    if offset is None:
        return "not read yet"
    try:
        parsed = json.loads(offset)
    except ValueError:
        return offset
    if isinstance(parsed, dict) and set(parsed) == {"logOffset"}:
        return f"files up to entry {parsed['logOffset']} of the source's log"
    if _is_kafka(parsed):
        return "; ".join(
            f"{topic}: " + ", ".join(f"{p}={n}" for p, n in _by_number(partitions))
            for topic, partitions in sorted(parsed.items())
        )
    return offset


def _is_kafka(parsed: Any) -> bool:
    """Tell whether these are offsets of Kafka: by topic, by partition."""
    return (
        isinstance(parsed, dict)
        and bool(parsed)
        and all(isinstance(partitions, dict) and partitions for partitions in parsed.values())
        and all(p.isdigit() and isinstance(n, int) for d in parsed.values() for p, n in d.items())
    )


def _by_number(partitions: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(partitions.items(), key=lambda item: int(item[0]))
