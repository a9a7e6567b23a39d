"""Source functions with checkpoint hooks: they start as new, the journal is their position."""

from __future__ import annotations

import errno
import re
import threading

import pytest
from tests.unit.runtime.test_source_side import node_and_facts

from weir.common.typeinfo import Types
from weir.connector.decoder import JournalEntries, Mark, Records
from weir.connector.spool import Spool, SpoolWriter
from weir.datastream import CheckpointedFunction, SourceFunction
from weir.datastream.state import ListStateDescriptor
from weir.errors import StorageError, UsageError, UserFunctionError
from weir.jobmanager.failures import is_recoverable
from weir.runtime.context import RuntimeContext
from weir.runtime.frame import MAX_WATERMARK
from weir.runtime.metrics import OperatorMetrics
from weir.spark.function_source import FunctionRunner, JournalingContext


class CounterSource(SourceFunction, CheckpointedFunction):
    """Counts from the offset in its state."""

    def __init__(self, stop):
        self.stop = stop
        self.initialized = []

    def run(self, ctx):
        offset = sum(self.state.get())
        for number in range(offset, self.stop):
            ctx.collect(number)

    def cancel(self):
        self.stop = 0

    def initialize_state(self, context):
        self.initialized.append((context.is_restored(), context.get_restored_checkpoint_id()))
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("offset", Types.LONG()))

    def snapshot_state(self, context):
        raise AssertionError


def said(directory):
    """Everything in the journal: pieces of records and marks, in order, as a worker reads them."""
    stream = Spool(directory, 0).stream(JournalEntries())
    return [
        decoded
        for path in sorted(stream.folder.iterdir())
        for batch in stream.reader.read(path.read_text())
        for decoded in stream.decoder.decode(batch)
    ]


def journal(directory):
    return [v for piece in said(directory) if isinstance(piece, Records) for v in piece.values]


def ran(function, directory, skipped=0, context=None):
    runner = FunctionRunner(function, Spool(directory, skipped), None, threading.Event(), context)
    runner.start()
    runner._thread.join()
    return runner


def test_a_checkpointed_source_starts_as_new_and_its_journal_goes_on(tmp_path):
    source = CounterSource(3)
    assert ran(source, tmp_path).error is None
    assert source.initialized == [(False, None)]
    assert journal(tmp_path) == [0, 1, 2]
    again = CounterSource(5)
    assert ran(again, tmp_path).error is None
    assert again.initialized == [(False, None)]
    assert journal(tmp_path) == [0, 1, 2, 3, 4]


def test_records_that_an_earlier_job_read_are_skipped_and_counted(tmp_path):
    assert ran(CounterSource(5), tmp_path, skipped=2).error is None
    assert journal(tmp_path) == [2, 3, 4]
    assert Spool(tmp_path, 2).journaled() == 5
    assert ran(CounterSource(6), tmp_path, skipped=2).error is None
    assert journal(tmp_path) == [2, 3, 4, 5]


class Keyed(CounterSource):
    def initialize_state(self, context):
        context.get_keyed_state_store()


def test_a_source_has_no_keyed_state(tmp_path):
    error = ran(Keyed(3), tmp_path).error
    assert isinstance(error, UserFunctionError)
    assert "a source has no keyed state" in str(error)


END = Mark(MAX_WATERMARK)


class Script(SourceFunction):
    """Makes the calls that it was given, in order."""

    def __init__(self, *calls):
        self.calls = calls
        self.life = []

    def open(self, runtime_context):
        self.life.append(("open", runtime_context))

    def run(self, ctx):
        self.life.append("run")
        for name, *arguments in self.calls:
            getattr(ctx, name)(*arguments)

    def cancel(self):
        raise AssertionError

    def close(self):
        self.life.append("close")


def test_timestamps_are_journaled_with_their_records(tmp_path):
    ran(
        Script(("collect_with_timestamp", "a", 10), ("collect", "b"), ("collect", "c")),
        tmp_path,
    )
    assert said(tmp_path) == [Records(["a", "b", "c"], [10, None, None]), END]


def test_records_without_any_timestamp_have_no_list_of_them(tmp_path):
    ran(Script(("collect", "a")), tmp_path)
    assert said(tmp_path) == [Records(["a"], None), END]


def journaling(directory, skipped=0):
    return JournalingContext(Spool(directory, skipped), None)


def test_what_was_said_last_stands_behind_the_records_of_a_file(tmp_path):
    ctx = journaling(tmp_path)
    ctx.collect_with_timestamp("a", 10)
    ctx.emit_watermark(5)
    ctx.collect_with_timestamp("b", 20)
    ctx.emit_watermark(15)
    ctx.emit_watermark(7)
    ctx.flush()
    ctx.collect_with_timestamp("c", 30)
    ctx.flush()
    ctx.flush()
    ctx.mark_as_temporarily_idle()
    ctx.flush()
    ctx.collect("d")
    ctx.flush()
    assert said(tmp_path) == [
        Records(["a", "b"], [10, 20]),
        Mark(15),
        Records(["c"], [30]),
        Mark(15, idle=True),
        Records(["d"]),
        Mark(15),
    ]


