"""Rescaling that does not work out: the job goes on as it was, also without any restart."""

from __future__ import annotations

import pytest
from tests.spark.scenario import wait_until

from weir.common import Types
from weir.datastream import KeyedProcessFunction, RuntimeContext
from weir.datastream.state import ValueStateDescriptor
from weir.errors import JobExecutionError, UsageError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


class Picky(KeyedProcessFunction):
    """Totals that three subtasks cannot make."""

    def open(self, runtime_context: RuntimeContext):
        if runtime_context.get_number_of_parallel_subtasks() == 3:
            msg = "three is a crowd"
            raise ValueError(msg)
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        yield value.seq, value.key, total


@pytest.fixture
def job(feed, spark):
    interval = {"execution.checkpointing.interval": "200 ms"}
    made = feed.submit(spark, Picky(), {**interval, "restart-strategy.type": "none"})
    yield made
    made.cancel()


def test_a_job_that_cannot_go_on_with_more_subtasks_goes_on_as_it_was(feed, job):
    settle(feed)
    feed.add()
    asked, again = job.control.rescale(3), job.control.rescale(1)
    with pytest.raises(UsageError, match="is being rescaled already"):
        again.result(60)
    with pytest.raises(JobExecutionError, match=r"(?s)goes on as it was.*three is a crowd"):
        asked.result(60)
    assert job.control.view().parallelism == 2
    feed.add()
    settle(feed)
    assert job.control.rescale(1).result(60) == 1
    feed.add()
    settle(feed)
    view = job.control.view()
    assert (view.status, view.parallelism, len(view.slots)) == ("RUNNING", 1, 1)
    job.control.stop().result(60)
    assert feed.committed() == feed.expected()
    feed.assert_over()


def settle(feed):
    expected = feed.expected()
    wait_until(lambda: feed.committed() == expected, 120, "the commit of all rows")
