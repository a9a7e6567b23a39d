"""From a URI, as users write it in settings and commands, to a storage.

A plain path means the local file system. Further file systems plug in here, behind the same
protocol.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from weir.errors import UsageError
from weir.storage.base import Storage
from weir.storage.local import LocalStorage
from weir.storage.memory import MemoryStorage


def open_storage(uri: str) -> Storage:
    """Open the storage whose root is at a URI; nothing is created before the first write.

    Raises:
        UsageError: the scheme is not supported, or the URI names another host.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return LocalStorage(_local_path(uri))
    if scheme == "memory":
        return MemoryStorage(rest)
    if scheme == "file":
        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost"):
            msg = f"{uri!r} names the host {parts.netloc!r}; write file:///path with three slashes"
            raise UsageError(msg)
        return LocalStorage(_local_path(unquote(parts.path)))
    msg = (
        f"storage scheme {scheme!r} of {uri!r} is not supported: use a plain path, "
        "file:///path on a file system that all hosts share, or memory://name"
    )
    raise UsageError(msg)


def _local_path(text: str) -> str:
    path = text.removeprefix("file:") if text.startswith("file:/") else text
    if not path:
        msg = f"storage path {text!r} is empty: expected a directory"
        raise UsageError(msg)
    return path
