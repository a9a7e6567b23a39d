"""From what slots and Spark report to the error that the user sees."""

from __future__ import annotations

import re

from weir import errors
from weir.errors import (
    CorruptStateError,
    IncompatibleStateError,
    JobExecutionError,
    UsageError,
    UserFunctionError,
    WeirError,
)
from weir.slot.copies import MissingCopyError
from weir.slot.messages import LOST, OUT_OF_MEMORY, SlotFailure

_RAISED_AS_IS: dict[str, type[WeirError]] = {
    name: getattr(errors, name)
    for name in ("UsageError", "IncompatibleStateError", "CorruptStateError", "StorageError")
} | {MissingCopyError.__name__: MissingCopyError}


def from_failure(failure: SlotFailure, log_file: str) -> WeirError:
    """Return the error that a slot's failure stands for."""
    if failure.kind == "UserFunctionError":
        return UserFunctionError(failure.operator, failure.record, failure.message)
    known = _RAISED_AS_IS.get(failure.kind)
    if known is not None:
        return known(failure.message)
    where = f" (log: {log_file})" if log_file else ""
    if failure.kind == OUT_OF_MEMORY:
        who = "a Python worker of Spark" if failure.subtask < 0 else f"slot {failure.subtask}"
        return JobExecutionError(f"{who} ran out of memory: {failure.message}{where}")
    if failure.subtask < 0:
        return JobExecutionError(f"the source side failed:\n{failure.message}")
    if failure.kind == LOST:
        return JobExecutionError(f"slot {failure.subtask} was lost: {failure.message}{where}")
    return JobExecutionError(f"slot {failure.subtask} failed{where}:\n{failure.message}")


_NO_WEIR = re.compile(r"ModuleNotFoundError: No module named 'weir\b")
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '[^'\n]*'")
_PYTHON_TRACE = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<raised>\S.*)", re.MULTILINE
)
_RAISED_CHARS = 500
OTHER_PYTHON = (
    "Spark's Python workers run a Python in which Weir is not installed: set PYSPARK_PYTHON, or "
    "spark.pyspark.python of spark-submit, to the Python of this program before the Spark session "
    "is made, install Weir there, or activate the virtual environment"
)


def _last_raised(text: str) -> str:
    """Return the last line of the last Python traceback in a text: what was raised in a worker."""
    found = [match["raised"] for match in _PYTHON_TRACE.finditer(text)]
    return found[-1].strip()[:_RAISED_CHARS] if found else ""


def to_error(error: BaseException) -> WeirError:
    """Return a foreign exception as one of ours, with the readable part of its text."""
    if isinstance(error, WeirError):
        return error
    text = str(error)
    raised = _last_raised(text)
    if _NO_WEIR.search(text):
        return UsageError(OTHER_PYTHON)
    for marker in ("\n\tat ", "\nJVM stacktrace", "\n\nDriver stacktrace", "\nTraceback"):
        text = text.split(marker, maxsplit=1)[0]
    reason = f"{text.strip()[:2000]}\n{raised}" if raised else text.strip()[:2000]
    wrapped = JobExecutionError(f"{type(error).__name__}: {reason.strip()}")
    wrapped.__cause__ = error
    return wrapped


def of_workers(error: BaseException) -> WeirError:
    """Return what it means that a worker cannot import a module of Weir: another Python.

    It may find Weir in PYTHONPATH and lack what Weir needs.
    """
    missing = _NO_MODULE.findall(str(error))
    if not missing:
        return to_error(error)
    what = missing[-1].removeprefix("ModuleNotFoundError: ")
    return UsageError(f"{OTHER_PYTHON}; a worker says: {what}")


def known_error(
    error: BaseException, lost: str | None, slot: tuple[SlotFailure, str] | None
) -> WeirError:
    """Return what is known best: that the engine is lost, what a slot said, or the error itself.

    `slot` is a slot's failure and where its log is.
    """
    if lost is not None:
        shown = JobExecutionError(lost)
        shown.__cause__ = error
        return shown
    return to_error(error) if slot is None else from_failure(*slot)


def is_recoverable(error: BaseException) -> bool:
    """Tell whether starting again may help: never after a mistake in the program or its state."""
    return not isinstance(error, (UsageError, IncompatibleStateError, CorruptStateError))
