"""Whether a program runs in BATCH mode: by what it asks for, and whether its input has an end."""

from __future__ import annotations

import enum

from weir.errors import UsageError
from weir.graph.kinds import SOURCE
from weir.graph.transformation import StreamGraph


class RuntimeMode(enum.Enum):
    """What `execution.runtime-mode` says."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"


def runs_in_batch(graph: StreamGraph, mode: RuntimeMode, *, all_end: bool = False) -> bool:
    """Tell whether a program runs in BATCH mode; with `all_end` no source goes on for ever.

    Raises:
        UsageError: it is asked for, and a source is unbounded.
    """
    if mode is RuntimeMode.STREAMING:
        return False
    endless = [
        t
        for t in graph.transformations
        if t.kind == SOURCE.name and not (all_end or getattr(t.function, "bounded", True))
    ]
    if not endless:
        return True
    if mode is RuntimeMode.BATCH:
        msg = (
            "Detected an UNBOUNDED source with the 'execution.runtime-mode' set to 'BATCH'. This "
            "combination is not allowed, please set the 'execution.runtime-mode' to STREAMING or "
            f"AUTOMATIC. It is '{endless[0].name}'; a streaming DataFrame has an end with "
            "weir.trigger: available-now"
        )
        raise UsageError(msg)
    return False
