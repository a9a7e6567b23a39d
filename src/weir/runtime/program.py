"""Sending a program to other processes."""

from __future__ import annotations

from typing import Any

import cloudpickle

from weir.errors import UsageError
from weir.graph.plan import JobPlan


def dump_program(plan: JobPlan) -> bytes:
    """Pickle a plan with its user functions.

    Raises:
        UsageError: something in it cannot be sent; the message names the operator.
    """
    try:
        return bytes(cloudpickle.dumps(plan))
    except Exception as error:
        raise UsageError(_unpicklable(plan, error)) from error


def _unpicklable(plan: JobPlan, error: Exception) -> str:
    for op in plan.operators:
        cause = _pickling_error((op.function, op.options))
        if cause is not None:
            return (
                f"operator '{op.name}' cannot be sent to the slots: {cause}; do not hold "
                "connections, locks or sessions in the function, create them in open()"
            )
    return f"the program cannot be sent to the slots: {error}"


def _pickling_error(value: Any) -> Exception | None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return error
    return None
