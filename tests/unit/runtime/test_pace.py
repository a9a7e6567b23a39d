"""Strides of slow records are cut, so that somebody may look at state in between."""

from __future__ import annotations

from weir.runtime.frame import Chunk
from weir.runtime.pace import PAUSE_MS, Pace
from weir.testing import ManualClock

ROWS = 64


def parts(pace: Pace, clock: ManualClock, ms_each: float) -> list[int]:
    """Handle a stride whose records take so long; returns how many there were in each part."""
    found, seen = [], []
    for part in pace.parts(Chunk(list(range(ROWS)), None, None, None)):
        found.append(len(part))
        seen += part.values
        clock.advance(int(len(part) * ms_each))
    assert seen == list(range(ROWS))
    return found


def test_strides_of_fast_records_stay_whole() -> None:
    clock = ManualClock()
    pace = Pace(clock, ROWS)
    assert [parts(pace, clock, 0.05) for _ in range(3)] == [[ROWS]] * 3


def test_parts_of_slow_records_take_a_few_milliseconds() -> None:
    clock = ManualClock()
    pace = Pace(clock, ROWS)
    assert parts(pace, clock, 1) == [ROWS]
    later = parts(pace, clock, 1)
    assert sum(later) == ROWS
    assert max(later) <= 2 * PAUSE_MS


def test_a_record_that_takes_longer_than_a_pause_is_a_part_of_its_own() -> None:
    clock = ManualClock()
    pace = Pace(clock, ROWS)
    parts(pace, clock, 100)
    assert parts(pace, clock, 100) == [1] * ROWS


def test_strides_grow_again_when_records_become_fast() -> None:
    clock = ManualClock()
    pace = Pace(clock, ROWS)
    parts(pace, clock, 2)
    for _ in range(8):
        last = parts(pace, clock, 0)
    assert last == [ROWS]
