"""Targets for what comes from elsewhere: messages, frames, texts, keys, files of other processes.

Left out by design: payloads that are pickles (`P`, `Q` and `R` frames, staged records). They come
behind a token, a checksum or a digest, and unpickling runs what they say. The columns of Arrow
frames are mutated as columns, not as bytes, because Arrow trusts the bytes of a stream.
"""

from __future__ import annotations

import atexit
import datetime
import decimal
import functools
import json
import os
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from tests.databases import MEMORY
from tests.fuzz.state_files import put_together, taken_apart, with_header
from tests.fuzz.target import NoInputError, Target, require
from tests.unit.offline.samples import job, take_savepoint

from weir.backend.factory import BackendSettings
from weir.checkpoint.metadata import decode_metadata, encode_metadata
from weir.cli.state_text import listing_lines, show_lines
from weir.common.typeinfo import Types
from weir.config.effective import Settings
from weir.config.file import parse
from weir.config.options import ALL_OPTIONS
from weir.connector import staged_batch
from weir.connector.file_writer import decode_committable
from weir.connector.position import position_text
from weir.connector.sink import WriterContext
from weir.errors import CorruptStateError, IncompatibleStateError, UsageError
from weir.graph.plan import EdgeNode
from weir.graph.transformation import KeySpec, Partitioning
from weir.jobmanager import directory
from weir.jobmanager.directory import JobEntry
from weir.keygroup import key_group, stable_hash
from weir.offline import describe, list_snapshots
from weir.runtime.epoch import Barrier, Epoch
from weir.runtime.frame import (
    Control,
    Frame,
    PartitionMark,
    pack_columns,
    pack_control,
    pack_frames,
    payload_kind,
    unpack_control,
    unpack_data,
    unpack_frames,
)
from weir.slot import messages
from weir.slot.messages import MESSAGES, decode, encode
from weir.snapshot import FileHandle

_NO_TREE = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)


def scratch() -> Path:
    """Return a directory that is gone when the process ends."""
    made = tempfile.mkdtemp(prefix="weir-fuzz-", dir=MEMORY)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


# ---- messages and frames -----------------------------------------------------------------------


def _messages() -> list[bytes]:
    """Return one of each kind, behind its number."""
    handle = FileHandle("state-s0-a1-0123456789ab", 3, 4, b"abc")
    share = messages.OperatorShare("op", (0, 63), ["a"], {"b": ("SPLIT", 2)}, 5, [handle], [handle])
    keyed = messages.KeyedSource([handle], 0, 5, (0, 63))
    barrier = Barrier(3, 1_700_000_000_000, "chk-3")
    sent: dict[type[Any], Any] = {
        messages.Acknowledge: messages.Acknowledge(
            1,
            0,
            3,
            handle,
            operators=[share],
            created=[handle],
            in_flight=messages.InFlightShare(1, 2, 3),
        ),
        messages.Decline: messages.Decline(1, 0, 3, "disk"),
        messages.SlotFailure: messages.SlotFailure(1, 0, "ValueError", "text", operator="op"),
        messages.Heartbeat: messages.Heartbeat(1, 0, messages.SlotUsage(1 << 30, 5, 3)),
        messages.Hello: messages.Hello(1, 0, 4711, "host", log_file="log"),
        messages.Register: messages.Register(1, 0, "unix", "tcp", staged=[("op", [b"x"])]),
        messages.Assignment: messages.Assignment(
            job_id="0" * 32,
            job_name="name",
            plan=b"",
            storage_uri="file:///x",
            backend=BackendSettings(),
            lineage=["a"],
            heartbeat_ms=1,
            lease_ms=2,
            checkpoint_id=3,
            restore_uri="",
            restore_directory="chk-3",
            restore=[messages.OperatorRestore("op", [keyed], [(handle, {"b": [0, 1]})])],
            job_parameters={"a": "b"},
            in_flight=[messages.InFlightSource(0, handle)],
        ),
        messages.EpochCall: messages.EpochCall(1, 0, Epoch(3, barrier)),
        messages.Cut: messages.Cut(1, 3, 0, barrier),
        messages.EndMarker: messages.EndMarker(3),
    }
    return [bytes([number]) + encode(sent[kind]) for number, kind in enumerate(MESSAGES)]


def _message(data: bytes) -> None:
    kind = MESSAGES[(data or b"\0")[0] % len(MESSAGES)]
    found = decode(data[1:], kind)
    sent = encode(found)
    # As bytes: a message with a NaN in it is not equal to itself.
    require(encode(decode(sent, kind)) == sent, "a message is another one after the way")


_EDGE = EdgeNode(
    id=0,
    source=0,
    target=1,
    input_index=0,
    partitioning=Partitioning.HASH,
    key=KeySpec(len, ("k",), Types.LONG()),
    partition_fn=None,
    tag=None,
    type=Types.ROW_NAMED(["k", "s"], [Types.LONG(), Types.STRING()]),
    source_level=0,
    target_level=1,
    parallelism=2,
    max_parallelism=128,
)


