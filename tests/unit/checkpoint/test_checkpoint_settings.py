"""Settings are validated and brought in line as Flink does it."""

from __future__ import annotations

from typing import Any

import pytest

from weir.checkpoint.settings import MAX_PAUSE_MS, CheckpointingMode, CheckpointSettings, Retention
from weir.errors import UsageError


def test_the_defaults_are_flinks() -> None:
    settings = CheckpointSettings()
    assert settings.interval_ms is None
    assert settings.mode is CheckpointingMode.EXACTLY_ONCE
    assert settings.timeout_ms == 600_000
    assert (settings.min_pause_ms, settings.max_concurrent, settings.tolerable_failures) == (
        0,
        1,
        0,
    )
    assert (settings.unaligned, settings.aligned_timeout_ms) == (False, 0)
    assert (settings.retention, settings.num_retained) == (
        Retention.NO_EXTERNALIZED_CHECKPOINTS,
        1,
    )


def test_an_interval_below_the_pause_becomes_the_pause() -> None:
    assert CheckpointSettings(interval_ms=100, min_pause_ms=500).interval_ms == 500
    assert CheckpointSettings(interval_ms=500, min_pause_ms=100).interval_ms == 500
    assert CheckpointSettings(min_pause_ms=500).interval_ms is None


def test_the_pause_is_at_most_a_year() -> None:
    assert CheckpointSettings(min_pause_ms=10**15).min_pause_ms == MAX_PAUSE_MS


def test_unaligned_allows_one_checkpoint_at_a_time() -> None:
    with pytest.raises(UsageError, match="one checkpoint at a time"):
        CheckpointSettings(unaligned=True, max_concurrent=2)


def test_at_least_once_switches_unaligned_off() -> None:
    settings = CheckpointSettings(
        mode=CheckpointingMode.AT_LEAST_ONCE, unaligned=True, max_concurrent=2
    )
    assert not settings.unaligned


@pytest.mark.parametrize(
    "bad",
    [
        {"interval_ms": 9},
        {"timeout_ms": 9},
        {"min_pause_ms": -1},
        {"max_concurrent": 0},
        {"tolerable_failures": -1},
        {"aligned_timeout_ms": -1},
        {"num_retained": 0},
    ],
)
def test_values_out_of_range_are_refused_with_what_was_found(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"is {next(iter(bad.values()))}, expected at least"):
        CheckpointSettings(**bad)
