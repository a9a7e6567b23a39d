"""Targets for what a restore reads: metadata, snapshot files, groups, deltas, logs, databases.

Raw bytes have to be refused by a checksum. The targets whose name ends in `-repaired` make all
checksums right again, so that what lies behind them is reached: contents that no release wrote.
"""

from __future__ import annotations

import functools
import io
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
from tests.databases import Databases, scratch_directory
from tests.fuzz.target import NoInputError, Target, require
from tests.golden.contents import (
    EXPECTED,
    GROUPS,
    LONG,
    METADATA,
    OPERATOR,
    READERS,
    SPAN,
    STRING,
    TYPED,
    WRITERS,
)

from weir.backend.base import VOID, RestoreSource, SnapshotKind, SnapshotOutput, StateLayer
from weir.backend.changelog.log import ChangeBatch
from weir.backend.changes import StateChanges
from weir.backend.delta import GroupDelta, apply_delta, decode_delta, encode_delta
from weir.backend.factory import NoSharedFiles
from weir.backend.group_format import AddressTypes, GroupFormat
from weir.backend.hashmap import HashMapBackend
from weir.backend.kinds import StateKind
from weir.backend.timers import EVENT_TIMERS, PROCESSING_TIMERS
from weir.checkpoint.metadata import decode_metadata, encode_metadata
from weir.codec import codec_for
from weir.codec.stamped import StampedTypeInfo, stored_type
from weir.common.typeinfo import Types
from weir.errors import CorruptStateError, IncompatibleStateError, StorageError
from weir.offline.text import type_text
from weir.snapshot import MAGIC, VERSION, SnapshotReader, SnapshotWriter
from weir.state.descriptor import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.state.operator_state import OperatorRestoreSource, OperatorStateStore
from weir.testing.backend_incremental_conformance import at
from weir.testing.backend_snapshot_conformance import SnapshotConformance
from weir.testing.checkpoint_world import CheckpointWorld, WorldCheckpoint

REFUSED = (CorruptStateError, IncompatibleStateError)
_encode, _decode = msgspec.msgpack.encode, msgspec.msgpack.decode
_HEADER = len(MAGIC) + 2
_NO_TREE = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)


# ---- metadata ----------------------------------------------------------------------------------


def with_header(body: bytes, version: int = METADATA.format_version) -> bytes:
    """Return a metadata file whose checksum is right."""
    return b"weir-metadata %d %08x %d\n" % (version, zlib.crc32(body), len(body)) + body


def metadata_body() -> bytes:
    """Return what is below the header of a metadata file."""
    return encode_metadata(METADATA).split(b"\n", 1)[1]


def _metadata(data: bytes) -> None:
    """What is taken has the one header that its body can have: an engine may find the checksum."""
    found = decode_metadata(data, "_metadata")
    body = data.split(b"\n", 1)[1]
    require(with_header(body, found.format_version) == data, "a body was taken with another header")


def _metadata_repaired(body: bytes) -> None:
    found = decode_metadata(with_header(body), "_metadata")
    again = decode_metadata(encode_metadata(found), "_metadata")
    require(again == found, "metadata that was read is written as something else")


# ---- snapshot files ----------------------------------------------------------------------------

_FILES = [name for name in sorted(READERS) if name != "_metadata"]


def _written() -> dict[str, bytes]:
    return {name: WRITERS[name]() for name in _FILES}


def _snapshot_files() -> list[bytes]:
    return [bytes([number]) + data for number, data in enumerate(_written().values())]


def _prepare_snapshot() -> Callable[[bytes], None]:
    files = _written()

    footers = {name: _open(data).footer for name, data in files.items()}

    def run(data: bytes) -> None:
        name = _FILES[(data or b"\0")[0] % len(_FILES)]
        footer = _open(data[1:]).footer
        require(footer in footers.values(), "a footer that nobody wrote was taken")
        # The end of another file, behind whatever else, is that file with damaged sections.
        if footer == footers[name]:
            found = READERS[name]({**files, name: data[1:]})
            require(found == EXPECTED[name], "bytes that nobody wrote were restored")

    return run


