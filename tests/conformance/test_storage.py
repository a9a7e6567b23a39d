"""Every storage that Weir ships passes the storage contract."""

from __future__ import annotations

from pathlib import Path

from weir.storage import LocalStorage, MemoryStorage, Storage
from weir.testing.faulty_storage import FaultyStorage
from weir.testing.storage_conformance import StorageConformance


class TestLocalStorage(StorageConformance):
    """Files in a directory."""

    def make_storage(self, tmp_path: Path) -> Storage:
        """Return a storage whose root does not exist yet."""
        return LocalStorage(str(tmp_path / "not yet" / "root"))


class TestMemoryStorage(StorageConformance):
    """Files in memory."""

    def make_storage(self, tmp_path: Path) -> Storage:
        """Return a storage of its own."""
        return MemoryStorage()


class TestFaultyStorageWithoutFaults(StorageConformance):
    """The wrapper changes nothing until it is told to."""

    def make_storage(self, tmp_path: Path) -> Storage:
        """Return a storage that only counts."""
        return FaultyStorage(LocalStorage(str(tmp_path)))

    def test_it_survives_pickling_and_its_uri(self, storage: Storage) -> None:
        """A wrapper with a plan stays in its process; the inner storage is what travels."""
        assert storage.uri.startswith("file://")
