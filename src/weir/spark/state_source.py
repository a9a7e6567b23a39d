"""Stored state as a data source of Spark: ``spark.read.format("weir")``.

A state is read in parallel, by ranges of key groups. Filters are never pushed down: pyspark 4.3
keeps a pushed filter with the reader, and later answers of the same DataFrame would be wrong. The
options `keys` and `keyGroups` choose rows instead, and what they leave is read from few files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.offline.contents import SnapshotContents, read_snapshot
from weir.offline.keyed import KeyedTable
from weir.offline.keys import key_from_json, key_groups_from_text
from weir.offline.tables import StateTable
from weir.storage.options import StorageOptions

FORMAT: Final = "weir"
_OPTIONS: Final = ("path", "operator", "state", "keys", "keyGroups", "splits", "unpickle")
_SPLITS: Final = 8
_DIGITS_MAX: Final = 6

_SIMPLE: Final = (
    (pa.types.is_boolean, T.BooleanType()),
    (pa.types.is_int8, T.ByteType()),
    (pa.types.is_int16, T.ShortType()),
    (pa.types.is_int32, T.IntegerType()),
    (pa.types.is_int64, T.LongType()),
    (pa.types.is_float32, T.FloatType()),
    (pa.types.is_float64, T.DoubleType()),
    (pa.types.is_string, T.StringType()),
    (pa.types.is_binary, T.BinaryType()),
    (pa.types.is_date, T.DateType()),
)


def spark_type(arrow: Any) -> T.DataType:
    """Return Spark's type of a column of state.

    Raises:
        UsageError: there is none.
    """
    for matches, found in _SIMPLE:
        if matches(arrow):
            return found
    if pa.types.is_timestamp(arrow):
        return T.TimestampNTZType() if arrow.tz is None else T.TimestampType()
    if pa.types.is_struct(arrow):
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        return T.StructType([T.StructField(f.name, spark_type(f.type)) for f in fields])
    if pa.types.is_map(arrow):
        return T.MapType(spark_type(arrow.key_type), spark_type(arrow.item_type))
    if pa.types.is_list(arrow):
        return T.ArrayType(spark_type(arrow.value_type))
    msg = f"Spark has no type for {arrow}"
    raise UsageError(msg)


def spark_schema(schema: Any) -> T.StructType:
    """Return Spark's schema of a table of state."""
    return T.StructType([T.StructField(field.name, spark_type(field.type)) for field in schema])


def _keys(text: str) -> list[Any]:
    """Return the keys that the option of that name lists.

    Raises:
        UsageError: it is no JSON.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"format 'weir': keys is {text[:80]!r}, expected a list in JSON: {error}"
        raise UsageError(msg) from error
    return found if isinstance(found, list) else [found]


@dataclass(frozen=True)
class ReadOptions:
    """What is to be read; the values of options that users give as texts."""

    path: str
    operator: str
    state: str
    keys: str | None = None
    key_groups: str | None = None
    splits: int = _SPLITS
    unpickle: bool = False
    storage: StorageOptions | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        """Read options; those with a dot in their names are settings of storages.

        Raises:
            UsageError: one is missing, unknown or no number.
        """
        names = {name.lower(): name for name in _OPTIONS}
        options = {names.get(key.lower(), key): value for key, value in given.items()}
        unknown = [key for key in options if key not in _OPTIONS and "." not in key]
        missing = [name for name in ("path", "operator", "state") if not options.get(name)]
        if unknown or missing:
            what = f"unknown option {unknown[0]!r}" if unknown else f"{missing[0]!r} is missing"
            msg = f"format 'weir': {what}; the options are {', '.join(_OPTIONS)}"
            raise UsageError(msg)
        if options.get("keys") is not None:
            _keys(options["keys"])
        splits = options.get("splits", str(_SPLITS))
        if not splits.isdecimal() or len(splits) > _DIGITS_MAX or int(splits) < 1:
            msg = f"format 'weir': splits is {splits!r}, expected a number from 1 on"
            raise UsageError(msg)
        return cls(
            options["path"],
            options["operator"],
            options["state"],
            keys=options.get("keys"),
            key_groups=options.get("keyGroups"),
            splits=int(splits),
            unpickle=options.get("unpickle", "false").lower() == "true",
            storage=StorageOptions.of(options),
        )

    def contents(self) -> SnapshotContents:
        """Open the checkpoint or savepoint."""
        return read_snapshot(self.path, self.storage, unpickle=self.unpickle)

    def table(self) -> StateTable:
        """Open the state."""
        return self.contents().table(self.operator, self.state)


@dataclass
class Split(InputPartition):
    """Key groups that one task reads; None are all, or what has none."""

    key_groups: tuple[int, int] | None = None


def splits_of(wanted: KeyGroupRange, count: int) -> list[Split]:
    """Cut key groups into ranges of about the same size."""
    parts = min(count, len(wanted))
    edges = [wanted.start + len(wanted) * i // parts for i in range(parts + 1)]
    return [Split((edges[i], edges[i + 1] - 1)) for i in range(parts)]


class StateReader(DataSourceReader):
    """Reads one state; made in the driver, used in Spark's workers."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return one split for each range of key groups."""
        options, table = self._options, self._options.table()
        if not isinstance(table, KeyedTable) or options.keys is not None:
            return [Split()]
        wanted = table.key_groups
        if options.key_groups is not None:
            wanted = wanted.intersect(key_groups_from_text(options.key_groups))
        return list(splits_of(wanted, options.splits)) if len(wanted) else [Split((0, -1))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a split."""
        options, table = self._options, self._options.table()
        if isinstance(table, KeyedTable) and options.keys is not None:
            yield from table.rows_of(
                [key_from_json(key, table.layout.key) for key in _keys(options.keys)]
            )
            return
        groups = partition.key_groups if isinstance(partition, Split) else None
        if groups is None or groups[0] <= groups[1]:
            yield from table.batches(None if groups is None else KeyGroupRange(*groups))


class StateSource(DataSource):
    """The format; see the module."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> T.StructType:
        """Return the columns, from the types that the files describe."""
        return spark_schema(ReadOptions.of(self.options).table().schema)

    def reader(self, schema: T.StructType) -> DataSourceReader:
        """Return what reads."""
        return StateReader(ReadOptions.of(self.options))


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("weir")`` known to a session."""
    spark.dataSource.register(StateSource)
