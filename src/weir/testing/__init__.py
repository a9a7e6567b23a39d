"""Shipped test tools: a manual clock, faulty storage, conformance suites of the SPIs."""
