"""Operator state: lists and maps of a whole subtask, redistributed when parallelism changes.

One concept with a `Redistribution`. Elements are stored one by one, so that a planner can deal them
out to other subtasks without looking inside; a list element is one value, a broadcast element is
one entry of the map (MessagePack `[key bytes, value bytes]`). Always in memory.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from weir.backend.admission import holds_only_immutable
from weir.backend.isolation import is_immutable
from weir.codec import Codec, codec_for
from weir.codec.evolution import migration, require_same_key
from weir.errors import CorruptStateError, IncompatibleStateError, UsageError
from weir.snapshot import SnapshotReader, SnapshotWriter
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from weir.state.handles import BroadcastState, ListState, ReadOnlyBroadcastState
from weir.state.operator_handles import (
    OperatorBroadcastState,
    OperatorListState,
    ReadOnlyBroadcastView,
)

RAW_OPERATOR = "_raw_operator"
"""The name under which raw operator state is stored: one element per partition."""
_encode_pair = msgspec.msgpack.encode
_decode_pair = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode


class Redistribution(enum.Enum):
    """What happens to the elements of all subtasks when the parallelism changes."""

    SPLIT = "SPLIT"
    """Every element goes to exactly one subtask."""
    UNION = "UNION"
    """Every subtask gets all elements."""
    BROADCAST = "BROADCAST"
    """Every subtask has the same map, and gets the whole map of one old subtask."""


@dataclass(frozen=True)
class OperatorRestoreSource:
    """One old snapshot and the elements to take from it.

    `states` has the shape of an operator's "operator" footer part; its element lists hold only what
    the redistribution gave to this subtask.
    """

    reader: SnapshotReader
    states: Mapping[str, Mapping[str, Any]]


@dataclass
class _Restored:
    """A state that nobody registered yet, still encoded."""

    mode: Redistribution
    types: dict[str, Any]
    elements: list[bytes] = field(default_factory=list)


class _Encoded:
    """An element that could change and was therefore encoded when the snapshot was taken."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class _Entry:
    """A registered state: its handle and how its elements become bytes."""

    def __init__(self, mode: Redistribution, descriptor: StateDescriptor) -> None:
        self.mode = mode
        self._value_type = descriptor.value_type
        value = codec_for(descriptor.value_type)
        self.types: dict[str, Any] = {"value": value.describe()}
        self.immutable = holds_only_immutable(descriptor.value_type)
        self._key: Codec | None = None
        self.handle: OperatorListState | OperatorBroadcastState
        if mode is Redistribution.BROADCAST:
            key = self._key = codec_for(descriptor.key_type)
            self.types["map_key"] = key.describe()
            self.immutable = self.immutable and holds_only_immutable(descriptor.key_type)
            self.handle = OperatorBroadcastState(descriptor)
            self.encode: Callable[[Any], bytes] = lambda e: _encode_pair(
                (key.encode(e[0]), value.encode(e[1]))
            )
        else:
            self.handle = OperatorListState(descriptor)
            self.encode = value.encode

    def take(self, name: str, restored: _Restored) -> None:
        """Fill the handle with restored elements, migrated where their type has changed.

        Raises:
            IncompatibleStateError: mode or types do not allow it; the handle stays empty.
        """
        _check_mode(name, restored, self, IncompatibleStateError)
        subject = f"operator state {name!r}"
        key = self._key
        if key is not None:
            require_same_key("map key", restored.types.get("map_key"), key, subject)
        value = migration(restored.types.get("value"), self._value_type, subject=subject)
        if key is None:
            self.handle.fill([value.decode(e) for e in restored.elements])
        else:
            self.handle.fill([_decode_entry(e, key, value) for e in restored.elements])

    def freeze(self) -> list[Any]:
        elements = self.handle.elements()
        if self.immutable:
            return elements
        encode = self.encode
        return [e if is_immutable(e) else _Encoded(encode(e)) for e in elements]


