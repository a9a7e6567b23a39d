"""Which checkpoint a restart takes, decided on facts alone, and what a start finds beside one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.checkpoint.metadata import CheckpointMetadata
from weir.checkpoint.retention import CheckpointRef
from weir.checkpoint.store import write_metadata
from weir.connector.file_sink import FileSink
from weir.connector.sink import NewerOutput
from weir.datastream import StreamExecutionEnvironment
from weir.errors import CorruptStateError, UsageError
from weir.graph.plan import JobPlan, compile_plan
from weir.ids import JobId
from weir.jobmanager import owner
from weir.jobmanager.origin import find_origin
from weir.jobmanager.recovery import (
    BehindCommits,
    Candidate,
    RestorePoint,
    RestoreRules,
    decide_restore,
    keep_what_they_commit,
)
from weir.jobmanager.settings import JobSettings
from weir.storage import LocalStorage
from weir.storage.base import MissingFileError
from weir.testing.harness import collect

OLD, NEW = "a" * 32, JobId("c" * 32)
WHOLE, COPIED, MISSING, DAMAGED = "whole", "copied", "missing", "damaged"


def candidate(number: int, state: str) -> Candidate:
    ref = CheckpointRef(number, f"{OLD}/chk-{number}")
    problems = (f"file {number} is {state}",)
    if state in (MISSING, DAMAGED):
        return Candidate(ref, None, problems, state == MISSING)
    facts = CheckpointMetadata(number, OLD, "totals", 0, "checkpoint", 0)
    if state == COPIED:
        point = RestorePoint("file:///x", ref.directory, facts, (f"file {number}",))
        return Candidate(ref, point, problems)
    return Candidate(ref, RestorePoint("file:///x", ref.directory, facts))


@given(
    st.lists(st.sampled_from([WHOLE, COPIED, MISSING, DAMAGED]), max_size=5),
    st.integers(0, 5),
    st.sampled_from(list(BehindCommits)),
    st.booleans(),
    st.booleans(),
)
def test_a_restart_takes_the_newest_whole_checkpoint_and_never_repeats_output_unasked(
    states: list[str], committed: int, behind: BehindCommits, stuck: bool, patient: bool
) -> None:
    numbered = list(zip(range(len(states), 0, -1), states, strict=True))
    rules = RestoreRules(committed, behind, ("sums",) if stuck else (), patient)
    newest = next((n for n, s in numbered if s in (WHOLE, COPIED)), None)
    passed = [(n, s) for n, s in numbered if n > (newest or 0)]
    try:
        decision = decide_restore((candidate(n, s) for n, s in numbered), rules)
    except MissingFileError:
        assert patient
        assert any(s == MISSING for _, s in passed)
        return
    except CorruptStateError:
        assert passed or committed > len(states)
        may = behind is BehindCommits.REPEAT or (behind is BehindCommits.TAKE_BACK and not stuck)
        assert newest is None or (newest < committed and not may)
        return
    assert not (patient and any(s == MISSING for _, s in passed))
    if decision.point is None:
        assert newest is None
        assert not states
        return
    assert decision.point.metadata.checkpoint_id == newest
    assert bool(decision.point.damaged) == (dict(numbered)[newest] == COPIED)
    assert [ref.checkpoint_id for ref in decision.passed_over] == [n for n, _ in passed]
    allowed = {
        BehindCommits.REPEAT: NewerOutput.STAYS,
        BehindCommits.TAKE_BACK: NewerOutput.TAKEN_BACK,
    }
    wanted = allowed[behind] if newest is not None and newest < committed else NewerOutput.NONE
    assert decision.newer_output is wanted


@pytest.mark.parametrize(
    ("value", "behind"),
    [
        ("refuse", BehindCommits.REFUSE),
        ("repeat", BehindCommits.REPEAT),
        ("take-back", BehindCommits.TAKE_BACK),
        ("TAKE_BACK", BehindCommits.TAKE_BACK),
        ("true", BehindCommits.REPEAT),
        (True, BehindCommits.REPEAT),
        ("false", BehindCommits.REFUSE),
        (False, BehindCommits.REFUSE),
    ],
)
def test_the_setting_has_three_values_and_two_older_spellings(
    value: object, behind: BehindCommits
) -> None:
    assert JobSettings.of([{"weir.recovery.behind-commits": value}]).behind_commits is behind


class World:
    """The checkpoints of a job that was there before; `totals` writes files."""

    def __init__(self, root: Path, *numbers: int) -> None:
        self.root = root
        self.storage = LocalStorage(str(root))
        self.out = root / "out"
        for number in numbers:
            facts = CheckpointMetadata(number, OLD, "totals", 0, "checkpoint", 0)
            write_metadata(self.storage, f"{OLD}/chk-{number}", facts)

    def damage(self, number: int) -> World:
        (self.root / OLD / f"chk-{number}" / "_metadata").write_bytes(b"damaged")
        return self

    def plan(self, *, collects: bool = False) -> JobPlan:
        env = StreamExecutionEnvironment()
        stream = env.from_collection([1]).uid("numbers")
        stream.sink_to(FileSink.text(str(self.out))).uid("files")
        if collects:
            collect(stream)
        return compile_plan(env.build_graph(), 1)

    def start(self, number: int, behind: BehindCommits, *, collects: bool = False) -> NewerOutput:
        settings = JobSettings(
            recovery_path=f"{self.root}/{OLD}/chk-{number}", behind_commits=behind
        )
        plan = self.plan(collects=collects)
        return find_origin(NEW, plan, settings, self.storage, self.root).claim.newer_output


def test_the_newest_checkpoint_leaves_no_newer_output(tmp_path: Path) -> None:
    world = World(tmp_path, 4, 5)
    assert world.start(5, BehindCommits.REFUSE) is NewerOutput.NONE
    assert world.start(5, BehindCommits.REPEAT) is NewerOutput.NONE


def test_who_names_an_older_checkpoint_is_told_that_output_comes_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, 4, 5).damage(5)
    with caplog.at_level(logging.WARNING):
        assert world.start(4, BehindCommits.REFUSE) is NewerOutput.STAYS
    assert "went on to checkpoint 5" in caplog.text


def test_output_of_an_ended_job_is_taken_back(tmp_path: Path) -> None:
    assert World(tmp_path, 4, 5).damage(5).start(4, BehindCommits.TAKE_BACK) is (
        NewerOutput.TAKEN_BACK
    )


def test_output_of_a_job_that_may_be_running_is_not_taken_back(tmp_path: Path) -> None:
    world = World(tmp_path, 4, 5).damage(5)
    owner.claim(tmp_path / OLD)
    with pytest.raises(UsageError, match="may still be running"):
        world.start(4, BehindCommits.TAKE_BACK)
    assert world.start(4, BehindCommits.REPEAT) is NewerOutput.STAYS


def test_sinks_that_keep_what_they_commit_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, 4, 5).damage(5)
    assert keep_what_they_commit(world.plan()) == ()
    (name,) = keep_what_they_commit(world.plan(collects=True))
    with caplog.at_level(logging.WARNING), pytest.raises(UsageError, match=name):
        world.start(4, BehindCommits.TAKE_BACK, collects=True)
    assert f"{name!r} cannot take back" in caplog.text


def test_where_no_checkpoint_is_whole_the_message_says_what_can_be_done():
    found = [candidate(3, DAMAGED), candidate(2, MISSING)]
    with pytest.raises(CorruptStateError) as caught:
        decide_restore(found, RestoreRules(committed=3))
    text = str(caught.value)
    assert text.startswith("no retained checkpoint can be used: checkpoint 3 cannot be used: ")
    assert "checkpoint 2 cannot be used: " in text
    assert "Bring the files back and start from checkpoint 3, or start from a savepoint" in text
