"""Addresses of entries inside a key group: a bare key, or a key with a namespace.

Almost all state has no namespace, so its address is the key itself. An address with a namespace is
a tuple that begins with a private mark, which no user key can contain.
"""

from __future__ import annotations

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
