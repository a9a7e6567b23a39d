"""State as DataFrames: savepoints and checkpoints read by Spark, and written by it.

Flink's classes are here as well: `SavepointReader` and `SavepointWriter` with the functions that
they run, whose input and output are streams.

`savepoint(spark, path)` opens one, `new_savepoint()` begins one of nothing. Both also make
``spark.read.format("weir")`` known, the first at once, the second when `register(spark)` is called.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from weir.spark.savepoints import DataFrameEdit, Savepoint
from weir.spark.state_source import register
from weir.state_processor.functions import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    OperatorIdentifier,
    SavepointKeyFilter,
    StateBootstrapFunction,
    WindowReaderFunction,
)
from weir.state_processor.reader import SavepointReader, WindowSavepointReader
from weir.state_processor.writer import (
    KeyedOperatorTransformation,
    OneInputOperatorTransformation,
    OperatorTransformation,
    SavepointWriter,
    StateBootstrapTransformation,
    WindowedOperatorTransformation,
)

__all__ = [
    "BroadcastStateBootstrapFunction",
    "DataFrameEdit",
    "KeyedOperatorTransformation",
    "KeyedStateBootstrapFunction",
    "KeyedStateReaderFunction",
    "OneInputOperatorTransformation",
    "OperatorIdentifier",
    "OperatorTransformation",
    "Savepoint",
    "SavepointKeyFilter",
    "SavepointReader",
    "SavepointWriter",
    "StateBootstrapFunction",
    "StateBootstrapTransformation",
    "WindowReaderFunction",
    "WindowSavepointReader",
    "WindowedOperatorTransformation",
    "new_savepoint",
    "register",
    "savepoint",
]


def savepoint(
    spark: SparkSession,
    path: str,
    options: dict[str, str] | None = None,
    *,
    unpickle: bool = False,
) -> Savepoint:
    """Open a savepoint or checkpoint, whose states are DataFrames of the session.

    `options` are settings of storages, such as ``s3.endpoint``; `unpickle` allows to load pickled
    values, which runs code of who wrote them.

    Raises:
        UsageError: there is none at that place.
        CorruptStateError: its metadata is damaged.
        IncompatibleStateError: a newer version of Weir wrote it.
    """
    return Savepoint(spark, path, options, unpickle=unpickle)


def new_savepoint() -> DataFrameEdit:
    """Begin a savepoint without any operator: DataFrames become the state of a job that starts."""
    return DataFrameEdit.new()
