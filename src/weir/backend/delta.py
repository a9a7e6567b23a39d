"""Changes to one key group of one state, and their bytes.

A delta is applied in three steps: drop the addresses in `cleared`, drop the map keys in `removed`,
then merge `put`: values are set, list elements appended, map entries put. It therefore describes a
big list or map by what changed in it. On disk it is a MessagePack array of three::

    [cleared, removed, put]

each of them nil or a group as in `weir.backend.group_format`; `cleared` is a group of booleans,
`removed` a group of lists of map keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from weir.backend.group_format import GroupFormat
from weir.backend.kinds import Shape, StateKind
from weir.codec import codec_for
from weir.common.typeinfo import Types
from weir.errors import CorruptStateError
from weir.keys import one_nan_many

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(tuple[bytes | None, bytes | None, bytes | None]).decode


@dataclass
class GroupDelta:
    """What changed in a key group, by address."""

    cleared: list[Any] = field(default_factory=list)
    removed: dict[Any, list[Any]] = field(default_factory=dict)
    put: dict[Any, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Count the addresses that are touched, those touched twice twice."""
        return len(self.cleared) + len(self.removed) + len(self.put)


def encode_delta(group_format: GroupFormat, delta: GroupDelta) -> bytes:
    """Return the bytes of a delta."""
    cleared = removed = put = None
    if delta.cleared:
        cleared = _cleared_format(group_format).encode(delta.cleared, [True] * len(delta.cleared))
    if delta.removed:
        keys = list(delta.removed.values())
        removed = _removed_format(group_format).encode(list(delta.removed), keys)
    if delta.put:
        put = group_format.encode(list(delta.put), list(delta.put.values()))
    return _encode((cleared, removed, put))


def decode_delta(group_format: GroupFormat, data: bytes, name: str) -> GroupDelta:
    """Return the delta in some bytes; `name` is the file.

    Raises:
        CorruptStateError: the bytes are not a delta of this format.
    """
    try:
        cleared, removed, put = _decode(data)
    except msgspec.MsgspecError as e:
        msg = f"the changes of a key group in {name!r} are not in the delta format: {e}"
        raise CorruptStateError(msg) from e
    delta = GroupDelta()
    if cleared is not None:
        delta.cleared = [a for a, _ in _cleared_format(group_format).decode(cleared, name)]
    if removed is not None:
        entries = _removed_format(group_format).decode(removed, name)
        delta.removed = {address: one_nan_many(keys) for address, keys in entries}
    if put is not None:
        delta.put = dict(group_format.decode(put, name))
    return delta


def apply_delta(entries: dict[Any, Any], delta: GroupDelta, shape: Shape) -> None:
    """Change decoded entries of a state as the delta says."""
    for address in delta.cleared:
        entries.pop(address, None)
    for address, keys in delta.removed.items():
        found = entries.get(address, {})
        for key in keys:
            found.pop(key, None)
        if not found:
            entries.pop(address, None)
    if shape is Shape.LIST:
        for address, elements in delta.put.items():
            entries.setdefault(address, []).extend(elements)
    elif shape is Shape.MAP:
        for address, changed in delta.put.items():
            entries.setdefault(address, {}).update(changed)
    else:
        entries.update(delta.put)


def _cleared_format(of: GroupFormat) -> GroupFormat:
    return GroupFormat(StateKind.VALUE, of.key, of.namespace, codec_for(Types.BOOLEAN()))


def _removed_format(of: GroupFormat) -> GroupFormat:
    if of.map_key is None:
        msg = "map keys were removed from a state that is no map"
        raise CorruptStateError(msg)
    return GroupFormat(StateKind.LIST, of.key, of.namespace, of.map_key)
