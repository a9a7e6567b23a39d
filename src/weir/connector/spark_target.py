"""Commit targets that Spark's own writers fill, in the driver: rows are a DataFrame.

`stream.foreach_batch` takes one of these, or a plain function. A function is told the checkpoint
and has to be idempotent by it. A target also knows who prepared the rows, so that jobs that begin
to count anew do not meet the checkpoints of others:

* `DirectoryTarget`: a directory for every checkpoint, which is overwritten. For any file format.
* `DeltaTarget` and `IcebergTarget`: tables that keep the checkpoint with its rows.
* one of the program's own: whatever keeps a marker with its rows can say what it has.

Nothing here imports Spark: it is called with its objects.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weir.connector.commit_target import CommitTarget


class SparkTarget(CommitTarget):
    """A place that takes a DataFrame and a marker in one step, or the same DataFrame twice.

    Example:
        class Audited(SparkTarget):
            def committed(self, identity):
                return None

            def write(self, identity, checkpoint, rows):
                rows.write.mode("overwrite").parquet(f"audit/{identity}/{checkpoint}")
    """

    spark: Any = None
    """The session; set before the first call."""

    def check(self) -> None:
        """Refuse what cannot work, when a job starts; by default nothing.

        Raises:
            UsageError: it says what is missing, and what to do.
        """

    def fence(self, identities: Sequence[str]) -> None:
        """Do nothing: a job has one driver, and what an earlier one writes late is the same."""

    @abstractmethod
    def committed(self, identity: str) -> int | None:
        """Return the newest checkpoint that is visible; None where a second write does no harm."""

    @abstractmethod
    def write(self, identity: str, checkpoint: int, rows: Any) -> None:
        """Write the DataFrame of a checkpoint."""


class FunctionTarget(SparkTarget):
    """The user's function of `foreach_batch`, which is idempotent by checkpoint."""

    def __init__(self, function: Callable[[Any, int], Any]) -> None:
        """Take the function."""
        self._function = function

    def committed(self, identity: str) -> int | None:
        """Nobody knows: the function is called again."""
        return None

    def write(self, identity: str, checkpoint: int, rows: Any) -> None:
        """Call the function."""
        self._function(rows, checkpoint)


class DirectoryTarget(SparkTarget):
    """Writes every checkpoint to `path/job=…/checkpoint=…`, over whatever a crash left there.

    Readers should take directories with the file `_SUCCESS` only, which Spark writes last.

    Example:
        stream.foreach_batch(DirectoryTarget("records", "orc"))
    """

    def __init__(
        self, path: str, format: str = "parquet", options: Mapping[str, str] | None = None
    ) -> None:
        """Take the path, and the format and options of Spark's writer."""
        self._path = path.rstrip("/")
        self._format = format
        self._options = dict(options or {})

    def committed(self, identity: str) -> int | None:
        """Overwriting does no harm."""
        return None

    def write(self, identity: str, checkpoint: int, rows: Any) -> None:
        """Overwrite the directory of the checkpoint."""
        place = f"{self._path}/job={identity}/checkpoint={checkpoint}"
        rows.write.format(self._format).options(**self._options).mode("overwrite").save(place)
