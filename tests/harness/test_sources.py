"""Sources in the harness: what has splits, and source functions."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, run, started

from weir.common import Duration, Types, WatermarkStrategy
from weir.datastream import KeyedCoProcessFunction, SourceFunction
from weir.errors import UsageError
from weir.testing.harness import collect


class Numbers(SourceFunction):
    """Counts up to its limit, between `open` and `close`."""

    def __init__(self, limit, *, method="collect"):
        self.limit = limit
        self.method = method
        self.life = []

    def open(self, runtime_context):
        self.life.append(runtime_context.get_task_name())

    def run(self, ctx):
        with ctx.get_checkpoint_lock():
            for number in range(self.limit):
                getattr(ctx, self.method)(number)

    def cancel(self):
        raise AssertionError

    def close(self):
        self.life.append("closed")


def test_a_source_function_runs_in_the_harness_with_its_life_cycle():
    env = environment()
    function = Numbers(5)
    collect(env.add_source(function, "numbers").map(lambda n: n * n))
    assert sorted(run(env, 2, take=2).collected()) == [0, 1, 4, 9, 16]
    assert function.life == ["Source: numbers", "closed"]


@pytest.mark.parametrize("method", ["emit_watermark"])
def test_the_harness_refuses_the_times_of_a_source_function(method):
    env = environment()
    function = Numbers(1, method=method)
    collect(env.add_source(function))
    with pytest.raises(UsageError, match=f"SourceContext.{method}: the harness"):
        started(env, 1)
    assert function.life[-1] == "closed"


def test_what_only_spark_can_read_is_refused(tmp_path):
    env = environment()
    (tmp_path / "lines.txt").write_text("a\n")
    env.read_text_file(str(tmp_path)).print()
    with pytest.raises(UsageError, match="the harness reads sources with splits"):
        started(env, 1)


class Timers(KeyedCoProcessFunction):
    """Sets a timer at the time of every record."""

    def process_element1(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp())

    process_element2 = process_element1

    def on_timer(self, timestamp, ctx):
        yield timestamp


def test_when_all_inputs_are_idle_event_time_is_that_of_the_furthest():
    env = environment()
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(lambda value, _: value)
        .with_idleness(Duration.of_millis(100))
    )
    first, second = (
        env.from_collection(values, Types.LONG())
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda value: 0)
        for values in ([10, 11], [50, 51])
    )
    collect(first.connect(second).process(Timers()))
    harness = started(env, 1)
    harness.run_epoch()
    assert harness.collected() == [10]
    harness.clock.advance(200)
    harness.run_epoch()
    assert harness.collected() == [10, 11, 50]
