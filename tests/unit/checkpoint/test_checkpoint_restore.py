"""Whether stored state fits a program, and the plan when it does."""

from __future__ import annotations

import pytest

from weir.checkpoint.metadata import (
    CheckpointMetadata,
    FileRecord,
    OperatorRecord,
    OperatorStateRecord,
    SubtaskRecord,
)
from weir.checkpoint.rescale import ElementRead, KeyedRead
from weir.checkpoint.restore import (
    OperatorPlan,
    ProgramOperator,
    SubtaskRestore,
    match_operators,
    plan_restore,
    resolve_max_parallelism,
)
from weir.errors import IncompatibleStateError, UsageError
from weir.keygroup import KeyGroupRange


def record(
    id: str, *, maximum: int = 128, has_state: bool = True, subtasks: tuple[SubtaskRecord, ...] = ()
) -> OperatorRecord:
    return OperatorRecord(id, f"uid-{id}", f"name-{id}", 2, maximum, has_state, subtasks)


def metadata(*operators: OperatorRecord) -> CheckpointMetadata:
    files = (FileRecord("f0", 1, 1, 0), FileRecord("f1", 1, 1, 1))
    return CheckpointMetadata(7, "job", "job", 0, "savepoint", 0, operators=operators, files=files)


def test_operators_are_matched_by_id_and_new_ones_start_empty() -> None:
    a, b = record("a"), record("b")
    match = match_operators(
        metadata(a, b),
        [
            ProgramOperator("b", "renamed", 2),
            ProgramOperator("a", "x", 9),
            ProgramOperator("c", "", 1),
        ],
    )
    assert match.restored == {"a": a, "b": b}
    assert match.skipped == ()


def test_state_of_an_unknown_operator_is_refused_with_the_way_out() -> None:
    with pytest.raises(
        IncompatibleStateError,
        match=r"savepoint 7 .*'name-b' \(uid 'uid-b', id 'b'\).*--allowNonRestoredState",
    ):
        match_operators(metadata(record("a"), record("b")), [ProgramOperator("a", "a", 1)])


def test_state_of_an_unknown_operator_is_left_behind_when_allowed() -> None:
    a, b = record("a"), record("b")
    match = match_operators(metadata(a, b), [ProgramOperator("a", "a", 1)], allow_non_restored=True)
    assert (match.restored, match.skipped) == ({"a": a}, (b,))


def test_an_unknown_operator_without_state_is_skipped_without_asking() -> None:
    empty = record("b", has_state=False)
    match = match_operators(metadata(record("a"), empty), [ProgramOperator("a", "a", 1)])
    assert match.skipped == (empty,)


def test_two_operators_with_one_id_are_refused() -> None:
    program = [ProgramOperator("a", "one", 1, uid="u"), ProgramOperator("a", "two", 1, uid="u")]
    with pytest.raises(UsageError, match="'one' and 'two' have the same id 'a'"):
        match_operators(metadata(), program)


def test_a_program_that_sets_no_max_parallelism_takes_over_the_states() -> None:
    assert resolve_max_parallelism([record("a", maximum=13)], 4) == 13
    assert resolve_max_parallelism([record("a", maximum=13)], 4, 13) == 13


@pytest.mark.parametrize(("stored", "configured"), [(42, 20), (13, 42), (32768, 3), (7, 32768)])
def test_a_program_that_sets_another_max_parallelism_is_refused(
    stored: int, configured: int
) -> None:
    with pytest.raises(
        IncompatibleStateError, match=f"{stored}, but the program sets {configured}"
    ):
        resolve_max_parallelism([record("a", maximum=stored)], 2, configured)


DEFAULT = None


@pytest.mark.parametrize(
    ("parallelism", "configured", "expected", "stored", "adopted"),
    [
        (1, DEFAULT, 128, 3, True),
        (171, DEFAULT, 256, 42, True),
        (172, DEFAULT, 512, 174, True),
        (32768, DEFAULT, 32768, 32768, True),
        (4, 32768, 32768, 3, False),
        (4, 7, 7, 32768, False),
    ],
)
def test_flinks_table_of_max_parallelisms_before_and_after_a_restore(
    parallelism: int, configured: int | None, expected: int, stored: int, adopted: bool
) -> None:
    assert resolve_max_parallelism([], parallelism, configured) == expected
    state = [record("a", maximum=stored)]
    if not adopted:
        with pytest.raises(IncompatibleStateError, match=f"sets {configured}: set {stored}"):
            resolve_max_parallelism(state, min(parallelism, stored), configured)
        return
    assert resolve_max_parallelism(state, min(parallelism, stored)) == stored
    if parallelism > stored:
        with pytest.raises(IncompatibleStateError, match="lower than the parallelism"):
            resolve_max_parallelism(state, parallelism)


def test_more_subtasks_than_key_groups_are_refused() -> None:
    with pytest.raises(IncompatibleStateError, match="13, which is lower than the parallelism 14"):
        resolve_max_parallelism([record("a", maximum=13)], 14)
    assert resolve_max_parallelism([record("a", maximum=13)], 13) == 13


def test_chained_operators_must_agree() -> None:
    with pytest.raises(IncompatibleStateError, match=r"chained.*\[13, 128\]"):
        resolve_max_parallelism([record("a", maximum=13), record("b")], 2)


@pytest.mark.parametrize(
    ("parallelism", "maximum"), [(1, 128), (171, 256), (172, 512), (32768, 32768)]
)
def test_without_state_the_default_applies(parallelism: int, maximum: int) -> None:
    stateless = [record("a", maximum=5, has_state=False)]
    assert resolve_max_parallelism(stateless, parallelism) == maximum
    assert resolve_max_parallelism([], parallelism) == maximum
    assert resolve_max_parallelism([], 1, 7) == 7


@pytest.mark.parametrize("parallelism", [0, -1, 32769])
def test_an_impossible_parallelism_is_refused(parallelism: int) -> None:
    with pytest.raises(UsageError, match="expected 1 to 32768"):
        resolve_max_parallelism([], parallelism)


def test_the_plan_says_what_every_subtask_reads() -> None:
    states = {"buffer": OperatorStateRecord("SPLIT", 3)}
    stored = record(
        "a",
        maximum=10,
        subtasks=(
            SubtaskRecord(0, 0, (0, 4), ("sum",), states),
            SubtaskRecord(1, 1, (5, 9), ("sum",), {}),
        ),
    )
    program = [ProgramOperator("a", "count", 1), ProgramOperator("new", "new", 2, 64)]
    plan = plan_restore(metadata(stored), program)
    assert plan["a"] == OperatorPlan(
        stored,
        10,
        (
            SubtaskRestore(
                (
                    KeyedRead(0, (0,), KeyGroupRange(0, 4), KeyGroupRange(0, 4)),
                    KeyedRead(1, (1,), KeyGroupRange(5, 9), KeyGroupRange(5, 9)),
                ),
                {"buffer": (ElementRead(0, 0, 3),)},
            ),
        ),
    )
    assert plan["new"] == OperatorPlan(None, 64, (SubtaskRestore(), SubtaskRestore()))
