"""Metrics of functions, from `open` to the driver: every subtask, every level, every attempt."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, started

from weir.datastream import KeyedProcessFunction, MapFunction, SinkFunction
from weir.datastream.functions import CoMapFunction, ReduceFunction
from weir.datastream.state import ValueStateDescriptor
from weir.testing.harness import collect


class Counting(MapFunction):
    def open(self, runtime_context):
        group = runtime_context.get_metrics_group()
        self.seen = group.counter("seen")
        self.large = group.add_group("size", "large").counter("records")
        self.rate = group.meter("rate", 10)
        self.values = group.distribution("values")
        self.last = None
        group.gauge("last", lambda: self.last)

    def map(self, value):
        self.seen.inc()
        if value > 5:
            self.large.inc()
        self.rate.mark_event()
        self.values.update(value)
        self.last = value
        return value


def test_every_metric_of_a_function_is_known_after_an_epoch():
    env = environment()
    collect(env.from_collection([1, 7, 9]).map(Counting()).name("count"))
    harness = started(env, 1)
    harness.run_epoch()
    assert harness.metrics("count") == {
        "seen": [3],
        "size.large.records": [2],
        "rate": [0.3],
        "values_count": [3],
        "values_sum": [17],
        "values_min": [1],
        "values_max": [9],
        "values_mean": [17 / 3],
        "last": [9],
    }


def test_functions_in_front_of_the_first_exchange_have_metrics_too():
    env = environment()
    stream = env.from_collection(list(range(10))).map(Counting()).name("first")
    collect(stream.key_by(lambda v: v % 3).map(Counting()).name("second"))
    harness = started(env, 2)
    harness.run_epoch()
    assert sum(harness.metrics("first")["seen"]) == 10
    assert sum(harness.metrics("second")["seen"]) == 10


@pytest.mark.parametrize("repeated", [False, True])
def test_counters_go_on_from_epoch_to_epoch_and_count_nothing_twice(repeated):
    env = environment()
    collect(env.from_collection(list(range(20))).key_by(lambda v: v).map(Counting()).name("c"))
    harness = started(env, 2, repeated=repeated)
    for epoch in range(1, 5):
        harness.run_epoch(take=5)
        assert sum(harness.metrics("c")["seen"]) == 5 * epoch


def test_metrics_restart_at_zero_with_an_attempt():
    env = environment()
    collect(env.from_collection(list(range(8))).key_by(lambda v: v).map(Counting()).name("c"))
    harness = started(env, 2)
    harness.run_epoch(take=5, checkpoint=True)
    harness.fail_over()
    assert harness.metrics("c") == {}
    harness.run_epoch()
    assert sum(harness.metrics("c")["seen"]) == 3


class Broken(KeyedProcessFunction):
    """A gauge that needs a key, which there is none of at the end of an epoch."""

    def open(self, runtime_context):
        state = runtime_context.get_state(ValueStateDescriptor("s", None))
        runtime_context.get_metrics_group().gauge("state", state.value)
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value, ctx):
        self.seen.inc()
        yield value


def test_a_gauge_that_raises_does_not_fail_the_job(caplog):
    env = environment()
    collect(env.from_collection([1, 2]).key_by(lambda v: v).process(Broken()).name("broken"))
    harness = started(env, 1)
    harness.run_epoch(take=1)
    harness.run_epoch(take=1)
    assert harness.metrics("broken") == {"seen": [2]}
    said = [r.getMessage() for r in caplog.records if r.name == "weir.metrics"]
    assert len(said) == 1
    assert "operator 'broken': metric 'state' cannot be read" in said[0]


class Summing(ReduceFunction):
    def open(self, runtime_context):
        self.folded = runtime_context.get_metrics_group().counter("folded")

    def reduce(self, value1, value2):
        self.folded.inc()
        return value1 + value2


class Both(CoMapFunction):
    def open(self, runtime_context):
        self.sides = runtime_context.get_metrics_group().add_group("sides")

    def map1(self, value):
        self.sides.counter("first").inc()
        return value

    def map2(self, value):
        self.sides.counter("second").inc()
        return value


class Writing(SinkFunction):
    def open(self, runtime_context):
        self.written = runtime_context.get_metrics_group().counter("written")

    def invoke(self, value, context):
        self.written.inc()


def test_reduces_connected_streams_and_sinks_have_metrics():
    env = environment()
    numbers = env.from_collection([1, 1, 2]).key_by(lambda v: v).reduce(Summing()).name("reduce")
    both = numbers.connect(env.from_collection(["a"])).map(Both()).name("both")
    both.add_sink(Writing()).name("sink")
    harness = started(env, 1)
    harness.run_epoch()
    assert harness.metrics("reduce") == {"folded": [1]}
    assert harness.metrics("both") == {"sides.first": [3], "sides.second": [1]}
    assert harness.metrics("sink") == {"written": [4]}
