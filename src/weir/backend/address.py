"""Addresses of entries inside a key group: a bare key, or a key with a namespace.

Almost all state has no namespace, so its address is the key itself. An address with a namespace is
a tuple that begins with a private mark, which no user key can contain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import is_, itemgetter
from typing import Any, Final

from weir.backend.base import VOID

_MARK: Final = object()


def address_of(key: Any, namespace: Any) -> Any:
    """Return the address of a key in a namespace."""
    return key if namespace is VOID else (_MARK, key, namespace)


def split_address(address: Any) -> tuple[Any, Any]:
    """Return key and namespace of an address."""
    if address.__class__ is tuple and len(address) == 3 and address[0] is _MARK:
        return address[1], address[2]
    return address, VOID


def addresses_of(keys: Iterable[Any], namespace: Any) -> list[Any]:
    """Return the addresses of many keys in one namespace, without running Python code for each."""
    if namespace is VOID:
        return list(keys)
    return list(zip(repeat(_MARK), keys, repeat(namespace)))


def split_all(addresses: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
    """Return the keys and the namespaces of addresses; None when some have no namespace."""
    if set(map(type, addresses)) != {tuple} or set(map(len, addresses)) != {3}:
        return None
    if not all(map(is_, map(itemgetter(0), addresses), repeat(_MARK))):
        return None
    return list(map(itemgetter(1), addresses)), list(map(itemgetter(2), addresses))
