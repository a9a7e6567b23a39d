"""Weir: PyFlink DataStream programs on Spark, exactly once."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
