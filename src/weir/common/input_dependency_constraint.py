"""`InputDependencyConstraint`: accepted for old programs, without effect on Spark's scheduling."""

from __future__ import annotations

import enum

__all__ = ["InputDependencyConstraint"]


class InputDependencyConstraint(enum.Enum):
    """When a task with several inputs could be scheduled.

    Example:
        InputDependencyConstraint.ANY.name
    """

    ANY = 0
    ALL = 1
