"""Flink's directory layout, letter by letter."""

from __future__ import annotations

import re

import pytest

from weir.checkpoint import paths
from weir.errors import UsageError
from weir.ids import JobId

JOB = JobId("cca7bc1061d61cf15238e92312c2fc20")


def test_the_layout_is_flinks() -> None:
    assert paths.checkpoint_dir(JOB, 17) == f"{JOB}/chk-17"
    assert paths.metadata_path(f"{JOB}/chk-17") == f"{JOB}/chk-17/_metadata"
    assert paths.shared_dir(JOB) == f"{JOB}/shared"


def test_savepoints_carry_six_digits_of_the_job_and_twelve_random_ones() -> None:
    names = {paths.new_savepoint_dir(JOB) for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"savepoint-cca7bc-[0-9a-f]{12}", name) for name in names)


def test_data_files_of_two_attempts_never_share_a_name() -> None:
    names = {paths.new_data_file(3, 2) for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"state-s3-a2-[0-9a-f]{12}", name) for name in names)


@pytest.mark.parametrize(
    ("name", "checkpoint"),
    [("chk-0", 0), ("chk-17", 17), ("chk-", None), ("chk-01", None), ("chk-1x", None), ("x", None)],
)
def test_only_checkpoint_names_stand_for_checkpoints(name: str, checkpoint: int | None) -> None:
    assert paths.checkpoint_id_of(name) == checkpoint


@pytest.mark.parametrize(
    ("given", "directory"),
    [("a/chk-1", "a/chk-1"), ("a/chk-1/", "a/chk-1"), ("a/chk-1/_metadata", "a/chk-1")],
)
def test_the_directory_or_its_metadata_file_name_a_checkpoint(given: str, directory: str) -> None:
    assert paths.directory_of(given) == directory


def test_files_are_found_from_the_checkpoint_directory() -> None:
    assert paths.resolve("job/chk-2", "state-1") == "job/chk-2/state-1"
    assert paths.resolve("job/chk-2", "../shared/f") == "job/shared/f"
    assert paths.resolve("chk-2", "../shared/f") == "shared/f"


@pytest.mark.parametrize("file", ["../../f", "../..", "/etc/passwd", "../"])
def test_files_never_lie_outside_of_the_storage(file: str) -> None:
    with pytest.raises(UsageError, match="outside"):
        paths.resolve("chk-2", file)


@pytest.mark.parametrize(
    ("given", "root", "directory"),
    [
        ("/data/job/chk-3", "/data/job", "chk-3"),
        ("/data/job/chk-3/_metadata", "/data/job", "chk-3"),
        ("/chk-3/", "/", "chk-3"),
        ("chk-3", ".", "chk-3"),
        ("data/chk-3", "data", "chk-3"),
        ("file:///data/savepoint-1/_metadata", "file:///data", "savepoint-1"),
        ("file:///savepoint-1", "file:///", "savepoint-1"),
        ("memory://m/savepoint-1", "memory://m", "savepoint-1"),
        ("s3://bucket/a/savepoint-1", "s3://bucket/a", "savepoint-1"),
    ],
)
def test_a_location_splits_into_storage_and_directory(
    given: str, root: str, directory: str
) -> None:
    assert paths.split_location(given) == (root, directory)


@pytest.mark.parametrize("given", ["", "/", "file:///", "_metadata", "."])
def test_a_location_without_a_directory_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="names no checkpoint"):
        paths.split_location(given)