def taken_apart(data: bytes) -> bytes:
    """Return a snapshot file as a MessagePack value: compression, sections, footer."""
    length = int.from_bytes(data[-15:-11], "little")
    footer = data[-15 - length : -15]
    return _encode([data[_HEADER - 1], data[_HEADER : -15 - length], _decode(footer)])


def put_together(data: bytes) -> bytes:
    """Return the snapshot file of such a value, with right checksums.

    Lists in the footer that begin like the address of a section get the checksum of the section.
    """
    try:
        compression, sections, footer = _decode(data)
        header = MAGIC + bytes([VERSION, compression])
        out = header + sections
        footer = _encode(_repaired(footer, out))
    except _NO_TREE as error:
        raise NoInputError from error
    checksum = zlib.crc32(header + footer)
    trailer = len(footer).to_bytes(4, "little") + checksum.to_bytes(4, "little") + MAGIC
    return bytes(out + footer + trailer)


def _repaired(tree: Any, file: bytes) -> Any:
    if isinstance(tree, dict):
        return {key: _repaired(value, file) for key, value in tree.items()}
    if not isinstance(tree, list):
        return tree
    # The files of a database have a name in front of the address.
    skip = 1 if tree and isinstance(tree[0], str) else 0
    numbers = tree[skip : skip + 3]
    if len(numbers) == 3 and all(type(n) is int for n in numbers):
        offset, length = numbers[:2]
        if 0 <= offset <= offset + length <= len(file):
            return [
                *tree[: skip + 2],
                zlib.crc32(file[offset : offset + length]),
                *tree[skip + 3 :],
            ]
    return [_repaired(value, file) for value in tree]


def _open(data: bytes, name: str = "a file") -> SnapshotReader:
    return SnapshotReader(lambda offset, length: data[offset : offset + length], len(data), name)


def _declarations() -> list[Any]:
    """Return states that the golden files have, by several types."""
    stamped = StampedTypeInfo(LONG)
    return [
        *(ValueStateDescriptor(name, type_info) for name, (type_info, _) in TYPED.items()),
        ValueStateDescriptor("value", LONG),
        ListStateDescriptor("list", LONG),
        MapStateDescriptor("map", STRING, LONG),
        ReducingStateDescriptor("sum", lambda a, b: a + b, LONG),
        ValueStateDescriptor("avg", LONG),
        ValueStateDescriptor("undeclared", None),
        ValueStateDescriptor("stamped", stamped),
    ]


def use_backend(backend: Any, declarations: list[Any]) -> None:
    """Ask for all states of a restored backend, look at what they hold, and write it again."""
    refused = 0
    for declaration in declarations:
        try:
            state: Any = backend.state(declaration)
        except REFUSED:
            refused += 1
            continue
        for key in list(backend.keys(declaration.name)):
            at(backend, key)
            backend.current.namespace = VOID
            if declaration.kind is StateKind.LIST:
                list(state.get() or ())
            elif declaration.kind is StateKind.MAP:
                dict(state.items() or ())
            else:
                (state.value if declaration.kind is StateKind.VALUE else state.get)()
    for name in (EVENT_TIMERS, PROCESSING_TIMERS):
        list(backend.timers(name).pop_due(1 << 60))
    written = backend.snapshot(1).write(
        SnapshotOutput(SnapshotWriter(io.BytesIO()), NoSharedFiles())
    )
    _encode(written.states)
    if refused == len(declarations):
        msg = "no state could be had"
        raise IncompatibleStateError(msg)


def restore_keyed(*files: bytes) -> HashMapBackend:
    """Restore a backend from layers."""
    backend = HashMapBackend(STRING, GROUPS, SPAN)
    readers = [_open(data) for data in files]
    layers = tuple(StateLayer(reader, reader.operator(OPERATOR)["keyed"]) for reader in readers)
    backend.restore([RestoreSource(layers, GROUPS, GROUPS)])
    return backend


