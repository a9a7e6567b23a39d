"""Weir: PyFlink DataStream programs on Spark, exactly once."""

from __future__ import annotations

from typing import Any

from weir.version import __version__

__all__ = ["__version__", "new_savepoint", "savepoint"]


def savepoint(
    spark: Any, path: str, options: dict[str, str] | None = None, *, unpickle: bool = False
) -> Any:
    """Open a savepoint as DataFrames; see `weir.state_processor.savepoint`."""
    from weir.state_processor import savepoint as opened

    return opened(spark, path, options, unpickle=unpickle)


def new_savepoint() -> Any:
    """Begin a savepoint of DataFrames; see `weir.state_processor.new_savepoint`."""
    from weir.state_processor import new_savepoint as begun

    return begun()
