"""Which files of a restored checkpoint the next ones may go on with."""

from __future__ import annotations

from weir.backend.base import NATIVE_PREFIX, RESERVED_PREFIX, RestoreSource, StateLayer
from weir.keygroup import KeyGroupRange
from weir.snapshot import FileHandle


def reusable_layers(
    sources: list[RestoreSource], key_groups: KeyGroupRange
) -> tuple[FileHandle, ...] | None:
    """Return the layers that hold all states of these key groups and nothing else.

    None when there are none: the files are not to be used again, they hold other key groups too
    or not all of them, or states are in the checkpoint's own file, which goes with it.
    """
    if len(sources) != 1:
        return None
    source = sources[0]
    same = source.stored == source.key_groups == key_groups
    if not (source.reusable and same and source.layers):
        return None
    *shared, own = source.layers
    handles = tuple(layer.handle for layer in shared if layer.handle is not None)
    if len(handles) != len(shared) or _holds_states(own) or any(map(_is_native, source.layers)):
        return None
    return handles


def _holds_states(layer: StateLayer) -> bool:
    states = layer.states.items()
    return any(e["groups"] for name, e in states if not name.startswith(RESERVED_PREFIX))


def _is_native(layer: StateLayer) -> bool:
    return any(name.startswith(NATIVE_PREFIX) for name in layer.states)
