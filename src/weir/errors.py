"""Every error that Weir raises, as one tree ordered by who has to act.

::

    WeirError
    ├── UsageError               fix the program or the command
    ├── IncompatibleStateError   fix the schema, the parallelism or the uids
    ├── CorruptStateError        restore another checkpoint
    ├── StorageError             retry, or repair the environment
    ├── UserFunctionError        fix the user function that raised
    └── JobExecutionError        read its cause: the job ended in failure

Messages name the object, show what was found and what was expected, and say what to do next.
"""

from __future__ import annotations


class WeirError(Exception):
    """Root of the tree: catch this to catch everything that Weir raises on purpose."""


class UsageError(WeirError):
    """The program or the command asks for something that cannot be; nothing was changed."""


class IncompatibleStateError(WeirError):
    """Stored state does not fit the program: other types, parallelism or operators."""


class CorruptStateError(WeirError):
    """A stored file is missing, truncated or altered; it was detected before it was used."""


class StorageError(WeirError):
    """Durable storage refused an operation: permissions, space, connectivity."""


class UserFunctionError(WeirError):
    """A user's function raised; carries the operator, the record and the user's traceback."""

    def __init__(self, operator: str, record: str, user_traceback: str) -> None:
        """Keep the three facts that a user needs to find the fault."""
        super().__init__(operator, record, user_traceback)
        self.operator = operator
        self.record = record
        self.user_traceback = user_traceback

    def __str__(self) -> str:
        """Render operator, record and the user's own traceback, nothing of the engine."""
        where = f" at record {self.record}" if self.record else ""
        return f"operator '{self.operator}' failed{where}:\n{self.user_traceback.rstrip()}"


class JobExecutionError(WeirError):
    """The job ended in failure; `__cause__` and the message say why."""
