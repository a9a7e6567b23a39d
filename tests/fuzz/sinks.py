"""Targets for what sinks keep in checkpoints: transactions, files that are joined, rows.

A committable is committed, perhaps in another process, or refused by name before anything of it is
visible.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.target import NoInputError, Target, require
from tests.fuzz.texts import scratch

from weir.common.serialization import Encoder
from weir.connector.commit_target import CommitSink, CommitTarget, _decode
from weir.connector.sink import WriterContext
from weir.connector.two_phase import TwoPhaseCommitSinkFunction
from weir.datastream.connectors.file_system import FileCompactor, FileCompactStrategy, FileSink
from weir.errors import CorruptStateError, StorageError

CONTEXT = WriterContext("0a" * 16, "ab" * 16, attempt=1, subtask=0, parallelism=1)


class _Ledger(TwoPhaseCommitSinkFunction):
    """Notes which transactions were committed and aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Any] = []
        self.count = 0

    def begin_transaction(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def invoke(self, transaction: Any, value: Any, context: Any) -> None:
        """Keep nothing."""

    def pre_commit(self, transaction: Any) -> None:
        """Keep nothing."""

    def commit(self, transaction: Any) -> None:
        self.done.append(("commit", transaction))

    def abort(self, transaction: Any) -> None:
        self.done.append(("abort", transaction))

    def recover_superseded(self, transaction: Any) -> None:
        self.done.append(("leave", transaction))

    def initialize_user_context(self) -> Any:
        return ("a context", 1)


def _transactions() -> list[bytes]:
    writer = _Ledger().create_writer(CONTEXT)
    writer.write_batch([1], None)
    found = writer.prepare(1)
    writer.finish()
    return [*found, *writer.prepare(2)]


def _transaction(data: bytes) -> None:
    for use in ("restore", "commit", "discard_leftovers", "leave_newer"):
        ledger = _Ledger()
        writer = ledger.create_writer(CONTEXT)
        try:
            getattr(writer, use)([_transactions()[0], data])
        except CorruptStateError:
            require(not ledger.done, f"{use} did a part of what it refuses: {ledger.done}")
            raise
    require(all(len(done) == 2 for done in ledger.done), "a transaction without an end")


# ---- files that are joined ---------------------------------------------------------------------


def _file_sink(folder: str) -> FileSink:
    strategy = FileCompactStrategy.builder().set_size_threshold(1000).build()
    joining = FileSink.for_row_format(folder, Encoder.simple_string_encoder()).enable_compact(
        strategy, FileCompactor.concat_file_compactor()
    )
    return joining.build()


def _waiting_files() -> list[bytes]:
    entry = {"temp": "@/.a.inprogress", "final": "@/a", "size": 4}
    made = [
        {**entry, "waits": 2},
        entry,
        {**entry, "parts": ["@/.b.inprogress", "@/.c.inprogress"]},
    ]
    return [json.dumps(each).encode() for each in made]


def _prepare_waiting() -> Callable[[bytes], None]:
    folder = scratch() / "out"

    def run(data: bytes) -> None:
        if b".." in data or b"/" in data.replace(b"@/", b"") or b"\\" in data:
            raise NoInputError  # files of others
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in (".a.inprogress", ".b.inprogress", ".c.inprogress"):
            (folder / name).write_bytes(b"abc\n")
        here = data.replace(b"@/", f"{folder}/".encode())
        writer = _file_sink(str(folder)).create_writer(CONTEXT)
        before = sorted(p.name for p in folder.iterdir())
        try:
            writer.restore([here])
        except CorruptStateError:
            require(sorted(p.name for p in folder.iterdir()) == before, "half of it was done")
            raise
        writer.finish()
        writer.commit(writer.prepare(7))

    return run


# ---- rows --------------------------------------------------------------------------------------


class _Shelf(CommitTarget):
    """Takes rows."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def fence(self, identities: Sequence[str]) -> None:
        """Nobody else is there."""

    def committed(self, identity: str) -> int | None:
        return None

    def write(self, identity: str, checkpoint: int, rows: list[Any]) -> None:
        self.rows += rows


class _ToShelf(CommitSink):
    def __init__(self) -> None:
        self.shelf = _Shelf()

    def open_target(self, context: WriterContext) -> CommitTarget:
        return self.shelf

    def rows_of(self, values: list[Any], timestamps: list[int | None] | None) -> list[Any]:
        return [[value, "x"] for value in values]


def _rows() -> list[bytes]:
    writer = _ToShelf().create_writer(CONTEXT)
    writer.write_batch([1, 2, None], None)
    return writer.prepare(3)


def _row(data: bytes) -> None:
    sink = _ToShelf()
    writer = sink.create_writer(CONTEXT)
    writer.share([data], 0, 1)
    writer.commit([data])
    require(len(sink.shelf.rows) == _decode(data).rows, "other rows than were prepared")


TARGETS = [
    Target("transactions", "json", _transactions, lambda: _transaction, (CorruptStateError,)),
    Target(
        "joined-files", "json", _waiting_files, _prepare_waiting, (CorruptStateError, StorageError)
    ),
    Target("commit-rows", "json", _rows, lambda: _row, (CorruptStateError,)),
]
