"""Damaged state files: whatever bit is wrong or byte is missing, no value comes out of them.

Every kind of file is damaged: whole and layered snapshots, compressed ones, operator state and the
metadata. The only other outcome than `CorruptStateError` is a version number that became another.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest
from tests.examples import examples
from tests.golden.contents import EXPECTED, READERS, WRITERS
from tests.golden.test_golden import files_of

from weir.checkpoint.metadata import FORMAT_VERSION
from weir.errors import CorruptStateError, IncompatibleStateError

SEED = 20240229
CUTS, SWAPS = 60, 40
EDGE = 24
METADATA_VERSION_AT = len(b"weir-metadata ")

GOLDEN = files_of(FORMAT_VERSION)
FRESH = {name: write() for name, write in WRITERS.items()}
SETS = {"golden": GOLDEN, "fresh": FRESH}


def flipped(data: bytes, rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """Yield every bit of both ends wrong, and one bit of every other byte."""
    ends = [*range(EDGE), *range(len(data) - EDGE, len(data))]
    bits = [(place, bit) for place in ends for bit in range(8)]
    bits += [(place, rng.randrange(8)) for place in range(EDGE, len(data) - EDGE)]
    for place, bit in bits:
        altered = bytearray(data)
        altered[place] ^= 1 << bit
        yield place, bytes(altered)


def misplaced(data: bytes, rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """Yield the file cut off, with a hole, and with two blocks exchanged."""
    for length in [0, 1, *(rng.randrange(len(data)) for _ in range(CUTS))]:
        yield -1, data[:length]
    for _ in range(SWAPS):
        a, b, c = sorted(rng.sample(range(len(data) + 1), 3))
        for altered in (data[:a] + data[b:], data[:a] + data[b:c] + data[a:b] + data[c:]):
            if altered != data:
                yield -1, altered


def doubled(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Yield the file with a block in it twice."""
    for _ in range(SWAPS):
        a, b = sorted(rng.sample(range(len(data) + 1), 2))
        yield data[:b] + data[a:]


def outcome(files: dict[str, bytes], name: str, place: int, altered: bytes) -> str | None:
    """Return what is wrong with how a damaged file was met, None when it was refused."""
    try:
        found = READERS[name]({**files, name: altered})
    except CorruptStateError:
        return None
    except IncompatibleStateError as error:
        at_version = name == "_metadata" and place == METADATA_VERSION_AT
        return None if at_version else f"byte {place}: {error}"
    return f"byte {place}: read as {found!r:.200}"


@pytest.mark.parametrize("origin", SETS)
@pytest.mark.parametrize("name", READERS)
def test_no_damage_goes_unnoticed(name: str, origin: str) -> None:
    files = SETS[origin]
    assert READERS[name](files) == EXPECTED[name]
    rng = random.Random(f"{SEED} {name}")
    cases = [*flipped(files[name], rng), *misplaced(files[name], rng)]
    assert len(cases) > 600
    cases = random.sample(cases, examples(len(cases)))
    found = [outcome(files, name, place, altered) for place, altered in cases]
    assert [problem for problem in found if problem is not None] == []


@pytest.mark.parametrize("name", READERS)
def test_bytes_that_do_not_belong_never_change_a_value(name: str) -> None:
    """Between sections and footer nobody looks; the size in the metadata tells that they came."""
    refused = 0
    for altered in doubled(GOLDEN[name], random.Random(f"{SEED} {name}")):
        with contextlib.suppress(CorruptStateError):
            refused += 1
            assert READERS[name]({**GOLDEN, name: altered}) == EXPECTED[name]
            refused -= 1
    assert refused > SWAPS // 2


def test_a_newer_metadata_version_is_told_from_damage() -> None:
    newer = GOLDEN["_metadata"].replace(b"weir-metadata 4 ", b"weir-metadata 5 ")
    with pytest.raises(IncompatibleStateError, match="newer version of Weir"):
        READERS["_metadata"]({"_metadata": newer})
