"""URIs open the storage they name, and a scheme without support is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.errors import UsageError
from weir.jobmanager.recovery import load_restore_point
from weir.storage import LocalStorage, MemoryStorage, open_storage


def test_plain_paths_and_file_uris_are_local(tmp_path: Path) -> None:
    root = str(tmp_path / "with space")
    assert open_storage(root) == LocalStorage(root)
    assert open_storage("file://" + root.replace(" ", "%20")) == LocalStorage(root)
    assert open_storage("file:" + root) == LocalStorage(root)
    assert open_storage(LocalStorage(root).uri) == LocalStorage(root)


def test_one_memory_uri_is_one_storage() -> None:
    open_storage("memory://shared/by/uri").create("f", b"1")
    assert open_storage("memory://shared/by/uri").read("f") == b"1"
    assert not open_storage("memory://other").exists("f")


def test_nameless_memory_storages_share_nothing() -> None:
    MemoryStorage().create("f", b"1")
    assert not MemoryStorage().exists("f")


@pytest.mark.parametrize("uri", ["ftp://x", "S3://bucket/x"])
def test_other_schemes_are_refused_by_name(uri: str) -> None:
    with pytest.raises(UsageError, match=rf"'{uri.split(':')[0]}'.*memory://name"):
        open_storage(uri)


def test_a_file_uri_of_another_host_is_refused() -> None:
    with pytest.raises(UsageError, match="three slashes"):
        open_storage("file://host/path")


@pytest.mark.parametrize("uri", ["", "file://"])
def test_an_empty_path_is_refused(uri: str) -> None:
    with pytest.raises(UsageError, match="empty"):
        open_storage(uri)


@pytest.mark.parametrize(
    "place", ["/tmp/a\0b", "file:///tmp/a%00b", "/tmp/\udcff", "s3://bucket/\ud800", "memory://\0"]
)
def test_what_is_no_text_is_refused(place: str) -> None:
    with pytest.raises(UsageError, match="NUL, or bytes that are no UTF-8"):
        open_storage(place)
    with pytest.raises(UsageError, match="NUL, or bytes that are no"):
        load_restore_point(f"{place}/chk-1")
    with pytest.raises(UsageError, match="not allowed"):
        open_storage("memory://place").read(place.lstrip("/"))
