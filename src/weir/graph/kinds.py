"""The kinds of operators, one row each: where they run, what state they have, what they read.

Everything that depends on the kind of an operator is decided by its row, so a new operator is a row
here and a class in `weir.runtime.catalog`. Graphs and plans hold the name of the kind. Names must
not change: the ids of operators without a uid are made from them, and state is found by those ids.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from weir.errors import UsageError


class SourceSideRule(enum.Enum):
    """Whether an operator may run without a slot, next to the source that it reads from."""

    NEVER = "NEVER"
    IF_STATELESS = "IF_STATELESS"
    """If its function keeps nothing between records: no open, no close, no checkpoint hooks."""
    ALWAYS = "ALWAYS"


class KindState(enum.Enum):
    """When an operator has state, apart from functions with checkpoint hooks, which always do."""

    NEVER = "NEVER"
    MAYBE = "MAYBE"
    """With keys, because its function may ask for state in `open`; a bare callable cannot."""
    BY_KEY = "BY_KEY"
    """With keys, whatever its function is."""
    ALWAYS = "ALWAYS"


@dataclass(frozen=True)
class Kind:
    """What is true of all operators of one kind.

    Attributes:
        name: the name in graphs, plans and operator ids.
        state: when the operator has state.
        source_side: whether it may run next to the source.
        inputs: how many inputs it has; a union is one input.
        makes_watermarks: event time behind it comes from it, not from what it reads.
    """

    name: str
    state: KindState = KindState.NEVER
    source_side: SourceSideRule = SourceSideRule.NEVER
    inputs: int = 1
    makes_watermarks: bool = False

    @property
    def is_source(self) -> bool:
        """Tell whether the operator reads from outside of the program."""
        return self.inputs == 0


SOURCE = Kind("source", source_side=SourceSideRule.ALWAYS, inputs=0, makes_watermarks=True)
MAP = Kind("map", KindState.MAYBE, SourceSideRule.IF_STATELESS)
FLAT_MAP = Kind("flat_map", KindState.MAYBE, SourceSideRule.IF_STATELESS)
FILTER = Kind("filter", KindState.MAYBE, SourceSideRule.IF_STATELESS)
PROJECT = Kind("project", source_side=SourceSideRule.ALWAYS)
TIMESTAMPS = Kind("timestamps", source_side=SourceSideRule.ALWAYS, makes_watermarks=True)
PROCESS = Kind("process", KindState.BY_KEY)
REDUCE = Kind("reduce", KindState.BY_KEY)
AGGREGATE = Kind("aggregate", KindState.BY_KEY)
WINDOW = Kind("window", KindState.BY_KEY)
CEP = Kind("cep", KindState.BY_KEY)
CO_MAP = Kind("co_map", KindState.MAYBE, inputs=2)
CO_FLAT_MAP = Kind("co_flat_map", KindState.MAYBE, inputs=2)
CO_PROCESS = Kind("co_process", KindState.BY_KEY, inputs=2)
BROADCAST_PROCESS = Kind("broadcast_process", KindState.ALWAYS, inputs=2)
INTERVAL_JOIN = Kind("interval_join", KindState.BY_KEY, inputs=2)
ASYNC_WAIT = Kind("async_wait")
FUNCTION_SINK = Kind("sink")
WRITER_SINK = Kind("sink_v2", KindState.ALWAYS)
BATCH_SINK = Kind("spark_sink", KindState.ALWAYS)
PRINT = Kind("print")
COLLECT = Kind("collect")

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        SOURCE,
        MAP,
        FLAT_MAP,
        FILTER,
        PROJECT,
        TIMESTAMPS,
        PROCESS,
        REDUCE,
        AGGREGATE,
        WINDOW,
        CEP,
        CO_MAP,
        CO_FLAT_MAP,
        CO_PROCESS,
        BROADCAST_PROCESS,
        INTERVAL_JOIN,
        ASYNC_WAIT,
        FUNCTION_SINK,
        WRITER_SINK,
        BATCH_SINK,
        PRINT,
        COLLECT,
    )
}


def kind_named(name: str, operator: str) -> Kind:
    """Return the kind of an operator.

    Raises:
        UsageError: there is no such kind; names the operator and the kinds that there are.
    """
    kind = KINDS.get(name)
    if kind is None:
        msg = (
            f"operator '{operator}' is of kind {name!r}, which does not exist; use one of "
            f"{', '.join(KINDS)}, or add it to weir.graph.kinds"
        )
        raise UsageError(msg)
    return kind
