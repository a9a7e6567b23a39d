"""What the hashmap backend offers to `weir.backend.registry`."""

from __future__ import annotations

from typing import Any

from weir.backend.context import BackendContext
from weir.backend.hashmap.backend import HashMapBackend
from weir.backend.hashmap.one_key import OneKeyBackend
from weir.backend.registry import BackendProvider
from weir.keygroup import KeyGroupRange


def _create(
    context: BackendContext, key_type: Any, key_groups: KeyGroupRange, namespace_type: Any
) -> HashMapBackend:
    if context.settings.one_key:
        return OneKeyBackend(key_type, key_groups, namespace_type)
    tracked = context.settings.incremental
    return HashMapBackend(key_type, key_groups, namespace_type, tracked=tracked)


def _create_tracked(
    _: BackendContext, key_type: Any, key_groups: KeyGroupRange, namespace_type: Any
) -> HashMapBackend:
    return HashMapBackend(key_type, key_groups, namespace_type, tracked=True)


PROVIDER = BackendProvider(_create, _create_tracked)
