"""How far a source is behind: numbers, trees of numbers, and nothing where offsets do not tell."""

import pytest

from weir.jobmanager.backlog import offsets_behind


@pytest.mark.parametrize(
    ("read_to", "latest", "behind"),
    [
        ("5", "12", 7),
        ("12", "5", 0),
        ('{"t": {"0": 10, "1": 5}}', '{"t": {"0": 13, "1": 5}}', 3),
        ('{"t": {"0": 10}}', '{"t": {"0": 10, "1": 4}, "u": {"0": 2}}', 6),
        ('{"logOffset": 3}', '{"logOffset": 4}', 1),
        ("{}", "{}", 0),
        (None, "5", None),
        ("5", None, None),
        ("x", "5", None),
        ('{"t": "a"}', '{"t": "b"}', None),
        ("5", '{"t": 5}', None),
        ("[1]", "[2]", None),
        ("true", "5", None),
        ("1.5", "2", None),
        ("[" * 100_000, "5", None),
    ],
)
def test_offsets_are_compared(read_to: str | None, latest: str | None, behind: int | None) -> None:
    assert offsets_behind(read_to, latest) == behind
