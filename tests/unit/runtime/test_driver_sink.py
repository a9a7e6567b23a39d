"""A sink whose data the driver commits: nothing is forgotten before the driver has committed it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weir.backend.base import SnapshotKind
from weir.clock import SystemClock
from weir.common import Types
from weir.connector.staged_batch import StagedBatchSink, finish_staged, prepared_by
from weir.errors import StorageError
from weir.graph.plan import OperatorNode
from weir.runtime.frame import Chunk
from weir.runtime.operator import TaskFacts
from weir.runtime.sinks import DriverSinkOperator, _entry

ROW = Types.ROW_NAMED(["n"], [Types.INT()])


def operator(folder: Path, *, from_savepoint: bool = False) -> DriverSinkOperator:
    node = OperatorNode(
        index=0,
        id="ab" * 16,
        uid=None,
        name="Foreach Batch",
        kind="spark_sink",
        function=StagedBatchSink(str(folder)),
        options={"input_type": ROW},
        output_type=None,
        side_types={},
        level=0,
        parallelism=1,
        max_parallelism=128,
        max_parallelism_explicit=False,
        keyed=False,
    )
    facts = TaskFacts("0a" * 16, "job", 0, 0, SystemClock(), print, from_savepoint=from_savepoint)
    made = DriverSinkOperator(node, facts)
    made.open()
    return made


@pytest.fixture
def sink(tmp_path: Path) -> DriverSinkOperator:
    return operator(tmp_path)


def checkpoint(sink: DriverSinkOperator, number: int) -> None:
    sink.process(Chunk([(number,)], None), 0)
    sink.snapshot(number, 0, SnapshotKind.FULL)


def handed_over(sink: DriverSinkOperator) -> list[bytes]:
    given, sink.handover = sink.handover, []
    return given


def numbers(committables: list[bytes]) -> list[int]:
    return [prepared_by(c, 0)[0] for c in committables]


def in_state(sink: DriverSinkOperator) -> list[int]:
    entries: list[Any] = [_entry(raw) for raw in sink._state.get()]
    return numbers([c for _, committables in entries for c in committables])


def test_a_checkpoint_holds_what_the_driver_is_still_committing(sink: DriverSinkOperator) -> None:
    checkpoint(sink, 1)
    sink.notify_complete(1)
    assert numbers(handed_over(sink)) == [1]
    checkpoint(sink, 2)
    # Whoever goes back to checkpoint 2, because the driver failed with 1, finds 1 there.
    assert in_state(sink) == [1, 2]


def test_a_checkpoint_whose_commit_failed_is_handed_over_before_the_next(
    sink: DriverSinkOperator,
) -> None:
    checkpoint(sink, 1)
    sink.notify_complete(1)
    handed_over(sink)
    checkpoint(sink, 2)
    sink.notify_complete(2)
    assert numbers(handed_over(sink)) == [1, 2]


def test_what_the_driver_has_committed_is_forgotten(sink: DriverSinkOperator) -> None:
    checkpoint(sink, 1)
    sink.notify_complete(1)
    finish_staged(handed_over(sink))
    checkpoint(sink, 2)
    sink.notify_complete(2)
    finish_staged(handed_over(sink))
    checkpoint(sink, 3)
    assert in_state(sink) == [2, 3]
    sink.notify_complete(3)
    assert numbers(handed_over(sink)) == [3]


def test_what_was_restored_stays_until_the_driver_has_committed_it(tmp_path: Path) -> None:
    before = operator(tmp_path)
    checkpoint(before, 1)
    (committables,) = before._pending.values()
    after = operator(tmp_path)
    after.commit_restored(committables)
    assert numbers(handed_over(after)) == [1]
    checkpoint(after, 2)
    assert in_state(after) == [1, 2]


def test_what_is_gone_is_missed_by_a_checkpoint_and_past_for_a_savepoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that ended well takes its directory along; a job that crashed does not."""
    before = operator(tmp_path / "before")
    checkpoint(before, 1)
    (committables,) = before._pending.values()
    (tmp_path / "before").rename(tmp_path / "elsewhere")
    later = operator(tmp_path / "later", from_savepoint=True)
    later.commit_restored(committables)
    assert handed_over(later) == []
    assert "1 rows that checkpoint 1 staged in" in caplog.text
    assert "they are left out" in caplog.text
    crashed = operator(tmp_path / "later")
    crashed.commit_restored(committables)
    with pytest.raises(StorageError, match="nobody can tell whether 1 rows that checkpoint 1"):
        crashed.notify_complete(2)
    (tmp_path / "elsewhere").rename(tmp_path / "before")
    crashed.notify_complete(2)
    assert numbers(handed_over(crashed)) == [1, 1]
