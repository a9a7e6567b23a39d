"""Where tests put databases: in memory where the system offers that, because they sync a lot."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weir.backend.factory import BackendContext, BackendSettings
from weir.backend.rocksdb import RocksDBBackend, TrackedRocksDBBackend
from weir.common.typeinfo import Types
from weir.keygroup import KeyGroupRange

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
ALL = KeyGroupRange(0, 127)


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Give a directory that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="weir-test-", dir=MEMORY) as directory:
        yield Path(directory)


class Databases:
    """Makes RocksDB backends in one directory, and closes them all."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.made: list[RocksDBBackend] = []

    def backend(
        self,
        options: dict[str, Any] | None = None,
        key_groups: KeyGroupRange = ALL,
        key_type: Any = Types.STRING(),  # noqa: B008 - types are constants
    ) -> Any:
        settings = BackendSettings("rocksdb", incremental=True, options=options or {})
        context = BackendContext(settings, local_dir=self.directory)
        self.made.append(RocksDBBackend(context, key_type, key_groups))
        return self.made[-1]

    def tracked(
        self,
        options: dict[str, Any] | None = None,
        key_groups: KeyGroupRange = ALL,
        key_type: Any = Types.STRING(),  # noqa: B008 - types are constants
    ) -> Any:
        settings = BackendSettings("rocksdb", changelog=True, options=options or {})
        context = BackendContext(settings, local_dir=self.directory)
        self.made.append(TrackedRocksDBBackend(context, key_type, key_groups))
        return self.made[-1]

    def close(self) -> None:
        for backend in self.made:
            backend.close()
