"""What every `Storage` must do, as a suite to subclass.

Subclass `StorageConformance`, return a new empty storage from `make_storage`, and let pytest
collect the class. The suite uses nothing but the protocol.
"""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from weir.errors import UsageError
from weir.storage import AlreadyExistsError, MissingFileError, Storage, open_storage


class StorageConformance:
    """The contract of `weir.storage.Storage`."""

    def make_storage(self, tmp_path: Path) -> Storage:
        """Return a new, empty storage."""
        raise NotImplementedError

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        """Give each test its own storage."""
        return self.make_storage(tmp_path)

    def test_a_created_file_reads_back(self, storage: Storage) -> None:
        """Bytes, size and ranges are those that were written."""
        storage.create("a/b/c", b"0123456789")
        assert storage.read("a/b/c") == b"0123456789"
        assert storage.size("a/b/c") == 10
        assert storage.read_range("a/b/c", 3, 4) == b"3456"

    def test_a_range_past_the_end_is_cut(self, storage: Storage) -> None:
        """Ranges end where the file ends."""
        storage.create("f", b"0123")
        assert storage.read_range("f", 2, 100) == b"23"
        assert storage.read_range("f", 100, 1) == b""
        assert storage.read_range("f", 1, 0) == b""

    def test_a_negative_range_is_refused(self, storage: Storage) -> None:
        """Offsets never count from the end."""
        storage.create("f", b"0123")
        with pytest.raises(UsageError):
            storage.read_range("f", -1, 2)
        with pytest.raises(UsageError):
            storage.read_range("f", 0, -1)

    def test_an_empty_file_is_a_file(self, storage: Storage) -> None:
        """Nothing written is not the same as no file."""
        storage.create("empty", b"")
        assert storage.exists("empty")
        assert storage.read("empty") == b""

    def test_create_never_overwrites(self, storage: Storage) -> None:
        """The second creator is refused and the first file stays."""
        storage.create("f", b"first")
        with pytest.raises(AlreadyExistsError):
            storage.create("f", b"second")
        assert storage.read("f") == b"first"

    def test_of_many_creators_exactly_one_wins(self, storage: Storage) -> None:
        """Create decides races."""
        won: list[int] = []
        start = threading.Barrier(8)

        def run(i: int) -> None:
            start.wait()
            try:
                storage.create("race/f", b"%d" % i)
            except AlreadyExistsError:
                return
            won.append(i)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert storage.read("race/f") == b"%d" % won[0]
        assert storage.list("race") == ["f"]

    def test_a_written_file_is_visible_after_the_block_only(self, storage: Storage) -> None:
        """Readers never see a part of a file."""
        with storage.open_write("d/f") as file:
            file.write(b"one")
            file.write(b"two")
            assert not storage.exists("d/f")
            assert storage.list("d") == []
        assert storage.read("d/f") == b"onetwo"

    def test_an_aborted_write_leaves_nothing(self, storage: Storage) -> None:
        """The name stays free."""

        def write_and_stop() -> None:
            with storage.open_write("d/f") as file:
                file.write(b"half")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_and_stop()
        assert not storage.exists("d/f")
        assert storage.list("d") == []
        storage.create("d/f", b"whole")
        assert storage.read("d/f") == b"whole"

    def test_open_write_never_overwrites(self, storage: Storage) -> None:
        """A taken name is refused, also when it is taken while writing."""

        def write(taken_meanwhile: bool) -> None:
            name = "late" if taken_meanwhile else "f"
            with storage.open_write(name) as file:
                file.write(b"second")
                if taken_meanwhile:
                    storage.create(name, b"first")

        storage.create("f", b"first")
        for taken_meanwhile, name in ((False, "f"), (True, "late")):
            with pytest.raises(AlreadyExistsError):
                write(taken_meanwhile)
            assert storage.read(name) == b"first"
        assert storage.list() == ["f", "late"]

    def test_missing_files_are_named(self, storage: Storage) -> None:
        """Reading and measuring say which file is missing."""
        assert not storage.exists("no/such")
        with pytest.raises(MissingFileError, match="no/such"):
            storage.read("no/such")
        with pytest.raises(MissingFileError, match="no/such"):
            storage.read_range("no/such", 0, 1)
        with pytest.raises(MissingFileError, match="no/such"):
            storage.size("no/such")

    def test_delete_is_idempotent(self, storage: Storage) -> None:
        """A second delete is fine, and the name is free again."""
        storage.create("f", b"1")
        storage.delete("f")
        storage.delete("f")
        storage.delete("never/was")
        assert not storage.exists("f")
        storage.create("f", b"2")
        assert storage.read("f") == b"2"

    def test_delete_tree_removes_all_below_and_nothing_beside(self, storage: Storage) -> None:
        """Names that merely start alike stay."""
        for path in ("a/x", "a/b/y", "ab/z", "c"):
            storage.create(path, b"")
        storage.delete_tree("a")
        storage.delete_tree("a")
        storage.delete_tree("never")
        assert storage.list() == ["ab", "c"]
        assert storage.list("a") == []
        assert storage.exists("ab/z")

    def test_list_gives_sorted_children(self, storage: Storage) -> None:
        """Files and directories, one level, in order; nothing for a missing directory."""
        for path in ("d/2", "d/10", "d/sub/x", "e"):
            storage.create(path, b"")
        assert storage.list("d") == ["10", "2", "sub"]
        assert storage.list() == ["d", "e"]
        assert storage.list("missing") == []

    def test_a_directory_is_not_a_file(self, storage: Storage) -> None:
        """Only files exist."""
        storage.create("d/f", b"")
        assert not storage.exists("d")

    @pytest.mark.parametrize("path", ["", "/a", "a//b", "../a", "a/../b", "a/.", "a/", ".a", "a\0"])
    def test_bad_paths_are_refused(self, storage: Storage, path: str) -> None:
        """No path leaves the root or hides a file."""
        for call in (storage.read, storage.exists, storage.size, storage.delete):
            with pytest.raises(UsageError):
                call(path)
        with pytest.raises(UsageError):
            storage.create(path, b"")
        with pytest.raises(UsageError):
            storage.delete_tree(path)

    def test_it_survives_pickling_and_its_uri(self, storage: Storage) -> None:
        """A copy, and a storage opened by URI, see the same files."""
        storage.create("f", b"1")
        copy = pickle.loads(pickle.dumps(storage))
        assert copy.read("f") == b"1"
        assert open_storage(storage.uri).read("f") == b"1"
