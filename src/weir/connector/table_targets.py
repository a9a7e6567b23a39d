"""Tables that keep the checkpoint with their rows: Delta Lake and Iceberg, by Spark's own writers.

Both get the rows of a checkpoint and the marker in one commit of the table:

* Delta Lake: the options `txnAppId` and `txnVersion`. The table itself leaves out a version that
  it has, and refuses the second of two writers that commit one at the same time.
* Iceberg: the properties `weir.identity` and `weir.checkpoint` in the summary of the snapshot,
  looked up before every write.

Their jars are built for one version of Spark each, and fail late in another: with Spark 4.3
Delta Lake 4.4.0 writes one commit, and cannot read it for the next. So a target is checked when the
job starts. Nothing here imports Spark: it is called with its objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from weir.connector.spark_target import SparkTarget
from weir.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

IDENTITY, CHECKPOINT = "weir.identity", "weir.checkpoint"
# Up to this version of Delta Lake, jars do not fit this version of Spark and later ones.
_DELTA, _NOT_FOR_SPARK = (4, 4), (4, 3)
# What Java says of a jar that was built for other classes than those that are there.
_LINKAGE = re.compile(
    r"java\.lang\.(?:NoSuch(?:Method|Field)|NoClassDefFound|IncompatibleClassChange|AbstractMethod"
    r"|Verify|Linkage)Error[^\n]*"
)
_DELTA_ADVICE = (
    "Delta Lake 4.4.0 fits Spark 4.2 (io.delta:delta-spark_4.2_2.13:4.4.0) and Spark 4.1 "
    "(io.delta:delta-spark_4.1_2.13:4.4.0): run pyspark of such a version, with the jar in "
    "spark.jars.packages"
)
_ICEBERG_ADVICE = (
    "Iceberg 1.12.0 fits Spark 4.1 (org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0): run "
    "pyspark 4.1, with the jar in spark.jars.packages"
)


class DeltaTarget(SparkTarget):
    """Appends every checkpoint to a Delta Lake table once, by `txnAppId` and `txnVersion`.

    The session needs Delta Lake's jar and its two settings, `spark.sql.extensions` and
    `spark.sql.catalog.spark_catalog`. A path without a table becomes one.

    Example:
        stream.foreach_batch(DeltaTarget("/data/totals", partition_by=["day"]))
        stream.foreach_batch(DeltaTarget(table="shop.totals"))
    """

    version: str | None = None
    """The version of Delta Lake that the session has; set before the first call."""

    def __init__(
        self,
        path: str | None = None,
        *,
        table: str | None = None,
        options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
    ) -> None:
        """Take a path or the name of a table, and options and partitions of Spark's writer."""
        if (path is None) == (table is None):
            msg = "DeltaTarget needs one of the two: a path, or table= with the name of a table"
            raise UsageError(msg)
        self._path, self._table = path, table
        self._options = dict(options or {})
        self._partition_by = list(partition_by)

    def check(self) -> None:
        """Refuse a session without Delta Lake, and a Delta Lake for another Spark."""
        version = self.version
        if version is None:
            msg = f"the session has no Delta Lake, which DeltaTarget writes with; {_DELTA_ADVICE}"
            raise UsageError(msg)
        if _minor(version) <= _DELTA and _minor(self.spark.version) >= _NOT_FOR_SPARK:
            msg = (
                f"Delta Lake {version} was not built for Spark {self.spark.version}, and would "
                f"fail at the second commit of a table; {_DELTA_ADVICE}"
            )
            raise UsageError(msg)

    def committed(self, identity: str) -> int | None:
        """Leave it to the table: it takes no version of an application twice."""
        return None

    def write(self, identity: str, checkpoint: int, rows: Any) -> None:
        """Append rows and marker in one commit, unless the table has the marker."""
        marker = {"txnAppId": f"weir.{identity}", "txnVersion": str(checkpoint)}
        writer = rows.write.format("delta").mode("append").options(**{**self._options, **marker})
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        with _fitting(self.spark, "Delta Lake", _DELTA_ADVICE):
            if self._table is None:
                writer.save(self._path)
            else:
                writer.saveAsTable(self._table)


class IcebergTarget(SparkTarget):
    """Appends every checkpoint to an Iceberg table once, with its number in the snapshot.

    The table has to be there. Snapshots are looked through before every write: let them expire
    later than a job may be down (Iceberg keeps them for five days), or what the job wrote last may
    be written again. An earlier driver of the job that still writes has to be ended first: Iceberg
    takes the rows of both.

    Example:
        stream.foreach_batch(IcebergTarget("lake.shop.totals"))
    """

    def __init__(self, table: str, options: Mapping[str, str] | None = None) -> None:
        """Take the table's name with its catalog, and options of Spark's writer."""
        self._table = table
        self._options = dict(options or {})

    def check(self) -> None:
        """Refuse a table that cannot be looked up, and an Iceberg for another Spark."""
        try:
            self.committed("")
        except UsageError:
            raise
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            msg = (
                f"IcebergTarget cannot look up the table {self._table!r} ({reason}): create it "
                "first, and name it with a catalog of the session (spark.sql.catalog.<name> = "
                f"org.apache.iceberg.spark.SparkCatalog); {_ICEBERG_ADVICE}"
            )
            raise UsageError(msg) from error

    def committed(self, identity: str) -> int | None:
        """Return the newest checkpoint among the snapshots that the table's state comes from."""
        with _fitting(self.spark, "Iceberg", _ICEBERG_ADVICE):
            visible = self.spark.table(f"{self._table}.history").where("is_current_ancestor")
            marked = self.spark.table(f"{self._table}.snapshots").selectExpr(
                "snapshot_id",
                f"summary['{IDENTITY}'] as identity",
                f"cast(summary['{CHECKPOINT}'] as bigint) as checkpoint",
            )
            mine = marked.where(marked.identity == identity).join(visible, "snapshot_id")
            found: int | None = mine.selectExpr("max(checkpoint)").collect()[0][0]
            return found

    def write(self, identity: str, checkpoint: int, rows: Any) -> None:
        """Append rows and marker as one snapshot."""
        marker = {IDENTITY: identity, CHECKPOINT: str(checkpoint)}
        named = {f"snapshot-property.{name}": value for name, value in marker.items()}
        with _fitting(self.spark, "Iceberg", _ICEBERG_ADVICE):
            rows.writeTo(self._table).options(**{**self._options, **named}).append()


@contextmanager
def _fitting(spark: Any, what: str, advice: str) -> Iterator[None]:
    """Say plainly when the jars fail because they were built for another Spark."""
    try:
        yield
    except Exception as error:
        unfit = _LINKAGE.search(str(error))
        if unfit is None:
            raise
        msg = f"{what}'s jars were not built for Spark {spark.version} ({unfit[0]}); {advice}"
        raise UsageError(msg) from error


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
