"""A slot's side of an agreement: where it is, what it holds for, when it is too late."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from weir.errors import StorageError
from weir.runtime.epoch import Barrier
from weir.slot.between_records import BetweenRecords
from weir.slot.messages import Cut
from weir.slot.overtake import Overtake, Slices
from weir.testing.clock import ManualClock

LONG_S = 30.0


def made(hold_s=LONG_S):
    return Overtake(Slices(ManualClock()), hold_s)


def cut(level, checkpoint=7, epoch=3):
    return Cut(0, epoch, level, Barrier(checkpoint, 0, "chk"))


def everywhere(level):
    return True


def test_a_slot_tells_which_level_it_has_begun_and_finished():
    slot = made()
    assert slot.where(7, 3) == (0, 0)
    slot.revoke(7)
    slot.begin(3, 1)
    assert slot.where(7, 3) == (1, 0)
    slot.revoke(7)
    slot.end()
    slot.begin(3, 2)
    assert slot.where(7, 3) == (2, 1)
    assert slot.where(7, 4) == (0, 0)


@pytest.mark.parametrize("release", ["want", "revoke"])
def test_a_slot_that_has_answered_neither_begins_nor_ends_a_level_before_the_driver_says_so(
    release,
):
    slot = made()
    slot.begin(3, 1)
    slot.where(7, 3)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(slot.end)
        assert not wait([ending], 0.05).done
        if release == "want":
            assert slot.want(cut(1))
            assert ending.result(LONG_S) == cut(1)
        else:
            slot.revoke(7)
            assert ending.result(LONG_S) is None


def test_a_slot_holds_no_longer_than_it_should():
    slot = made(hold_s=0.01)
    slot.where(7, 3)
    assert slot.begin(3, 1) is None
    slot.begin(3, 2)
    assert not slot.want(cut(1))


def test_a_cut_is_refused_where_the_slot_has_gone_beyond_it():
    slot = made()
    slot.begin(3, 2)
    assert not slot.want(cut(1))
    assert slot.want(cut(2))
    slot.made(7)
    slot.end()
    slot.begin(4, 1)
    assert not slot.want(cut(2, checkpoint=8))


def test_a_slot_between_levels_cuts_now_or_where_its_rows_arrive():
    slot = made()
    slot.begin(3, 1)
    slot.end()
    slot.want(cut(1))
    assert slot.idle_cut(everywhere) == cut(1)
    slot.want(cut(2))
    assert slot.idle_cut(everywhere) is None
    assert slot.idle_cut(lambda level: level < 2) == cut(2)
    assert slot.begin(3, 2) is None
    assert slot.wanted() == cut(2)


def test_a_running_slot_cuts_at_its_own_next_occasion():
    slot = made()
    slot.begin(3, 1)
    slot.want(cut(1))
    assert not slot.is_idle
    assert slot.idle_cut(everywhere) is None


def test_a_cut_before_a_level_is_made_before_that_level_begins():
    slot = made()
    slot.begin(3, 1)
    slot.end()
    slot.want(cut(1))
    assert slot.begin(3, 2) == cut(1)
    slot.made(7)
    assert slot.begin(3, 2) is None
    assert slot.has_cut(7)


def test_a_cut_that_was_never_made_is_forgotten_with_its_epoch():
    slot = made()
    slot.want(cut(2))
    assert slot.begin(4, 1) is None
    assert slot.wanted() is None


def test_revoking_tells_whether_the_cut_was_made():
    slot = made()
    slot.want(cut(1))
    assert not slot.revoke(7)
    assert slot.wanted() is None
    slot.want(cut(1))
    slot.made(7)
    assert slot.revoke(7)


def test_a_slot_that_is_done_with_its_epoch_accepts_and_does_nothing():
    slot = made()
    slot.begin(3, 1)
    slot.end()
    slot.aligned(7)
    assert slot.want(cut(1))
    assert slot.wanted() is None
    assert not slot.revoke(7)


@pytest.mark.parametrize(("takes_ms", "grows"), [(0, True), (15, None), (200, False)])
def test_slices_follow_the_time_that_records_take(takes_ms, grows):
    clock = ManualClock()
    slices = Slices(clock, first=64)
    slices.begin()
    clock.advance(takes_ms)
    slices.pause(lambda: None)
    assert (slices.rows > 64, slices.rows < 64) == (grows is True, grows is False)
    for _ in range(50):
        clock.advance(takes_ms * slices.rows // 64)
        slices.pause(lambda: None)
    assert 1 <= slices.rows <= 1024


def test_time_spent_between_slices_is_not_theirs():
    clock = ManualClock()
    slices = Slices(clock, first=64, most=64)
    slices.begin()
    slices.pause(lambda: clock.advance(10_000))
    slices.pause(lambda: clock.advance(10_000))
    assert slices.rows == 64


def test_work_is_done_by_whoever_holds_the_lock_at_the_next_moment():
    lock = threading.RLock()
    moments = BetweenRecords(lock)
    with ThreadPoolExecutor(1) as pool, lock:
        asked = pool.submit(moments.run, threading.get_ident)
        with pytest.raises(TimeoutError):
            asked.result(0.05)
        moments.drain()
        assert asked.result(LONG_S) == threading.get_ident()


def test_work_that_nobody_is_there_for_is_done_at_once():
    assert BetweenRecords(threading.RLock()).run(lambda: 5) == 5


def test_what_work_raises_reaches_the_one_who_asked():
    def fail():
        msg = "full"
        raise StorageError(msg)

    moments = BetweenRecords(threading.RLock())
    with pytest.raises(StorageError, match="full"):
        moments.run(fail)
    moments.soon(fail)


def test_nobody_waits_for_work_that_has_time():
    lock = threading.RLock()
    moments = BetweenRecords(lock)
    done = []
    with ThreadPoolExecutor(1) as pool, lock:
        pool.submit(moments.soon, lambda: done.append(1)).result(LONG_S)
        assert done == []
        moments.drain()
        assert done == [1]
