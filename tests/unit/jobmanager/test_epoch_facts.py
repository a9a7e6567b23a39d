"""Which epoch a checkpoint covers: known in one place, with and without rows overtaken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.harness.overtaking import Overtake, Total, job
from tests.harness.programs import environment

from weir.checkpoint.metadata import SourcePositions
from weir.checkpoint.store import list_completed
from weir.errors import assert_never
from weir.jobmanager.assembly import EpochFacts
from weir.testing.harness import collect

ALIGNED = EpochFacts(5, SourcePositions(), 0)


@pytest.mark.parametrize(
    ("facts", "read", "shown"),
    [
        (ALIGNED, 5, 5),
        (replace(ALIGNED, cut_level=1), 5, 4),
        (replace(ALIGNED, cut_level=1, replayed=True), 4, 4),
    ],
    ids=["aligned", "rows in flight are stored", "sources read them again"],
)
def test_what_comes_again_after_a_restore_is_not_covered(facts, read, shown):
    assert (facts.read_epoch, facts.shown_epoch) == (read, shown)


@pytest.mark.parametrize("mode", ["unaligned", "at-least-once"])
@pytest.mark.parametrize("overtakes", [False, True])
def test_who_listens_learns_the_epoch_with_the_checkpoint(mode, overtakes):
    env = environment()
    collect(env.from_sequence(1, 9).key_by(lambda n: n % 3).process(Total()).uid("totals"))
    hooks = Overtake(1 if overtakes else None)
    harness = job(env, hooks, mode=mode)
    completed = []
    harness.runner._events.completed = lambda ref, facts: completed.append((ref, facts.shown_epoch))
    harness.run_epoch(take=3)
    harness.run_epoch(take=3, checkpoint=True)
    (stored,) = list_completed(harness.storage, harness.job_id)
    ((ref, epoch),) = completed
    assert (ref.checkpoint_id, epoch) == (1, 1 if overtakes else 2)
    replayed = overtakes and mode == "at-least-once"
    assert stored.metadata.epoch == (1 if replayed else 2)


def test_a_match_that_forgot_a_case_says_which():
    with pytest.raises(AssertionError, match="no case for 'novel'"):
        assert_never("novel")
