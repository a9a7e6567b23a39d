"""Input on disk, once for every size: Parquet files, the same as CSV on demand, and what to expect.

A directory appears when it is complete, and never changes. Files get ascending times of
modification, because Spark's file source reads the oldest ones first.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.workloads.catalogue import BY_NAME, END_OF, Workload
from benchmarks.workloads.checksum import Checksum, of_rows
from benchmarks.workloads.expected import BY_KIND
from benchmarks.workloads.rows import PARTITIONS, Columns, closing, epoch, rules

DATA = Path(__file__).resolve().parents[1] / ".data"
FILE_TIMES = 1_700_000_000
CHUNK = 100_000


@dataclass(frozen=True)
class Size:
    """How much of a workload: epochs of so many rows, of which the first are warm-up."""

    epochs: int
    epoch_rows: int
    keys: int
    warm: int = 1

    @property
    def rows(self) -> int:
        """Rows that the measured part has."""
        return (self.epochs - self.warm) * self.epoch_rows

    @property
    def label(self) -> str:
        """A name for a directory."""
        return f"{self.epochs}x{self.epoch_rows}k{self.keys}w{self.warm}"


@dataclass(frozen=True)
class Dataset:
    """One workload at one size, on disk.

    Attributes:
        warm_outputs: output rows that belong to the warm-up part.
    """

    workload: Workload
    size: Size
    directory: Path
    expected: Checksum
    warm_outputs: int

    @property
    def parquet(self) -> Path:
        """The folder of input files: two for each epoch, one for each partition."""
        return self.directory / "parquet"

    @property
    def rules(self) -> Path:
        """The folder of the one file of rules."""
        return self.directory / "rules"

    @property
    def csv(self) -> Path:
        """The folder of one CSV file for each partition; made by `with_csv`."""
        return self.directory / "csv"

    def to_json(self) -> dict[str, Any]:
        """Return what a contender in another process needs."""
        return {
            "workload": self.workload.name,
            "size": asdict(self.size),
            "directory": str(self.directory),
            "expected": self.expected.to_json(),
            "warm_outputs": self.warm_outputs,
        }

    @classmethod
    def from_json(cls, form: dict[str, Any]) -> Dataset:
        """Read what `to_json` gave."""
        return cls(
            BY_NAME[form["workload"]],
            Size(**form["size"]),
            Path(form["directory"]),
            Checksum.from_json(form["expected"]),
            form["warm_outputs"],
        )


def prepare(workload: Workload, size: Size, root: Path = DATA) -> Dataset:
    """Return the dataset, making it if it is not there."""
    directory = root / f"{workload.name}-{size.label}"
    facts = directory / "expected.json"
    if not facts.exists():
        half = directory.with_name(f"{directory.name}.half-{os.getpid()}")
        (half / "parquet").mkdir(parents=True)
        (half / "rules").mkdir()
        expected, warm = expect(workload, size, _write(workload, size, half))
        (half / facts.name).write_text(json.dumps([expected.to_json(), warm]))
        _publish(half, directory)
    expected_form, warm = json.loads(facts.read_text())
    return Dataset(workload, size, directory, Checksum.from_json(expected_form), warm)


def _publish(half: Path, whole: Path) -> None:
    """Let a directory appear at once; if somebody else was faster, theirs is as good."""
    try:
        half.rename(whole)
    except OSError:
        if not whole.exists():
            raise
        shutil.rmtree(half)


def generate(workload: Workload, size: Size) -> Iterator[list[Columns]]:
    """Yield the epochs, each as the columns of its partitions."""
    for number in range(size.epochs):
        yield epoch(workload, number, size.epoch_rows, size.keys, number < size.warm)
    if workload.has_event_time:
        # Engines whose watermark is one batch behind need a second batch to fire the rest.
        yield closing(workload)
        yield closing(workload)


def _write(workload: Workload, size: Size, directory: Path) -> Iterator[list[Columns]]:
    names = [name for name, _ in workload.columns]
    count = itertools.count()
    pq.write_table(
        pa.table(dict(zip(("rule", "threshold"), zip(*rules(), strict=True), strict=True))),
        directory / "rules" / "0.parquet",
    )
    for partitions in generate(workload, size):
        for columns in partitions:
            number = next(count)
            path = directory / "parquet" / f"{number:05d}.parquet"
            table = pa.table(dict(zip(names, columns, strict=True)))
            # One row group: a file is never read by two tasks.
            pq.write_table(table, path, row_group_size=max(1, len(table)))
            os.utime(path, (FILE_TIMES + number, FILE_TIMES + number))
        yield partitions


def expect(workload: Workload, size: Size, epochs: Iterator[list[Columns]]) -> tuple[Checksum, int]:
    """Return the checksum of all output, and how many output rows the warm-up part has."""
    inputs = [0]
    warm_rows = size.warm * size.epoch_rows
    warm_outputs = 0
    warm_ms = -1

    def rows() -> Iterator[tuple[Any, ...]]:
        nonlocal warm_ms
        for partitions in epochs:
            for columns in partitions:
                lists = [column.tolist() for column in columns]
                for row in zip(*lists, strict=True):
                    inputs[0] += 1
                    if inputs[0] <= warm_rows:
                        warm_ms = row[-1] if workload.has_event_time else -1
                    yield row

    outputs = BY_KIND[workload.kind](rows())
    total = Checksum()
    while chunk := list(itertools.islice(_noted(outputs, inputs), CHUNK)):
        total += of_rows([row for row, _ in chunk], workload.groups)
        if workload.has_event_time:
            end_of = END_OF[workload.kind]
            warm_outputs += sum(row[end_of] <= warm_ms for row, _ in chunk)
        else:
            warm_outputs += sum(at <= warm_rows for _, at in chunk)
    return total, warm_outputs


def _noted(
    outputs: Iterator[tuple[Any, ...]], inputs: list[int]
) -> Iterator[tuple[tuple[Any, ...], int]]:
    for row in outputs:
        yield row, inputs[0]


def with_csv(dataset: Dataset) -> Dataset:
    """Write the input again as CSV, one file for each partition, if it is not there."""
    folder = dataset.csv
    if not folder.exists():
        half = folder.with_name(f"csv.half-{os.getpid()}")
        half.mkdir()
        files = sorted(dataset.parquet.glob("*.parquet"))
        for partition in range(PARTITIONS):
            tables = [pq.read_table(file) for file in files[partition::PARTITIONS]]
            options = pyarrow.csv.WriteOptions(include_header=False)
            path = half / f"{partition}.csv"
            pyarrow.csv.write_csv(pa.concat_tables(tables), path, options)
        _publish(half, folder)
    return dataset
