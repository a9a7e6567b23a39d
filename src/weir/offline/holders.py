"""Which checkpoints hold which file, told from their metadata alone.

A file that several checkpoints hold is a link of a chain: it goes when the last of them goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weir.checkpoint.paths import resolve
from weir.errors import WeirError
from weir.offline.describe import unique_files
from weir.offline.opened import open_snapshot
from weir.storage.options import StorageOptions


@dataclass(frozen=True)
class HeldFile:
    """A file by its URI, and the numbers of the checkpoints that need it."""

    path: str
    bytes: int
    holders: tuple[int, ...]


def held_files(
    locations: Mapping[int, str], options: StorageOptions | None = None
) -> tuple[list[HeldFile], list[str]]:
    """Return the files of checkpoints, those that most of them hold first, and what went wrong.

    What lies inside of `_metadata` is no file. A checkpoint that cannot be read, as one that was
    replaced a moment ago, holds nothing; it is told why.
    """
    sizes: dict[str, int] = {}
    holders: dict[str, list[int]] = {}
    problems = []
    for number, location in locations.items():
        try:
            opened = open_snapshot(location, options)
        except WeirError as error:
            problems.append(f"checkpoint {number}: {error}")
            continue
        for file in unique_files(opened.metadata):
            if file.data is None:
                path = f"{opened.storage.uri}/{resolve(opened.directory, file.path)}"
                sizes[path] = file.size
                holders.setdefault(path, []).append(number)
    found = [HeldFile(path, sizes[path], tuple(numbers)) for path, numbers in holders.items()]
    return sorted(found, key=lambda file: (-len(file.holders), file.path)), problems
