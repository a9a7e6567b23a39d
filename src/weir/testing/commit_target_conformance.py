"""What every commit target must do, as a suite to subclass.

Subclass `CommitTargetConformance`, say how to make the sink and how to read its output, and let
pytest collect the class. The suite runs a job of several checkpoints by the recipe, lets the writer
die before and after every call of the target, restarts it as the runtime does, also with another
parallelism, and compares what a reader sees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from weir.connector.commit_target import CommitSink, CommitTarget, CommitWriter
from weir.connector.sink import WriterContext
from weir.errors import WeirError
from weir.ids import new_job_id
from weir.testing.faulty_storage import SimulatedCrash

OPERATOR = "0123456789abcdef" * 2


class CrashingTarget(CommitTarget):
    """A target whose process dies before or after its n-th call, counted from 1."""

    def __init__(self, target: CommitTarget, crash_at: int | None, *, after: bool) -> None:
        self._target = target
        self._crash_at = crash_at
        self._after = after
        self.calls = 0
        self.fault: BaseException = SimulatedCrash()
        """What is raised there."""
        self.interrupted: Callable[[], Any] | None = None
        """The call that it was about to make, for one that only slept."""

    @property
    def retention_ms(self) -> int | None:  # type: ignore[override]
        """Keep markers as long as the target does."""
        return self._target.retention_ms

    @property
    def remembers_rows(self) -> bool:  # type: ignore[override]
        """Be given what the target is given."""
        return self._target.remembers_rows

    def _call(self, function: Any, *arguments: Any) -> Any:
        self.calls += 1
        dies = self.calls == self._crash_at
        if dies and not self._after:
            self.interrupted = partial(function, *arguments)
            raise self.fault
        answer = function(*arguments)
        if dies:
            raise self.fault
        return answer

    def fence(self, identities: Sequence[str]) -> None:
        """Fence, or die."""
        self._call(self._target.fence, identities)

    def committed(self, identity: str) -> int | None:
        """Ask, or die."""
        found: int | None = self._call(self._target.committed, identity)
        return found

    def places_of(self, rows: list[Any]) -> list[str]:
        """Say what the target says."""
        return self._target.places_of(rows)

    def committed_in(self, identity: str, places: Sequence[str]) -> int | None:
        """Ask, or die."""
        found: int | None = self._call(self._target.committed_in, identity, places)
        return found

    def write(self, identity: str, checkpoint: int, rows: list[Any]) -> None:
        """Write, or die."""
        self._call(self._target.write, identity, checkpoint, rows)

    def encode(self, rows: list[Any]) -> bytes:
        """Encode as the target does."""
        return self._target.encode(rows)

    def decode(self, data: bytes) -> list[Any]:
        """Decode as the target does."""
        return self._target.decode(data)

    def close(self) -> None:
        """Close the target."""
        self._target.close()


class CommitTargetConformance:
    """The contract of `weir.connector.commit_target`."""

    @pytest.fixture(autouse=True)
    def _writers(self) -> Iterator[None]:
        """Close all writers, also those that died in the meantime."""
        self.writers: list[CommitWriter] = []
        yield
        for writer in self.writers:
            writer.close()

    def make_sink(self) -> CommitSink:
        """Return the sink under test, which writes to a place of this test alone."""
        raise NotImplementedError

    def visible(self) -> Iterable[Any]:
        """Return every record that a reader sees, as it was written."""
        raise NotImplementedError

    def record(self, number: int) -> Any:
        """Return a record that the sink takes, another one for every number."""
        return (number, f"record {number}")

    def writer(
        self,
        job: str,
        subtask: int = 0,
        attempt: int = 0,
        crash_at: int | None = None,
        *,
        after: bool = False,
    ) -> CommitWriter:
        """Return the writer of a subtask, which dies at a call of its target."""
        context = WriterContext(job, OPERATOR, attempt=attempt, subtask=subtask, parallelism=1)
        sink = self.make_sink()
        target = CrashingTarget(sink.open_target(context), crash_at, after=after)
        self.writers.append(CommitWriter(sink, target, context))
        return self.writers[-1]

    def expect(self, *numbers: int) -> None:
        """Check that a reader sees exactly these records."""
        wanted = Counter(map(self.record, numbers))
        assert Counter(self.visible()) == wanted

    def prepared(self, writer: CommitWriter, checkpoint: int) -> list[bytes]:
        """Write two records of a checkpoint and prepare them."""
        first = checkpoint * 10
        writer.write_batch([self.record(first), self.record(first + 1)], None)
        return writer.prepare(checkpoint)

    def test_nothing_is_visible_before_the_commit_and_everything_once_behind_it(self) -> None:
        """Neither writing nor preparing shows a record; a second commit changes nothing."""
        writer = self.writer(new_job_id())
        prepared = self.prepared(writer, 1)
        self.expect()
        writer.commit(prepared)
        writer.commit(prepared)
        self.expect(10, 11)
        assert writer.prepare(2) == []
        writer.close()

    @pytest.mark.parametrize("after", [False, True])
    def test_a_crash_at_any_call_loses_and_repeats_nothing(self, after: bool) -> None:
        """Whoever restores the checkpoint writes what is missing, and nothing else."""
        expected: list[int] = []
        for point in range(1, 100):
            job = new_job_id()
            writer = self.writer(job, crash_at=point, after=after)
            first, base = self.prepared(writer, point * 10), point * 100
            both = [*first, *self.prepared(writer, point * 10 + 1)]
            expected += [base, base + 1, base + 10, base + 11]
            try:
                writer.commit(both)
            except SimulatedCrash:
                survivor = self.writer(job, attempt=1)
                survivor.restore(both)
                survivor.close()
                self.expect(*expected)
            else:
                self.expect(*expected)
                assert point > 3, "the commit must have gone through the target"
                return

    def test_a_crash_during_recovery_is_recovered_from(self) -> None:
        """Recovery may be repeated from any point of itself."""
        writer = self.writer(job := new_job_id())
        both = [*self.prepared(writer, 1), *self.prepared(writer, 2)]
        for point in range(1, 6):
            crashing = self.writer(job, attempt=point, crash_at=min(point, 3), after=True)
            with suppress(SimulatedCrash):
                crashing.restore(both)
        self.writer(job, attempt=9).restore(both)
        self.expect(10, 11, 20, 21)

    def test_others_commit_what_vanished_subtasks_prepared(self) -> None:
        """With any parallelism, all committables of an identity go to one subtask, in order."""
        job = new_job_id()
        prepared: list[bytes] = []
        for subtask in range(3):
            writer = self.writer(job, subtask)
            for checkpoint in (subtask + 1, subtask + 4):
                prepared += self.prepared(writer, checkpoint)
        numbers = [n * 10 + i for n in range(1, 7) for i in (0, 1)]
        for parallelism in (2, 1):
            for subtask in reversed(range(parallelism)):
                heir = self.writer(job, subtask, attempt=1)
                heir.restore(heir.share(prepared, subtask, parallelism))
            self.expect(*numbers)

    def test_two_jobs_from_one_savepoint_write_its_rows_once(self) -> None:
        """Rows belong to who prepared them."""
        prepared = self.prepared(self.writer(new_job_id()), 1)
        for _ in range(2):
            heir = self.writer(new_job_id())
            heir.restore(prepared)
            heir.commit(self.prepared(heir, 2))
            heir.close()
        assert Counter(self.visible())[self.record(10)] == 1
        assert Counter(self.visible())[self.record(20)] == 2

    def test_whoever_prepared_is_fenced_before_the_first_row_of_a_restore_is_written(self) -> None:
        """A restore that dies behind its first write has shut out all old subtasks, not one."""
        job = new_job_id()
        zombies = [self.writer(job, subtask) for subtask in range(3)]
        for number, zombie in enumerate(zombies, 1):
            # Each has committed before, so that it need not fence, and could go on.
            zombie.commit(self.prepared(zombie, number))
        prepared = [self.prepared(zombie, number) for number, zombie in enumerate(zombies, 4)]
        everything = [one for mine in prepared for one in mine]
        # One call fences, one asks, and one writes.
        heir = self.writer(job, attempt=1, crash_at=3, after=True)
        with pytest.raises(SimulatedCrash):
            heir.restore(everything)
        for zombie, mine in zip(zombies, prepared, strict=True):
            with pytest.raises(WeirError):
                zombie.commit(mine)
        self.writer(job, attempt=2).restore(everything)
        self.expect(*(n * 10 + i for n in range(1, 7) for i in (0, 1)))

    def test_a_job_beside_one_from_its_savepoint_is_shut_out_once_and_goes_on(self) -> None:
        """The rows of the savepoint are written once, and all later ones of both jobs."""
        running = self.writer(job := new_job_id())
        running.commit(self.prepared(running, 1))
        saved = self.prepared(running, 2)
        heir = self.writer(new_job_id())
        heir.restore(saved)
        both = [*saved, *self.prepared(running, 3)]
        with pytest.raises(WeirError):
            running.commit(both)
        again = self.writer(job, attempt=1)
        again.restore(both)
        again.commit(self.prepared(again, 4))
        heir.commit(self.prepared(heir, 5))
        self.expect(*(n * 10 + i for n in range(1, 6) for i in (0, 1)))

    def test_a_zombie_that_wakes_up_writes_nothing(self) -> None:
        """Whoever is fenced cannot write any more, not even what nobody else has."""
        job = new_job_id()
        zombie = self.writer(job)
        zombie.commit(self.prepared(zombie, 1))
        second = self.prepared(zombie, 2)
        survivor = self.writer(job, attempt=1)
        survivor.restore(second)
        self.expect(10, 11, 20, 21)
        with pytest.raises(WeirError):
            zombie.commit([*second, *self.prepared(zombie, 3)])
        self.expect(10, 11, 20, 21)
        survivor.commit(self.prepared(survivor, 4))
        self.expect(*(10, 11, 20, 21, 40, 41))
