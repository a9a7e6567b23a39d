"""Metrics that a user function registers and moves, with PyFlink's names.

A function gets its group from `runtime_context.get_metrics_group()`. A metric belongs to one
subtask of one operator and starts at zero with every execution attempt. Others see its value of the
end of the last epoch, through REST and Prometheus.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

from weir.errors import UsageError

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]

log = logging.getLogger("weir.metrics")
M = TypeVar("M", bound="Metric")


class Metric:
    """Base of everything that can be registered in a group.

    Example:
        def named(metrics: dict[str, Metric]):
            return sorted(metrics)
    """


class Counter(Metric):
    """A number that goes up and down.

    Example:
        def open(self, runtime_context):
            self.seen: Counter = runtime_context.get_metrics_group().counter("seen")
            self.seen.inc()
    """

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Add to the count."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtract from the count."""
        self._count -= n

    def get_count(self) -> int:
        """Return the count."""
        return self._count


class Meter(Metric):
    """Events, shown as their number per second over the last `time_span_in_seconds`.

    Example:
        def open(self, runtime_context):
            self.rate: Meter = runtime_context.get_metrics_group().meter("rate")
            self.rate.mark_event()
    """

    def __init__(self, time_span_in_seconds: int = 60) -> None:
        self.time_span_in_seconds = time_span_in_seconds
        self._count = 0

    def mark_event(self, value: int = 1) -> None:
        """Count so many events."""
        self._count += value

    def get_count(self) -> int:
        """Return how many events there were."""
        return self._count


class Distribution(Metric):
    """Values, of which number, sum, smallest and largest are kept.

    Example:
        def open(self, runtime_context):
            self.sizes: Distribution = runtime_context.get_metrics_group().distribution("sizes")
            self.sizes.update(3)
    """

    def __init__(self) -> None:
        self.count = 0
        self.sum: float = 0
        self.min: float | None = None
        self.max: float | None = None

    def update(self, value: float) -> None:
        """Take one more value."""
        self.count += 1
        self.sum += value
        if self.min is None or value < self.min:
            self.min = value
        if self.max is None or value > self.max:
            self.max = value


class Gauge(Metric):
    """A function whose result is the value of the moment; PyFlink gives it no name of its own."""

    def __init__(self, function: Callable[[], Any]) -> None:
        """Keep the function; it is called when the value is wanted."""
        self.function = function


@dataclass(frozen=True)
class Scope:
    """Where a group is, below its operator.

    `path` are the names of all groups. `logical` leaves out the values of `add_group(key, value)`;
    these are in `variables`, as pairs.
    """

    path: tuple[str, ...] = ()
    logical: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Registered:
    """A metric with its name and the scope of its group."""

    scope: Scope
    name: str
    metric: Metric


Registry = MutableMapping[tuple[str, ...], Registered]
"""All metrics of an operator, by the names of their groups and their own."""


class MetricGroup:
    """A named container of metrics and of further groups.

    Example:
        def open(self, runtime_context):
            group: MetricGroup = runtime_context.get_metrics_group()
            self.seen = group.add_group("shop", "north").counter("seen")
    """

    def __init__(self, registry: Registry, scope: Scope | None = None) -> None:
        """Register metrics at a place; functions get their group from the runtime context."""
        self._registry = registry
        self._scope = Scope() if scope is None else scope

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return the group of that name.

        With `extra` return the group `extra` inside of it. Then `name` is also a variable with the
        value `extra`: a label in Prometheus.
        """
        _check_name(name)
        at = self._scope
        if extra is None:
            scope = Scope((*at.path, name), (*at.logical, name), at.variables)
        else:
            _check_name(extra)
            variables = tuple(pair for pair in at.variables if pair[0] != name)
            scope = Scope((*at.path, name, extra), (*at.logical, name), (*variables, (name, extra)))
        return MetricGroup(self._registry, scope)

    def counter(self, name: str) -> Counter:
        """Return the counter of that name."""
        return self._register(name, Counter())

    def gauge(self, name: str, obj: Callable[[], Any]) -> None:
        """Register a function whose result is the metric.

        It is called at the end of every epoch, outside of any key. When it raises, the metric is
        missing for that epoch, and the first failure is logged.
        """
        given: Any = obj
        if not callable(given):
            msg = f"gauge {name!r} expects a function without arguments, found {obj!r}"
            raise UsageError(msg)
        self._register(name, Gauge(obj)).function = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Return the meter of that name, with a rate over so many seconds."""
        if time_span_in_seconds <= 0:
            msg = f"meter {name!r} expects a time span above zero, found {time_span_in_seconds!r}"
            raise UsageError(msg)
        return self._register(name, Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        """Return the distribution of that name."""
        return self._register(name, Distribution())

    def _register(self, name: str, new: M) -> M:
        _check_name(name)
        key = (*self._scope.path, name)
        present = self._registry.setdefault(key, Registered(self._scope, name, new)).metric
        if isinstance(present, type(new)):
            return present
        log.warning(
            "metric %r is a %s already; the %s of the same name is not reported",
            ".".join(key),
            type(present).__name__,
            type(new).__name__,
        )
        return new


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        msg = f"metrics and their groups have a name that is not empty, found {name!r}"
        raise UsageError(msg)
