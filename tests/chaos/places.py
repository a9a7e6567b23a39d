"""Where checkpoints lie, a disk or a bucket behind a proxy, and how their files are damaged."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import re
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import servers
from tests.chaos.proxy import Proxy

from weir.checkpoint.metadata import SourcePositions
from weir.checkpoint.paths import checkpoint_id_of, metadata_path, resolve
from weir.checkpoint.store import load_checkpoint
from weir.spark.positions import LOG_DIRECTORY, offset_of
from weir.storage import StorageOptions, open_storage
from weir.storage.base import Storage
from weir.storage.local import LocalStorage

TMPFS_BYTES = 256 << 20
HOW = ("flip", "cut", "gone")
FILE_KINDS = ("metadata", "data", "shared", "source log")
# In this order neighbours differ in both.
PAIRS = [(FILE_KINDS[n % 4], HOW[n % 3]) for n in range(12)]


def without_s3() -> str:
    """Say why there can be no bucket here; "" if there can."""
    found = importlib.util.find_spec("moto") is not None
    return "" if found else "the S3 test server needs the package moto"


class Mount:
    """A small file system of its own for checkpoints, if this user may make one."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.made = quiet("mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", path)
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave no room."""
        with self._filler.open("wb") as out:
            try:
                while True:
                    out.write(b"x" * (1 << 20))
                    out.flush()
            except OSError:
                return

    def empty(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)

    def read_only(self, *, on: bool) -> None:
        """Refuse all writing, or allow it again."""
        mode = "ro" if on else "rw"
        while not quiet("mount", "-o", f"remount,{mode}", self._path) and not on:
            continue

    def close(self) -> None:
        """Take it away; may be called twice."""
        made, self.made = self.made, False
        if made:
            self.read_only(on=False)
            quiet("umount", "-l", self._path)


def quiet(*words: object) -> bool:
    """Run a command; tells whether it went well."""
    done = subprocess.run(list(map(str, words)), capture_output=True, check=False)
    return done.returncode == 0


class Disk:
    """Checkpoints in a directory that is a file system of its own, where that is possible."""

    proxy: Proxy | None = None

    def __init__(self, root: Path, *, mount: bool = True) -> None:
        folder = root / "checkpoints"
        self.mount = Mount(folder) if mount else None
        self.storage: Storage = open_storage(folder.as_uri())
        self.settings: dict[str, str] = {"execution.checkpointing.dir": folder.as_uri()}

    def close(self) -> None:
        """Take the file system away."""
        if self.mount is not None:
            self.mount.close()


class Bucket:
    """Checkpoints in a bucket of a server on loopback; the job reaches it through a proxy."""

    mount: Mount | None = None

    def __init__(self, root: Path, seed: int) -> None:
        self._stack = contextlib.ExitStack()
        address = self._stack.enter_context(servers.s3_server(root))
        servers.make_bucket(address, "bucket")
        self.proxy: Proxy | None = Proxy(int(address.rpartition(":")[2]), seed)
        uri = "s3a://bucket/checkpoints"
        who = {"s3_access_key": "key", "s3_secret_key": "secret", "s3_region": "us-east-1"}
        self.storage: Storage = open_storage(uri, StorageOptions(s3_endpoint=address, **who))
        self.settings: dict[str, str] = {
            "execution.checkpointing.dir": uri,
            "s3.endpoint": f"http://127.0.0.1:{self.proxy.port}",
            "s3.region": "us-east-1",
            "s3.access-key": "key",
            "s3.secret-key": "secret",
            "weir.work-dir": str(root / "work"),
        }

    def close(self) -> None:
        """End the proxy and the server."""
        if self.proxy is not None:
            self.proxy.close()
        self._stack.close()


def newest_checkpoint(storage: Storage) -> str | None:
    """Return the directory of the newest complete checkpoint of all jobs below a root.

    Every job of a run starts from the newest checkpoint of the one before it, and counts on.
    """
    found = [
        (number, f"{job}/{name}")
        for job in storage.list()
        for name in storage.list(job)
        if (number := checkpoint_id_of(name)) is not None
        and storage.exists(metadata_path(f"{job}/{name}"))
    ]
    return max(found)[1] if found else None


def files_of(storage: Storage, directory: str) -> dict[str, list[str]]:
    """Return the files of a checkpoint by their kind, one of `FILE_KINDS`."""
    checkpoint = load_checkpoint(storage, directory)
    files: dict[str, list[str]] = {"metadata": [metadata_path(directory)]}
    for record in checkpoint.files:
        if record.data is None:
            path = resolve(directory, record.path)
            kind = "data" if path.startswith(f"{directory}/") else "shared"
            files.setdefault(kind, []).append(path)
    logs = list(_source_logs(storage, checkpoint.sources))
    files |= {"source log": logs} if logs else {}
    return {kind: sorted(set(paths)) for kind, paths in files.items()}


def _source_logs(storage: Storage, positions: SourcePositions) -> Iterator[str]:
    """Return the logs of sources that are too large to be in the metadata, which refers to them.

    Only files without which the position cannot be had: those behind the newest compact file, whose
    lines are nowhere else.
    """
    origin = positions.source_logs.get(LOG_DIRECTORY)
    if origin is None or not isinstance(storage, LocalStorage):
        return
    query, root = Path(origin), Path(storage.root)
    if not query.is_relative_to(root):
        return
    for entry in positions.layout:
        found = re.fullmatch(r'\{"logOffset":([0-9]+)\}', offset_of(positions, entry.index))
        if found is None or f"sources/{entry.index}/" in positions.source_logs:
            continue
        last = int(found[1])
        folder = query / "sources" / str(entry.index)
        compact = [int(p.stem) for p in folder.glob("[0-9]*.compact")]
        for number in range(max(compact, default=-1) + 1, last + 1):
            if (folder / str(number)).is_file():
                yield str((folder / str(number)).relative_to(root))


class DamageTurns:
    """Which kind of file is damaged in which way: all pairs take turns, from the seed on."""

    def __init__(self, seed: int) -> None:
        start = 5 * seed % len(PAIRS)
        self._order = PAIRS[start:] + PAIRS[:start]
        self.done: Counter[tuple[str, str]] = Counter()

    def next(self, kinds: Collection[str]) -> tuple[str, str]:
        """Return the pair whose turn it is, of kinds that a checkpoint has."""
        able = [pair for pair in self._order if pair[0] in kinds]
        chosen = min(able, key=lambda pair: self.done[pair])
        self.done[chosen] += 1
        return chosen


@dataclass(frozen=True)
class Damage:
    """What was done to a file, and what it was."""

    directory: str
    kind: str
    how: str
    path: str
    whole: bytes

    def __str__(self) -> str:
        return f"{self.kind} file {self.how}"

    def mend(self, storage: Storage) -> None:
        """Bring the file back as it was."""
        storage.delete(self.path)
        storage.create(self.path, self.whole)


def damage(storage: Storage, directory: str, victim: int, turns: DamageTurns) -> Damage:
    """Flip a bit of a checkpoint's file, cut it, or take it away; `victim` chooses the file."""
    rng = random.Random(f"damage {victim}")
    files = files_of(storage, directory)
    kind, how = turns.next(files)
    path = rng.choice(files[kind])
    whole = storage.read(path)
    how = how if whole else "gone"
    storage.delete(path)
    if how != "gone":
        storage.create(path, changed(whole, how, rng))
    return Damage(directory, kind, how, path, whole)


def changed(whole: bytes, how: str, rng: random.Random) -> bytes:
    """Return bytes with one bit flipped, or only a beginning of them."""
    place = rng.randrange(len(whole))
    if how == "cut":
        return whole[:place]
    return whole[:place] + bytes([whole[place] ^ (1 << rng.randrange(8))]) + whole[place + 1 :]
