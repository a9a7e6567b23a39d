"""Every source of Weir that opens as splits passes the source contract."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from weir.common import Types
from weir.common.types import row_class
from weir.connector.builtin_sources import CollectionSource, SequenceSource
from weir.connector.decoder import TypedColumns
from weir.connector.source import Opening, Source, Splits
from weir.connector.spool import ParquetFiles, split_folder, write_split
from weir.testing.source_conformance import SourceConformance

PAIR = Types.ROW_NAMED(["n", "s"], [Types.LONG(), Types.STRING()])


class TestCollection(SourceConformance):
    def make_source(self, directory: Path) -> Source:
        return CollectionSource(self.records())

    def records(self) -> list[Any]:
        return [(i, f"record {i}") for i in range(10)]


class TestSequence(SourceConformance):
    def make_source(self, directory: Path) -> Source:
        return SequenceSource(5, 24)

    def records(self) -> list[Any]:
        return list(range(5, 25))


@dataclass(frozen=True)
class ParquetSource(Source):
    """Parquet files that are there, as a connector outside of Weir would write it."""

    directory: Path

    def open(self, opening: Opening) -> Splits:
        schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
        reader = ParquetFiles(str(self.directory), schema)
        for number, path in enumerate(sorted(self.directory.glob("*.parquet"))):
            split_folder(opening.directory)
            write_split(opening.directory, path.name, number)
        return Splits(split_folder(opening.directory), reader, TypedColumns(PAIR), 8)


class TestParquetFiles(SourceConformance):
    def make_source(self, directory: Path) -> Source:
        for number in range(3):
            rows = self.records()[number * 4 : number * 4 + 4]
            table = pa.table({"s": [row.s for row in rows], "n": pa.array([r.n for r in rows])})
            pq.write_table(table, directory / f"{number}.parquet")
        return ParquetSource(directory)

    def records(self) -> list[Any]:
        row = row_class(("n", "s"))
        return [row._of((i, f"record {i}")) for i in range(12)]
