"""Groups and metrics as a function sees them, with PyFlink's names."""

from __future__ import annotations

import pytest

from weir.errors import UsageError
from weir.metrics import Counter, Distribution, Meter, Metric, MetricGroup


@pytest.fixture
def registry():
    return {}


@pytest.fixture
def group(registry):
    return MetricGroup(registry)


def test_a_counter_goes_up_and_down(group):
    counter = group.counter("events")
    counter.inc()
    counter.inc(5)
    counter.dec(2)
    counter.dec()
    assert counter.get_count() == 3


def test_a_meter_counts_events(group):
    meter = group.meter("rate", time_span_in_seconds=120)
    meter.mark_event()
    meter.mark_event(4)
    assert (meter.get_count(), meter.time_span_in_seconds) == (5, 120)


def test_a_distribution_keeps_number_sum_and_bounds(group):
    sizes = group.distribution("sizes")
    for value in (4, -1, 7):
        sizes.update(value)
    assert (sizes.count, sizes.sum, sizes.min, sizes.max) == (3, 10, -1, 7)


def test_all_kinds_are_metrics(group):
    group.gauge("depth", lambda: 1)
    made = [group.counter("a"), group.meter("b"), group.distribution("c")]
    assert [type(metric) for metric in made] == [Counter, Meter, Distribution]
    assert all(isinstance(metric, Metric) for metric in made)


def test_the_same_name_is_the_same_metric_also_through_a_group_asked_for_twice(group):
    assert group.counter("a") is group.counter("a")
    assert group.add_group("g").counter("a") is group.add_group("g").counter("a")
    assert group.add_group("g").counter("a") is not group.counter("a")


def test_groups_nest_and_a_pair_is_a_variable(group, registry):
    group.add_group("a").add_group("tenant", "blue").add_group("b").counter("n")
    (found,) = registry.values()
    assert found.scope.path == ("a", "tenant", "blue", "b")
    assert found.scope.logical == ("a", "tenant", "b")
    assert found.scope.variables == (("tenant", "blue"),)


def test_a_name_taken_by_another_kind_is_said_and_the_first_one_stays(group, registry, caplog):
    first = group.counter("a")
    group.meter("a").mark_event()
    assert [entry.metric for entry in registry.values()] == [first]
    assert "metric 'a' is a Counter already; the Meter" in caplog.text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda g: g.counter(""), "a name that is not empty, found ''"),
        (lambda g: g.add_group(3), "a name that is not empty, found 3"),
        (lambda g: g.add_group("a", ""), "a name that is not empty, found ''"),
        (lambda g: g.gauge("a", 5), "gauge 'a' expects a function"),
        (lambda g: g.meter("a", 0), "meter 'a' expects a time span above zero, found 0"),
    ],
)
def test_what_cannot_be_a_metric_is_refused(group, call, text):
    with pytest.raises(UsageError, match=text):
        call(group)
