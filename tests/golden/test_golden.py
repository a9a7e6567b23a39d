"""Files that were written once are read for ever, and today's code still writes the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.golden.contents import (
    DETERMINISTIC,
    EXPECTED,
    READERS,
    TYPED,
    WRITERS,
    metadata_of,
)
from tests.unit.codec.strategies import exact

from weir.checkpoint.metadata import FORMAT_VERSION
from weir.common.typeinfo import Types
from weir.snapshot import VERSION

HERE = Path(__file__).resolve().parent
# Versions that this release reads; a version leaves this list only with a note in the changelog.
READ = [2, 3, 4]


def files_of(version: int) -> dict[str, bytes]:
    """Return the files of a version; those that it did not change are the ones before it."""
    folders = [HERE / f"v{number}" for number in READ if number <= version]
    return {path.name: path.read_bytes() for folder in folders for path in folder.iterdir()}


def test_the_current_version_has_golden_files_of_everything() -> None:
    assert max(VERSION, FORMAT_VERSION) == READ[-1]
    assert set(files_of(READ[-1])) == set(WRITERS) == set(READERS) == set(EXPECTED)
    members = {name for name in vars(Types) if not name.startswith("_")}
    assert {name.partition(".")[0] for name in TYPED} | {"PICKLED_BYTE_ARRAY"} == members
    assert max(len(data) for data in files_of(READ[-1]).values()) < 8 << 10


@pytest.mark.parametrize("version", READ)
@pytest.mark.parametrize("name", READERS)
def test_a_golden_file_holds_what_was_stored_in_it(name: str, version: int) -> None:
    found: Any = READERS[name](files_of(version))
    expected: Any = EXPECTED[name]
    if name == "_metadata":
        found = replace(found, format_version=FORMAT_VERSION)
        expected = metadata_of(version)
    assert found == expected
    assert exact(found) == exact(expected)


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_todays_code_writes_the_same_bytes(name: str) -> None:
    assert DETERMINISTIC[name]() == files_of(READ[-1])[name]


@pytest.mark.parametrize("name", WRITERS)
def test_what_todays_code_writes_is_read_as_the_golden_file_is(name: str) -> None:
    files = {other: write() for other, write in WRITERS.items()}
    assert READERS[name](files) == EXPECTED[name]
