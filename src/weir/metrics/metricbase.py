"""The metrics again, at the path of PyFlink's module."""

from weir.common._absent import INTERNAL, absent
from weir.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]

__getattr__ = absent(__name__, {"MetricGroupType GenericMetricGroup": INTERNAL})
