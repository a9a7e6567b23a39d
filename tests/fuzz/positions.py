"""Targets for how far sources were read: positions, Spark's logs of them, splits, calls of tasks.

Positions are text in a checkpoint, and come back after a restart from another version or host. What
is no position is refused by name; what is one plans the same ranges as before it was written down.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.fuzz.target import NoInputError, Target, require
from tests.fuzz.texts import scratch

from weir.checkpoint.metadata import SourceLayout, SourcePositions, layout_of
from weir.connector.jdbc import source as jdbc
from weir.connector.kafka.offsets import KafkaTopicPartition
from weir.connector.kafka.position import KafkaPosition, Range, advance, discover, plan_ranges
from weir.connector.spool import FileSplit, ParquetFiles
from weir.errors import CorruptStateError, IncompatibleStateError, StorageError
from weir.runtime.epoch import Barrier, Epoch
from weir.slot.messages import EpochCall
from weir.spark.positions import log_of, prepare_query_dir, read_time
from weir.spark.resume import Resume
from weir.spark.worker import TaskCall

_NO_TREE = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)
# A task that gets what is no split or no call fails, and the epoch with it.
_NO_SPLIT = (msgspec.MsgspecError, RecursionError, StorageError)


def _tree(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except _NO_TREE as error:
        raise NoInputError from error


# ---- positions of sources ----------------------------------------------------------------------


def _kafka_positions() -> list[bytes]:
    offsets = {KafkaTopicPartition("t", 0): 17, KafkaTopicPartition("t", 10): 4}
    bounded = KafkaPosition(offsets, {"t": "id"}, {p: n + 5 for p, n in offsets.items()})
    plain = {"t": {"0": 17, "1": 4}}
    found = [KafkaPosition(offsets).to_json(), bounded.to_json(), plain]
    return [msgspec.json.encode(each) for each in found]


def _kafka_position(data: bytes) -> None:
    position = KafkaPosition.of(_tree(data))
    require(KafkaPosition.of(position.to_json()) == position, "another position after the way")
    earliest = {KafkaTopicPartition("new", 0): 3}
    wider = discover(position, earliest, {"new": "id"})
    further = advance(wider, {p: n + 7 for p, n in wider.offsets.items()}, limit=9)
    require(all(further.offsets[p] >= n for p, n in wider.offsets.items()), "a position went back")
    for split in (s for task in plan_ranges(wider, further, 2, every=True) for s in task):
        found = msgspec.json.decode(split, type=Range)
        require(found.start <= found.end, "a range that ends before it begins")


def _jdbc_positions() -> list[bytes]:
    found = [
        jdbc.Position("id", 173, (120, 173), 900),
        jdbc.Position("name", "b", ("a", "b"), "z"),
        jdbc.Position("id"),
    ]
    return [msgspec.json.encode(each.to_json()) for each in found]


def _jdbc_position(data: bytes) -> None:
    position = jdbc.Position.of(_tree(data))
    require(jdbc.Position.of(position.to_json()) == position, "another position after the way")
    planner = jdbc.JdbcPlanner(None, position, rows=10)  # type: ignore[arg-type]
    splits = planner.plan(planner.begin(), planner.advance(None), 2)
    for split in (s for task in splits for s in task):
        jdbc._decode_range(split)


# ---- splits and calls --------------------------------------------------------------------------


def _splits() -> list[bytes]:
    made = [
        FileSplit("part-0", last=True),
        FileSplit("a"),
        Range("t", 3, 5, 9, last=True),
        jdbc.Range(3, "x", last=False),
        TaskCall(EpochCall(1, 0, Epoch(3, Barrier(3, 1_700_000_000_000, "chk-3"))), 5, (1, 2)),
    ]
    return [bytes([number]) + msgspec.json.encode(each) for number, each in enumerate(made)]


def _prepare_splits() -> Callable[[bytes], None]:
    reader = ParquetFiles(str(scratch()))
    kinds: list[Any] = [Range, jdbc.Range, TaskCall]

    def run(data: bytes) -> None:
        number, text = (data or b"\0")[0], data[1:].decode("utf-8", "replace")
        if number < 2:
            reader.is_last(text)
            if "\\" in text or "/" in text or ".." in text:
                raise NoInputError  # another file than one of the folder
            try:
                list(reader.read(text))
            except StorageError:
                return
            require(False, "rows of a file that is not there")
        found = msgspec.json.decode(text, type=kinds[(number - 2) % len(kinds)])
        again = msgspec.json.decode(msgspec.json.encode(found), type=type(found))
        require(again == found, "another one after the way")

    return run


# ---- Spark's logs ------------------------------------------------------------------------------

_LINE = '{"path":"file:///in/%06d.parquet","timestamp":1600000000000,"batchId":%d}'


def _log(numbers: range) -> str:
    return "\n".join(["v1", *(_LINE % (n, n) for n in numbers)])


def _source_logs() -> list[bytes]:
    """Return positions with logs of a file source, beside them or in them."""
    files = {"9.compact": _log(range(10)), "10": _log(range(10, 11)), "11": _log(range(11, 12))}
    time = '{"batchTimestampMs":1700000000000}'
    made = [
        {"lines": ["v1", time, '{"logOffset":11}'], "files": files},
        {"lines": ["v1", time, '{"logOffset":3}'], "files": {"9.compact": _log(range(10))}},
        {"lines": ["v1", "{}", '{"t":{"0":5}}'], "files": {"0": "v1\n{}"}},
        {"lines": ["v1", "{}", "-"], "files": {"0": _log(range(1))}},
        {"lines": ["v1", "{}", '{"logOffset":1}'], "files": {}, "embedded": {"0": _log(range(1))}},
    ]
    return [msgspec.json.encode(each) for each in made]


class _Given(msgspec.Struct):
    lines: tuple[str, ...]
    files: dict[str, str]
    embedded: dict[str, str] | None = None


def _prepare_logs() -> Callable[[bytes], None]:
    folder = scratch()
    layout = layout_of(["source", "new"])

    def run(data: bytes) -> None:
        try:
            given = msgspec.json.decode(data, type=_Given)
        except _NO_TREE as error:
            raise NoInputError from error
        positions = _positions(folder, given)
        read_time(positions)
        shutil.rmtree(folder / "next", ignore_errors=True)
        prepare_query_dir(folder / "next", positions, layout)
        known = log_of(positions, 0)
        begun = folder / "next" / "sources" / "0"
        there = {p.name for p in begun.iterdir()} if begun.is_dir() else set()
        require(there == set(known), "a log that is not the one of the position")
        Resume(positions).take_kept("source", folder / "kept")
        Resume(positions).position("source")

    return run


def _positions(folder: Path, given: _Given) -> SourcePositions:
    query = folder / "query-0"
    source = query / "sources" / "0"
    shutil.rmtree(query, ignore_errors=True)
    source.mkdir(parents=True)
    texts = [*given.files, *(given.embedded or ())]
    # Names are Spark's own, and not from the files; a name that is none is no input.
    if any(not name.isascii() or not name.strip(".0123456789compat") == "" for name in texts):
        raise NoInputError
    if any(not name.strip(".") or len(name) > 100 for name in texts):
        raise NoInputError
    for name, text in given.files.items():
        (source / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    logs = {"@directory": str(query)}
    if given.embedded is not None:
        logs |= {"sources/0/": ""}
        logs |= {f"sources/0/{name}": text for name, text in given.embedded.items()}
    kept = folder / "rows"
    kept.mkdir(exist_ok=True)
    return SourcePositions(
        batch_id=5,
        offset_lines=given.lines,
        commit_lines=("v1", "{}"),
        source_logs=logs,
        layout=(SourceLayout("source", 0, spool=str(kept)),),
    )


_CORRUPT = (CorruptStateError, IncompatibleStateError, StorageError)

TARGETS = [
    Target("kafka-positions", "json", _kafka_positions, lambda: _kafka_position, _CORRUPT),
    Target("jdbc-positions", "json", _jdbc_positions, lambda: _jdbc_position, _CORRUPT),
    Target("splits", "bytes", _splits, _prepare_splits, _NO_SPLIT),
    Target("source-logs", "json", _source_logs, _prepare_logs, _CORRUPT),
]