def _frames() -> list[bytes]:
    control = Control(0, 5, True, (PartitionMark("p", 7, True),))
    return [pack_frames([Frame(0, 0, 1, pack_control(control)), Frame(1, -1, 2, b"R")])]


def _frame(data: bytes) -> None:
    for frame in unpack_frames(data):
        if payload_kind(frame.payload) == b"C":
            unpack_control(frame.payload)


def _columns() -> list[bytes]:
    columns = {"k": [1, 2], "s": ["a", None], "__ts": [5, None], "__kg": [3, 4]}
    return [msgspec.json.encode(columns)]


def _column_frame(data: bytes) -> None:
    try:
        columns = {str(k): pa.array(v) for k, v in msgspec.json.decode(data).items()}
        batch = pa.RecordBatch.from_pydict(columns)
    except (*_NO_TREE, AttributeError, pa.ArrowException) as error:
        raise NoInputError from error
    unpack_data(pack_columns(batch), _EDGE)


# ---- texts -------------------------------------------------------------------------------------


def _positions() -> list[bytes]:
    return [b'{"logOffset":5}', b'{"topic":{"0":17,"1":4}}', b'{"kafka":{"10":1}}', b"17"]


def _position(data: bytes) -> None:
    text = position_text(data.decode("utf-8", "replace"))
    require(isinstance(text, str), "a position without a text")


def _yaml() -> list[bytes]:
    sample = Path(__file__).resolve().parents[2] / "docs" / "operating" / "configuration.md"
    blocks = sample.read_text().split("```yaml\n")[1:]
    lines = [f"{option.key}: {option.default}" for option in ALL_OPTIONS]
    nested = b"state:\n  backend:\n    type: rocksdb\nparallelism.default: 2\nlist: [a, b]\n"
    return [block.split("```")[0].encode() for block in blocks] + [
        "\n".join(lines).encode(),
        nested,
    ]


def _config(data: bytes) -> None:
    settings = Settings([parse(data.decode("utf-8", "replace"), "a file")])
    settings.validate()
    for option in ALL_OPTIONS:
        settings.get(option)
    settings.shown()


# ---- keys --------------------------------------------------------------------------------------


