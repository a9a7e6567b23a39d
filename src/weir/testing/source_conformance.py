"""What every source with splits must do, as a suite to subclass.

Subclass `SourceConformance`, say how to make the source and what it holds, and let pytest collect
the class. The suite opens the source as a job does, sends its reader and decoder through pickle as
a task does, and reads splits in whatever order tasks may.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from weir.codec.arrow import batch_to_rows
from weir.connector.decoder import Columns, Piece, Records
from weir.connector.source import Opening, Source, SplitRows, Splits


class SourceConformance:
    """The contract of `weir.connector.source.Source` for sources that open as splits."""

    def make_source(self, directory: Path) -> Source:
        """Return the source under test; `directory` is free for its input."""
        raise NotImplementedError

    def records(self) -> list[Any]:
        """Return the records of the source in order; at least ten."""
        raise NotImplementedError

    def opened(self, tmp_path: Path, name: str = "work", skip: int = 0) -> Splits:
        """Open the source as the driver of a job does."""
        opening = Opening("under test", tmp_path / name, skip, records_per_split=4)
        stream = self.make_source(tmp_path).open(opening)
        assert isinstance(stream, Splits)
        return stream

    def test_the_splits_hold_every_record_in_order(self, tmp_path: Path) -> None:
        """Read split by split, as tasks do, a source gives its records."""
        stream = self.opened(tmp_path)
        assert self.read(stream, self.splits(stream)) == self.records()

    def test_a_split_gives_the_same_whenever_it_is_read(self, tmp_path: Path) -> None:
        """A task that is run again, after others, reads what it read before."""
        stream = self.opened(tmp_path)
        splits = self.splits(stream)
        first = {split: self.read(stream, [split]) for split in splits}
        assert {split: self.read(stream, [split]) for split in reversed(splits)} == first

    def test_the_files_of_the_splits_are_in_order_of_time(self, tmp_path: Path) -> None:
        """The engine reads them by their times of change, which therefore differ."""
        times = [path.stat().st_mtime for path in self.opened(tmp_path).folder.iterdir()]
        assert len(set(times)) == len(times)

    def test_opening_again_changes_nothing(self, tmp_path: Path) -> None:
        """A second opening in the same folder finds what the first one left."""
        before = self.splits(self.opened(tmp_path))
        stream = self.opened(tmp_path)
        assert self.splits(stream) == before
        assert self.read(stream, before) == self.records()

    def test_counted_records_can_be_skipped(self, tmp_path: Path) -> None:
        """A job that resumes at any split reads all records behind it, and counts on."""
        stream = self.opened(tmp_path)
        if stream.counted is None:
            return
        files = sorted(stream.folder.iterdir(), key=_time)
        for number in range(len(files) + 1):
            read = stream.counted.records(number)
            rest = self.opened(tmp_path, f"after-{number}", skip=read)
            assert self.read(rest, self.splits(rest)) == self.records()[read:]
            assert rest.counted is not None
            remaining = len(list(rest.folder.iterdir()))
            assert rest.counted.records(remaining) == len(self.records())

    def splits(self, stream: Splits) -> list[str]:
        """Return all splits in the order in which the engine streams them."""
        files = sorted(stream.folder.iterdir(), key=_time)
        return [split for path in files for split in path.read_text().splitlines()]

    def read(self, stream: Splits, splits: Iterable[str]) -> list[Any]:
        """Return the records of some splits, as a worker sees them."""
        sent: SplitRows = pickle.loads(pickle.dumps(SplitRows(stream.reader, stream.decoder)))
        rows = pa.record_batch({"value": pa.array(list(splits), pa.string())})
        return [value for decoded in sent.decode(rows) for value in _values(decoded)]


def _time(path: Path) -> float:
    return path.stat().st_mtime


def _values(decoded: Piece) -> list[Any]:
    if isinstance(decoded, Columns):
        return batch_to_rows(decoded.batch, decoded.type_info)
    return decoded.values if isinstance(decoded, Records) else []
