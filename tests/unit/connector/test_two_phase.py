"""Two-phase commit: Flink's rules on transactions, one per checkpoint."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from weir.connector.sink import WriterContext
from weir.connector.two_phase import TwoPhaseCommitSinkFunction, TwoPhaseWriter
from weir.errors import CorruptStateError, StorageError, UsageError
from weir.testing.clock import ManualClock
from weir.testing.sink_conformance import JOB, OPERATOR, ReferenceTwoPhaseSink


class Job:
    """What the runtime does: keeps committables per checkpoint, commits all up to an id."""

    def __init__(self, sink: TwoPhaseCommitSinkFunction, attempt=1, clock=None, restore=()):
        self.context = WriterContext(
            JOB, OPERATOR, attempt, 0, 1, clock=clock or ManualClock(1_000_000)
        )
        self.writer: TwoPhaseWriter = sink.create_writer(self.context)
        self.pending: dict[int, list[bytes]] = {}
        self.writer.restore(list(restore))
        self.writer.discard_leftovers(list(restore))

    def write(self, *values: Any) -> None:
        self.writer.write_batch(list(values), None)

    def snapshot(self, checkpoint: int) -> list[bytes]:
        self.pending[checkpoint] = self.writer.prepare(checkpoint)
        return [c for n in sorted(self.pending) for c in self.pending[n]]

    def complete(self, checkpoint: int) -> None:
        ready = [n for n in sorted(self.pending) if n <= checkpoint]
        self.writer.commit([c for n in ready for c in self.pending.pop(n)])


def done(directory: Path) -> list[int]:
    lines = [p.read_text().split() for p in (directory / "done").glob("*")]
    return sorted(int(line) for text in lines for line in text)


def open_files(directory: Path) -> int:
    return len(list((directory / ".open").glob("*")))


def three_checkpoints(directory: Path) -> Job:
    job = Job(ReferenceTwoPhaseSink(str(directory)))
    for checkpoint, value in enumerate((42, 43, 44)):
        job.write(value)
        job.snapshot(checkpoint)
    return job


def test_completing_the_second_of_three_commits_the_first_two(tmp_path):
    job = three_checkpoints(tmp_path)
    job.complete(1)
    assert done(tmp_path) == [42, 43]
    assert open_files(tmp_path) == 2
    job.writer.close()


def test_a_late_completion_of_an_earlier_checkpoint_changes_nothing(tmp_path):
    job = three_checkpoints(tmp_path)
    job.complete(2)
    job.complete(1)
    assert done(tmp_path) == [42, 43, 44]
    assert open_files(tmp_path) == 1
    job.writer.close()


class FullDisk(ReferenceTwoPhaseSink):
    full = False

    def begin_transaction(self) -> str:
        if self.full:
            message = "no space for a new transaction"
            raise StorageError(message)
        return super().begin_transaction()


def test_a_failure_before_completion_restores_to_the_checkpoint_and_leaves_nothing(tmp_path):
    sink = FullDisk(str(tmp_path))
    job = Job(sink)
    job.write(42)
    job.snapshot(0)
    job.write(43)
    state = job.snapshot(1)
    job.write(44)
    sink.full = True
    with pytest.raises(StorageError):
        job.snapshot(2)
    job.writer.close()
    restored = Job(ReferenceTwoPhaseSink(str(tmp_path)), attempt=2, restore=state)
    assert done(tmp_path) == [42, 43]
    restored.writer.close()
    assert open_files(tmp_path) == 0


def test_a_record_after_finish_is_refused(tmp_path):
    job = Job(ReferenceTwoPhaseSink(str(tmp_path)))
    job.write(42)
    job.writer.finish()
    with pytest.raises(UsageError, match=r"after finish"):
        job.write(43)
    job.snapshot(0)
    job.complete(0)
    assert done(tmp_path) == [42]
    assert open_files(tmp_path) == 0
    assert job.snapshot(1) == []
    job.writer.close()


class Recorder(TwoPhaseCommitSinkFunction):
    """Transactions are lists in memory; every call is written down."""

    def __init__(self, context: Any = None) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.rows: dict[int, list[Any]] = defaultdict(list)
        self.failing: set[int] = set()
        self.first_context = context

    def begin_transaction(self) -> int:
        number = len([c for c in self.calls if c[0] == "begin"])
        self.calls.append(("begin", number))
        return number

    def invoke(self, transaction, value, context) -> None:
        self.rows[transaction].append((value, context.timestamp(), context.current_watermark()))

    def pre_commit(self, transaction) -> None:
        self.calls.append(("pre_commit", transaction))

    def commit(self, transaction) -> None:
        self.calls.append(("commit", transaction))
        if transaction in self.failing:
            message = f"commit of {transaction} failed"
            raise StorageError(message)

    def abort(self, transaction) -> None:
        self.calls.append(("abort", transaction))

    def recover_and_commit(self, transaction) -> None:
        self.calls.append(("recover_and_commit", transaction))
        if transaction in self.failing:
            message = f"recovery of {transaction} failed"
            raise StorageError(message)

    def recover_and_abort(self, transaction) -> None:
        self.calls.append(("recover_and_abort", transaction))

    def initialize_user_context(self) -> Any:
        return self.first_context

    def finish_recovering_context(self, handled_transactions) -> None:
        self.calls.append(("recovered", (self.get_user_context(), handled_transactions)))


def test_a_snapshot_pre_commits_then_begins_the_next_transaction():
    sink = Recorder()
    job = Job(sink)
    job.write("a")
    job.snapshot(1)
    assert sink.calls == [("begin", 0), ("pre_commit", 0), ("begin", 1)]


def test_all_transactions_are_tried_and_the_first_error_is_raised():
    sink = Recorder()
    job = Job(sink)
    for n in (1, 2, 3):
        job.snapshot(n)
    sink.failing = {0, 1}
    with pytest.raises(StorageError, match="commit of 0"):
        job.complete(3)
    assert [c for c in sink.calls if c[0] == "commit"] == [("commit", n) for n in (0, 1, 2)]


def test_restore_commits_in_order_and_aborts_only_the_last_open_transaction():
    job = Job(Recorder())
    job.snapshot(1)
    state = job.snapshot(2)
    sink = Recorder()
    Job(sink, restore=state)
    assert sink.calls == [
        ("recover_and_commit", 0),
        ("recover_and_commit", 1),
        ("recover_and_abort", 2),
    ]


def test_a_transaction_committed_elsewhere_is_not_aborted_when_state_was_split():
    job = Job(Recorder())
    first, second = job.snapshot(1)[0], job.snapshot(2)[1]
    one, two = Recorder(), Recorder()
    left = one.create_writer(job.context)
    right = two.create_writer(job.context)
    left.restore([first])
    left.discard_leftovers([first, second])
    right.restore([second])
    assert one.calls == [("recover_and_commit", 0), ("recover_and_abort", 2)]
    assert two.calls == [("recover_and_commit", 1)]


def test_invoke_sees_timestamp_and_watermark():
    sink = Recorder()
    writer = Job(sink).writer
    writer.current_watermark = 7
    writer.write_batch(["a", "b"], [5, None])
    assert sink.rows[0] == [("a", 5, 7), ("b", None, 7)]


def test_the_user_context_travels_with_the_checkpoint():
    state = Job(Recorder({"ids": (1, 2)})).snapshot(1)
    sink = Recorder("unused")
    job = Job(sink, restore=state)
    job.write("a")
    assert sink.get_user_context() == {"ids": (1, 2)}
    assert ("recovered", ({"ids": (1, 2)}, [0, 1])) in sink.calls


@pytest.mark.parametrize("handle", [None, 7, True, "text", ("a", 1), {"k": b"\x00"}, 1.5])
def test_any_picklable_handle_comes_back_as_it_was(handle):
    class Handles(Recorder):
        def begin_transaction(self) -> Any:
            return handle

    state = Job(Handles()).snapshot(1)
    sink = Recorder()
    sink.failing = ()  # type: ignore[assignment]
    Job(sink, restore=state)
    (_, found) = sink.calls[0]
    assert found == handle
    assert type(found) is type(handle)


def failing_recovery(elapsed: int, *, ignore: bool) -> Recorder:
    clock = ManualClock(1_000_000)
    state = Job(Recorder(), clock=clock).snapshot(1)
    sink = Recorder()
    sink.failing = {0}
    sink.set_transaction_timeout(1000)
    if ignore:
        sink.ignore_failures_after_transaction_timeout()
    clock.advance(elapsed)
    Job(sink, clock=clock, restore=state)
    return sink


def test_a_failed_recovery_is_ignored_only_when_asked_and_past_the_timeout(caplog):
    failing_recovery(1001, ignore=True)
    assert "timed out and is lost" in caplog.text
    for elapsed, ignore in ((1000, True), (1001, False)):
        with pytest.raises(StorageError, match="recovery of 0"):
            failing_recovery(elapsed, ignore=ignore)


def test_a_late_commit_is_warned_about_from_the_given_ratio_on(caplog):
    clock = ManualClock(1_000_000)
    sink = Recorder()
    sink.set_transaction_timeout(1000).enable_transaction_timeout_warnings(0.5)
    job = Job(sink, clock=clock)
    job.snapshot(1)
    clock.advance(500)
    with caplog.at_level(logging.WARNING):
        job.complete(1)
        assert caplog.text == ""
        job.snapshot(2)
        clock.advance(2)
        job.complete(2)
    assert "open for 502 ms" in caplog.text


def test_wrong_settings_are_refused():
    with pytest.raises(UsageError, match="-1"):
        Recorder().set_transaction_timeout(-1)
    with pytest.raises(UsageError, match="ratio is 2"):
        Recorder().enable_transaction_timeout_warnings(2)


@pytest.mark.parametrize(
    "garbage", [b"", b"[]", b"{}", b"[" * 100_000, b'{"checkpoint": 1, "pending": 3}']
)
def test_a_damaged_committable_is_corrupt_state(garbage):
    with pytest.raises(CorruptStateError):
        Job(Recorder(), restore=[garbage])


@pytest.mark.parametrize(
    "change",
    [
        {"checkpoint": "1"},
        {"pending": {"id": [], "start_ms": 1, "handle": {"json": 1}}},
        {"pending": {"id": "a", "start_ms": 1}},
        {"pending": {"id": "a", "start_ms": 1, "handle": {"pickle": "!"}}},
        {"pending": {"id": "a", "start_ms": 1, "handle": {"pickle": "AAAA"}}},
        {"current": 3},
        {"current": {"id": "b", "start_ms": None, "handle": {"json": 1}}},
        {"context": {}},
    ],
)
@pytest.mark.parametrize("use", ["restore", "commit", "discard_leftovers", "leave_newer"])
def test_nothing_is_committed_or_aborted_beside_a_damaged_committable(tmp_path, use, change):
    job = three_checkpoints(tmp_path)
    whole = job.pending[0][0]
    damaged = json.dumps({**json.loads(job.pending[1][0]), **change}).encode()
    job.writer.abort()
    other = ReferenceTwoPhaseSink(str(tmp_path)).create_writer(job.context)
    before = open_files(tmp_path)
    with pytest.raises(CorruptStateError, match="transaction"):
        getattr(other, use)([whole, damaged])
    assert done(tmp_path) == []
    assert open_files(tmp_path) == before


class Strict(ReferenceTwoPhaseSink):
    """Remembers what it was asked to abort, and what it was told to look at."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.aborted: list[str] = []
        self.spared: list[Any] = []

    def recover_and_abort(self, transaction: str) -> None:
        self.aborted.append(transaction)
        super().recover_and_abort(transaction)

    def abort_unknown_transactions(self, known: list[Any]) -> None:
        self.spared = known
        super().abort_unknown_transactions(known)


def test_a_transaction_that_a_newer_checkpoint_may_have_committed_is_not_aborted(tmp_path, caplog):
    job = Job(ReferenceTwoPhaseSink(str(tmp_path)))
    job.write(1)
    restored = job.snapshot(1)
    job.complete(1)
    job.write(2)
    job.snapshot(2)
    job.complete(2)
    job.writer.close()
    sink = Strict(str(tmp_path))
    writer = sink.create_writer(WriterContext(JOB, OPERATOR, 2, 0, 1, clock=ManualClock()))
    writer.restore(restored)
    with caplog.at_level(logging.WARNING):
        writer.leave_newer(restored)
    assert sink.aborted == []
    assert len(sink.spared) == 2
    assert "Strict.recover_superseded" in caplog.text
    assert done(tmp_path) == [1, 2]
    assert not sink.can_take_back()
    with pytest.raises(UsageError, match="cannot take back"):
        writer.take_back(restored, 1)
