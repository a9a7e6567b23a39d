"""Shared files: deleted when the last checkpoint that uses them is gone, and never before.

The machine at the end plays backends that refer to whatever the contract allows, at the latest
moment that it allows, against a disk that only forgets what the registry gives up.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples

from weir.checkpoint.metadata import CheckpointMetadata, FileRecord
from weir.checkpoint.shared import SharedRegistry, shared_files


def test_a_file_goes_with_the_last_checkpoint_that_uses_it() -> None:
    registry = SharedRegistry()
    registry.complete(1, ["a", "b"])
    registry.complete(2, ["b", "c"])
    assert registry.release(1) == ("a",)
    assert registry.in_use() == {"b", "c"}
    assert registry.release(2) == ("b", "c")


def test_releasing_twice_gives_nothing_up_twice() -> None:
    registry = SharedRegistry()
    registry.complete(1, ["a"])
    assert registry.release(1) == ("a",)
    assert registry.release(1) == ()


def test_a_checkpoint_under_way_keeps_what_it_may_refer_to() -> None:
    registry = SharedRegistry()
    registry.complete(1, ["a"])
    registry.begin(2)
    registry.begin(3)
    registry.complete(2, ["b"])
    assert registry.release(1) == ()
    assert registry.complete(3, ["a", "c"]) == ()
    assert registry.in_use() == {"a", "b", "c"}


def test_what_waited_for_checkpoints_under_way_goes_with_the_last_of_them() -> None:
    registry = SharedRegistry()
    registry.complete(1, ["a"])
    for number in (2, 3, 4):
        registry.begin(number)
    registry.complete(2, ["b"])
    assert registry.release(1) == ()
    assert registry.abort(3) == ()
    registry.begin(5)  # too late to refer to it
    assert registry.complete(4, ["b"]) == ("a",)


def test_an_aborted_checkpoint_takes_along_what_it_created() -> None:
    registry = SharedRegistry()
    registry.complete(1, ["a"])
    registry.begin(2)
    assert registry.abort(2, ["b", "a"]) == ("b",)


def test_late_files_go_unless_somebody_uses_them() -> None:
    registry = SharedRegistry()
    registry.complete(1, ["a"])
    registry.begin(2)
    registry.release(1)
    assert registry.discard(["a", "late"]) == ("late",), "2 may come to use a"


def test_files_of_others_are_never_given_up() -> None:
    registry = SharedRegistry(protected=["theirs"])
    registry.complete(1, ["theirs", "ours"])
    assert registry.release(1) == ("ours",)
    assert registry.discard(["theirs"]) == ()
    assert registry.in_use() == {"theirs"}


def test_a_file_that_was_given_up_is_known_to_be_lost() -> None:
    registry = SharedRegistry()
    registry.complete(1, ["a", "b"])
    registry.complete(2, ["b"])
    registry.release(1)
    assert registry.lost(["a", "b", "new"]) == ("a",)


def test_shared_files_are_those_outside_of_the_directory_and_of_the_metadata() -> None:
    files = (
        FileRecord("own", 1, 0, 0),
        FileRecord("../shared/a", 1, 0, 0),
        FileRecord("../shared/a", 1, 0, 1),
        FileRecord("../shared/inline", 1, 0, 0, b"x"),
        FileRecord("../../older/shared/b", 1, 0, 0),
    )
    metadata = CheckpointMetadata(1, "job", "job", 0, "checkpoint", 0, files=files)
    assert shared_files("job/chk-1", metadata) == {"job/shared/a", "older/shared/b"}


class SharedFilesLife(RuleBasedStateMachine):
    """Trigger, write, complete, abort, subsume, fail over, claim: no file is missed or left."""

    def __init__(self) -> None:
        super().__init__()
        self.disk: set[str] = set()
        self.completed: dict[int, frozenset[str]] = {}
        # What each checkpoint under way may refer to, what it made, and what it refers to.
        self.allowed: dict[int, set[str]] = {}
        self.created: dict[int, set[str]] = {}
        self.used: dict[int, frozenset[str]] = {}
        self.number = 0
        self.names = 0

    @initialize(claimed=st.integers(0, 3), others=st.integers(0, 2), claim=st.booleans())
    def start(self, claimed: int, others: int, claim: bool) -> None:
        """Start from a checkpoint: claimed, or only referred to; others may use its files too."""
        files = frozenset(f"old-{i}" for i in range(claimed))
        self.theirs = {f"old-{i}" for i in range(others)} if claim else set(files)
        self.disk = set(files) | self.theirs
        self.registry = SharedRegistry(self.theirs)
        self.restored = frozenset() if claim else files
        if claim:
            self.number = 1
            self.registry.complete(1, files)
            self.completed[1] = files

    def delete(self, files: tuple[str, ...]) -> None:
        assert not self.theirs & set(files)
        self.disk -= set(files)

    @rule()
    def trigger(self) -> None:
        self.number += 1
        self.registry.begin(self.number)
        held = set().union(self.restored, *self.completed.values())
        self.allowed[self.number] = held
        self.created[self.number] = set()

    @precondition(lambda self: self.allowed)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        """A backend decides late what the checkpoint consists of."""
        number = data.draw(st.sampled_from(sorted(self.allowed)))
        if number in self.used:
            return
        self.names += 1
        made = {f"new-{self.names}-{i}" for i in range(data.draw(st.integers(0, 2)))}
        old = sorted(self.allowed[number])
        kept = set(old) - (data.draw(st.sets(st.sampled_from(old), max_size=2)) if old else set())
        self.disk |= made
        self.created[number] = made
        self.used[number] = frozenset(made | kept)

    @precondition(lambda self: len(self.used) > 1)
    @rule(retained=st.sampled_from([1, 1, 2, 3]))
    def complete_oldest(self, retained: int) -> None:
        self.complete_one(min(self.used), retained)

    @precondition(lambda self: self.used)
    @rule(data=st.data(), retained=st.sampled_from([1, 1, 2, 3]))
    def complete_any(self, data: st.DataObject, retained: int) -> None:
        self.complete_one(data.draw(st.sampled_from(sorted(self.used))), retained)

    def complete_one(self, number: int, retained: int) -> None:
        files = self.used.pop(number)
        assert self.registry.lost(files) == ()
        assert files <= self.disk, "a checkpoint was completed without its files"
        self.delete(self.registry.complete(number, files))
        self.completed[number] = files
        del self.allowed[number], self.created[number]
        for held in self.allowed.values():
            held |= files
        for older in sorted(n for n in self.allowed if n < number):
            self.abort_one(older)
        for gone in sorted(self.completed)[:-retained]:
            del self.completed[gone]
            self.delete(self.registry.release(gone))

    @precondition(lambda self: len(self.allowed) > 1)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.abort_one(data.draw(st.sampled_from(sorted(self.allowed))))

    def abort_one(self, number: int) -> None:
        self.delete(self.registry.abort(number, self.created.pop(number)))
        self.allowed.pop(number)
        self.used.pop(number, None)

    @precondition(lambda self: len(self.allowed) > 2)
    @rule(orphans=st.integers(0, 2))
    def fail_over(self, orphans: int) -> None:
        """A new attempt; slots may have died after they had written and told nobody."""
        for number in sorted(self.allowed):
            self.abort_one(number)
        self.names += 1
        self.disk |= {f"orphan-{self.names}-{i}" for i in range(orphans)}
        self.delete(self.registry.discard(sorted(self.disk)))

    @invariant()
    def nothing_in_use_is_missing(self) -> None:
        for number, files in self.completed.items():
            assert files <= self.disk, f"checkpoint {number} lost {files - self.disk}"

    def teardown(self) -> None:
        """The job ends; what stays is what retained checkpoints and others use."""
        if self.number == 0 and not hasattr(self, "registry"):
            return
        self.fail_over(1)
        kept = set().union(*self.completed.values())
        assert self.disk == kept | self.theirs


TestSharedFilesLife = SharedFilesLife.TestCase
TestSharedFilesLife.settings = settings(
    max_examples=examples(120), stateful_step_count=40, deadline=None
)