class _Bytes:
    """Makes values out of bytes, in order; zeros follow the last one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        self._at += count
        return part.ljust(count, b"\0")

    def below(self, bound: int) -> int:
        return int.from_bytes(self.take(4), "little") % bound

    def value(self, depth: int = 3) -> Any:
        kinds: list[Callable[[], Any]] = [
            lambda: int.from_bytes(self.take(self.below(40)), "little", signed=True),
            lambda: self.take(self.below(40)).decode("utf-8", "surrogatepass"),
            lambda: self.take(self.below(40)),
            lambda: memoryview(self.take(8)).cast("d")[0],
            lambda: decimal.Decimal(
                (self.below(2), (self.below(10), self.below(10)), self.below(2**32) - 2000)
            ),
            lambda: decimal.Decimal(("Infinity", "-Infinity", "NaN", "sNaN", "-0")[self.below(5)]),
            lambda: datetime.datetime.fromtimestamp(self.below(2**32), self._zone()),
            lambda: datetime.time(self.below(24), self.below(60), tzinfo=self._zone()),
            lambda: datetime.timedelta(self.below(10**6), self.below(10**6)),
            lambda: uuid.UUID(bytes=self.take(16)),
            lambda: (None, True, False, [], {}, {1}, object, ...)[self.below(8)],
            lambda: tuple(self.value(depth - 1) for _ in range(self.below(4) if depth else 0)),
        ]
        return kinds[self.below(len(kinds))]()

    def _zone(self) -> datetime.timezone | None:
        minutes = self.below(2880) - 1440
        usable = abs(minutes) < 1440 and minutes % 2 == 0
        return datetime.timezone(datetime.timedelta(minutes=minutes)) if usable else None


def _keys() -> list[bytes]:
    return [bytes([kind, 0, 0, 0, 7, 0, 0, 0, *range(1, 30)]) for kind in range(12)]


def _key(data: bytes) -> None:
    try:
        key = _Bytes(data).value()
    except (UnicodeDecodeError, OverflowError) as error:
        raise NoInputError from error
    group = key_group(key, 128)
    require(0 <= group < 128, f"key group {group}")
    if isinstance(key, int):
        require(
            stable_hash(decimal.Decimal(key)) == stable_hash(key), "equal keys hash differently"
        )
        if abs(key) < 2**53:
            require(stable_hash(float(key)) == stable_hash(key), "equal keys hash differently")


# ---- files of other processes ------------------------------------------------------------------


def _entries() -> list[bytes]:
    entry = JobEntry(
        job_id="0" * 32,
        name="job",
        pid=os.getpid(),
        process="1",
        url="http://127.0.0.1:1",
        started_ms=1,
        status="FINISHED",
        ended_ms=2,
        checkpoint_dir="file:///x",
        uses=("file:///y",),
    )
    return [msgspec.json.encode(entry), msgspec.json.encode(entry).replace(b"FINISHED", b"RUNNING")]


def _prepare_entries() -> Callable[[bytes], None]:
    folder = scratch()

    def run(data: bytes) -> None:
        (folder / "job.json").write_bytes(data)
        before = os.environ.get("WEIR_RUN_DIR")
        os.environ["WEIR_RUN_DIR"] = str(folder)
        try:
            directory.entries()
        finally:
            if before is None:
                del os.environ["WEIR_RUN_DIR"]
            else:
                os.environ["WEIR_RUN_DIR"] = before

    return run


def _staged() -> tuple[dict[str, Any], bytes]:
    sink = staged_batch.StagedBatchSink(str(scratch()), Types.ROW([Types.LONG(), Types.STRING()]))
    writer = sink.create_writer(WriterContext("0" * 32, "1" * 32, 1, 0, parallelism=1))
    writer.write_batch([(1, "a"), (2, None)], None)
    entry = json.loads(writer.prepare(1)[0])
    return entry, Path(entry["path"]).read_bytes()


def _committables() -> list[bytes]:
    entry, data = _staged()
    return [b"C" + json.dumps({**entry, "path": "staged"}).encode(), b"F" + data]


def _prepare_staged() -> Callable[[bytes], None]:
    entry, file = _staged()
    path = Path(entry["path"])

    def run(data: bytes) -> None:
        if data[:1] == b"F":
            path.write_bytes(data[1:])
            table = staged_batch.read_staged([json.dumps(entry).encode()])
            require(data[1:] == file, "a staged file that nobody wrote was read")
            require(table.num_rows == 2, "rows are lost")
            return
        path.write_bytes(file)
        try:
            changed = json.loads(data[1:])
        except (ValueError, RecursionError):
            changed = None
        if isinstance(changed, dict) and changed.get("path") == "staged":
            data = b"C" + json.dumps({**changed, "path": str(path)}).encode()
        staged_batch.read_staged([data[1:]])

    return run


def _sink_committables() -> list[bytes]:
    entry = {"temp": "/out/.part.inprogress", "final": "/out/part", "size": 17}
    return [json.dumps(entry).encode()]


def _sink_committable(data: bytes) -> None:
    entry = decode_committable(data)
    require(entry["temp"] + entry["final"] is not None, "paths that are no texts")
    require(entry["size"] == int(entry["size"]), "a size that is no number")


# ---- weir state --------------------------------------------------------------------------------


class _Savepoint:
    """A savepoint on a disk, whose metadata or one of whose files is mutated."""

    def __init__(self) -> None:
        self.root = scratch()
        self.place = self.root / take_savepoint(job(self.root))
        self.metadata = decode_metadata((self.place / "_metadata").read_bytes(), "_metadata")

    def bodies(self) -> list[bytes]:
        return [encode_metadata(self.metadata).split(b"\n", 1)[1]]

    def files(self) -> list[bytes]:
        return [
            taken_apart((self.place / file.path).read_bytes() if file.data is None else file.data)
            for file in self.metadata.files
        ]

    def with_metadata(self, body: bytes) -> None:
        (self.place / "_metadata").write_bytes(with_header(body))
        listed = "\n".join(listing_lines(list_snapshots(str(self.root))))
        found = describe(str(self.place), verify=True)
        shown = "\n".join(show_lines(found))
        msgspec.json.encode(found)
        require(bool((listed + shown).encode()), "nothing is shown")

    def with_file(self, data: bytes) -> None:
        file = put_together(data)
        tree = json.loads(self.bodies()[0])
        for record in tree["files"]:
            record["data"] = msgspec.to_builtins(file)
            record["size"], record["crc32"] = len(file), zlib.crc32(file)
        self.with_metadata(json.dumps(tree).encode())


@functools.cache
def _savepoint() -> _Savepoint:
    return _Savepoint()


_CORRUPT = (CorruptStateError, IncompatibleStateError)
# A slot or driver that gets what is no message fails, and is replaced.
_NO_COLUMNS = (UsageError, pa.ArrowException, LookupError, TypeError, ValueError)
_NO_MESSAGE = (msgspec.MsgspecError, UnicodeDecodeError)

TARGETS = [
    Target("messages", "bytes", _messages, lambda: _message, _NO_MESSAGE),
    Target("frames", "msgpack", _frames, lambda: _frame, _NO_MESSAGE),
    Target("frame-columns", "json", _columns, lambda: _column_frame, _NO_COLUMNS),
    Target("positions", "json", _positions, lambda: _position),
    Target("config", "text", _yaml, lambda: _config, (UsageError,)),
    Target("keys", "bytes", _keys, lambda: _key, (UsageError,)),
    Target("announcements", "json", _entries, _prepare_entries),
    Target(
        "committables",
        "json",
        _sink_committables,
        lambda: _sink_committable,
        (CorruptStateError,),
    ),
    Target("staged", "bytes", _committables, _prepare_staged, (CorruptStateError,)),
    Target(
        "show-metadata",
        "json",
        lambda: _savepoint().bodies(),
        lambda: _savepoint().with_metadata,
        _CORRUPT,
    ),
    Target(
        "show-files",
        "msgpack",
        lambda: _savepoint().files(),
        lambda: _savepoint().with_file,
        _CORRUPT,
    ),
]
