"""What the changelog backend reads of a job's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weir.config import backend as b
from weir.config.option import ConfigOption


@dataclass(frozen=True)
class ChangelogSettings:
    """Resolved settings of the changelog; times in milliseconds.

    `materialize_ms` is None when the state is never written as a whole on its own.
    """

    materialize_ms: int | None
    failures_max: int
    preemptive_bytes: int
    attempts: int
    in_flight_bytes: int

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ChangelogSettings:
        """Read options by key; what is not there has its default."""

        def get(option: ConfigOption) -> Any:
            return options.get(option.key, option.default)

        interval = get(b.CHANGELOG_MATERIALIZE_INTERVAL)
        enabled = get(b.CHANGELOG_MATERIALIZE) and interval > 0
        return cls(
            materialize_ms=interval if enabled else None,
            failures_max=get(b.CHANGELOG_MAX_FAILURES),
            preemptive_bytes=get(b.CHANGELOG_PERSIST_THRESHOLD),
            attempts=max(1, get(b.CHANGELOG_UPLOAD_ATTEMPTS)),
            in_flight_bytes=get(b.CHANGELOG_UPLOAD_IN_FLIGHT),
        )
