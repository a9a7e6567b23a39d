"""What only an engine knows, for people who watch: how far its sources are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class SourceBacklog:
    """One source after its last batch; offsets are texts of the source's own.

    `behind` is how many rows, or offsets, are waiting, None where offsets do not tell.
    """

    description: str
    rows: int = 0
    rows_per_second: float = 0.0
    handled_per_second: float = 0.0
    read_to: str | None = None
    latest: str | None = None
    behind: int | None = None


@dataclass(frozen=True)
class Backlog:
    """All sources, and how many milliseconds each step of the last batch took in Spark."""

    sources: tuple[SourceBacklog, ...] = ()
    steps: Mapping[str, int] = field(default_factory=dict)


class EngineWatch(Protocol):
    """An engine as those see it who watch a job, from any thread."""

    def backlog(self) -> Backlog:
        """Return how far the sources are behind, as far as that is known."""


def offsets_behind(read_to: str | None, latest: str | None) -> int | None:
    """Return how far one offset is behind another; None unless both are numbers, or trees of them.

    What only the newer one has, such as a new partition, waits from its beginning.
    """
    try:
        return _behind(json.loads(read_to or ""), json.loads(latest or ""))
    except (ValueError, TypeError, RecursionError):
        return None


def _behind(old: Any, new: Any) -> int:
    if isinstance(new, bool) or isinstance(old, bool):
        raise TypeError
    if isinstance(new, int) and isinstance(old, int):
        return max(0, new - old)
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        return sum(_behind(old.get(key, _start(value)), value) for key, value in new.items())
    raise TypeError


def _start(value: Any) -> Any:
    return {} if isinstance(value, Mapping) else 0
