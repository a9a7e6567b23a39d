"""Targets for files that other processes of the host left, and for files that people give.

Announcements and records of jobs that have ended, behind the REST door of `weir page`; notes that
say whose a directory is, what is being disposed of and what was handed over; files for
`weir state import`; flink-conf.yaml.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.fuzz import rest_door
from tests.fuzz.state_files import with_header
from tests.fuzz.target import NoInputError, Target, require
from tests.fuzz.texts import _savepoint, _staged, _yaml, scratch
from tests.unit.rest.samples import JOB_ID, sample_job

from weir.checkpoint.metadata import CheckpointMetadata, encode_metadata
from weir.config.effective import Settings
from weir.config.file import parse_lines
from weir.config.options import ALL_OPTIONS
from weir.connector import staged_batch
from weir.errors import CorruptStateError, IncompatibleStateError, StorageError, UsageError
from weir.jobmanager import owner
from weir.jobmanager.directory import JobEntry, past_file
from weir.jobmanager.disposal import NOTE_NAME, dispose_savepoint
from weir.jobmanager.past import PastJob, read_record, record_of
from weir.offline.contents import read_snapshot
from weir.offline.edit_parts import GivenRows
from weir.offline.editing import SavepointEdit
from weir.offline.export import read_file, write_file
from weir.rest import RestServer
from weir.rest.host import HostCluster
from weir.storage.processes import OWNER_NAME, note_process


@contextmanager
def _run_directory(folder: Path) -> Iterator[None]:
    before = os.environ.get("WEIR_RUN_DIR")
    os.environ["WEIR_RUN_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["WEIR_RUN_DIR"]
        else:
            os.environ["WEIR_RUN_DIR"] = before


def _entry(**more: Any) -> JobEntry:
    known: dict[str, Any] = {"pid": os.getpid(), "process": "1", "started_ms": 1, "ended_ms": 2}
    known |= {"job_id": JOB_ID, "name": "job", "url": "http://127.0.0.1:1", "status": "FINISHED"}
    return JobEntry(**known, **more)


# ---- records of jobs that have ended -----------------------------------------------------------


def _records() -> list[bytes]:
    return [msgspec.json.encode(record_of(sample_job(), Path("/nowhere")))]


def _prepare_records() -> Callable[[bytes], None]:
    folder = scratch()

    def run(data: bytes) -> None:
        past_file(folder, JOB_ID).write_bytes(data)
        with _run_directory(folder):
            job = PastJob(_entry(), read_record(_entry()))
        require(job.view().job_id == JOB_ID, "the record of another job")
        msgspec.json.encode([job.view(), job.history(), job.timeline(), job.logs()])

    return run


def _host_requests() -> list[bytes]:
    """Return the requests of the door of a job, after a record that the job left, or none."""
    record = _records()[0]
    asked = rest_door._requests()
    return [b"\0" + request for request in asked] + [b"\1" + record]


def _prepare_host() -> Callable[[bytes], None]:
    folder = scratch()
    folder.chmod(0o700)
    (folder / f"{JOB_ID}.json").write_bytes(msgspec.json.encode(_entry()))
    whole = _records()[0]
    seen = rest_door._Seen()
    clock = _Later()
    server = RestServer(ports=(0,), token=rest_door.TOKEN, cluster=HostCluster(_start, clock))
    server.start()
    atexit.register(server.close)
    looks = [r for r in rest_door._requests() if r.startswith(b"GET ")]

    def run(data: bytes) -> None:
        record, asked = (data[1:], looks) if data[:1] == b"\1" else (whole, [data[1:]])
        past_file(folder, JOB_ID).write_bytes(record)
        clock.later()
        # One of the requests for what a job left, by turns of the bytes.
        chosen = asked[sum(record[-4:]) % len(asked)]
        with _run_directory(folder):
            statuses = rest_door.answered(server.port, chosen, seen)
        if not any(200 <= status < 300 for status in statuses):
            raise NoInputError

    return run


def _start(*_: Any) -> str:
    return "e" * 32


class _Later:
    """A clock that says at each look that files are to be read anew."""

    def __init__(self) -> None:
        self._now = 0

    def later(self) -> None:
        self._now += 10_000

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self._now

    def monotonic_ms(self) -> int:
        return self._now


# ---- notes -------------------------------------------------------------------------------------


def _owners() -> list[bytes]:
    folder = scratch()
    note_process(folder, name="job")
    here = (folder / OWNER_NAME).read_bytes()
    return [here, here.replace(str(os.getpid()).encode(), b"1")]


def _prepare_owner() -> Callable[[bytes], None]:
    folder = scratch()

    def run(data: bytes) -> None:
        (folder / OWNER_NAME).write_bytes(data)
        owner.has_ended(folder)

    return run


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _disposals() -> list[bytes]:
    made = CheckpointMetadata(9, "0" * 32, "job", 0, "savepoint", 1)
    return [encode_metadata(made).split(b"\n", 1)[1]]


def _prepare_disposal() -> Callable[[bytes], None]:
    folder = scratch()

    def run(data: bytes) -> None:
        place, beside = folder / "savepoint", folder / "beside"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        beside.write_text("of somebody else")
        (place / NOTE_NAME).write_bytes(with_header(data))
        (place / "mine.txt").write_text("not of the savepoint")
        with _run_directory(folder / "run"), _quiet("weir.disposal"):  # it names what it leaves
            dispose_savepoint(str(place))
        require(beside.exists() and (place / "mine.txt").exists(), "a file of others is gone")

    return run


def _notes() -> list[bytes]:
    return [b"0", b"1", b"17\n", b""]


def _prepare_notes() -> Callable[[bytes], None]:
    entry, file = _staged()
    path, committable = Path(entry["path"]), json.dumps(entry).encode()
    note = Path(staged_batch._note_of(entry))

    def run(data: bytes) -> None:
        path.write_bytes(file)
        note.write_bytes(data)
        staged = staged_batch.is_staged(committable)
        require(staged_batch.is_noted(committable), "a note that is there is not seen")
        staged_batch.finish_staged([committable])
        require(not path.exists(), "a file that was handed over is still there")
        require(staged == (int(data.strip() or b"0") < entry["checkpoint"]), "rows twice, or lost")

    return run


# ---- what people give --------------------------------------------------------------------------


def _flink_conf(data: bytes) -> None:
    layer = parse_lines(data.decode("utf-8", "replace"), "flink-conf.yaml")
    require(set(layer) == set(layer.places), "a setting without a line")
    settings = Settings([layer])
    settings.validate()
    for option in ALL_OPTIONS:
        settings.get(option)
    settings.shown()


class _Import:
    """A savepoint, one keyed state of which is replaced by rows of a file."""

    def __init__(self) -> None:
        place = _savepoint()
        place.with_metadata(place.bodies()[0])  # as nobody has mutated it
        self.place = str(place.place)
        self.folder = scratch()
        # A map of declared types: it has every column that there can be.
        found = [s for s in read_snapshot(self.place).states() if s.name == "seen"]
        self.operator, self.name = found[0].operator.id, found[0].name
        self.table = read_snapshot(self.place).keyed_state(self.operator, self.name)

    def corpus(self) -> list[bytes]:
        found = []
        for number, form in enumerate(("json", "csv", "parquet")):
            path = self.folder / f"made.{form}"
            if not path.exists():
                write_file(str(path), form, self.table.schema, self.table.batches())
            found.append(bytes([number]) + path.read_bytes())
        return found

    def run(self, data: bytes) -> None:
        form = ("json", "csv", "parquet")[(data or b"\0")[0] % 3]
        path, target = self.folder / "given", self.folder / "written"
        path.write_bytes(data[1:])
        shutil.rmtree(target, ignore_errors=True)
        edit = SavepointEdit.of(read_snapshot(self.place))
        rows = GivenRows(read_file(str(path), form, self.table.schema))
        edit.with_keyed_state(self.operator, self.name, None, rows)
        try:
            edit.write(str(target))
        except UsageError:
            require(not target.exists() or not any(target.iterdir()), "half a savepoint is left")
            raise
        list(read_snapshot(str(target)).keyed_state(self.operator, self.name).batches())


def _imports() -> _Import:
    if not _MADE:
        _MADE.append(_Import())
    return _MADE[0]


_MADE: list[_Import] = []
_CORRUPT = (CorruptStateError, IncompatibleStateError)

TARGETS = [
    Target("past-records", "json", _records, _prepare_records),
    Target("host-page", "text", _host_requests, _prepare_host),
    Target("owner-notes", "json", _owners, _prepare_owner),
    Target(
        "disposal-notes", "json", _disposals, _prepare_disposal,
        (*_CORRUPT, UsageError, StorageError),
    ),
    Target("handed-over", "bytes", _notes, _prepare_notes, (CorruptStateError,)),
    Target("flink-conf", "text", _yaml, lambda: _flink_conf, (UsageError,)),
    Target(
        "import-files", "bytes", lambda: _imports().corpus(), lambda: _imports().run,
        (*_CORRUPT, UsageError),
    ),
]  # fmt: skip
