"""Jobs on a disk that really fills up: run in a process of its own, on a file system of its own.

`python -m tests.harness.full_disk DIRECTORY` mounts a small memory file system there; the caller
gives it a mount namespace (`unshare`), so nobody else sees it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from tests.unit.offline.samples import SAVEPOINT, job

from weir.checkpoint.store import list_completed, load_checkpoint, verify_files
from weir.errors import JobExecutionError, StorageError
from weir.storage.local import LocalStorage

BYTES = 512 << 10
KINDS = ("hashmap", "hashmap-incremental", "hashmap-changelog", "rocksdb-incremental")


class Disk:
    def __init__(self, root: Path) -> None:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "tmpfs", str(root)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            raise SystemExit(77)
        self.root = root
        self._ballast = root / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as out:
            try:
                while True:
                    out.write(bytes(4096))
            except OSError:
                pass

    def free(self) -> None:
        self._ballast.unlink()

    def files(self) -> list[str]:
        """Return every file, hidden ones too."""
        found = (p for p in self.root.rglob("*") if p.is_file() and p != self._ballast)
        return sorted(p.relative_to(self.root).as_posix() for p in found)


def check_storage(disk: Disk) -> None:
    storage = LocalStorage(str(disk.root / "storage"))
    disk.fill()
    message = ""
    try:
        storage.create("a/b", bytes(64 << 10))
    except StorageError as error:
        message = str(error)
    expect(f"cannot write '{disk.root}/storage/a/b': No space left on device" in message, message)
    expect(disk.files() == [], disk.files())
    disk.free()
    storage.create("a/b", bytes(64 << 10))
    storage.delete_tree("a")


def check_job(disk: Disk, kind: str, warnings: list[str]) -> None:
    harness = job(disk.root / kind, kind, wait_for_checkpoints=True)
    harness.run_epoch(take=6, checkpoint=True)
    before = disk.files()
    disk.fill()
    warnings.clear()
    harness.run_epoch(take=6, checkpoint=True)
    asked = harness.runner.savepoint(f"file://{disk.root}/savepoints/{SAVEPOINT}")
    harness.run_epoch(take=1)
    refused = str(asked.exception(timeout=0))
    expect("No space left on device" in " ".join(warnings), warnings)
    expect("No space left on device" in refused, refused)
    expect(harness.runner.history.view().failed == 2, harness.runner.history.view())
    expect(disk.files() == before, (before, disk.files()))
    expect(not (disk.root / "savepoints").exists(), "a directory of the savepoint")
    expect(not list(disk.root.glob("*/*/chk-2")), "a directory of the checkpoint")
    disk.free()
    retry = harness.runner.savepoint(f"file://{disk.root}/savepoints/{SAVEPOINT}")
    harness.run_epoch(take=1)
    expect(retry.exception(timeout=0) is None, retry)
    expect(load_checkpoint(LocalStorage(str(disk.root / "savepoints")), SAVEPOINT) is not None, "")
    harness.run_epoch(take=6, checkpoint=True)
    expect(harness.runner.history.view().completed == 3, harness.runner.history.view())
    storage = LocalStorage(str(disk.root / kind))
    for stored in list_completed(storage, harness.job_id):
        problems = verify_files(storage, stored.directory, stored.metadata)
        expect(problems == [], problems)
    harness.kill_slot(0)
    harness.fail_over()
    harness.run()
    numbers = sorted(harness.collected())
    expect(numbers == list(range(1, 61)), numbers)
    for name in (kind, "savepoints"):
        subprocess.run(["rm", "-rf", str(disk.root / name)], check=True)


def expect(holds: bool, found: object) -> None:
    if not holds:
        msg = f"found {found!r}"
        raise JobExecutionError(msg)


class _Notes(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def main() -> None:
    notes = _Notes()
    logging.getLogger("weir").addHandler(notes)
    disk = Disk(Path(sys.argv[1]))
    check_storage(disk)
    for kind in KINDS:
        check_job(disk, kind, notes.messages)
        os.write(1, f"{kind} survived\n".encode())


if __name__ == "__main__":
    main()
