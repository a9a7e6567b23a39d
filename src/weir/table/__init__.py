"""PyFlink's path of the Table API: of it, Weir has the types that formats are declared by.

Importing another name says what to use instead.
"""

from __future__ import annotations

from typing import NoReturn

from weir.table.types import DataTypes

__all__ = ["DataTypes"]

_WHAT = (
    "weir.table.{} is not in Weir: there is no Table API, only its DataTypes: use Spark SQL, "
    "env.from_dataframe() to come back, and stream.foreach_batch() to go there"
)


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    raise ImportError(_WHAT.format(name), name=__name__)
