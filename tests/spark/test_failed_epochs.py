"""An epoch whose Spark job fails while all slots live: what it held comes again."""

from __future__ import annotations

import threading

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]


def counting():
    """Pass records on, with timers that are due again and again."""
    from weir.common import Types
    from weir.datastream import KeyedProcessFunction
    from weir.datastream.state import ValueStateDescriptor

    class Counting(KeyedProcessFunction):
        def open(self, context):
            self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

        def process_element(self, value, context):
            self.count.update((self.count.value() or 0) + 1)
            self.wake_up(context.timer_service())
            yield value

        def on_timer(self, timestamp, context):
            self.wake_up(context.timer_service())

        def wake_up(self, timers):
            timers.register_processing_time_timer(timers.current_processing_time() + 10)

    return Counting()


def test_a_batch_whose_spark_job_fails_is_in_no_checkpoint_and_comes_again(env, monkeypatch):
    """The failing thread is held back on its way to Spark: timers and checkpoints are due then."""
    from weir.common import Configuration, Types
    from weir.jobmanager.supervisor import Supervisor
    from weir.spark.attempt import Attempt
    from weir.spark.epochs import EpochRunner

    rows = Configuration()
    rows.set_integer("weir.source.batch-rows", 10)
    env.configure(rows)
    env.enable_checkpointing(250)
    run, on_batch, turn = EpochRunner.run, Attempt._on_batch, Supervisor.turn
    batches, failed, turns = [], [], []
    waiting = threading.Event()

    def failing(self, batch, epoch, *over):
        if batch is not None:
            batches.append(epoch.number)
            # Not one with a barrier: its checkpoint would be under way and keep others back.
            if len(batches) > 2 and not failed and epoch.barrier is None:
                failed.append(epoch.number)
                msg = "the job of this epoch failed"
                raise RuntimeError(msg)
        return run(self, batch, epoch, *over)

    def held_back(self, batch, batch_id):
        try:
            on_batch(self, batch, batch_id)
        except BaseException:
            while not self._closed and len(turns) < 100:
                waiting.wait(0.01)
            raise

    def watched(self):
        turn(self)
        if failed:
            turns.append(True)

    monkeypatch.setattr(EpochRunner, "run", failing)
    monkeypatch.setattr(Attempt, "_on_batch", held_back)
    monkeypatch.setattr(Supervisor, "turn", watched)
    stream = env.from_collection(list(range(200)), Types.LONG())
    result = stream.key_by(lambda value: value % 5).process(counting(), Types.LONG())
    with result.execute_and_collect() as records:
        assert sorted(records) == list(range(200))
    assert failed
