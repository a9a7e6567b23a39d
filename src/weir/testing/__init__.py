"""Shipped test tools: a manual clock, faulty storage, conformance suites of the SPIs.

Conformance suites need pytest and are imported from their own modules.
"""

from weir.testing.clock import ManualClock

__all__ = ["ManualClock"]
