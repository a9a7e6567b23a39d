"""Every error that Weir raises, as one tree ordered by who has to act.

::

    WeirError
    ├── UsageError               fix the program or the command
    ├── IncompatibleStateError   fix the schema, the parallelism or the uids
    ├── CorruptStateError        restore another checkpoint
    ├── StorageError             retry, or repair the environment
    └── JobExecutionError        read its cause: the job ended in failure
        ├── UserFunctionError      fix the user function that raised
        └── JobCancellationError   nothing: somebody cancelled the job

What ends a running job is a `JobExecutionError` in any case: an error of another kind is both.

Messages name the object, show what was found and what was expected, and say what to do next.
"""

from __future__ import annotations

import os
import re
import traceback
from typing import NoReturn

_INSTALLED = re.compile(r"[/\\](site-packages|concurrent|lib[/\\]python3)[/\\.]")


class WeirError(Exception):
    """Root of the tree: catch this to catch everything that Weir raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """Show a notebook the lines of the program that led here, and none of the engine's.

        IPython asks exceptions for this; without a line of the program the message stands alone.
        """
        own = os.path.dirname(os.path.abspath(__file__))
        frames = [
            frame
            for frame in traceback.extract_tb(self.__traceback__)
            if not frame.filename.startswith(own) and not _INSTALLED.search(frame.filename)
        ]
        lines = "".join(traceback.format_list(frames[-1:])).rstrip().splitlines()
        return [*lines, f"{type(self).__name__}: {self}"]


class UsageError(WeirError):
    """The program or the command asks for something that cannot be; nothing was changed."""


class IncompatibleStateError(WeirError):
    """Stored state does not fit the program: other types, parallelism or operators."""


class CorruptStateError(WeirError):
    """A stored file is missing, truncated or altered; it was detected before it was used."""


class StorageError(WeirError):
    """Durable storage refused an operation: permissions, space, connectivity."""


class JobExecutionError(WeirError):
    """The job ended in failure; `__cause__` and the message say why."""


class UserFunctionError(JobExecutionError):
    """A user's function raised; carries the operator, the record and the user's traceback.

    Where a method has no record, such as `open`, the record is its name: `<open>`.
    """

    def __init__(self, operator: str, record: str, user_traceback: str) -> None:
        """Keep the three facts that a user needs to find the fault."""
        super().__init__(operator, record, user_traceback)
        self.operator = operator
        self.record = record
        self.user_traceback = user_traceback

    def __str__(self) -> str:
        """Render operator, record and the user's own traceback, nothing of the engine."""
        return f"operator '{self.operator}' failed{self._where()}:\n{self.user_traceback.rstrip()}"

    def _where(self) -> str:
        method = re.fullmatch(r"<(\w+)>", self.record)
        if method is not None:
            return f" in {method[1]}()"
        return f" at record {self.record}" if self.record else ""


class JobCancellationError(JobExecutionError):
    """The job was cancelled, so it has no result; what it had not committed never will be."""


_failures: dict[str, type[WeirError]] = {}


def _failed(kind: type[WeirError]) -> type[WeirError]:
    made = type(kind.__name__, (kind, JobExecutionError), {"__module__": kind.__module__})
    return _failures.setdefault(f"{kind.__module__}.{kind.__name__}", made)


def as_job_failure(error: WeirError) -> WeirError:
    """Return what ended a job, so that whoever catches `JobExecutionError` catches it.

    Whoever catches the kind of error that it is catches it, too.
    """
    if not isinstance(error, JobExecutionError):
        error.__class__ = _failed(type(error))
    return error


def assert_never(value: NoReturn) -> NoReturn:
    """End a `match` over a closed union: the type checker proves that nobody comes here.

    Raises:
        AssertionError: somebody did, with a value that the types do not allow.
    """
    msg = f"no case for {value!r}"
    raise AssertionError(msg)