def _keyed_corpus() -> list[bytes]:
    names = [name for name in _FILES if name not in ("operator.snapshot", "pickled.snapshot")]
    return [taken_apart(WRITERS[name]()) for name in names]


def _snapshot_repaired(data: bytes) -> None:
    use_backend(restore_keyed(put_together(data)), _declarations())


def _operator_repaired(data: bytes) -> None:
    reader = _open(put_together(data))
    store = OperatorStateStore()
    store.restore([OperatorRestoreSource(reader, reader.operator(OPERATOR)["operator"])])
    row = Types.ROW_NAMED(["n", "s"], [LONG, STRING])
    list(store.get_list_state(ListStateDescriptor("split", LONG)).get())
    list(store.get_union_list_state(ListStateDescriptor("union", STRING)).get())
    dict(store.get_broadcast_state(MapStateDescriptor("broadcast", LONG, row)).items())
    store.snapshot(1).write(SnapshotWriter(io.BytesIO()))


# ---- groups, deltas and logs -------------------------------------------------------------------

_TYPES = AddressTypes(STRING, SPAN)
_FORMATS = [
    GroupFormat.of(StateKind.VALUE, _TYPES, LONG),
    GroupFormat.of(StateKind.LIST, _TYPES, STRING),
    GroupFormat.of(StateKind.MAP, _TYPES, LONG, STRING),
    GroupFormat.of(StateKind.VALUE, _TYPES, StampedTypeInfo(LONG)),
    GroupFormat.of(StateKind.MAP, AddressTypes(LONG, LONG), Types.ROW([LONG, STRING]), SPAN),
]
_VALUES: list[Any] = [1, ["a", ""], {"x": 1, "y": None}, (5, 77), {(0, 1): None}]
_KEYS: list[Any] = ["a", "b", "c", "d", 5]


def _groups() -> list[bytes]:
    found = []
    for number, form in enumerate(_FORMATS):
        addresses = [_KEYS[number]]
        found.append(bytes([number]) + form.encode(addresses, [_VALUES[number]]))
    return found


def _group(data: bytes) -> None:
    form = _FORMATS[(data or b"\0")[0] % len(_FORMATS)]
    entries = form.decode(data[1:], "a file")
    again = form.encode([a for a, _ in entries], [value for _, value in entries])
    require(len(form.decode(again, "a file")) == len(entries), "entries are lost in writing")


def _deltas() -> list[bytes]:
    found = []
    for number, form in enumerate(_FORMATS):
        key, value = _KEYS[number], _VALUES[number]
        removed = {key: list(value)} if form.map_key is not None else {}
        delta = GroupDelta([key], removed, {key: value})
        found.append(bytes([number]) + encode_delta(form, delta))
    return found


def _delta(data: bytes) -> None:
    form = _FORMATS[(data or b"\0")[0] % len(_FORMATS)]
    delta = decode_delta(form, data[1:], "a file")
    entries = {_KEYS[0]: _VALUES[_FORMATS.index(form)]}
    apply_delta(entries, delta, form.shape)
    encode_delta(form, delta)


def _logs() -> list[bytes]:
    batch = ChangeBatch()
    declared = [ValueStateDescriptor("value", LONG), MapStateDescriptor("map", STRING, LONG)]
    values: list[Any] = [11, {"x": 1}]
    for d, value in zip(declared, values, strict=True):
        form = GroupFormat.of(d.kind, _TYPES, d.value_type, d.key_type)
        delta = GroupDelta(["b"], {"a": ["y"]} if d.name == "map" else {}, {"a": value})
        batch.add([StateChanges(d.name, d.kind, form, {3: delta})])
        batch.add([StateChanges(d.name, d.kind, form, {7: delta})])
        batch.add(
            [StateChanges("new", d.kind, form, {7: GroupDelta(put={"a": value})}, whole=True)]
        )
    out = io.BytesIO()
    writer = SnapshotWriter(out)
    writer.finish({"operators": {OPERATOR: {"keyed": batch.write(writer), "operator": {}}}})
    return [taken_apart(out.getvalue()), taken_apart(WRITERS["layer-1.snapshot"]())]


