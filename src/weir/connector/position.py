"""Positions of sources as text for people, by the form in which the engine wrote them down.

A position outlives the program, so it must explain itself: whoever shows it has the line of the
engine's log and the number of records, where they are counted, and no source. A source with a form
of its own adds a function to `FORMS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def position_text(offset: str | None, records: int | None = None) -> str:
    """Return how far a source was read; offsets of unknown form are shown as they are."""
    if records is not None:
        return f"{records:,} records read"
    if offset is None:
        return "not read yet"
    try:
        parsed = json.loads(offset)
    except (ValueError, RecursionError):
        return offset
    texts = (form(parsed) for form in FORMS)
    return next((text for text in texts if text is not None), offset)


def _files(parsed: Any) -> str | None:
    """Files of Spark's file source, splits among them: an entry of its log."""
    if isinstance(parsed, dict) and set(parsed) == {"logOffset"}:
        return f"files up to entry {parsed['logOffset']} of the source's log"
    return None


def _partitions(parsed: Any) -> str | None:
    """Offsets by topic and partition, as Kafka has them: the next one of each partition."""
    if not isinstance(parsed, dict) or not parsed:
        return None
    if not all(isinstance(partitions, dict) and partitions for partitions in parsed.values()):
        return None
    if not all(_is_number(p) and isinstance(n, int) for d in parsed.values() for p, n in d.items()):
        return None
    return "; ".join(
        f"{topic}: " + ", ".join(f"{p}={n}" for p, n in _by_number(partitions))
        for topic, partitions in sorted(parsed.items())
    )


def _kafka(parsed: Any) -> str | None:
    """A Kafka source of our own: the same, and where bounded input ends."""
    if not isinstance(parsed, dict) or "offsets" not in parsed or "topics" not in parsed:
        return None
    text, until = _partitions(parsed["offsets"]), _partitions(parsed.get("until"))
    return text if text is None or until is None else f"{text} (ends at {until})"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def _by_number(partitions: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(partitions.items(), key=lambda item: int(item[0]))


def _jdbc(parsed: Any) -> str | None:
    """A query that is read by a column."""
    if not isinstance(parsed, dict) or not {"jdbc", "after", "until"} <= set(parsed):
        return None
    if parsed["after"] is None:
        return "not read yet" if parsed["until"] is not None else "no rows"
    return f"rows up to {parsed['jdbc']}={parsed['after']} (ends at {parsed['until']})"


FORMS: tuple[Callable[[Any], str | None], ...] = (_files, _kafka, _jdbc, _partitions)
