"""Shipped test tools: the job harness, a manual clock, faulty storage, conformance suites.

Conformance suites need pytest and are imported from their own modules.
"""

from weir.testing.clock import ManualClock
from weir.testing.harness import HarnessOptions, JobHarness, collect

__all__ = ["HarnessOptions", "JobHarness", "ManualClock", "collect"]
