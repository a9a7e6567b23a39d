"""Where `stream.foreach_batch` can end exactly once, through Spark's own writers."""

from weir.connector.spark_target import DirectoryTarget, SparkTarget

__all__ = ["DirectoryTarget", "SparkTarget"]
