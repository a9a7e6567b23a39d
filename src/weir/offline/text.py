"""Types, key groups and offsets as text for people; takes whatever is stored.

Every function accepts any JSON-like data: what a file says is shown, not trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weir.backend.kinds import TIMER_KIND, StateKind
from weir.checkpoint.metadata import SourceLayout, SourcePositions

_HEAD_LINES = 2
_DEPTH = 50
_KINDS = {**{kind.name: str(kind.value) for kind in StateKind}, TIMER_KIND: "timers"}


def kind_text(kind: str) -> str:
    """Return the name by which users know a kind of state."""
    return _KINDS.get(kind, kind)


def type_text(stored: Any, depth: int = _DEPTH) -> str:
    """Return a stored type description as one line, such as ``MAP<STRING, LONG>``.

    What lies deeper than `depth` is shown as ``…``.
    """
    if not isinstance(stored, dict) or not stored.get("type"):
        return "?"
    if depth == 0:
        return "…"
    below = depth - 1
    kind = str(stored["type"])
    if kind == "STAMPED":
        return type_text(stored.get("value"), below)
    if "element" in stored:
        return f"{kind}<{type_text(stored['element'], below)}>"
    if kind == "MAP":
        key, value = (type_text(stored.get(part), below) for part in ("key", "value"))
        return f"MAP<{key}, {value}>"
    fields = stored.get("fields")
    if isinstance(fields, list):
        names = stored.get("names")
        texts = [type_text(part, below) for part in fields]
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
