"""What every exactly-once sink must do, as a suite to subclass.

Subclass `SinkConformance`, say how to build the sink and how to read its output, and let pytest
collect the class. The suite runs a job of four checkpoints, kills it at every call of the file
system, restarts it as the runtime does and compares what a reader sees.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from weir.connector.file_system import FileSystem, LocalFileSystem
from weir.connector.function_sink import InvokeContext
from weir.connector.sink import Sink, SinkWriter, WriterContext
from weir.connector.two_phase import TwoPhaseCommitSinkFunction
from weir.errors import UsageError
from weir.testing.crashing_file_system import CrashingFileSystem
from weir.testing.faulty_storage import CrashMoment, SimulatedCrash

JOB = "0a" * 16
OPERATOR = "0123456789abcdef" * 2


@dataclass
class _Progress:
    """What a job had achieved when it died: durable checkpoints, state of the last one."""

    durable: tuple[int, ...] = ()
    state: list[bytes] = field(default_factory=list)


class SinkConformance:
    """The contract of `weir.connector.sink.SinkWriter`."""

    type_info: Any = None

    def make_sink(self, directory: Path, file_system: FileSystem) -> Sink:
        """Return the sink under test, writing below `directory` through `file_system`."""
        raise NotImplementedError

    def visible(self, directory: Path) -> list[Any]:
        """Return every record that a reader sees; raise if a file is not whole."""
        raise NotImplementedError

    def hidden(self, directory: Path) -> list[str]:
        """Return the files below `directory` that readers do not see."""
        return [str(p) for p in directory.rglob(".*") if p.is_file()]

    def records(self, checkpoint: int) -> list[Any]:
        """Return the records that belong to a checkpoint, different for each."""
        return [(checkpoint * 10 + i, f"record {i}") for i in range(3)]

    def context(self, attempt: int) -> WriterContext:
        """Return the identity of the only subtask in one attempt."""
        return WriterContext(
            JOB, OPERATOR, attempt=attempt, subtask=0, parallelism=1, type_info=self.type_info
        )

    def writer(self, directory: Path, attempt: int = 1, fs: FileSystem | None = None) -> SinkWriter:
        """Return a writer on the given, or the local, file system."""
        sink = self.make_sink(directory, fs or LocalFileSystem())
        return sink.create_writer(self.context(attempt))

    def expect(self, directory: Path, *checkpoints: int) -> None:
        """Check that a reader sees exactly the records of these checkpoints."""
        wanted = [record for n in checkpoints for record in self.records(n)]
        assert Counter(self.visible(directory)) == Counter(wanted)

    def test_nothing_is_visible_before_commit(self, tmp_path: Path) -> None:
        """Neither writing nor preparing shows a record."""
        writer = self.writer(tmp_path)
        writer.write_batch(self.records(1), None)
        self.expect(tmp_path)
        writer.prepare(1)
        self.expect(tmp_path)
        writer.close()

    def test_a_commit_shows_its_checkpoint_once(self, tmp_path: Path) -> None:
        """Committing shows the prepared records, a second time changes nothing."""
        writer = self.writer(tmp_path)
        writer.write_batch(self.records(1), None)
        prepared = writer.prepare(1)
        writer.write_batch(self.records(2), None)
        writer.commit(prepared)
        self.expect(tmp_path, 1)
        writer.commit(prepared)
        self.expect(tmp_path, 1)
        writer.close()
        self.expect(tmp_path, 1)
        assert self.hidden(tmp_path) == []

    def test_checkpoints_commit_in_any_order(self, tmp_path: Path) -> None:
        """Commits do not depend on one another."""
        writer = self.writer(tmp_path)
        prepared = {}
        for n in (1, 2, 3):
            writer.write_batch(self.records(n), None)
            prepared[n] = writer.prepare(n)
        writer.commit(prepared[2])
        self.expect(tmp_path, 2)
        writer.commit([*prepared[1], *prepared[3]])
        self.expect(tmp_path, 1, 2, 3)
        writer.close()

    def test_several_batches_make_one_checkpoint(self, tmp_path: Path) -> None:
        """Batches are not boundaries."""
        writer = self.writer(tmp_path)
        for record in self.records(1):
            writer.write_batch([record], None)
        writer.write_batch([], None)
        writer.commit(writer.prepare(1))
        self.expect(tmp_path, 1)
        writer.close()

    def test_abort_leaves_nothing_of_what_was_not_prepared(self, tmp_path: Path) -> None:
        """Prepared records survive an abort, others vanish with their files."""
        writer = self.writer(tmp_path)
        writer.write_batch(self.records(1), None)
        prepared = writer.prepare(1)
        writer.write_batch(self.records(2), None)
        writer.abort()
        writer.commit(prepared)
        writer.close()
        self.expect(tmp_path, 1)
        assert self.hidden(tmp_path) == []

    def test_finish_then_a_last_checkpoint_shows_everything(self, tmp_path: Path) -> None:
        """A bounded job ends with all records visible and no remains."""
        writer = self.writer(tmp_path)
        writer.write_batch(self.records(1), None)
        writer.finish()
        writer.commit(writer.prepare(1))
        writer.close()
        self.expect(tmp_path, 1)
        assert self.hidden(tmp_path) == []

    def test_another_job_restores_committed_and_uncommitted_alike(self, tmp_path: Path) -> None:
        """A savepoint may be started from while its commits are done, half done or not begun."""
        writer = self.writer(tmp_path)
        writer.write_batch(self.records(1), None)
        prepared = writer.prepare(1)
        heir = self.make_sink(tmp_path, LocalFileSystem()).create_writer(
            WriterContext(
                "0b" * 16, OPERATOR, attempt=0, subtask=0, parallelism=1, type_info=self.type_info
            )
        )
        heir.restore(prepared)
        self.expect(tmp_path, 1)
        writer.commit(prepared)
        self.expect(tmp_path, 1)
        writer.close()
        heir.close()

    def test_remains_go_and_what_others_will_restore_stays(self, tmp_path: Path) -> None:
        """Subtask 0 cleans up before the other subtasks have restored."""
        progress = self._leave_uncommitted(tmp_path)
        cleaner = self.writer(tmp_path, attempt=2)
        cleaner.discard_leftovers(progress.state)
        self.expect(tmp_path)
        other = self.writer(tmp_path, attempt=2)
        other.restore(progress.state)
        self.expect(tmp_path, 1, 2)
        assert self.hidden(tmp_path) == []

    @pytest.mark.parametrize("power_loss", [False, True])
    @pytest.mark.parametrize("moment", list(CrashMoment))
    def test_a_crash_at_any_call_loses_and_repeats_nothing(
        self, tmp_path: Path, moment: CrashMoment, power_loss: bool
    ) -> None:
        """Restarting yields exactly the records of the last durable checkpoint."""
        for point in range(1, 10_000):
            directory = tmp_path / str(point)
            fs = CrashingFileSystem(point, moment, power_loss)
            progress = _Progress()
            try:
                self._run(directory, fs, progress)
            except SimulatedCrash:
                self._check_unrecovered(directory, progress)
                self._recover(directory, LocalFileSystem(), progress, attempt=2)
                self.expect(directory, *progress.durable)
                assert self.hidden(directory) == [], f"after a crash at call {point}"
            else:
                assert point > 10, "the job must have gone through the file system"
                return

    @pytest.mark.parametrize("power_loss", [False, True])
    def test_a_crash_during_recovery_is_recovered_from(
        self, tmp_path: Path, power_loss: bool
    ) -> None:
        """Recovery may be repeated from any point of itself."""
        for point in range(1, 10_000):
            directory = tmp_path / str(point)
            progress = self._leave_uncommitted(directory)
            fs = CrashingFileSystem(point, CrashMoment.AFTER, power_loss)
            try:
                self._recover(directory, fs, progress, attempt=2)
            except SimulatedCrash:
                self._recover(directory, LocalFileSystem(), progress, attempt=3)
                self.expect(directory, *progress.durable)
                assert self.hidden(directory) == [], f"after a crash at call {point}"
            else:
                return

    def test_newer_output_that_is_left_stays_visible(self, tmp_path: Path) -> None:
        """Going back at least once undoes nothing that a newer checkpoint committed."""
        older = self._commit_newer(tmp_path)
        writer = self.writer(tmp_path, attempt=2)
        writer.restore(older)
        writer.leave_newer(older)
        self.expect(tmp_path, 1, 2, 3)
        writer.close()

    def test_newer_output_is_taken_back_or_kept_whole(self, tmp_path: Path) -> None:
        """A sink that can take back shows what the restored checkpoint covers, and nothing else."""
        older = self._commit_newer(tmp_path)
        can = self.make_sink(tmp_path, LocalFileSystem()).can_take_back()
        writer = self.writer(tmp_path, attempt=2)
        writer.restore(older)
        if not can:
            with pytest.raises(UsageError):
                writer.take_back(older, 1)
            self.expect(tmp_path, 1, 2, 3)
            return
        writer.take_back(older, 1)
        self.expect(tmp_path, 1)
        writer.write_batch(self.records(2), None)
        writer.commit(writer.prepare(5))
        self.expect(tmp_path, 1, 2)
        writer.close()
        assert self.hidden(tmp_path) == []

    @pytest.mark.parametrize("power_loss", [False, True])
    def test_a_crash_while_output_is_taken_back_is_recovered_from(
        self, tmp_path: Path, power_loss: bool
    ) -> None:
        """Taking back may be repeated from any point of itself, and is durable once it is done."""
        if not self.make_sink(tmp_path, LocalFileSystem()).can_take_back():
            return
        for point in range(1, 10_000):
            directory = tmp_path / str(point)
            older = self._commit_newer(directory)
            fs = CrashingFileSystem(point, CrashMoment.AFTER, power_loss)
            try:
                self._take_back(directory, fs, older, attempt=2)
            except SimulatedCrash:
                self._take_back(directory, LocalFileSystem(), older, attempt=3)
                self.expect(directory, 1)
                assert self.hidden(directory) == [], f"after a crash at call {point}"
            else:
                fs.die()
                self.expect(directory, 1)
                return

    def _take_back(
        self, directory: Path, fs: FileSystem, older: list[bytes], *, attempt: int
    ) -> None:
        writer = self.writer(directory, attempt, fs)
        writer.restore(older)
        writer.take_back(older, 1)
        writer.close()

    def _commit_newer(self, directory: Path) -> list[bytes]:
        """Commit checkpoints 1 to 3, prepare a fourth and die; returns the state of the first."""
        fs = CrashingFileSystem()
        writer = self.writer(directory, fs=fs)
        writer.write_batch(self.records(1), None)
        older = writer.prepare(1)
        writer.commit(older)
        for n in (2, 3):
            writer.write_batch(self.records(n), None)
            writer.commit(writer.prepare(n))
        writer.write_batch(self.records(4), None)
        writer.prepare(4)
        fs.die()
        return older

    def _leave_uncommitted(self, directory: Path) -> _Progress:
        fs = CrashingFileSystem()
        writer = self.writer(directory, fs=fs)
        state: list[bytes] = []
        for n in (1, 2):
            writer.write_batch(self.records(n), None)
            state += writer.prepare(n)
        writer.write_batch(self.records(3), None)
        fs.die()
        return _Progress((1, 2), state)

    def _run(self, directory: Path, fs: CrashingFileSystem, progress: _Progress) -> None:
        writer = self.writer(directory, fs=fs)
        writer.write_batch(self.records(1), None)
        early = writer.prepare(1)
        # Checkpoint 1 never completes; what it prepared becomes part of checkpoint 2.
        writer.write_batch(self.records(2), None)
        both = [*early, *writer.prepare(2)]
        fs.point(lambda: None)
        progress.durable, progress.state = (1, 2), both
        writer.commit(both)
        # A checkpoint without records forgets what was committed before: that must be durable.
        progress.state = writer.prepare(3)
        fs.point(lambda: None)
        writer.commit(progress.state)
        writer.write_batch(self.records(4), None)
        last = writer.prepare(4)
        fs.point(lambda: None)
        progress.durable, progress.state = (1, 2, 4), last
        fs.point(lambda: None)
        writer.commit(last)
        writer.write_batch(self.records(5), None)
        writer.close()

    def _check_unrecovered(self, directory: Path, progress: _Progress) -> None:
        allowed = [r for n in progress.durable for r in self.records(n)]
        surplus = Counter(self.visible(directory))
        surplus.subtract(Counter(allowed))
        assert max(surplus.values(), default=0) <= 0, "a record shows that no checkpoint holds"

    def _recover(
        self, directory: Path, fs: FileSystem, progress: _Progress, *, attempt: int
    ) -> None:
        writer = self.writer(directory, attempt, fs)
        writer.restore(progress.state)
        writer.discard_leftovers(progress.state)
        number = 10 + attempt
        writer.write_batch(self.records(number), None)
        prepared = writer.prepare(number)
        progress.durable, progress.state = (*progress.durable, number), prepared
        writer.commit(prepared)
        writer.close()


class ReferenceTwoPhaseSink(TwoPhaseCommitSinkFunction):
    """The simplest transactional sink: a file per transaction, renamed on commit.

    Its transactions are files in `<directory>/.open`, its output is `<directory>/done`.
    """

    def __init__(self, directory: str, file_system: FileSystem | None = None) -> None:
        self._open_path = os.path.join(directory, ".open")
        self._done_path = os.path.join(directory, "done")
        self._fs = file_system or LocalFileSystem()
        self._streams: dict[str, BinaryIO] = {}
        self._count = 0

    def begin_transaction(self) -> str:
        """Create a file."""
        me = self.writer_context
        name = f"{me.job_id}-a{me.attempt}-s{me.subtask}-{self._count}"
        self._count += 1
        self._fs.make_directory(self._open_path)
        self._fs.make_directory(self._done_path)
        self._streams[name] = self._fs.create(os.path.join(self._open_path, name))
        return name

    def invoke(self, transaction: str, value: Any, context: InvokeContext) -> None:
        """Append a line."""
        self._streams[transaction].write(f"{value!r}\n".encode())

    def pre_commit(self, transaction: str) -> None:
        """Make the file durable."""
        stream = self._streams[transaction]
        self._fs.sync(stream)
        stream.close()
        del self._streams[transaction]
        self._fs.sync_directory(self._open_path)

    def commit(self, transaction: str) -> None:
        """Rename the file, unless that was done before."""
        source, target = (
            os.path.join(folder, transaction) for folder in (self._open_path, self._done_path)
        )
        if self._fs.size(source) is not None:
            self._fs.rename(source, target)
        self._fs.sync_directory(self._done_path)

    def abort(self, transaction: str) -> None:
        """Remove the file."""
        stream = self._streams.pop(transaction, None)
        if stream is not None:
            stream.close()
        self._fs.remove(os.path.join(self._open_path, transaction))

    def abort_unknown_transactions(self, known: list[Any]) -> None:
        """Remove files of earlier attempts and of the lineage."""
        me = self.writer_context
        for path in list(self._fs.walk(self._open_path)):
            name = os.path.basename(path)
            match = re.fullmatch(r"(.+)-a(\d+)-s\d+-\d+", name)
            if match is None or name in known:
                continue
            job, attempt = match[1], int(match[2])
            if job in me.lineage or (job == me.job_id and attempt < me.attempt):
                self._fs.remove(path)
