"""The set of windows in flight: golden values of Flink's tests."""

from __future__ import annotations

from weir.datastream.window import EventTimeSessionWindows, TimeWindow
from weir.window.merging import MergingWindowSet


class Windows:
    """A set with a gap assigner, by pairs."""

    def __init__(self, mapping=()):
        stored = {TimeWindow(*a): TimeWindow(*s) for a, s in dict(mapping).items()}
        self.set = MergingWindowSet(EventTimeSessionWindows.with_gap(3), stored)
        self.merges = []

    def add(self, *window):
        self.merges.clear()
        result = self.set.add(TimeWindow(*window), self.merges.append)
        return pair(result), pair(self.set.state_window(result))

    @property
    def merged(self):
        """Of the last addition: the result, members, target and sources of each merge."""
        return [
            (pair(m.result), sorted(map(pair, m.members)), pair(m.target), [*map(pair, m.sources)])
            for m in self.merges
        ]


def pair(window):
    return None if window is None else (window.start, window.end)


def test_a_window_grows_and_its_contents_stay_where_they_are():
    windows = Windows()
    assert windows.add(0, 4) == ((0, 4), (0, 4))
    assert windows.merged == []
    assert windows.add(0, 4) == ((0, 4), (0, 4))
    assert windows.merged == []
    assert windows.add(3, 5) == ((0, 5), (0, 4))
    assert windows.merged == [((0, 5), [(0, 4)], (0, 4), [])]
    assert windows.add(4, 6) == ((0, 6), (0, 4))
    for inside in [(1, 4), (0, 4), (3, 5), (4, 6), (0, 6)]:
        assert windows.add(*inside) == ((0, 6), (0, 4))
        assert windows.merged == []
    assert windows.add(11, 14) == ((11, 14), (11, 14))
    assert windows.add(10, 13) == ((10, 14), (11, 14))
    assert windows.add(12, 15) == ((10, 15), (11, 14))
    windows.set.retire(TimeWindow(0, 6))
    assert windows.set.state_window(TimeWindow(0, 6)) is None
    assert {pair(w) for w in windows.set.mapping} == {(10, 15)}


def test_a_window_between_others_makes_them_one():
    windows = Windows()
    for apart in [(0, 3), (5, 8), (10, 13)]:
        windows.add(*apart)
    result, state = windows.add(8, 10)
    assert result == (5, 13)
    [(_, members, target, sources)] = windows.merged
    assert members == [(5, 8), (10, 13)]
    assert state == target
    assert sorted([target, *sources]) == [(5, 8), (10, 13)]
    assert windows.add(3, 5)[0] == (0, 13)
    assert len(windows.set.mapping) == 1


def test_a_window_inside_a_new_one_keeps_its_contents():
    windows = Windows()
    windows.add(1, 2)
    assert windows.add(0, 3) == ((0, 3), (1, 2))


def test_what_was_stored_is_taken_as_it_is():
    windows = Windows({(17, 42): (42, 17)})
    assert pair(windows.set.state_window(TimeWindow(17, 42))) == (42, 17)
    assert windows.add(17, 42) == ((17, 42), (42, 17))
    assert not windows.set.changed


def test_what_did_not_change_is_not_written():
    windows = Windows({(0, 6): (0, 4)})
    for inside in [(1, 4), (0, 6), (4, 6)]:
        windows.add(*inside)
        assert not windows.set.changed
    windows.add(5, 8)
    assert windows.set.changed