def test_a_watermark_ends_idleness_too(tmp_path):
    ctx = journaling(tmp_path)
    ctx.mark_as_temporarily_idle()
    ctx.flush()
    ctx.emit_watermark(3)
    ctx.flush()
    assert said(tmp_path) == [Mark(None, idle=True), Mark(3)]


def test_a_function_that_says_nothing_of_time_leaves_no_marks(tmp_path):
    ctx = journaling(tmp_path)
    ctx.collect("a")
    ctx.flush()
    assert said(tmp_path) == [Records(["a"])]


def test_a_new_attempt_hears_the_last_mark_again(tmp_path):
    ctx = journaling(tmp_path)
    ctx.emit_watermark(9)
    ctx.mark_as_temporarily_idle()
    ctx.flush()
    ctx.say_again()
    ctx.flush()
    assert said(tmp_path) == [Mark(9, idle=True), Mark(9, idle=True)]
    assert Spool(tmp_path, 0).journaled() == 0


def test_a_function_that_has_ended_says_so_to_every_attempt(tmp_path):
    runner = ran(Script(("collect", "a")), tmp_path)
    runner.start()
    assert said(tmp_path) == [Records(["a"]), END, END]


def test_the_watermark_among_skipped_records_holds_for_those_behind_them(tmp_path):
    ctx = journaling(tmp_path, skipped=2)
    ctx.collect("a")
    ctx.emit_watermark(4)
    ctx.flush()
    ctx.collect("b")
    ctx.collect("c")
    ctx.flush()
    assert said(tmp_path) == [Records(["c"]), Mark(4)]


def test_under_the_lock_the_clock_journals_nothing(tmp_path):
    ctx = journaling(tmp_path)
    flusher = threading.Thread(target=ctx.flush)
    with ctx.get_checkpoint_lock():
        ctx.collect("a")
        flusher.start()
        ctx.collect("b")
    flusher.join()
    assert said(tmp_path) == [Records(["a", "b"])]


@pytest.mark.parametrize("time", [1.5, "1.5", True, 1 << 63])
@pytest.mark.parametrize("method", ["collect_with_timestamp", "emit_watermark"])
def test_a_time_that_is_no_number_of_milliseconds_is_refused(tmp_path, method, time):
    arguments = ["a", time] if method.startswith("collect") else [time]
    with pytest.raises(UsageError, match=f"{method}: the timestamp is {time!r}.*milliseconds"):
        getattr(journaling(tmp_path), method)(*arguments)


def test_a_function_is_opened_before_it_runs_and_closed_when_it_fails(tmp_path):
    node, facts = node_and_facts()
    context = RuntimeContext(node, facts, OperatorMetrics(node.name).group, None)
    good, bad = Script(), Script(("collect_with_timestamp", "a", None))
    assert ran(good, tmp_path / "a", context=context).error is None
    assert "milliseconds" in str(ran(bad, tmp_path / "b", context=context).error)
    assert good.life == bad.life == [("open", context), "run", "close"]
    assert said(tmp_path / "b") == []


class Ending(SourceFunction):
    """Ends in a way that a thread takes for its own end."""

    def __init__(self, error):
        self.error = error

    def run(self, ctx):
        ctx.collect("a")
        raise self.error

    def cancel(self):
        pass


