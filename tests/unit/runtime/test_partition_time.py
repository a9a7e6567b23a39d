"""Event time of a source: the slowest of its partitions that are neither idle nor over."""

from __future__ import annotations

import pytest

from weir.runtime.frame import MAX_WATERMARK, MIN_WATERMARK, PartitionMark
from weir.runtime.looks import IdleTimer, Looks
from weir.runtime.partition_time import SourceTime, partition_owner
from weir.testing.clock import ManualClock


class Watched(SourceTime):
    """A source that is looked at when an epoch begins, unless a test says when it was."""

    def __init__(self, clock, idleness_ms, sources):
        self.looks, self.clock = Looks(), clock
        super().__init__(self.looks, idleness_ms, sources)

    def look(self, looked_ms):
        self.looks.begin_epoch(looked_ms, self.clock.monotonic_ms())


def source(idleness_ms=None, clock=None, sources=()):
    return Watched(clock or ManualClock(), idleness_ms, sources)


NOW = object()


def epoch(found, *marks, looked_ms=NOW):
    """Let the tasks of an epoch speak, each about one partition; return watermark and idleness."""
    found.look(found.clock.monotonic_ms() if looked_ms is NOW else looked_ms)
    found.begin()
    for name, watermark, *flags in marks:
        found.add([PartitionMark(name, watermark, ends="ends" in flags, idle="idle" in flags)])
    found.settle()
    return found.value, found.idle


def test_the_slowest_partition_counts_and_one_that_is_silent_holds_back():
    found = source()
    assert epoch(found, ("a", 100), ("b", 10)) == (10, False)
    assert epoch(found, ("a", 200)) == (10, False)
    assert epoch(found, ("b", 150)) == (150, False)


def test_a_partition_is_as_far_as_the_furthest_task_that_read_it():
    assert epoch(source(), ("a", 5), ("a", 9), ("a", 7)) == (9, False)


def test_a_partition_counts_from_its_first_epoch_on():
    found = source()
    assert epoch(found, ("a", 100)) == (100, False)
    assert epoch(found, ("a", 200), ("new", 120)) == (120, False)
    assert epoch(found, ("a", 300)) == (120, False)


def test_files_count_in_the_epoch_in_which_they_are_read():
    found = source()
    assert epoch(found, ("1", 999, "ends"), ("2", 9, "ends")) == (9, False)
    assert epoch(found) == (9, False)
    assert epoch(found, ("3", 1500, "ends"), ("4", 19, "ends")) == (19, False)
    assert epoch(found, ("5", 3000, "ends")) == (3000, False)
    assert found.watermarks(replayed=False) == []


def test_a_file_that_was_read_does_not_hold_back_a_partition_that_goes_on():
    found = source()
    assert epoch(found, ("file", 9, "ends"), ("log", 50)) == (9, False)
    assert epoch(found, ("log", 60)) == (60, False)


def test_without_records_a_source_stands_at_the_minimum():
    found = source(idleness_ms=10)
    assert epoch(found) == (MIN_WATERMARK, False)


@pytest.mark.parametrize(("silent_ms", "idle"), [(9, False), (10, False), (11, True)])
def test_a_partition_is_idle_when_it_is_silent_for_longer_than_allowed(silent_ms, idle):
    clock = ManualClock()
    found = source(10, clock)
    epoch(found, ("a", 100), ("b", 10))
    clock.advance(silent_ms)
    assert epoch(found, ("a", 200)) == (200 if idle else 10, False)
    assert found.idle_from_ms() == (silent_ms + 11 if idle else 11)


def test_all_partitions_idle_lets_the_source_go_to_the_furthest():
    clock = ManualClock()
    found = source(10, clock)
    epoch(found, ("a", 100), ("b", 10))
    clock.advance(11)
    assert epoch(found) == (100, True)
    assert found.idle_from_ms() is None
    assert epoch(found, ("b", 50)) == (100, False)
    assert epoch(found, ("b", 150)) == (150, False)


def test_a_source_that_never_had_records_becomes_idle_too():
    clock = ManualClock()
    found = source(10, clock)
    assert found.idle_from_ms() is None
    clock.advance(500)  # before the first epoch nobody was looked at
    assert epoch(found) == (MIN_WATERMARK, False)
    assert found.idle_from_ms() == 511
    clock.advance(11)
    assert epoch(found) == (MIN_WATERMARK, True)
    assert epoch(found, ("a", 5)) == (5, False)


def test_a_partition_may_say_itself_that_it_is_idle():
    found = source()
    assert epoch(found, ("a", 100), ("b", 10, "idle")) == (100, False)
    assert epoch(found, ("b", 20)) == (100, False)
    assert epoch(found, ("a", 300)) == (100, False)


def test_a_restored_partition_holds_back_before_it_says_anything():
    before = source()
    epoch(before, ("a", 100), ("b", 10), ("file", 50, "ends"), ("function:", MAX_WATERMARK))
    stored = before.watermarks(replayed=False)
    assert stored == [("a", 100), ("b", 10)]
    after = source()
    after.restore(stored)
    assert epoch(after, ("a", 500)) == (10, False)
    assert epoch(after, ("b", 400)) == (400, False)