def _prepare_log() -> Callable[[bytes], None]:
    base = WRITERS["layer-0.snapshot"]()

    def run(data: bytes) -> None:
        use_backend(restore_keyed(base, put_together(data)), _declarations())

    return run


# ---- values and types --------------------------------------------------------------------------

# A double beyond the range of FLOAT is read and not written; to look would cost every value.
_TYPED = [t for name, t in TYPED.items() if name != "FLOAT"] + [(StampedTypeInfo(STRING), ("x", 5))]


def _values() -> list[bytes]:
    found = []
    for number, (type_info, value) in enumerate(_TYPED):
        codec = codec_for(type_info)
        found += [bytes([number, 0]) + codec.encode(value)]
        found += [bytes([number, 1]) + codec.encode_many([value, value])]
    return found


def _value(data: bytes) -> None:
    number, many = (data + b"\0\0")[:2]
    codec = codec_for(_TYPED[number % len(_TYPED)][0])
    if many % 2:
        codec.encode_many(codec.decode_many(data[2:]))
    else:
        codec.encode(codec.decode(data[2:]))


def _type_descriptions() -> list[bytes]:
    return [msgspec.json.encode(codec_for(type_info).describe()) for type_info, _ in _TYPED]


def _type_description(data: bytes) -> None:
    try:
        description = msgspec.json.decode(data)
    except _NO_TREE as error:
        raise NoInputError from error
    type_text(description)
    codec_for(stored_type(description)).describe()


# ---- the files of a database -------------------------------------------------------------------


@functools.cache
def _database() -> _Database:
    return _Database()


class _Database:
    """One checkpoint of a RocksDB database, whose footer is mutated."""

    def __init__(self) -> None:
        self.world = CheckpointWorld()
        with scratch_directory() as directory:
            databases = Databases(directory)
            backend = databases.backend()
            SnapshotConformance.fill(backend)
            backend.timers(EVENT_TIMERS).register(5, "a", 3)
            self.checkpoint: WorldCheckpoint = self.world.run(backend, 1)
            databases.close()

    def corpus(self) -> list[bytes]:
        return [taken_apart(self.checkpoint.own)]

    def run(self, data: bytes) -> None:
        reader = _open(put_together(data))
        layer = StateLayer(reader, reader.operator("op")["keyed"])
        source = RestoreSource((layer,), GROUPS, GROUPS, files=self.world)
        with scratch_directory() as directory:
            databases = Databases(directory)
            try:
                backend = databases.backend()
                backend.restore([source])
                use_backend(backend, _declarations()[len(TYPED) :])
                backend.snapshot(2, SnapshotKind.FULL).release()
            finally:
                databases.close()


TARGETS = [
    Target("metadata", "bytes", lambda: [encode_metadata(METADATA)], lambda: _metadata, REFUSED),
    Target(
        "metadata-repaired", "json", lambda: [metadata_body()], lambda: _metadata_repaired, REFUSED
    ),
    Target("snapshot", "bytes", _snapshot_files, _prepare_snapshot, REFUSED),
    Target("snapshot-repaired", "msgpack", _keyed_corpus, lambda: _snapshot_repaired, REFUSED),
    Target(
        "operator-state-repaired",
        "msgpack",
        lambda: [taken_apart(WRITERS["operator.snapshot"]())],
        lambda: _operator_repaired,
        REFUSED,
    ),
    Target("changelog-repaired", "msgpack", _logs, _prepare_log, REFUSED),
    Target("group", "bytes", _groups, lambda: _group, REFUSED),
    Target("delta", "bytes", _deltas, lambda: _delta, REFUSED),
    Target("values", "bytes", _values, lambda: _value, REFUSED),
    Target("types", "json", _type_descriptions, lambda: _type_description, REFUSED),
    Target(
        "rocksdb-repaired",
        "msgpack",
        lambda: _database().corpus(),
        lambda: _database().run,
        (*REFUSED, StorageError),
    ),
]
