"""Where `stream.foreach_batch` can end exactly once, through Spark's own writers."""

from weir.connector.spark_target import DirectoryTarget, SparkTarget
from weir.connector.table_targets import DeltaTarget, IcebergTarget

__all__ = ["DeltaTarget", "DirectoryTarget", "IcebergTarget", "SparkTarget"]
