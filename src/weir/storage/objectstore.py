"""Storage in a bucket of an object store: S3 and what speaks its protocol, GCS, Azure.

Invariant: an object appears complete or not at all, because stores make it so; it is never renamed
or copied. Files that fit one part are created conditionally, so the store itself decides races. A
larger file is a multipart upload, for which stores offer no condition that this client can set:
the name is checked when the upload begins and once more right before it is completed. Between that
check and the completion another writer of the same name could be overwritten; names of large files
are unique to one attempt, so there is no other writer.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, cast

from weir.errors import StorageError
from weir.ids import unique_suffix
from weir.storage.base import (
    AlreadyExistsError,
    MissingFileError,
    Names,
    check_path,
    check_range,
)
from weir.storage.object_client import ObjectLocation, connect, load_obstore
from weir.storage.options import StorageOptions

PART_BYTES: Final = 16 << 20
_PARTS_AT_ONCE: Final = 2
# Every object notes who made it: a response may get lost, and then a repeated request meets its
# own object. Azure allows letters and digits only.
_WRITER: Final = "weirwriter"


class ObjectStorage:
    """Objects below a key prefix; directories are nothing but common prefixes."""

    def __init__(
        self,
        location: ObjectLocation,
        options: StorageOptions | None = None,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """Make the client; no request is sent.

        Args:
            location: where the root is.
            options: addresses and credentials; the environment fills what is missing.
            part_bytes: size of the parts of a large file; up to four of them are in memory.

        Raises:
            UsageError: the client library is not installed.
        """
        self._location = location
        self._options = options or StorageOptions()
        self._part_bytes = part_bytes
        self._client = load_obstore()
        self._store = connect(location, self._options)

    @property
    def uri(self) -> str:
        """Where the root is."""
        return self._location.uri

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        key = self._key(path)
        with self._explained("read", path):
            return bytes(self._client.get(self._store, key).bytes())

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer only where the file ends."""
        check_range(path, offset, length)
        key = self._key(path)
        if length == 0:
            self.size(path)
            return b""
        with self._explained("read", path):
            try:
                found = self._client.get_range(self._store, key, start=offset, length=length)
            except self._client.exceptions.BaseError:
                # Stores refuse a range that begins behind the end, each in its own words.
                if offset >= self.size(path):
                    return b""
                raise
            return bytes(found)

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        key = self._key(path)
        with self._explained("read", path):
            return int(self._client.head(self._store, key)["size"])

    def exists(self, path: str) -> bool:
        """Tell whether a file of this name is visible."""
        try:
            self.size(path)
        except MissingFileError:
            return False
        return True

    def create(self, path: str, data: bytes) -> None:
        """Make a file by one conditional request; an existing name is refused by the store."""
        key, writer = self._key(path), unique_suffix(24)
        with self._explained("write", path):
            for last in (False, True):
                try:
                    self._client.put(
                        self._store, key, bytes(data), mode="create", attributes={_WRITER: writer}
                    )
                except self._client.exceptions.AlreadyExistsError:
                    if not self._made_by(key, writer):
                        raise
                except self._client.exceptions.GenericError:
                    # The client does not repeat a request that the store may have carried out.
                    if self._made_by(key, writer):
                        return
                    if last:
                        raise
                    continue
                return

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[BinaryIO]:
        """Open a new file for writing; it becomes visible when the block ends normally.

        Up to `part_bytes` are kept and then created conditionally. More are uploaded in parts
        while the block writes; when it fails, the upload is aborted, and the store drops the
        parts. See the module's docstring for what is exclusive.
        """
        if self.exists(path):
            raise self._taken(path)
        upload = _Upload(
            self._part_bytes,
            lambda writer: self._client.open_writer(
                self._store,
                self._key(path),
                attributes={_WRITER: writer},
                buffer_size=self._part_bytes,
                max_concurrency=_PARTS_AT_ONCE,
            ),
            lambda: self._explained("write", path),
        )
        try:
            yield cast(BinaryIO, upload)
            if upload.parts is None:
                self.create(path, bytes(upload.head))
            elif self.exists(path):
                raise self._taken(path)
            else:
                self._complete(path, upload)
        except BaseException as error:
            upload.abort(error)
            raise

    def _complete(self, path: str, upload: _Upload) -> None:
        with self._explained("write", path):
            try:
                upload.parts.close()
            except (self._client.exceptions.BaseError, OSError):
                # Completing twice is an error of its own; the object tells whether once was enough.
                if not self._made_by(self._key(path), upload.writer):
                    raise
            upload.parts = None

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        key = self._key(path)
        with self._explained("delete", path), contextlib.suppress(FileNotFoundError):
            self._client.delete(self._store, key)

    def delete_tree(self, path: str) -> None:
        """Remove everything below a directory.

        Parts of uploads that nobody could abort, because the process died, are not objects: a
        life-cycle rule of the bucket removes them.
        """
        key = self._key(path)
        with self._explained("delete", path):
            while True:
                # Listed anew each time: pages of a listing need not survive deletions.
                page = next(iter(self._client.list(self._store, key, chunk_size=1000)), None)
                if not page:
                    return
                with contextlib.suppress(FileNotFoundError):
                    self._client.delete(self._store, [entry["path"] for entry in page])

    def list(self, directory: str = "") -> Names:
        """Return the sorted names of the files and directories directly inside a directory."""
        key = self._key(directory) if directory else self._location.prefix
        with self._explained("list", directory):
            found = self._client.list_with_delimiter(self._store, key or None)
        paths = [entry["path"] for entry in found["objects"]] + [*found["common_prefixes"]]
        names = {path.rstrip("/").rpartition("/")[2] for path in paths}
        return sorted(name for name in names if name and not name.startswith("."))

    def __eq__(self, other: object) -> bool:
        """Two storages are equal when they are in the same place."""
        return isinstance(other, ObjectStorage) and other._location == self._location

    def __hash__(self) -> int:
        """Follow equality."""
        return self._location.__hash__()

    def __repr__(self) -> str:
        """Name the place; options hide their secrets."""
        return f"ObjectStorage({self.uri!r}, {self._options!r})"

    def __reduce__(self) -> tuple[type[ObjectStorage], tuple[ObjectLocation, StorageOptions, int]]:
        """Pickle what makes the client, not its connections."""
        return ObjectStorage, (self._location, self._options, self._part_bytes)

    def _key(self, path: str) -> str:
        prefix = self._location.prefix
        return f"{prefix}/{check_path(path)}" if prefix else check_path(path)

    def _made_by(self, key: str, writer: str) -> bool:
        """Tell whether the object was made by this very write."""
        try:
            found = self._client.get(self._store, key, options={"head": True})
        except FileNotFoundError:
            return False
        return bool(found.attributes.get(_WRITER) == writer)

    def _taken(self, path: str) -> AlreadyExistsError:
        msg = f"cannot write {self.uri}/{path}: it already exists and is never overwritten"
        return AlreadyExistsError(msg)

    @contextlib.contextmanager
    def _explained(self, verb: str, path: str) -> Iterator[None]:
        """Turn what the client says into a `StorageError` that names the path."""
        try:
            yield
        except self._client.exceptions.AlreadyExistsError:
            raise self._taken(path) from None
        except FileNotFoundError as error:
            if verb == "read":
                msg = f"cannot read {self.uri}/{path}: there is no such file"
                raise MissingFileError(msg) from error
            msg = f"cannot {verb} {self.uri}/{path}: there is no bucket {self._location.bucket!r}"
            raise StorageError(msg) from error
        except (self._client.exceptions.BaseError, OSError) as error:
            reason = str(error).partition("\n")[0]
            msg = f"cannot {verb} {self.uri}/{path}: {type(error).__name__}: {reason}"
            raise StorageError(msg) from error


class _Upload(io.BufferedIOBase):
    """A file being written: `head` holds it while it fits one part, then `parts` takes it."""

    def __init__(
        self,
        part_bytes: int,
        begin: Callable[[str], Any],
        explained: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self.head = bytearray()
        self.parts: Any = None
        self.writer = unique_suffix(24)
        self._part_bytes = part_bytes
        self._begin = begin
        self._explained = explained
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._position += size
        if self.parts is None:
            self.head += data
            if len(self.head) <= self._part_bytes:
                return size
            with self._explained():
                self.parts = self._begin(self.writer)
                data, self.head = bytes(self.head), bytearray()
        with self._explained():
            self.parts.write(bytes(data))
        return size

    def abort(self, error: BaseException) -> None:
        """Abort the upload, if one began; the failure at hand is what counts."""
        parts, self.parts = self.parts, None
        if parts is not None:
            with contextlib.suppress(StorageError), self._explained():
                parts.__exit__(type(error), error, error.__traceback__)
