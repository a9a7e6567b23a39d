"""Records of workload k: values of 100 bytes with a key and a number, as text.

Nothing here knows an engine or a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

VALUE_BYTES = 100
PARTITIONS = 2


def text(*numbers: int) -> str:
    """Return numbers as a value of 100 bytes."""
    return (",".join(map(str, numbers)) + ",").ljust(VALUE_BYTES, "x")


def numbers(value: str, count: int) -> tuple[int, ...]:
    """Return the first numbers of a value."""
    return tuple(map(int, value.split(",", count)[:count]))


def expected(rows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Return key, number and least number so far, for rows that are in order for each key."""
    least: dict[int, int] = {}
    for key, number in rows:
        least[key] = min(number, least.get(key, number))
        yield key, number, least[key]


def spec(argument: str) -> dict[str, Any]:
    """Read what a contender's process was told."""
    import json

    found: dict[str, Any] = json.loads(argument)
    return found
