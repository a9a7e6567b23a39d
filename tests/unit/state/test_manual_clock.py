"""The manual clock moves when it is told to, and only then."""

import pytest

from weir.errors import UsageError
from weir.testing.clock import ManualClock


def test_time_passes_when_told_to() -> None:
    clock = ManualClock(100)
    assert (clock.now_ms(), clock.monotonic_ms()) == (100, 0)
    clock.advance(50)
    assert (clock.now_ms(), clock.monotonic_ms()) == (150, 50)
    clock.set(10)
    assert (clock.now_ms(), clock.monotonic_ms()) == (10, 50)
    with pytest.raises(UsageError, match="-1 ms"):
        clock.advance(-1)