def test_a_source_that_is_read_to_its_end_holds_nobody_back():
    found = source()
    assert epoch(found, ("s:1", 50, "ends"), ("s:2", 10, "ends"), ("t:", 100)) == (10, False)
    assert epoch(found, ("s:3", 20, "ends"), over("s"), ("s:4", 30, "ends")) == (100, False)
    assert epoch(found, ("t:", 200)) == (200, False)


def test_the_end_of_a_source_is_known_after_a_restore_until_it_is_read_on():
    before, after = source(), source()
    assert epoch(before, ("s:3", 20, "ends"), over("s")) == (MAX_WATERMARK, False)
    stored = before.watermarks(replayed=False)
    assert stored == [("s:", MAX_WATERMARK)]
    after.restore(stored)
    assert after.watermarks(replayed=False) == stored
    assert epoch(after, ("s:4", 30, "ends")) == (30, False)
    again = source()
    again.restore(stored)
    assert epoch(again) == (MAX_WATERMARK, False)


def over(source_name):
    """What is said of a bounded source that is read to its end."""
    return (f"{source_name}:", MAX_WATERMARK, "ends")


def test_time_of_several_sources_is_over_when_all_of_them_are():
    found = source(sources=("s", "t"))
    # The other one has not been heard yet: its first record must not be late.
    assert epoch(found, over("s")) == (MIN_WATERMARK, False)
    assert epoch(found, ("t:1", 5)) == (5, False)
    assert epoch(found, ("t:1", 9), over("t")) == (MAX_WATERMARK, False)
    assert found.watermarks(replayed=False) == [("s:", MAX_WATERMARK), ("t:", MAX_WATERMARK)]


def test_a_source_that_is_over_does_not_let_time_end_when_the_others_are_idle():
    clock = ManualClock()
    found = source(10, clock, sources=("s", "t"))
    epoch(found, over("s"), ("t:1", 5), ("t:2", 50))
    clock.advance(11)
    assert epoch(found) == (50, True)
    assert epoch(found, ("t:1", 60)) == (60, False)


def test_the_end_of_one_of_several_sources_is_known_after_a_restore():
    before, after = (source(sources=("s", "t")) for _ in range(2))
    epoch(before, ("s:1", 20), over("s"))
    epoch(before, ("t:", 7))
    after.restore(before.watermarks(replayed=False))
    assert epoch(after) == (7, False)
    assert epoch(after, over("t")) == (MAX_WATERMARK, False)


def test_a_partition_that_is_over_counts_no_longer():
    found = source(sources=("s",))
    assert epoch(found, ("s:1", 5), ("s:10", 40), ("s:2", 50)) == (5, False)
    # It is over by its own name: "s:10" only begins like it.
    assert epoch(found, ("s:1", MAX_WATERMARK, "ends")) == (40, False)
    assert found.watermarks(replayed=False) == [("s:10", 40), ("s:2", 50)]
    assert found.partitions == ["s:10", "s:2"]
    assert epoch(found, ("s:10", 60)) == (50, False)


def test_nobody_waits_for_a_source_that_is_over():
    clock = ManualClock()
    found = source(10, clock, sources=("s",))
    epoch(found, over("s"))
    assert found.idle_from_ms() is None
    clock.advance(11)
    assert epoch(found) == (MAX_WATERMARK, False)


def test_what_an_epoch_said_is_not_stored_if_it_will_be_read_again():
    found = source()
    epoch(found, ("a", 100), ("b", 10))
    epoch(found, ("a", 200), ("c", 5))
    assert found.watermarks(replayed=True) == [("a", 100), ("b", 10)]
    epoch(found)
    assert found.watermarks(replayed=True) == [("a", 200), ("b", 10), ("c", 5)]


def test_time_in_which_nobody_looked_at_the_sources_is_not_silence():
    clock = ManualClock()
    found = source(10, clock)
    epoch(found, ("a", 100), ("b", 10))
    clock.advance(1000)
    # Epochs without a look, and one that was planned long before it began.
    assert epoch(found, looked_ms=None) == (10, False)
    assert epoch(found, looked_ms=10) == (10, False)
    assert found.idle_from_ms() == 11
    assert epoch(found, looked_ms=11) == (100, True)


def test_what_is_heard_without_a_look_is_heard():
    clock = ManualClock()
    found = source(10, clock)
    epoch(found, ("a", 100), ("b", 10))
    clock.advance(8)
    epoch(found, ("b", 20), looked_ms=None)
    clock.advance(8)
    assert epoch(found, ("a", 200)) == (20, False)
    clock.advance(3)
    assert epoch(found, ("a", 300)) == (300, False)


def test_looks_do_not_go_back():
    clock = ManualClock()
    found = source(10, clock)
    epoch(found, ("a", 100), ("b", 10))
    clock.advance(20)
    assert epoch(found) == (100, True)
    assert epoch(found, looked_ms=5) == (100, True)


def test_a_timer_without_a_bound_never_expires():
    looks = Looks()
    timer = IdleTimer(looks, None)
    looks.begin_epoch(10**9, 10**9)
    assert not timer.expired
    assert timer.due_ms() is None


def test_owners_of_partitions_are_the_same_everywhere():
    assert [partition_owner(f"topic-{n}", 4) for n in range(6)] == [1, 3, 1, 3, 0, 2]
