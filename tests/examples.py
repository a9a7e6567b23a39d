"""How many examples a test tries: all of them, or the part that `make unit` asks for."""

import os

# How the tests of the harness hand records to operators: whole frames, or two records at a time.
STRIDES = ("whole", "strides")
SHARE = float(os.environ.get("WEIR_TEST_EXAMPLES", "1"))


def examples(count: int) -> int:
    """Return the share of `count` that this run is for, at least one."""
    return max(1, round(count * SHARE))