@pytest.mark.parametrize("error", [StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_whatever_ends_a_function_but_its_return_is_an_error(tmp_path, error):
    found = ran(Ending(error), tmp_path).error
    assert isinstance(found, UserFunctionError)
    assert found.operator == "source function Ending"
    assert error.__name__ in found.user_traceback
    assert said(tmp_path) == [Records(["a"])]


def test_a_record_that_cannot_be_journaled_is_an_error_that_names_it(tmp_path):
    lock = threading.Lock()
    found = ran(Script(("collect", 1), ("collect", (2, lock))), tmp_path).error
    assert isinstance(found, UsageError)
    assert re.search(r"function Script: record \(2, <unlocked.*cannot be pickled", str(found))


class Cancelled(SourceFunction):
    """Runs until it is cancelled."""

    def __init__(self):
        self.cancelled = threading.Event()

    def run(self, ctx):
        ctx.collect("a")
        self.cancelled.wait()

    def cancel(self):
        self.cancelled.set()


def test_the_event_time_of_a_cancelled_function_is_not_over(tmp_path):
    runner = FunctionRunner(Cancelled(), Spool(tmp_path, 0), None, threading.Event())
    runner.start()
    runner.cancel()
    runner._thread.join()
    assert said(tmp_path) == [Records(["a"])]


class FullDisk(SpoolWriter):
    """A spool on a disk that is full at the moment; `tried` is set whenever it is written."""

    def __init__(self, directory):
        super().__init__(directory)
        self.full = True
        self.tried = threading.Event()

    def append(self, table, *, last=False):
        self.tried.set()
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(self.directory))
        super().append(table, last=last)


def on_full_disk(function, directory):
    """Start a function whose journal cannot be written."""
    runner = FunctionRunner(function, Spool(directory, 0), None, threading.Event())
    disk = runner._source._writer = FullDisk(directory)
    runner.start()
    return runner, disk


def test_a_full_disk_is_not_the_functions_fault_and_its_records_are_kept(tmp_path):
    runner, disk = on_full_disk(Script(("collect", "a")), tmp_path)
    runner._thread.join()
    assert isinstance(runner.error, StorageError)
    assert re.search(r"source function Script: its journal .* No space left", str(runner.error))
    assert is_recoverable(runner.error)
    assert not runner.finished
    runner.start()  # still full: this attempt fails, too
    assert isinstance(runner.error, StorageError)
    disk.full = False
    runner.start()
    assert runner.error is None
    assert runner.finished
    assert said(tmp_path) == [Records(["a"]), END]


def test_a_function_waits_while_many_records_cannot_be_written(tmp_path):
    numbers = 25_000
    runner, disk = on_full_disk(CounterSource(numbers), tmp_path)
    assert disk.tried.wait(30)
    while not isinstance(runner.error, StorageError):
        disk.tried.wait()
    assert runner._thread.is_alive()
    disk.full = False
    runner._thread.join()
    runner.start()
    assert runner.error is None
    assert journal(tmp_path) == list(range(numbers))


class FailsOnce(SourceFunction):
    """Fails after two records, until a file is there; counts in an attribute, as programs do."""

    def __init__(self, mark):
        self.mark = mark
        self.next = 0

    def run(self, ctx):
        while self.next < 4:
            if self.next == 2 and not self.mark.exists():
                self.mark.touch()
                msg = "the server has left"
                raise ConnectionError(msg)
            ctx.collect(self.next)
            self.next += 1

    def cancel(self):
        raise AssertionError


def test_a_function_that_failed_runs_again_as_new_behind_what_it_has_said(tmp_path):
    runner = ran(FailsOnce(tmp_path / "mark"), tmp_path / "spool")
    assert isinstance(runner.error, UserFunctionError)
    assert "the server has left" in str(runner.error)
    assert journal(tmp_path / "spool") == [0, 1]
    runner.start()
    runner._thread.join()
    assert runner.error is None
    assert runner.finished
    assert journal(tmp_path / "spool") == [0, 1, 2, 3]


def test_a_function_that_cannot_be_copied_ends_the_job_when_it_has_failed(tmp_path):
    function = Ending(ValueError("gone"))
    function.lock = threading.Lock()
    runner = ran(function, tmp_path)
    assert isinstance(runner.error, UserFunctionError)
    runner.start()
    assert isinstance(runner.error, UsageError)
    assert not is_recoverable(runner.error)
    assert re.search(r"gone(.|\n)*function Ending is not run again: .*pickled", str(runner.error))
    assert journal(tmp_path) == ["a"]


class Unpicklable:
    """A record that breaks its pickling in a way of its own."""

    def __reduce__(self):
        msg = "no"
        raise RuntimeError(msg)


class Endless(SourceFunction):
    """Gives a record that cannot be journaled, once, and runs until it is cancelled."""

    def __init__(self, mark):
        self.mark = mark

    def run(self, ctx):
        self.cancelled = threading.Event()
        ctx.collect("a")
        if not self.mark.exists():
            self.mark.touch()
            ctx.collect(Unpicklable())
        self.cancelled.wait()
        ctx.collect("late")

    def cancel(self):
        self.cancelled.set()


def test_a_run_that_is_replaced_journals_nothing_any_more(tmp_path):
    function = Endless(tmp_path / "mark")
    runner = FunctionRunner(function, Spool(tmp_path / "spool", 0), None, threading.Event())
    runner.start()
    old = runner._thread
    while runner.error is None:
        old.join(0.01)
    assert isinstance(runner.error, UserFunctionError)
    runner.start()
    old.join()
    while "a" not in journal(tmp_path / "spool"):
        runner._thread.join(0.01)
    assert runner.error is None
    assert journal(tmp_path / "spool") == ["a"]
    runner.cancel()
    runner._thread.join()
    assert journal(tmp_path / "spool") == ["a", "late"]
