"""How watermarks are combined: the values of Flink's own tests of its valve and multiplexer."""

from __future__ import annotations

import pytest

from weir.runtime.frame import MIN_WATERMARK
from weir.runtime.watermarks import Combined, Valve

IDLE, ACTIVE = "idle", "active"


def tell(valve, channel, what):
    if what == IDLE:
        valve.mark_idle(channel)
    elif what == ACTIVE:
        valve.mark_active(channel)
    else:
        valve.emit(channel, what)


# Steps: the channel, what it says, and the watermark and idleness of the valve behind it.
SEVERAL = [
    (0, 0, MIN_WATERMARK, False),
    (1, 0, MIN_WATERMARK, False),
    (2, 0, 0, False),
    (0, 12, 0, False),
    (2, 8, 0, False),
    (2, 10, 0, False),
    (1, 15, 10, False),
    (2, 17, 12, False),
    (0, 20, 15, False),
]
ONE_AFTER_THE_OTHER_IDLE = [
    (0, 25, MIN_WATERMARK, False),
    (1, 10, MIN_WATERMARK, False),
    (2, 17, 10, False),
    (0, 7, 10, False),
    (1, 3, 10, False),
    (2, 8, 10, False),
    (1, IDLE, 17, False),
    (2, IDLE, 25, False),
    (1, 30, 25, False),
]
ALL_IDLE_GOES_TO_THE_FURTHEST = [
    (0, 10, MIN_WATERMARK, False),
    (1, 5, MIN_WATERMARK, False),
    (2, 3, 3, False),
    (0, IDLE, 3, False),
    (1, IDLE, 3, False),
    (2, IDLE, 10, True),
    (0, 50, 10, True),
]
BACK_FROM_IDLENESS = [
    (0, 10, MIN_WATERMARK, False),
    (1, 7, MIN_WATERMARK, False),
    (2, 3, 3, False),
    (2, IDLE, 7, False),
    (2, ACTIVE, 7, False),
    (2, 5, 7, False),
    (2, 9, 7, False),
    (1, 12, 9, False),
]


@pytest.mark.parametrize(
    "steps",
    [SEVERAL, ONE_AFTER_THE_OTHER_IDLE, ALL_IDLE_GOES_TO_THE_FURTHEST, BACK_FROM_IDLENESS],
)
def test_a_valve_of_three_channels_follows_flinks(steps):
    valve = Valve(range(3))
    for channel, what, watermark, idle in steps:
        tell(valve, channel, what)
        assert (valve.value, valve.idle) == (watermark, idle), (channel, what)


def test_a_valve_of_one_channel_is_idle_with_it_and_active_again():
    valve = Valve([0])
    for what, watermark, idle in [(25, 25, False), (18, 25, False), (42, 42, False)]:
        tell(valve, 0, what)
        assert (valve.value, valve.idle) == (watermark, idle)
    valve.mark_idle(0)
    valve.emit(0, 52)
    assert (valve.value, valve.idle) == (42, True)
    valve.mark_active(0)
    valve.emit(0, 62)
    assert (valve.value, valve.idle) == (62, False)


def test_all_idle_moves_nothing_when_the_last_one_was_not_the_one_that_held_back():
    valve = Valve(range(2))
    valve.emit(0, 10)
    valve.emit(1, 7)
    valve.mark_idle(0)
    valve.mark_active(0)
    valve.mark_idle(1)
    assert valve.value == 10
    valve.mark_active(1)
    valve.mark_idle(0)
    assert valve.value == 10
    valve.mark_idle(1)
    assert (valve.value, valve.idle) == (10, True)


def test_what_an_epoch_says_is_taken_with_its_idleness():
    valve = Valve(range(2))
    valve.tell(0, 10, idle=False)
    valve.tell(1, 20, idle=True)
    assert (valve.value, valve.idle) == (10, False)
    valve.tell(0, 15, idle=True)
    assert (valve.value, valve.idle) == (20, True)
    valve.tell(0, 18, idle=False)
    assert (valve.value, valve.idle) == (20, False)
    valve.tell(0, 30, idle=False)
    assert valve.value == 30


def combined(**watermarks):
    found = Combined()
    for name, watermark in watermarks.items():
        found.add(name)
        found.emit(name, watermark)
    found.update()
    return found


def test_a_multiplexer_takes_the_minimum_of_its_active_outputs():
    found = combined(a=2, b=5)
    assert found.value == 2
    found.mark_idle("a")
    assert found.update() == 5
    found.emit("a", 3)
    assert found.update() == 5
    found.emit("b", 9)
    assert found.update() == 5
    found.emit("a", 7)
    assert found.update() == 7


def test_a_multiplexer_goes_to_the_furthest_when_all_outputs_are_idle():
    found = combined(a=2, b=5)
    found.mark_idle("a")
    found.mark_idle("b")
    assert (found.update(), found.idle) == (5, True)
    found.mark_idle("a", idle=False)
    assert (found.update(), found.idle) == (5, False)


def test_an_output_that_comes_holds_back_and_one_that_goes_does_not():
    found = combined(a=10)
    found.add("b")
    found.emit("a", 20)
    assert found.update() == 10
    found.remove("b")
    assert found.update() == 20
    found.remove("a")
    assert (found.update(), found.idle) == (20, False)
