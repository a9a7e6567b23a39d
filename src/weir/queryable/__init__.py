"""State of running jobs for others: look-ups by key, scans, and SQL.

`QueryableStateClient` asks the driver of a job, which finds the slot that has a key.
"""

from weir.jobmanager.queries import (
    QueryError,
    QueryLimitError,
    QueryRefusedError,
    StateTooOldError,
    StateUnavailableError,
    UnknownJobError,
    UnknownKeyGroupLocationError,
    UnknownKeyOrNamespaceError,
    UnknownStateError,
)
from weir.queryable.client import QueryableStateClient
from weir.queryable.immutable import ReadOnlyStateError

__all__ = [
    "QueryError",
    "QueryLimitError",
    "QueryRefusedError",
    "QueryableStateClient",
    "ReadOnlyStateError",
    "StateTooOldError",
    "StateUnavailableError",
    "UnknownJobError",
    "UnknownKeyGroupLocationError",
    "UnknownKeyOrNamespaceError",
    "UnknownStateError",
]
