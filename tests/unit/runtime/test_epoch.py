"""An epoch and its barrier travel whole, and say in one place what may be overtaken."""

from __future__ import annotations

import pytest

from weir.runtime.epoch import Barrier, Epoch
from weir.slot.messages import Cut, EpochCall, decode, encode

BARRIER = Barrier(7, 1234, "job/chk-7", full=True, native=True, overtaking=True)


@pytest.mark.parametrize(
    "message",
    [
        EpochCall(2, 1, Epoch(5)),
        EpochCall(2, 1, Epoch(5, BARRIER, final=True)),
        Cut(2, 5, 1, BARRIER, replayed=True),
    ],
)
def test_every_fact_of_the_barrier_reaches_the_slot(message):
    assert decode(encode(message), type(message)) == message


def test_the_checkpoint_of_an_epoch_is_that_of_its_barrier():
    assert Epoch(5).checkpoint_id is None
    assert Epoch(5, BARRIER).checkpoint_id == 7


@pytest.mark.parametrize(
    ("epoch", "overtaking"),
    [
        (Epoch(5, BARRIER), True),
        (Epoch(5, BARRIER, final=True), False),
        (Epoch(5, Barrier(7, 1234, "job/chk-7")), False),
        (Epoch(5), False),
    ],
)
def test_a_barrier_overtakes_rows_if_it_may_and_its_epoch_is_not_the_last(epoch, overtaking):
    assert epoch.overtaking is overtaking
