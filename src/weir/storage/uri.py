"""From a URI, as users write it in settings and commands, to a storage.

A plain path means the local file system. Every other file system plugs in here, behind the same
protocol.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from weir.errors import UsageError
from weir.storage.base import Storage, is_text
from weir.storage.local import LocalStorage
from weir.storage.memory import MemoryStorage
from weir.storage.object_client import OBJECT_SCHEMES, parse_location
from weir.storage.objectstore import ObjectStorage
from weir.storage.options import StorageOptions
from weir.storage.webhdfs import HDFS_SCHEMES, WebHdfsStorage


def open_storage(uri: str, options: StorageOptions | None = None) -> Storage:
    """Open the storage whose root is at a URI; nothing is created before the first write.

    Options that are not given come from the environment of this process.

    Raises:
        UsageError: the scheme is not supported, its library is missing, the URI names another
            host, or it is no text.
    """
    _check_text(unquote(uri) if uri.startswith("file:") else uri)
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
    if scheme in OBJECT_SCHEMES:
        return ObjectStorage(parse_location(uri), options)
    if scheme in HDFS_SCHEMES:
        return WebHdfsStorage(uri, options)
    msg = (
        f"storage scheme {scheme!r} of {uri!r} is not supported: use a plain path or file:///path "
        "on a file system that all hosts share, s3://, gs://, abfss://, hdfs://, or memory://name"
    )
    raise UsageError(msg)


def _local_path(text: str) -> str:
    path = text.removeprefix("file:") if text.startswith("file:/") else text
    if not path:
        msg = f"storage path {text!r} is empty: expected a directory"
        raise UsageError(msg)
    return path


def _check_text(uri: str) -> None:
    if not is_text(uri):
        msg = f"storage path {uri!r} is not allowed: it has NUL, or bytes that are no UTF-8"
        raise UsageError(msg)
