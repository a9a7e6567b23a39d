"""What the local storage adds to the contract: durability on disk and readable refusals."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from weir.errors import StorageError
from weir.storage import LocalStorage
from weir.storage.base import MissingFileError


@contextmanager
def tiny_files() -> Iterator[None]:
    """Let the operating system refuse files above 1000 bytes, as a full disk would.

    Only around the calls: the test runner may itself be writing to a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def hidden_files(root: Path) -> list[str]:
    return [name for _, _, files in os.walk(root) for name in files if name.startswith(".")]


def write(storage: LocalStorage, path: str, data: bytes) -> None:
    with storage.open_write(path) as file:
        for start in range(0, len(data), 100):
            file.write(data[start : start + 100])


def test_a_refused_write_names_path_and_reason_and_leaves_nothing(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    for size in (2000, 100_000):
        with tiny_files(), pytest.raises(StorageError, match=r"chk-1/data.*File too large"):
            storage.create("chk-1/data", b"x" * size)
        with tiny_files(), pytest.raises(StorageError, match=r"chk-1/data.*File too large"):
            write(storage, "chk-1/data", b"x" * size)
    assert storage.list("chk-1") == []
    assert hidden_files(tmp_path) == []


def test_a_file_in_place_of_a_directory_is_explained(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.create("a", b"")
    with pytest.raises(StorageError, match="a file stands where a directory is needed"):
        storage.create("a/b", b"")


def test_temporary_files_of_a_dead_writer_are_invisible_and_go_with_the_tree(
    tmp_path: Path,
) -> None:
    storage = LocalStorage(str(tmp_path))
    writing = storage.open_write("chk-1/data")
    writing.__enter__().write(b"half")
    assert storage.list("chk-1") == []
    assert len(hidden_files(tmp_path)) == 1
    storage.delete_tree("chk-1")
    assert hidden_files(tmp_path) == []


def test_an_error_of_the_caller_inside_the_block_passes_unchanged(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    mistake = PermissionError("not about this file")

    def fail() -> None:
        with storage.open_write("f"):
            raise mistake

    with pytest.raises(PermissionError) as caught:
        fail()
    assert caught.value is mistake


def test_a_relative_root_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage("data")
    monkeypatch.chdir("/")
    storage.create("f", b"1")
    assert (tmp_path / "data" / "f").read_bytes() == b"1"


def test_no_file_has_a_name_that_is_too_long(tmp_path: Path) -> None:
    """Metadata of strangers can name any: such a file is missing, and cannot be made."""
    storage, name = LocalStorage(str(tmp_path)), "a" * 1000
    with pytest.raises(MissingFileError):
        storage.size(name)
    with pytest.raises(MissingFileError):
        storage.read(name)
    with pytest.raises(StorageError, match="too long") as refused:
        storage.create(name, b"")
    assert not isinstance(refused.value, MissingFileError)
