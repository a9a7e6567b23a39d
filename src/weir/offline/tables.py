"""Stored state as tables: what every one of them can do, and how rows become batches.

A table has an Arrow schema that is known before a row is read, and gives its rows in batches, so
that a state need not fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from weir.keygroup import KeyGroupRange

BATCH_ROWS: Final = 1 << 16
KEY_GROUP: Final = "key_group"
KEY: Final = "key"
NAMESPACE: Final = "namespace"
WINDOW: Final = ("window_start", "window_end")
MAP_KEY: Final = "map_key"
POSITION: Final = "position"
VALUE: Final = "value"
TTL_TIMESTAMP: Final = "ttl_timestamp"
TIMESTAMP: Final = "timestamp"
SUBTASK: Final = "subtask"


class StateTable(Protocol):
    """The rows of one state, or of what else a checkpoint holds."""

    @property
    def name(self) -> str:
        """The name of the state."""

    @property
    def kind(self) -> str:
        """What it is, as users know it, such as ``ValueState`` or ``timers``."""

    @property
    def schema(self) -> Any:
        """The Arrow schema of the rows."""

    def batches(self, key_groups: KeyGroupRange | None = None) -> Iterator[Any]:
        """Yield the rows as Arrow batches, of some key groups where the state has keys.

        Raises:
            UsageError: values hold pickled objects, and loading those was not allowed.
            CorruptStateError: a file is damaged.
            IncompatibleStateError: subtasks stored the state with different types.
            StorageError: a file cannot be read.
        """


@dataclass(frozen=True)
class Rows:
    """A table of few rows, which are there."""

    name: str
    kind: str
    schema: Any
    rows: tuple[tuple[Any, ...], ...]

    def batches(self, key_groups: KeyGroupRange | None = None) -> Iterator[Any]:
        """Yield all rows as one batch."""
        if self.rows:
            arrays = [
                pa.array(column, field.type)
                for column, field in zip(zip(*self.rows, strict=True), self.schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def cut(batch: Any) -> Iterator[Any]:
    """Yield a batch in pieces of a size that everybody can handle."""
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)
