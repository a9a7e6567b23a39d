"""How many examples a test tries: all of them, or the part that `make unit` asks for."""

import os

# How the tests of the harness hand records to operators: whole frames, or two records at a time.
STRIDES = ("whole", "strides")
SHARE = float(os.environ.get("WEIR_TEST_EXAMPLES", "1"))
# Of tables of whole jobs a smaller share: one of their cases costs more than many examples.
MATRIX_SHARE = SHARE if SHARE == 1 else SHARE / 4
# Of single tests that take as long as a hundred others.
SLOW_SHARE = min(1, SHARE * 2)
# Which of how many processes this is that share the tests, as in 1/2.
PART, PARTS = map(int, os.environ.get("PYTEST_PART", "1/1").split("/"))


def examples(count: int) -> int:
    """Return the share of `count` that this run is for, at least one."""
    return max(1, round(count * SHARE))
