"""`TimeDomain` under PyFlink's module path."""

from __future__ import annotations

from weir.graph.time_domain import TimeDomain

__all__ = ["TimeDomain"]
