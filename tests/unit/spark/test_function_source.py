"""Source functions with checkpoint hooks: they start as new, the journal is their position."""

from __future__ import annotations

import pickle
import threading

import pyarrow.parquet as pq

from weir.common.typeinfo import Types
from weir.datastream import CheckpointedFunction, SourceFunction
from weir.datastream.state import ListStateDescriptor
from weir.errors import UserFunctionError
from weir.spark.function_source import FunctionRunner
from weir.spark.spool import Spool


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


def journal(directory):
    tables = [pq.read_table(path) for path in sorted(directory.glob("*.parquet"))]
    return [r for t in tables for row in t.column(0) for r in pickle.loads(row.as_buffer())]


def ran(function, directory, skipped=0):
    runner = FunctionRunner(function, Spool(directory, skipped), None, threading.Event())
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