def _decode_entry(data: bytes, key: Codec, value: Codec) -> tuple[Any, Any]:
    try:
        pair = _decode_pair(data)
    except msgspec.MsgspecError as e:
        msg = f"an entry of broadcast state is not a pair of byte strings ({e})"
        raise CorruptStateError(msg) from e
    return key.decode(pair[0]), value.decode(pair[1])


def refuse_ttl(descriptor: StateDescriptor) -> None:
    """Refuse a descriptor of operator state whose entries are to expire, as in Flink.

    Raises:
        UsageError: it has a time to live.
    """
    config = descriptor.ttl_config
    if config is not None and config.is_enabled():
        msg = (
            f"operator state {descriptor.name!r} has a time to live, but only keyed state can "
            "expire: leave out enable_time_to_live(), or keep it in keyed state after key_by()"
        )
        raise UsageError(msg)


class OperatorStateStore:
    """The operator state of one subtask of one operator.

    Example:
        def initialize_state(self, context):
            store: OperatorStateStore = context.get_operator_state_store()
            self.waiting = store.get_list_state(ListStateDescriptor("waiting", Types.STRING()))
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._restored: dict[str, _Restored] = {}
        self._raw: tuple[bytes, ...] = ()

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list whose elements are split among the subtasks on rescaling."""
        return self._list(state_descriptor, Redistribution.SPLIT)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list of which every subtask gets all subtasks' elements on restore."""
        return self._list(state_descriptor, Redistribution.UNION)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return the map that all subtasks maintain alike, to read and write."""
        handle = self._register(state_descriptor, Redistribution.BROADCAST).handle
        if not isinstance(handle, OperatorBroadcastState):  # the mode was checked
            raise TypeError(state_descriptor.name)
        return handle

    def get_read_only_broadcast_state(
        self, state_descriptor: MapStateDescriptor
    ) -> ReadOnlyBroadcastState[Any, Any]:
        """Return a view of broadcast state for the side that must not change it."""
        return ReadOnlyBroadcastView(
            self.get_broadcast_state(state_descriptor), state_descriptor.name
        )

    def get_registered_state_names(self) -> set[str]:
        """Return the names of the list states, also of those restored and not yet asked for."""
        return self._names(broadcast=False)

    def get_registered_broadcast_state_names(self) -> set[str]:
        """Return the names of the broadcast states."""
        return self._names(broadcast=True)

    def take_raw_partitions(self) -> tuple[bytes, ...]:
        """Return the restored partitions of raw state, and forget them."""
        raw, self._raw = self._raw, ()
        return raw

    def snapshot(self, checkpoint_id: int, raw: Sequence[bytes] = ()) -> OperatorStateSnapshot:
        """Copy all lists and maps; elements that could change are encoded at once.

        `raw` are the partitions of raw state, which the store only passes on.
        """
        frozen: list[tuple[str, _Entry | _Restored, list[Any]]] = [
            (name, entry, entry.freeze()) for name, entry in self._entries.items()
        ]
        frozen += [(name, r, [_Encoded(e) for e in r.elements]) for name, r in self._rest()]
        if raw:
            written = _Restored(Redistribution.SPLIT, {})
            frozen.append((RAW_OPERATOR, written, [_Encoded(p) for p in raw]))
        return OperatorStateSnapshot(checkpoint_id, frozen)

    def restore(self, sources: list[OperatorRestoreSource]) -> None:
        """Fill an empty store; lists get the elements of the sources in order.

        Raises:
            UsageError: states are registered already.
            CorruptStateError: a file is damaged; the store stays empty.
            IncompatibleStateError: subtasks stored a state with different types.
        """
        if self._entries or self._restored:
            msg = "operator state is restored once, before any state is registered"
            raise UsageError(msg)
        restored: dict[str, _Restored] = {}
        for source in sources:
            for name, part in source.states.items():
                mode = Redistribution(part["mode"])
                state = restored.setdefault(name, _Restored(mode, part["type"]))
                _check_files_agree(
                    name, state, mode=mode, types=part["type"], origin=source.reader.name
                )
                state.elements += source.reader.sections(part["elements"])
        raw = restored.pop(RAW_OPERATOR, None)
        self._raw = () if raw is None else tuple(raw.elements)
        self._restored = restored

    def _list(self, descriptor: ListStateDescriptor, mode: Redistribution) -> ListState[Any]:
        handle = self._register(descriptor, mode).handle
        if not isinstance(handle, OperatorListState):  # the mode was checked
            raise TypeError(descriptor.name)
        return handle

    def _register(self, descriptor: StateDescriptor, mode: Redistribution) -> _Entry:
        name = descriptor.name
        if name == RAW_OPERATOR:
            msg = f"the name {name!r} is reserved for raw operator state: use another name"
            raise UsageError(msg)
        refuse_ttl(descriptor)
        new = _Entry(mode, descriptor)
        present = self._entries.get(name)
        if present is not None:
            _check_same(name, present, new)
            return present
        restored = self._restored.get(name)
        if restored is not None:
            new.take(name, restored)
            del self._restored[name]
        self._entries[name] = new
        return new

    def _rest(self) -> list[tuple[str, _Restored]]:
        return list(self._restored.items())

    def _names(self, *, broadcast: bool) -> set[str]:
        states: dict[str, _Entry | _Restored] = {**self._entries, **self._restored}
        return {n for n, s in states.items() if (s.mode is Redistribution.BROADCAST) is broadcast}


class OperatorStateSnapshot:
    """Operator state as it was when `OperatorStateStore.snapshot` was called."""

    def __init__(
        self, checkpoint_id: int, frozen: list[tuple[str, _Entry | _Restored, list[Any]]]
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self._frozen = frozen

    def write(self, writer: SnapshotWriter) -> dict[str, Any]:
        """Write every element and return the operator's "operator" footer part; on any thread."""
        footer = {}
        for name, state, elements in self._frozen:
            sections = writer.slices([_bytes_of(state, e) for e in elements])
            footer[name] = {
                "mode": state.mode.value,
                "type": state.types,
                "elements": [list(s) for s in sections],
            }
        return footer

    def release(self) -> None:
        """Drop the copies."""
        self._frozen = []


