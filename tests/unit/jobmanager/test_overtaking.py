"""The driver's side of an agreement: one level for all, all or nothing."""

from __future__ import annotations

import threading

import pytest
from tests.harness.overtaking import Count, Overtake, Total, job
from tests.harness.programs import environment

from weir.errors import StorageError
from weir.jobmanager.overtake import BarrierEpoch, Outcome, Overtaking, overtaking
from weir.jobmanager.settings import JobSettings
from weir.runtime.epoch import Barrier, Epoch
from weir.slot.messages import Cut
from weir.testing.harness import collect


class Slots:
    """Slots that answer as a test wants; remembers what they were told."""

    def __init__(self, places, accepted=True, made=False):
        self.places = places
        self.accepted = accepted
        self.made = made
        self.cuts = []
        self.revoked = 0

    def where(self, checkpoint_id, epoch):
        if isinstance(self.places, Exception):
            raise self.places
        return self.places

    def cut(self, cut):
        self.cuts.append(cut)
        if isinstance(self.accepted, Exception):
            raise self.accepted
        return self.accepted

    def revoke(self, checkpoint_id):
        self.revoked += 1
        return self.made


@pytest.fixture
def harness():
    env = environment()
    totals = env.from_sequence(1, 9).key_by(lambda n: n % 3).process(Total()).uid("totals")
    collect(totals.key_by(lambda r: r[0]).process(Count()).uid("counts"))
    return job(env, Overtake(None), deferred=True)


@pytest.fixture
def sent(harness):
    barrier = harness.run_epoch(take=3, checkpoint=True)
    return BarrierEpoch.of(Epoch(1, barrier), lambda: harness.sources.positions(0))


def attempt(harness, sent, slots):
    return Overtaking(slots, harness.runner, sent).attempt()


def test_the_cut_is_at_the_highest_level_that_any_slot_has_begun(harness, sent):
    slots = Slots([(1, 1), (2, 1)])
    assert attempt(harness, sent, slots) is Outcome.SETTLED
    assert slots.cuts == [Cut(0, 1, 2, sent.barrier, replayed=False)]
    assert harness.runner.history.view().find(1).overtook


@pytest.mark.parametrize("places", [[(0, 0), (0, 0)], [(1, 0)]])
def test_before_a_level_begins_or_while_slots_are_missing_everybody_goes_on(harness, sent, places):
    slots = Slots(places)
    assert attempt(harness, sent, slots) is Outcome.NOT_YET
    assert (slots.cuts, slots.revoked) == ([], 1)


NO_THREAD = RuntimeError("can't start new thread")


@pytest.mark.parametrize("error", [StorageError("gone"), NO_THREAD])
def test_a_slot_that_cannot_be_asked_leaves_the_checkpoint_aligned(harness, sent, error):
    slots = Slots(error)
    assert attempt(harness, sent, slots) is Outcome.GIVEN_UP
    assert slots.revoked == 1
    assert harness.runner.is_pending(1)


@pytest.mark.parametrize("refusal", [False, StorageError("gone"), NO_THREAD])
@pytest.mark.parametrize("made", [False, True])
def test_a_cut_that_not_all_can_make_is_revoked_or_gives_the_checkpoint_up(
    harness, sent, refusal, made
):
    slots = Slots([(1, 0), (1, 0)], refusal, made)
    expected = Outcome.GIVEN_UP if made else Outcome.NOT_YET
    assert attempt(harness, sent, slots) is expected
    assert slots.revoked == 1
    assert harness.runner.is_pending(1) == (not made)
    assert harness.failure is None, "it counts as no failure"


def test_nothing_is_overtaken_when_all_slots_are_done_with_the_last_level(harness, sent):
    slots = Slots([(2, 2), (2, 2)])
    assert attempt(harness, sent, slots) is Outcome.GIVEN_UP
    assert (slots.cuts, slots.revoked, harness.runner.is_pending(1)) == ([], 1, True)


def test_nothing_is_asked_about_a_checkpoint_that_is_over(harness, sent):
    harness.runner.give_up(1, "on purpose")
    slots = Slots([(1, 0), (1, 0)])
    assert attempt(harness, sent, slots) is Outcome.GIVEN_UP
    assert slots.cuts == []


def test_tries_go_on_until_a_level_begins(harness, sent):
    slots = Slots([(0, 0), (0, 0)])
    tried = threading.Event()
    where = slots.where

    def answer(checkpoint_id, epoch):
        found = where(checkpoint_id, epoch)
        slots.places = [(1, 0), (0, 0)]
        tried.set()
        return found

    slots.where = answer
    settled = threading.Event()
    slots.cut = lambda cut: settled.set() or True
    with overtaking(slots, harness.runner, sent):
        assert tried.wait(30)
        assert settled.wait(30)


@pytest.mark.parametrize(
    "epoch",
    [
        Epoch(1),
        Epoch(1, Barrier(1, 0, "chk-1")),
        Epoch(1, Barrier(1, 0, "chk-1", overtaking=True), final=True),
    ],
    ids=["no barrier", "an aligned barrier", "the last barrier"],
)
def test_where_nothing_may_be_overtaken_nobody_is_asked(harness, epoch):
    slots = Slots(StorageError("nobody may be asked"))
    with overtaking(slots, harness.runner, BarrierEpoch.of(epoch, list)):
        pass
    assert slots.revoked == 0


def test_settings_choose_the_mode_without_a_warning(caplog):
    prefix = "execution.checkpointing."
    unaligned = {
        prefix + "unaligned.enabled": "true",
        prefix + "aligned-checkpoint-timeout": "5 s",
        prefix + "interval": "1 s",
        "execution.state-recovery.without-channel-state.checkpoint-id": "12",
    }
    found = JobSettings.of([unaligned])
    assert (found.checkpoint.unaligned, found.checkpoint.aligned_timeout_ms) == (True, 5000)
    assert (found.checkpoint.overtakes, found.without_rows_of) == (True, 12)
    found = JobSettings.of([{**unaligned, prefix + "mode": "AT_LEAST_ONCE"}])
    assert (found.checkpoint.unaligned, found.checkpoint.overtakes) == (False, True)
    assert not JobSettings.of([{prefix + "interval": "1 s"}]).checkpoint.overtakes
    assert caplog.records == []
