"""The logical graph that a program builds: transformations joined by partitioned edges.

Building it runs nothing. A `Transformation` is one operator; `Edge` says which output of which
transformation flows in, and how its records are spread over the subtasks. The door
(`weir.datastream`) creates these values, `weir.graph.plan` compiles them into levels.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DEFAULT_JOB_NAME = "Flink Streaming Job"
DEFAULT_BATCH_JOB_NAME = "Flink Batch Job"


class Partitioning(enum.Enum):
    """How records of an edge reach the subtasks of the receiving operator."""

    FORWARD = "FORWARD"
    HASH = "HASH"
    REBALANCE = "REBALANCE"
    SHUFFLE = "SHUFFLE"
    RESCALE = "RESCALE"
    GLOBAL = "GLOBAL"
    BROADCAST = "BROADCAST"
    CUSTOM = "CUSTOM"


@dataclass(frozen=True)
class KeySpec:
    """Where the key of a record comes from: a function, or fields of the record.

    `fields` (names or positions) is set when the key is a plain field access; then the key can
    be taken from columns without running Python per record. One field gives the bare value as
    key, several give a tuple. `selector` is always set.
    """

    selector: Callable[[Any], Any]
    fields: tuple[str | int, ...] | None = None
    key_type: Any = None


@dataclass(frozen=True)
class Edge:
    """One flow of records into an operator.

    `tag` names a side output of `source` (None: the main output). `partition_fn` is
    `f(key, num_partitions) -> subtask` for CUSTOM, applied to `key.selector(record)`.
    """

    source: Transformation
    partitioning: Partitioning = Partitioning.FORWARD
    key: KeySpec | None = None
    partition_fn: Callable[[Any, int], int] | None = None
    tag: str | None = None


@dataclass(eq=False)
class Transformation:
    """One operator of the program.

    Attributes:
        kind: the name of its row in `weir.graph.kinds.KINDS`; `weir.runtime.catalog` says which
            class executes it.
        function: the user function object (never a bare lambda), or the source or sink object.
        inputs: one list of edges per logical input: one input for map, two for connected
            streams (the second is the broadcast side for broadcast kinds). Several edges in one
            list are a union.
        options: what else the runtime operator needs, by name.
        output_type: declared type of the main output; None means any Python object.
        side_types: declared types of side outputs by tag.
    """

    id: int
    kind: str
    name: str
    function: Any = None
    inputs: list[list[Edge]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    output_type: Any = None
    side_types: dict[str, Any] = field(default_factory=dict)
    parallelism: int | None = None
    max_parallelism: int | None = None
    uid: str | None = None
    uid_hash: str | None = None

    @property
    def keyed(self) -> bool:
        """Tell whether any input arrives partitioned by key."""
        return any(e.partitioning is Partitioning.HASH for edges in self.inputs for e in edges)


@dataclass
class StreamGraph:
    """All transformations of a program, in the order in which they were declared."""

    job_name: str
    transformations: list[Transformation]
    parallelism: int
    max_parallelism: int | None = None
