"""Storage in HDFS, through its REST interface WebHDFS.

Invariant: a name shows up only with all its bytes. A file is written under a hidden temporary name
in the same directory and renamed, which HDFS does atomically and refuses when the name is taken.
Files are never appended to or overwritten. "Durable" means what HDFS means by a closed file: its
blocks are on the DataNodes of the first replicas.
"""

from __future__ import annotations

import contextlib
import getpass
import http.client
import io
import os
import posixpath
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast
from urllib.parse import urlsplit

from weir.errors import StorageError, UsageError
from weir.ids import unique_suffix
from weir.storage.base import (
    AlreadyExistsError,
    MissingFileError,
    Names,
    check_path,
    check_range,
)
from weir.storage.options import StorageOptions
from weir.storage.webhdfs_client import Refusal, WebHdfsClient, connection_to, explained, finish

HDFS_SCHEMES: Final = ("hdfs", "webhdfs", "swebhdfs")
ADDRESS_VARIABLE: Final = "WEIR_WEBHDFS_ADDRESS"
_HTTP_PORT: Final = 9870
_HTTPS_PORT: Final = 9871
_WRITE_TRIES: Final = 3


class WebHdfsStorage:
    """Files below a directory of HDFS."""

    def __init__(self, uri: str, options: StorageOptions | None = None) -> None:
        """Work out the addresses; no request is sent.

        Raises:
            UsageError: the URI names no host, or an address is not one.
        """
        self._given = uri.rstrip("/")
        self._options = options or StorageOptions()
        parts = urlsplit(uri)
        self._root = "/" + parts.path.strip("/")
        user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        self._client = WebHdfsClient(_addresses(uri, self._options), user)

    @property
    def uri(self) -> str:
        """Where the root is."""
        return self._given

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with self._explained("read", path):
            return self._client.open(self._full(path), 0, None)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer only where the file ends."""
        check_range(path, offset, length)
        if length == 0:
            self.size(path)
            return b""
        with self._explained("read", path):
            try:
                return self._client.open(self._full(path), offset, length)
            except Refusal:
                # A range that begins behind the end is refused.
                if offset >= self.size(path):
                    return b""
                raise

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        with self._explained("read", path):
            status = self._status(self._full(path))
        if status["type"] != "FILE":
            msg = f"cannot read {self.uri}/{path}: it is a directory"
            raise MissingFileError(msg)
        return int(status["length"])

    def exists(self, path: str) -> bool:
        """Tell whether a file of this name is visible."""
        try:
            self.size(path)
        except MissingFileError:
            return False
        return True

    def create(self, path: str, data: bytes) -> None:
        """Make a file, complete on return; an existing name is refused."""
        # A broken try leaves nothing under the final name: the next one starts from the beginning.
        for _ in range(_WRITE_TRIES - 1):
            with contextlib.suppress(_BrokenWriteError):
                return self._write(path, data)
        return self._write(path, data)

    def _write(self, path: str, data: bytes) -> None:
        with self.open_write(path) as file:
            file.write(data)

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[BinaryIO]:
        """Open a new file for writing; it becomes visible when the block ends normally.

        What is written goes to a DataNode at once. A connection that breaks ends the write with
        an error; the temporary file is deleted then, as after any failure of the block.
        """
        final = self._full(path)
        directory, name = posixpath.split(final)
        temporary = f"{directory}/.{name}.{unique_suffix()}.tmp"
        with self._explained("write", path):
            self._refuse_taken(path, final)
            place = self._client.place(temporary)
        try:
            with self._explained("write", path), connection_to(place) as (connection, target):
                file = _Content(connection, target, f"{self.uri}/{path}")
                yield cast(BinaryIO, file)
                file.end()
            with self._explained("commit", path):
                self._refuse_taken(path, final)
                self._rename(path, temporary, final)
        except BaseException:
            with contextlib.suppress(Refusal):
                self._client.call("DELETE", temporary, "DELETE")
            raise

    def _refuse_taken(self, path: str, final: str) -> None:
        """Refuse a name that exists; renaming onto a directory would move the file into it."""
        with contextlib.suppress(MissingFileError), self._explained("read", path):
            self._status(final)
            raise self._taken(path)

    def _rename(self, path: str, temporary: str, final: str) -> None:
        """Give the file its name, or tell that the name is taken.

        The temporary name is ours alone. When it is gone although the server says no, an earlier
        request whose answer was lost has done it.
        """
        done = self._client.call("PUT", temporary, "RENAME", destination=final).get("boolean")
        if done:
            return
        try:
            self._status(temporary)
        except Refusal as refusal:
            if refusal.missing and self.exists(path):
                return
            raise
        if self.exists(path):
            raise self._taken(path)
        msg = f"cannot write {self.uri}/{path}: HDFS did not rename {temporary!r}"
        raise StorageError(msg)

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        with self._explained("delete", path):
            self._client.call("DELETE", self._full(path), "DELETE", recursive="false")

    def delete_tree(self, path: str) -> None:
        """Remove a directory with everything below it, also remains of aborted writes."""
        with self._explained("delete", path):
            self._client.call("DELETE", self._full(path), "DELETE", recursive="true")

    def list(self, directory: str = "") -> Names:
        """Return the sorted names of the files and directories directly inside a directory."""
        full = self._full(directory) if directory else self._root
        try:
            with self._explained("list", directory):
                found = self._client.call("GET", full, "LISTSTATUS")
        except MissingFileError:
            return []
        names = (status["pathSuffix"] for status in found["FileStatuses"]["FileStatus"])
        return sorted(name for name in names if name and not name.startswith("."))

    def __eq__(self, other: object) -> bool:
        """Two storages are equal when they are in the same place."""
        return isinstance(other, WebHdfsStorage) and other._given == self._given

    def __hash__(self) -> int:
        """Follow equality."""
        return self._given.__hash__()

    def __repr__(self) -> str:
        """Read as the constructor call."""
        return f"WebHdfsStorage({self.uri!r}, {self._options!r})"

    def _full(self, path: str) -> str:
        return posixpath.join(self._root, check_path(path))

    def _status(self, full: str) -> dict[str, Any]:
        return dict(self._client.call("GET", full, "GETFILESTATUS")["FileStatus"])

    def _taken(self, path: str) -> AlreadyExistsError:
        msg = f"cannot write {self.uri}/{path}: it already exists and is never overwritten"
        return AlreadyExistsError(msg)

    @contextlib.contextmanager
    def _explained(self, verb: str, path: str) -> Iterator[None]:
        """Turn a refusal into a `StorageError` that names the path."""
        try:
            yield
        except Refusal as refusal:
            if refusal.missing:
                msg = f"cannot {verb} {self.uri}/{path}: there is no such file"
                raise MissingFileError(msg) from refusal
            if refusal.taken:
                raise self._taken(path) from refusal
            broken = verb == "write" and refusal.passing
            error = explained(verb, f"{self.uri}/{path}", refusal)
            raise (_BrokenWriteError(str(error)) if broken else error) from refusal


class _BrokenWriteError(StorageError):
    """The way to the DataNode broke; writing again under another temporary name may work."""


class _Content(io.BufferedIOBase):
    """The content of a file on its way to a DataNode, in chunks of the HTTP request."""

    def __init__(self, connection: http.client.HTTPConnection, target: str, name: str) -> None:
        self._connection = connection
        self._name = name
        self._position = 0
        self._waiting = bytearray()
        connection.putrequest("PUT", target)
        connection.putheader("Content-Type", "application/octet-stream")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._position += size
        self._waiting += data
        if len(self._waiting) >= 1 << 16:
            self._send()
        return size

    def _send(self) -> None:
        if self._waiting:
            try:
                self._connection.send(b"%x\r\n%b\r\n" % (len(self._waiting), bytes(self._waiting)))
            except OSError as error:
                msg = f"cannot write {self._name}: {error}"
                raise _BrokenWriteError(msg) from error
            self._waiting = bytearray()

    def end(self) -> None:
        """Send the rest and wait until HDFS has all of it."""
        self._send()
        self._connection.send(b"0\r\n\r\n")
        finish(self._connection)


def _addresses(uri: str, options: StorageOptions) -> tuple[str, ...]:
    """Return the base URLs of the NameNodes: as set, or the host of the URI with its HTTP port."""
    scheme, host = urlsplit(uri).scheme, urlsplit(uri).hostname
    given = options.webhdfs_address or os.environ.get(ADDRESS_VARIABLE)
    if given and scheme == "hdfs":
        found = [part.strip().rstrip("/") for part in given.split(",") if part.strip()]
        return tuple(part if "://" in part else f"http://{part}" for part in found)
    if not host:
        msg = f"storage URI {uri!r} names no host: expected {scheme}://namenode:port/path"
        raise UsageError(msg)
    if scheme == "hdfs":
        return (f"http://{host}:{_HTTP_PORT}",)
    kind, port = ("https", _HTTPS_PORT) if scheme == "swebhdfs" else ("http", _HTTP_PORT)
    return (f"{kind}://{host}:{urlsplit(uri).port or port}",)
