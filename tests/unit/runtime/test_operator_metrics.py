"""Metrics in a report: plain values, rates at the time of reading, gauges that fail."""

from __future__ import annotations

import sys
from decimal import Decimal

import numpy as np
import pytest
from tests.unit.runtime.test_report import made

from weir.runtime.frame import pack_report, unpack_report
from weir.runtime.metrics import OperatorMetrics, by_name, operator_metrics, report_metrics


@pytest.fixture
def metrics():
    return OperatorMetrics("Count")


def told(metrics, now_ms=0, read_ms=None):
    """The values as the driver reads them from a report that was made at `now_ms`."""
    report = made([], metrics=report_metrics({7: metrics}, now_ms))
    arrived = unpack_report(pack_report(report))
    found = by_name([arrived], 7, now_ms if read_ms is None else read_ms)
    return {name: values[0] for name, values in found.items()}


def test_counters_and_distributions_arrive_as_they_are(metrics):
    metrics.group.counter("n").inc(4)
    sizes = metrics.group.add_group("g").distribution("size")
    sizes.update(2)
    sizes.update(5)
    assert told(metrics) == {
        "n": 4,
        "g.size_count": 2,
        "g.size_sum": 7,
        "g.size_min": 2,
        "g.size_max": 5,
        "g.size_mean": 3.5,
    }


def test_an_empty_distribution_has_no_bounds(metrics):
    metrics.group.distribution("size")
    assert told(metrics) == {"size_count": 0, "size_sum": 0}


def test_an_operator_without_metrics_adds_nothing_to_a_report(metrics):
    assert report_metrics({7: metrics}, 0) == {}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3),
        (2.5, 2.5),
        (True, True),
        ("full", "full"),
        (np.int64(4), 4),
        (np.float32(0.5), 0.5),
        (Decimal("1.5"), "1.5"),
        ([1], "[1]"),
    ],
)
def test_a_gauge_gives_a_plain_number_or_text(metrics, value, expected):
    metrics.group.gauge("g", lambda: value)
    found = told(metrics)["g"]
    assert (found, type(found)) == (expected, type(expected))


def test_a_gauge_is_asked_anew_for_every_report(metrics):
    waiting = [1, 2]
    metrics.group.gauge("depth", lambda: len(waiting))
    assert told(metrics) == {"depth": 2}
    waiting.pop()
    assert told(metrics) == {"depth": 1}
    metrics.group.gauge("depth", lambda: -1)
    assert told(metrics) == {"depth": -1}


@pytest.mark.parametrize("broken", [lambda: 1 // 0, lambda: None, sys.exit])
def test_a_gauge_that_fails_is_missing_and_said_once(metrics, caplog, broken):
    metrics.group.counter("n")
    metrics.group.gauge("bad", broken)
    for _ in range(3):
        assert told(metrics) == {"n": 0}
    (record,) = caplog.records
    assert "operator 'Count': metric 'bad' cannot be read" in record.getMessage()


def test_a_meter_is_a_rate_over_its_time_span(metrics):
    meter = metrics.group.meter("rate", 60)
    meter.mark_event(120)
    assert told(metrics, 1_000) == {"rate": 2.0}
    meter.mark_event(60)
    assert told(metrics, 31_000) == {"rate": 3.0}
    meter.mark_event(60)
    # The first events are out of the window.
    assert told(metrics, 62_000) == {"rate": 2.0}


def test_the_rate_of_a_meter_falls_to_zero_while_no_report_comes(metrics):
    metrics.group.meter("rate", 60).mark_event(60)
    assert told(metrics, 1_000, read_ms=30_000) == {"rate": 1.0}
    assert told(metrics, 1_000, read_ms=61_000) == {"rate": 0.0}


def test_a_meter_sends_few_earlier_counts_however_many_epochs_there_are(metrics):
    meter = metrics.group.meter("rate", 60)
    for now in range(0, 300_000, 100):
        meter.mark_event()
        (sample,) = metrics.sample(now)
    assert len(sample.marks) <= 14
    report = made([], metrics={0: [sample]})
    (found,) = operator_metrics([report], 0, 300_000)
    assert found.value == pytest.approx(10, rel=0.1)


def test_values_are_listed_by_subtask():
    reports = []
    for subtask in (2, 0, 1):
        metrics = OperatorMetrics("Count")
        metrics.group.counter("n").inc(subtask)
        reports.append(made([], subtask, report_metrics({3: metrics}, 0)))
    assert by_name(reports, 3, 0) == {"n": [0, 1, 2]}
    assert by_name(reports, 4, 0) == {}
