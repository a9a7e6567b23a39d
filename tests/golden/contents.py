"""What the golden files hold: how today's code writes it, how it reads it, and what must come out.

The files in `tests/golden/v<version>/` were written once and stay as they are while this version of
the formats is read; `tests/golden/write.py` makes those of the current version.
"""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from weir.backend.base import VOID, RestoreSource, SnapshotOutput, StateLayer
from weir.backend.delta import GroupDelta, encode_delta
from weir.backend.factory import NoSharedFiles
from weir.backend.group_format import AddressTypes, GroupFormat
from weir.backend.hashmap import HashMapBackend
from weir.backend.timers import EVENT_TIMERS, PROCESSING_TIMERS
from weir.checkpoint.metadata import (
    CheckpointMetadata,
    FileRecord,
    OperatorRecord,
    OperatorStateRecord,
    PartitionRecord,
    SourceLayout,
    SourcePositions,
    SubtaskRecord,
    decode_metadata,
    encode_metadata,
)
from weir.codec.stamped import StampedTypeInfo
from weir.common.time import Instant
from weir.common.typeinfo import TypeInformation, Types
from weir.common.types import Row
from weir.keygroup import KeyGroupRange, key_group
from weir.snapshot import SnapshotReader, SnapshotWriter
from weir.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.state.operator_state import OperatorRestoreSource, OperatorStateStore
from weir.testing.backend_snapshot_conformance import Sum

OPERATOR = "0e1febe90327d1cea326114660ec1de8"
GROUPS = KeyGroupRange(0, 127)
LONG, STRING = Types.LONG(), Types.STRING()
SPAN = Types.TUPLE([LONG, LONG])
MOMENT = datetime.datetime(2024, 2, 29, 23, 59, 59, 999_999)

