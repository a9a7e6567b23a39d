"""What every source with splits must do, as suites to subclass.

Subclass `SourceConformance` for a source that opens as `Splits`, `PlannedSourceConformance` for one
that opens as `PlannedSplits`, say how to make the source and what it holds, and let pytest collect
the class. The suites open the source as a job does, send its planner, reader and decoder through
pickle as engine and tasks do, and read splits in whatever order tasks may.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from weir.codec.arrow import batch_to_rows
from weir.connector.decoder import Columns, Mark, Piece, Records
from weir.connector.source import Opening, PlannedSplits, Source, SplitPlanner, SplitRows, Splits


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
        return [value for piece in _pieces(stream, splits) for value in _values(piece)]


class PlannedSourceConformance:
    """The contract of `weir.connector.source.Source` for sources that open as planned splits."""

    def make_source(self, directory: Path) -> Source:
        """Return the source under test, which has an end; `directory` is free for its input.

        It is made several times, and its input is there once. Its epochs should be small, so that
        the records make several.
        """
        raise NotImplementedError

    def records(self) -> list[Any]:
        """Return the records of the source, in whatever order; each can be hashed."""
        raise NotImplementedError

    def opened(self, tmp_path: Path, position: dict[str, Any] | None = None) -> PlannedSplits:
        """Open the source as the driver of a job does, behind what another job has read."""
        text = None if position is None else json.dumps(position)
        stream = self.make_source(tmp_path).open(Opening("under test", tmp_path, position=text))
        assert isinstance(stream, PlannedSplits)
        return stream

    def test_the_epochs_hold_every_record_once(self, tmp_path: Path) -> None:
        """Whatever the number of tasks, and say where the input ends."""
        stream = self.opened(tmp_path)
        positions = self.positions(stream)
        assert len(positions) > 2
        for tasks in (1, 2, 5):
            splits = [s for epoch in self.epochs(stream, positions, tasks) for s in epoch]
            pieces = list(_pieces(stream, splits))
            found = Counter(value for piece in pieces for value in _values(piece))
            assert found == Counter(self.records())
            assert any(isinstance(piece, Mark) and piece.last for piece in pieces)

    def test_the_same_positions_give_the_same_splits_and_these_the_same_records(
        self, tmp_path: Path
    ) -> None:
        """An epoch that is run again, by another planner and in another order, is the same."""
        stream = self.opened(tmp_path)
        positions = self.positions(stream)
        splits = self.epochs(stream, positions, 2)
        assert self.epochs(stream, positions, 2) == splits
        every = [split for epoch in splits for split in epoch]
        first = {split: self.read(stream, [split]) for split in every}
        assert {split: self.read(stream, [split]) for split in reversed(every)} == first

    def test_what_is_read_by_turns_is_what_is_read_alone(self, tmp_path: Path) -> None:
        """Tasks of one process read side by side, and some of them stop in the middle."""
        stream = self.opened(tmp_path)
        splits = self.epochs(stream, self.positions(stream), 1)[0]
        alone = [self.read(stream, [split]) for split in splits]
        together = [_pieces(stream, [split]) for split in (*splits, *splits)]
        begun = [self._begun(pieces) for pieces in together]
        rest = [[v for piece in pieces for v in _values(piece)] for pieces in together[1:]]
        assert [a + b for a, b in zip(begun[1:], rest, strict=True)] == (alone + alone)[1:]

    @staticmethod
    def _begun(pieces: Iterator[Piece]) -> list[Any]:
        """Read until there are records, so that the reader is amid its input."""
        for piece in pieces:
            if found := _values(piece):
                return found
        return []

    def test_a_job_that_resumes_at_any_position_reads_the_rest(self, tmp_path: Path) -> None:
        """A position needs nothing else, and makes every record count once."""
        stream = self.opened(tmp_path)
        positions = self.positions(stream)
        for number, position in enumerate(positions):
            before = self.epochs(stream, positions[: number + 1], 2)
            found = Counter(v for epoch in before for v in self.read(stream, epoch))
            heir = self.opened(tmp_path, position)
            for epoch in self.epochs(heir, self.positions(heir), 2):
                found.update(self.read(heir, epoch))
            assert found == Counter(self.records())

    def positions(self, stream: PlannedSplits) -> list[dict[str, Any]]:
        """Return where each epoch begins, and where the last one ends."""
        planner: SplitPlanner = pickle.loads(pickle.dumps(stream.planner))
        # As engines do where the input has an end: they take a position that stands still for it.
        planner.bound()
        found = [_logged(planner.begin())]
        assert _logged(planner.begin()) == found[0]
        while (end := _logged(planner.advance(found[-1]))) != found[-1]:
            found.append(end)
        planner.close()
        return found

    def epochs(
        self, stream: PlannedSplits, positions: list[dict[str, Any]], tasks: int
    ) -> list[list[str]]:
        """Return the splits of every epoch between some positions."""
        planner: SplitPlanner = pickle.loads(pickle.dumps(stream.planner))
        found: list[list[str]] = []
        for start, end in pairwise(positions):
            planned = planner.plan(start, end, tasks)
            assert len(planned) <= tasks
            found.append([split for task in planned for split in task])
        planner.close()
        return found

    def read(self, stream: PlannedSplits, splits: Iterable[str]) -> list[Any]:
        """Return the records of some splits, as a worker sees them."""
        return [value for piece in _pieces(stream, splits) for value in _values(piece)]


def _pieces(stream: Splits | PlannedSplits, splits: Iterable[str]) -> Iterator[Piece]:
    sent: SplitRows = pickle.loads(pickle.dumps(SplitRows(stream.reader, stream.decoder)))
    return sent.decode(pa.record_batch({"value": pa.array(list(splits), pa.string())}))


def _logged(position: dict[str, Any]) -> dict[str, Any]:
    """Return a position as it comes back out of a log."""
    found: dict[str, Any] = json.loads(json.dumps(position))
    return found


def _time(path: Path) -> float:
    return path.stat().st_mtime


def _values(decoded: Piece) -> list[Any]:
    if isinstance(decoded, Columns):
        return batch_to_rows(decoded.batch, decoded.type_info)
    return decoded.values if isinstance(decoded, Records) else []
