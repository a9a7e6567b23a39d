"""Windows as namespaces: what they become, what they are stored as, and who is not asked."""

from __future__ import annotations

import pytest

from weir.common import TypeSerializer
from weir.datastream.window import (
    CountTumblingWindowAssigner,
    CountWindow,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    Window,
    WindowAssigner,
)
from weir.window.namespaces import ANY, namespaces_of


class Day(Window):
    """A window of the program's own."""

    def __init__(self, number):
        self.number = number

    def max_timestamp(self):
        return self.number

    def __eq__(self, other):
        return isinstance(other, Day) and other.number == self.number

    def __hash__(self):
        return self.number


class DaySerializer(TypeSerializer):
    def serialize(self, element, stream):
        raise AssertionError

    def deserialize(self, stream):
        raise AssertionError


class Days(WindowAssigner):
    def __init__(self, serializer):
        self.serializer = serializer

    def assign_windows(self, element, timestamp, context):
        return [Day(timestamp)]

    def get_default_trigger(self, env):
        return EventTimeTrigger.create()

    def get_window_serializer(self):
        return self.serializer

    def is_event_time(self):
        return True


@pytest.mark.parametrize("serializer", [None, DaySerializer()], ids=["none", "of its own"])
def test_windows_of_the_programs_own_are_themselves_whatever_their_serializer(serializer):
    spaces = namespaces_of(Days(serializer))
    assert spaces is ANY
    assert spaces.type is None
    assert spaces.window(spaces.of(Day(3))) == Day(3)


@pytest.mark.parametrize(
    ("assigner", "window"),
    [
        (TumblingEventTimeWindows.of(5), TimeWindow(5, 10)),
        (CountTumblingWindowAssigner(3), CountWindow(7)),
        (GlobalWindows.create(), GlobalWindow.get()),
    ],
)
def test_windows_of_weir_are_plain_values_and_back(assigner, window):
    spaces = namespaces_of(assigner)
    assert spaces.of(window) != window
    assert spaces.window(spaces.of(window)) == window