def _bytes_of(state: _Entry | _Restored, element: Any) -> bytes:
    if element.__class__ is _Encoded:
        data: bytes = element.data
        return data
    if isinstance(state, _Restored):  # its elements are all encoded
        raise TypeError(element)
    return state.encode(element)


def _check_files_agree(
    name: str, state: _Restored, mode: Redistribution, types: Any, origin: str
) -> None:
    if state.mode is not mode:
        msg = f"operator state {name!r} in {origin!r} has another mode than in its other files"
        raise CorruptStateError(msg)
    if state.types != types:
        # Some subtasks had migrated it when the checkpoint was taken, others had not asked for it.
        msg = (
            f"operator state {name!r} in {origin!r} has the type {types!r}, in other files "
            f"{state.types!r}: restore an older checkpoint, and ask for the state in "
            f"initialize_state or open, so that all subtasks change its type together"
        )
        raise IncompatibleStateError(msg)


def _check_mode(
    name: str, present: _Entry | _Restored, wanted: _Entry, error: type[Exception]
) -> None:
    if present.mode is not wanted.mode:
        msg = (
            f"Incompatible state assignment modes: operator state {name!r} exists with "
            f"{present.mode.name}, it cannot be used with {wanted.mode.name}; use the same mode, "
            f"or another name"
        )
        raise error(msg)


def _check_same(name: str, present: _Entry, wanted: _Entry) -> None:
    _check_mode(name, present, wanted, UsageError)
    if present.types != wanted.types:
        msg = (
            f"operator state {name!r} exists with type {present.types!r}, it cannot be used "
            f"with {wanted.types!r}: use the same type, or another name"
        )
        raise UsageError(msg)