# By state name: the declared type, and the value under the key "k".
TYPED: dict[str, tuple[TypeInformation, Any]] = {
    "STRING": (STRING, "wörd \0 𝄞"),
    "BYTE": (Types.BYTE(), -128),
    "BOOLEAN": (Types.BOOLEAN(), True),
    "SHORT": (Types.SHORT(), -32768),
    "INT": (Types.INT(), -(1 << 31)),
    "LONG": (LONG, -(1 << 63)),
    "FLOAT": (Types.FLOAT(), 0.5),
    "DOUBLE": (Types.DOUBLE(), 0.1),
    "CHAR": (Types.CHAR(), "ß"),
    "BIG_INT": (Types.BIG_INT(), -(1 << 100)),
    "BIG_DEC": (Types.BIG_DEC(), Decimal("-1234.50")),
    "INSTANT": (Types.INSTANT(), Instant(-1, 999_999_999)),
    "SQL_DATE": (Types.SQL_DATE(), datetime.date(2024, 2, 29)),
    "SQL_TIME": (Types.SQL_TIME(), datetime.time(23, 59, 59, 999_999)),
    "SQL_TIMESTAMP": (Types.SQL_TIMESTAMP(), MOMENT),
    "TIMESTAMP_LTZ": (Types.TIMESTAMP_LTZ(), MOMENT.replace(tzinfo=datetime.timezone.utc)),
    "ROW": (Types.ROW([LONG, STRING]), Row(f0=1, f1=None)),
    "ROW_NAMED": (Types.ROW_NAMED(["n", "s"], [LONG, STRING]), Row(n=1, s="a")),
    "TUPLE": (Types.TUPLE([LONG, Types.TUPLE([STRING])]), (1, ("a",))),
    "PRIMITIVE_ARRAY": (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x00\xff"),
    "PRIMITIVE_ARRAY.LONG": (Types.PRIMITIVE_ARRAY(LONG), [1, -2]),
    "BASIC_ARRAY": (Types.BASIC_ARRAY(STRING), ["a", None]),
    "OBJECT_ARRAY": (Types.OBJECT_ARRAY(Types.BIG_INT()), [1 << 70]),
    "MAP": (Types.MAP(STRING, LONG), {"b": 1, "a": None}),
    "MAP.ROW": (Types.MAP(SPAN, Types.ROW_NAMED(["x"], [LONG])), {(0, 10): Row(x=7)}),
    "LIST": (Types.LIST(Types.LIST(LONG)), [[1, None], []]),
}
PICKLED = {"undeclared": {"inner": [1, (2,)]}, "PICKLED_BYTE_ARRAY": "text"}
KEYED = {
    ("a", VOID): {"value": 1, "list": [1, 2], "map": {"x": 1, "null": None}, "sum": 3, "avg": 9},
    ("b", VOID): {"value": -5, "list": [7], "map": {"y": 2}, "sum": 1 << 40, "avg": 0},
    ("a", (0, 10)): {"value": 10, "list": [3], "map": {"z": 3}, "sum": 5, "avg": 6},
}
STAMPED = {"value": (1, 77), "list": [(1, 77), (2, -78)], "map": {"x": (1, 77), "n": (None, 78)}}
TIMERS = {
    EVENT_TIMERS: [(5, "a", VOID), (7, "b", (0, 10))],
    PROCESSING_TIMERS: [(1_700_000_000_000, "a", VOID)],
}
OPERATOR_STATE: dict[str, Any] = {
    "split": [42, 4711],
    "union": ["seventeen", "18"],
    "broadcast": {1: Row(n=2, s="x"), 2: None},
    "undeclared": [1, "two"],
}
LAYERED = {
    "value": {"a": 11, "c": 3},
    "list": {"a": [1, 2, 3], "b": [9]},
    "map": {"a": {"y": 20, "z": 30}},
}
METADATA = CheckpointMetadata(
    checkpoint_id=7,
    job_id="ab" * 16,
    job_name="wörd count",
    timestamp_ms=1_700_000_000_000,
    kind="checkpoint",
    epoch=41,
    sources=SourcePositions(
        batch_id=41,
        offset_lines=("v1", '{"batchWatermarkMs":0}', '{"logOffset":5}', "-"),
        commit_lines=("v1", '{"nextBatchWatermarkMs":0}'),
        source_logs={"@spool": "file:///x y"},
        layout=(SourceLayout("orders", 0), SourceLayout("rates", 1)),
    ),
    operators=(
        OperatorRecord(
            id=OPERATOR,
            uid="uid",
            name="count",
            parallelism=2,
            max_parallelism=128,
            has_state=True,
            subtasks=(
                SubtaskRecord(
                    index=0,
                    file=0,
                    keyed_range=(0, 63),
                    keyed_states=("seen", "sum"),
                    operator_states={"buffer": OperatorStateRecord("SPLIT", 3)},
                    layers=(1,),
                    attachments=(2,),
                    watermark=-5,
                ),
                SubtaskRecord(1),
            ),
        ),
    ),
    files=(
        FileRecord("state-s0-a1-0123456789ab", 1234, 0xDEADBEEF, 0),
        FileRecord("../shared/state-s0-a1-ba9876543210", 99, 1, 0),
        FileRecord("state-s0-a1-000000000000", 2, 2, 0, b"\x00\xff"),
    ),
    partitions=(PartitionRecord(OPERATOR, "orders:ö-0", 1_699_999_999_999),),
)


def metadata_of(version: int) -> CheckpointMetadata:
    """Return what a version can hold of the metadata: watermarks came with version 4."""
    if version >= 4:
        return METADATA
    (operator,) = METADATA.operators
    subtasks = tuple(replace(subtask, watermark=None) for subtask in operator.subtasks)
    return replace(METADATA, operators=(replace(operator, subtasks=subtasks),), partitions=())


# ---- writing -----------------------------------------------------------------------------------


def _file(footer: Callable[[SnapshotWriter], dict[str, Any]], *, compress: bool = False) -> bytes:
    out = io.BytesIO()
    writer = SnapshotWriter(out, compress=compress)
    writer.finish({"operators": {OPERATOR: footer(writer)}})
    return out.getvalue()


def _keyed_file(backend: HashMapBackend, *, compress: bool = False) -> bytes:
    def footer(writer: SnapshotWriter) -> dict[str, Any]:
        part = backend.snapshot(1).write(SnapshotOutput(writer, NoSharedFiles()))
        return {"keyed": part.states, "operator": {}}

    return _file(footer, compress=compress)


def _keyed_backend() -> HashMapBackend:
    return HashMapBackend(STRING, GROUPS, SPAN)


def _at(backend: HashMapBackend, key: str, namespace: Any = VOID) -> None:
    backend.current.key, backend.current.group = key, key_group(key, 128)
    backend.current.namespace = namespace


def _kinds(backend: HashMapBackend) -> Any:
    declarations: list[Any] = [
        ValueStateDescriptor("value", LONG),
        ListStateDescriptor("list", LONG),
        MapStateDescriptor("map", STRING, LONG),
        ReducingStateDescriptor("sum", lambda a, b: a + b, LONG),
        AggregatingStateDescriptor("avg", Sum(), LONG),
    ]
    return {d.name: backend.state(d) for d in declarations}


def _keyed(*, compress: bool = False) -> bytes:
    backend = _keyed_backend()
    states = _kinds(backend)
    for (key, namespace), values in KEYED.items():
        _at(backend, key, namespace)
        states["value"].update(values["value"])
        states["list"].add_all(values["list"])
        states["map"].put_all(values["map"])
        states["sum"].add(values["sum"])
        states["avg"].add(values["avg"])
    for name, timers in TIMERS.items():
        for timestamp, key, namespace in timers:
            backend.timers(name).register(timestamp, key, key_group(key, 128), namespace)
    return _keyed_file(backend, compress=compress)


def _typed() -> bytes:
    backend = _keyed_backend()
    for name, (type_info, value) in TYPED.items():
        state: Any = backend.state(ValueStateDescriptor(name, type_info))
        _at(backend, "k")
        state.update(value)
    return _keyed_file(backend)


def _stamped_states(backend: HashMapBackend) -> Any:
    pair = StampedTypeInfo(LONG)
    _at(backend, "k")
    return {
        "value": backend.state(ValueStateDescriptor("value", pair)),
        "list": backend.state(ListStateDescriptor("list", pair)),
        "map": backend.state(MapStateDescriptor("map", STRING, pair)),
    }


def _stamped() -> bytes:
    backend = _keyed_backend()
    states = _stamped_states(backend)
    states["value"].update(STAMPED["value"])
    states["list"].add_all(STAMPED["list"])
    states["map"].put_all(STAMPED["map"])
    return _keyed_file(backend)


def _pickled_states(backend: HashMapBackend) -> Any:
    types = {"undeclared": None, "PICKLED_BYTE_ARRAY": Types.PICKLED_BYTE_ARRAY()}
    return {name: backend.state(ValueStateDescriptor(name, t)) for name, t in types.items()}


def _pickled() -> bytes:
    backend = HashMapBackend(None, GROUPS)
    for name, state in _pickled_states(backend).items():
        _at(backend, "k", "window")
        state.update(PICKLED[name])
    return _keyed_file(backend)


def _operator_states(store: OperatorStateStore) -> Any:
    row = Types.ROW_NAMED(["n", "s"], [LONG, STRING])
    return {
        "split": store.get_list_state(ListStateDescriptor("split", LONG)),
        "union": store.get_union_list_state(ListStateDescriptor("union", STRING)),
        "broadcast": store.get_broadcast_state(MapStateDescriptor("broadcast", LONG, row)),
        "undeclared": store.get_list_state(ListStateDescriptor("undeclared")),
    }


def _operator() -> bytes:
    store = OperatorStateStore()
    states = _operator_states(store)
    for name in ("split", "union", "undeclared"):
        states[name].update(OPERATOR_STATE[name])
    states["broadcast"].put_all(OPERATOR_STATE["broadcast"])
    return _file(lambda writer: {"keyed": {}, "operator": store.snapshot(1).write(writer)})


def _layer(number: int) -> bytes:
    """Write all entries of key group 3 as they were first, or what changed since then."""
    whole: dict[str, dict[str, Any]] = {
        "value": {"a": 1, "b": 2, "c": 3},
        "list": {"a": [1, 2], "b": [5, 6]},
        "map": {"a": {"x": 1, "y": 2}, "b": {"x": 1}},
    }
    changes = {
        "value": GroupDelta(["b"], {}, {"a": 11}),
        "list": GroupDelta(["b"], {}, {"a": [3], "b": [9]}),
        "map": GroupDelta([], {"a": ["x"], "b": ["x"]}, {"a": {"y": 20, "z": 30}}),
    }
    declared: list[Any] = [
        ValueStateDescriptor("value", LONG),
        ListStateDescriptor("list", LONG),
        MapStateDescriptor("map", STRING, LONG),
    ]

    def footer(writer: SnapshotWriter) -> dict[str, Any]:
        states = {}
        for d in declared:
            form = GroupFormat.of(d.kind, AddressTypes(STRING, SPAN), d.value_type, d.key_type)
            entries, delta = whole[d.name], changes[d.name]
            if number:
                part = [*writer.section(encode_delta(form, delta)), len(delta), 1]
            else:
                data = form.encode(list(entries), list(entries.values()))
                part = [*writer.section(data), len(entries), 0]
            types = form.describe()
            states[d.name] = {"kind": d.kind.name, "type": types, "groups": {"3": [part]}}
        return {"keyed": states, "operator": {}}

    return _file(footer)


DETERMINISTIC: dict[str, Callable[[], bytes]] = {
    "keyed.snapshot": _keyed,
    "types.snapshot": _typed,
    "stamped.snapshot": _stamped,
    "layer-0.snapshot": lambda: _layer(0),
    "layer-1.snapshot": lambda: _layer(1),
    "_metadata": lambda: encode_metadata(METADATA),
}
# Pickles and compressed data are other bytes with other versions of Python and Zstandard.
OTHERS: dict[str, Callable[[], bytes]] = {
    "pickled.snapshot": _pickled,
    "operator.snapshot": _operator,
    "compressed.snapshot": lambda: _keyed(compress=True),
}
WRITERS = {**DETERMINISTIC, **OTHERS}


# ---- reading -----------------------------------------------------------------------------------


def _open(data: bytes, name: str) -> SnapshotReader:
    return SnapshotReader(lambda offset, length: data[offset : offset + length], len(data), name)


def _restore(backend: HashMapBackend, *files: tuple[str, bytes]) -> HashMapBackend:
    readers = [_open(data, name) for name, data in files]
    layers = tuple(StateLayer(r, r.operator(OPERATOR)["keyed"]) for r in readers)
    backend.restore([RestoreSource(layers, GROUPS, GROUPS)])
    return backend


def _read_keyed(files: dict[str, bytes], name: str = "keyed.snapshot") -> Any:
    backend = _restore(_keyed_backend(), (name, files[name]))
    states = _kinds(backend)
    found = {}
    for key, namespace in KEYED:
        _at(backend, key, namespace)
        found[key, namespace] = {
            "value": states["value"].value(),
            "list": list(states["list"].get()),
            "map": dict(states["map"].items()),
            "sum": states["sum"].get(),
            "avg": states["avg"].get(),
        }
    timers = {
        domain: [(t.timestamp, t.key, t.namespace) for t in backend.timers(domain).pop_due(1 << 60)]
        for domain in TIMERS
    }
    return found, timers, backend.size()


def _read_typed(files: dict[str, bytes]) -> Any:
    backend = _restore(_keyed_backend(), ("types.snapshot", files["types.snapshot"]))
    found = {}
    for name, (type_info, _) in TYPED.items():
        state: Any = backend.state(ValueStateDescriptor(name, type_info))
        _at(backend, "k")
        found[name] = state.value()
    return found


def _read_stamped(files: dict[str, bytes]) -> Any:
    backend = _restore(_keyed_backend(), ("stamped.snapshot", files["stamped.snapshot"]))
    states = _stamped_states(backend)
    value, items = states["value"].value(), list(states["list"].get())
    return {"value": value, "list": items, "map": dict(states["map"].items())}


def _read_pickled(files: dict[str, bytes]) -> Any:
    backend = _restore(HashMapBackend(None, GROUPS), ("pickled", files["pickled.snapshot"]))
    states = _pickled_states(backend)
    _at(backend, "k", "window")
    return {name: state.value() for name, state in states.items()}


def _read_layers(files: dict[str, bytes]) -> Any:
    layers = [(name, files[name]) for name in ("layer-0.snapshot", "layer-1.snapshot")]
    backend = _restore(_keyed_backend(), *layers)
    states: dict[str, Any] = {
        "value": backend.state(ValueStateDescriptor("value", LONG)),
        "list": backend.state(ListStateDescriptor("list", LONG)),
        "map": backend.state(MapStateDescriptor("map", STRING, LONG)),
    }
    found: dict[str, dict[str, Any]] = {name: {} for name in states}
    for key in "abc":
        backend.current.key, backend.current.group = key, 3
        found["value"][key] = states["value"].value()
        found["list"][key] = list(states["list"].get() or [])
        found["map"][key] = dict(states["map"].items())
    return {n: {k: v for k, v in e.items() if v not in (None, [], {})} for n, e in found.items()}


def _read_operator(files: dict[str, bytes]) -> Any:
    reader = _open(files["operator.snapshot"], "operator.snapshot")
    store = OperatorStateStore()
    store.restore([OperatorRestoreSource(reader, reader.operator(OPERATOR)["operator"])])
    states = _operator_states(store)
    return {
        name: dict(states[name].items()) if name == "broadcast" else list(states[name].get())
        for name in OPERATOR_STATE
    }


READERS: dict[str, Callable[[dict[str, bytes]], Any]] = {
    "keyed.snapshot": _read_keyed,
    "compressed.snapshot": lambda files: _read_keyed(files, "compressed.snapshot"),
    "types.snapshot": _read_typed,
    "stamped.snapshot": _read_stamped,
    "pickled.snapshot": _read_pickled,
    "layer-0.snapshot": _read_layers,
    "layer-1.snapshot": _read_layers,
    "operator.snapshot": _read_operator,
    "_metadata": lambda files: decode_metadata(files["_metadata"], "_metadata"),
}
EXPECTED: dict[str, Any] = {
    "keyed.snapshot": (KEYED, TIMERS, 15),
    "compressed.snapshot": (KEYED, TIMERS, 15),
    "types.snapshot": {name: value for name, (_, value) in TYPED.items()},
    "stamped.snapshot": STAMPED,
    "pickled.snapshot": PICKLED,
    "layer-0.snapshot": LAYERED,
    "layer-1.snapshot": LAYERED,
    "operator.snapshot": OPERATOR_STATE,
    "_metadata": METADATA,
}
