"""State that was restored and not yet asked for: encoded, checked, carried along.

A function may register its states at any time after the restore. Until it does, the bytes are kept
as they came and go into every later snapshot unchanged, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import Any

from weir.backend.base import NATIVE_PREFIX, RESERVED_PREFIX, RestoreSource, StateLayer
from weir.backend.delta import apply_delta, decode_delta
from weir.backend.group_format import GroupFormat
from weir.backend.kinds import Shape, StateKind, stored_shape
from weir.backend.registry import ExpandNative, known_provider
from weir.codec import Codec, codec_for
from weir.codec.evolution import Compatibility, migration, require_same_key
from weir.codec.stamped import stored_type
from weir.errors import CorruptStateError, IncompatibleStateError, UsageError
from weir.keygroup import KeyGroupRange
from weir.snapshot import SnapshotWriter


@dataclass(frozen=True)
class EncodedGroup:
    """One part of a key group: all its entries, or with `delta` changes to the parts before it."""

    data: bytes
    count: int
    origin: str
    delta: bool = False


@dataclass
class RestoredState:
    """One state as its snapshots describe it."""

    name: str
    kind: str
    types: dict[str, Any]
    groups: dict[int, list[EncodedGroup]] = field(default_factory=dict)

    def stored_format(self, codec_of: Callable[[str], Codec] | None = None) -> GroupFormat:
        """Return the format of the stored types; `codec_of` chooses the codec of a part of entries.

        Raises:
            CorruptStateError: the description of one is missing or none.
        """
        kind = StateKind[self.kind] if self.kind in StateKind.__members__ else None
        needed = ["key", "namespace", "value"]
        if kind is not None and kind.shape is Shape.MAP:
            needed.append("map_key")
        chosen = codec_of or self._stored_codec
        codecs = {part: chosen(part) for part in needed}
        return GroupFormat(
            kind, codecs["key"], codecs["namespace"], codecs["value"], map_key=codecs.get("map_key")
        )

    def _stored_codec(self, part: str) -> Codec:
        return codec_for(stored_type(self.types.get(part)))

    def reader_format(self, kind: str, declared: GroupFormat, now_ms: int = 0) -> GroupFormat:
        """Return the format that reads the restored entries as values of the declared types.

        `now_ms` is the timestamp of values that begin to expire with this declaration.

        Raises:
            IncompatibleStateError: the kind or a key type differs, or the stored value type does
                not migrate to the declared one.
            CorruptStateError: the description of a stored type is none.
        """
        subject = f"state {self.name!r}"
        if self.kind != kind:
            msg = (
                f"{subject} was stored as {self.kind} and is declared as {kind}: the kind of a "
                f"state cannot change; declare it as it was stored, or give the new state "
                f"another name"
            )
            raise IncompatibleStateError(msg)
        stored = self.types.get
        require_same_key("key", stored("key"), declared.key, subject)
        require_same_key("namespace", stored("namespace"), declared.namespace, subject)
        if declared.map_key is not None:
            require_same_key("map key", stored("map_key"), declared.map_key, subject)
        value = migration(stored("value"), declared.value.type_info, now_ms, subject)
        return declared if value.kind is Compatibility.AS_IS else replace(declared, value=value)

    def entries(self, group: int, group_format: GroupFormat) -> dict[Any, Any]:
        """Decode a group's entries by address with the `reader_format`, all parts applied.

        Raises:
            CorruptStateError: the bytes are not in the group format.
            IncompatibleStateError: an undeclared value does not fit the type it gets.
        """
        entries: dict[Any, Any] = {}
        shape = stored_shape(self.kind)
        for part in self.groups[group]:
            if part.delta:
                apply_delta(entries, decode_delta(group_format, part.data, part.origin), shape)
            else:
                entries.update(group_format.decode(part.data, part.origin))
        return entries

    def write(self, writer: SnapshotWriter) -> dict[str, Any]:
        """Write the groups through and return the footer entry."""
        groups = {
            str(group): [[*writer.section(p.data), p.count, int(p.delta)] for p in parts]
            for group, parts in self.groups.items()
        }
        return {"kind": self.kind, "type": self.types, "groups": groups}


def common_sources(
    sources: list[RestoreSource],
    key_groups: KeyGroupRange,
    names: Container[str] | None = None,
    *,
    plain: bool = False,
) -> list[RestoreSource]:
    """Return sources in the format that all backends read; the same ones where they are in it.

    With `names` other states may be missing in what is returned. With `plain` no code runs: what
    was pickled inside of a native format is plain data.

    Raises:
        UsageError: what a native format needs is not installed, or it is not plain.
        IncompatibleStateError: no backend reads a native format.
        CorruptStateError: a file is damaged.
    """
    return [_common(source, key_groups, names, plain=plain) for source in sources]


def _common(
    source: RestoreSource, key_groups: KeyGroupRange, names: Container[str] | None, *, plain: bool
) -> RestoreSource:
    entries = {n for layer in source.layers for n in layer.states if n.startswith(NATIVE_PREFIX)}
    for entry in sorted(entries):
        source = _reader(entry, source, plain=plain)(source, key_groups, names)
    return source


def _reader(entry: str, source: RestoreSource, *, plain: bool) -> ExpandNative:
    """Return what reads a footer entry that only one backend understands."""
    name = entry.removeprefix(NATIVE_PREFIX)
    found = known_provider(name)
    expand = None if found is None else found.expand_native
    if expand is None:
        msg = (
            f"{source.layers[-1].reader.name!r} holds files of a state backend {name!r} that no "
            f"backend here reads: restore it with the backend and the version of Weir that wrote "
            f"it, and take a savepoint in the canonical format"
        )
        raise IncompatibleStateError(msg)
    if not plain:
        return expand
    if found is None or found.expand_plain is None:
        msg = (
            f"{source.layers[-1].reader.name!r} holds files that only the state backend {name!r} "
            "reads, and its provider has no expand_plain that reads them without running code: "
            "allow that with unpickle=True, or --unpickle"
        )
        raise UsageError(msg)
    return found.expand_plain


def read_states(
    sources: list[RestoreSource],
    key_groups: KeyGroupRange,
    *,
    timers: bool = False,
    names: Container[str] | None = None,
) -> dict[str, RestoredState]:
    """Read the wanted key groups of all states, or those of some names, checksums verified.

    Timers are stored like states; they are read only when asked for, and then alone.

    Raises:
        CorruptStateError: a file is damaged, or two files hold the same key group.
        IncompatibleStateError: subtasks stored a state with different types.
    """
    states: dict[str, RestoredState] = {}
    for source in common_sources(sources, key_groups, names):
        wanted = source.key_groups.intersect(key_groups)
        taken: dict[str, RestoredState] = {}
        for layer in source.layers:
            for name, entry in layer.states.items():
                wrong = names is not None and name not in names
                if name.startswith(RESERVED_PREFIX) is timers and not wrong:
                    _read_layer(taken, name, entry, layer, wanted=wanted)
        for state in taken.values():
            _unite(states, state)
    return states


def _read_layer(
    states: dict[str, RestoredState],
    name: str,
    entry: Any,
    layer: StateLayer,
    wanted: KeyGroupRange,
) -> None:
    """Take a layer of one old subtask: whole groups replace what older layers said."""
    origin = layer.reader.name
    groups = {int(text): parts for text, parts in entry["groups"].items()}
    taken = [(g, part) for g in sorted(groups.keys() & set(wanted)) for part in groups[g]]
    data = layer.reader.sections([part for _, part in taken])
    state = states.get(name)
    if state is None or (state.kind, state.types) != (entry["kind"], entry["type"]):
        # A type that changed makes the state start over; its old entries were written anew.
        state = states[name] = RestoredState(name, entry["kind"], entry["type"])
    for (group, part), encoded in zip(taken, data, strict=True):
        found = EncodedGroup(encoded, part[3], origin, bool(part[4]))
        if found.delta:
            state.groups.setdefault(group, []).append(found)
        else:
            state.groups[group] = [found]


def _unite(states: dict[str, RestoredState], found: RestoredState) -> None:
    """Add what another old subtask stored of a state."""
    state = states.get(found.name)
    if state is None or not state.groups:
        states[found.name] = found
        return
    if not found.groups:
        return
    origin = next((p.origin for parts in found.groups.values() for p in parts), "a file")
    if state.kind != found.kind:
        msg = f"state {found.name!r} in {origin!r} has another kind than in its other files"
        raise CorruptStateError(msg)
    if state.types != found.types:
        # Some subtasks had migrated it when the checkpoint was taken, others had not asked for it.
        msg = (
            f"state {found.name!r} in {origin!r} has the types {found.types!r}, in other files "
            f"{state.types!r}: restore an older checkpoint, and ask for the state in open, so "
            f"that all subtasks change its type together"
        )
        raise IncompatibleStateError(msg)
    if not state.groups.keys().isdisjoint(found.groups):
        msg = f"state {found.name!r} has key groups that are in {origin!r} and in another file"
        raise CorruptStateError(msg)
    state.groups.update(found.groups)
