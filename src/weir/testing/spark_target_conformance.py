"""What every target of `foreach_batch` must do, as a suite to subclass.

Subclass `SparkTargetConformance`, say how to make the target or the function and how to read its
output, and let pytest collect the class. Rows are staged as slots do, and committed as the driver
of a job does (`DriverSinks.commit`). The driver dies before and after every call of the target;
another one commits the same checkpoint again, and every row is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from weir.common import Types
from weir.connector.sink import WriterContext
from weir.connector.spark_target import FunctionTarget, SparkTarget
from weir.connector.staged_batch import StagedBatchSink
from weir.errors import StorageError
from weir.ids import new_job_id
from weir.spark.driver_sinks import DriverSinks
from weir.testing.commit_target_conformance import OPERATOR, CrashingTarget
from weir.testing.faulty_storage import SimulatedCrash

ROW = Types.ROW_NAMED(["id", "n"], [Types.LONG(), Types.LONG()])
_NAME = "under test"
Given = SparkTarget | Callable[[Any, int], Any]


class CrashingSparkTarget(CrashingTarget, SparkTarget):
    """A target whose driver dies, or which fails, before or after its n-th call, counted from 1."""

    def check(self) -> None:
        """Refuse nothing: the target itself was asked."""


class SparkTargetConformance:
    """The contract of `weir.connector.spark_target`; rows are pairs of numbers."""

    checkpoints = 2
    """How many checkpoints are committed at once."""
    knows_jobs = True
    """Whether the rows of two jobs that count alike are kept apart; a function cannot know."""
    takes_late_rows_once = True
    """Whether an earlier driver that writes late, without asking again, repeats nothing."""

    def session(self) -> Any:
        """Return the Spark session."""
        raise NotImplementedError

    def make_target(self) -> Given:
        """Return the target or the function under test, which writes to a place of this test."""
        raise NotImplementedError

    def visible(self) -> Iterable[Any]:
        """Return every row that a reader sees, as a pair of numbers."""
        raise NotImplementedError

    def expect(self, *numbers: int) -> None:
        """Check that a reader sees exactly these rows."""
        seen = Counter(tuple(row) for row in self.visible())
        assert seen == Counter((n, n * n) for n in numbers)

    def staged(self, folder: Path, job: str, first: int) -> tuple[int, list[bytes], list[int]]:
        """Stage two rows of two subtasks for each checkpoint, counted from `first`.

        Returns:
            The newest checkpoint, what the slots prepared, and the rows.
        """
        contexts = [
            WriterContext(job, OPERATOR, 0, n, parallelism=2, type_info=ROW) for n in (0, 1)
        ]
        writers = [StagedBatchSink(str(folder)).create_writer(context) for context in contexts]
        prepared: list[bytes] = []
        numbers: list[int] = []
        for checkpoint in range(first, first + self.checkpoints):
            for subtask, writer in enumerate(writers):
                mine = [checkpoint * 100 + subtask * 10 + n for n in range(2)]
                writer.write_batch([(n, n * n) for n in mine], None)
                prepared += writer.prepare(checkpoint)
                numbers += mine
        return first + self.checkpoints - 1, prepared, numbers

    def driver(
        self, folder: Path, crash_at: int | None = None, *, after: bool = False
    ) -> tuple[DriverSinks, CrashingSparkTarget]:
        """Return what the driver of a job has, and its target, which dies at one of its calls."""
        sinks = DriverSinks(self.session(), folder)
        given = self.make_target()
        target = given if isinstance(given, SparkTarget) else FunctionTarget(given)
        sinks.keep(OPERATOR, _NAME, target)
        crashing = CrashingSparkTarget(target, crash_at, after=after)
        sinks.keep(OPERATOR, _NAME, crashing)
        return sinks, crashing

    def test_a_second_commit_changes_nothing(self, tmp_path: Path) -> None:
        """Nothing is visible before the commit, everything behind it, and it stays that."""
        newest, prepared, numbers = self.staged(tmp_path, new_job_id(), 1)
        self.expect()
        for _ in range(2):
            sinks, _target = self.driver(tmp_path)
            for _ in range(2):
                sinks.commit(newest, [(OPERATOR, prepared)])
                self.expect(*numbers)

    @pytest.mark.parametrize("after", [False, True])
    def test_a_driver_that_dies_at_any_call_loses_and_repeats_nothing(
        self, tmp_path: Path, after: bool
    ) -> None:
        """Whoever restores the checkpoint writes what is missing, and nothing else."""
        expected: list[int] = []
        for point in range(1, 100):
            newest, prepared, numbers = self.staged(tmp_path, new_job_id(), point * 10)
            sinks, target = self.driver(tmp_path, point, after=after)
            try:
                sinks.commit(newest, [(OPERATOR, prepared)])
            except SimulatedCrash:
                self._half_way(expected, numbers)
                sinks, _target = self.driver(tmp_path)
                sinks.commit(newest, [(OPERATOR, prepared)])
            expected += numbers
            self.expect(*expected)
            if target.calls < point:
                # Fencing, asking and writing, for each checkpoint.
                assert target.calls == 3 * self.checkpoints
                return

    def _half_way(self, before: list[int], numbers: list[int]) -> None:
        """Check that a dead driver left whole checkpoints in order, and nothing twice."""
        seen = Counter(tuple(row) for row in self.visible())
        size = len(numbers) // self.checkpoints
        allowed = [before + numbers[: n * size] for n in range(self.checkpoints + 1)]
        assert seen in [Counter((n, n * n) for n in some) for some in allowed]

    @pytest.mark.parametrize("after", [False, True])
    def test_a_call_that_fails_is_made_good_by_the_same_driver(
        self, tmp_path: Path, after: bool
    ) -> None:
        """A lost answer is no lost row and no second one, when the driver itself goes on."""
        expected: list[int] = []
        for point in range(1, 3 * self.checkpoints + 1):
            newest, prepared, numbers = self.staged(tmp_path, new_job_id(), point * 10)
            sinks, target = self.driver(tmp_path, point, after=after)
            target.fault = StorageError("the answer was lost")
            with pytest.raises(StorageError, match="the answer was lost"):
                sinks.commit(newest, [(OPERATOR, prepared)])
            sinks.commit(newest, [(OPERATOR, prepared)])
            expected += numbers
            self.expect(*expected)

    def test_two_jobs_that_count_alike_meet_nothing_of_each_other(self, tmp_path: Path) -> None:
        """Rows belong to who prepared them: the other job's checkpoint 1 is another one."""
        if not self.knows_jobs:
            return
        for times in (1, 2):
            newest, prepared, numbers = self.staged(tmp_path, new_job_id(), 1)
            self.driver(tmp_path)[0].commit(newest, [(OPERATOR, prepared)])
            self.expect(*numbers * times)

    def test_an_earlier_driver_that_writes_late_repeats_nothing(self, tmp_path: Path) -> None:
        """It hung behind its question, and writes when another one has gone on."""
        if not self.takes_late_rows_once:
            return
        newest, prepared, numbers = self.staged(tmp_path, new_job_id(), 1)
        first, target = self.driver(tmp_path, crash_at=3)
        with pytest.raises(SimulatedCrash):
            first.commit(newest, [(OPERATOR, prepared)])
        self.driver(tmp_path)[0].commit(newest, [(OPERATOR, prepared)])
        self.expect(*numbers)
        assert target.interrupted is not None
        target.interrupted()
        self.expect(*numbers)
