"""What every test needs: workers on this interpreter, interrupts, no deadlines."""

import os
import signal
import sys
import zlib

import pytest
from hypothesis import settings
from tests.examples import SHARE, examples

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# Some shells start what runs in the background with interrupts ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("weir", deadline=None, max_examples=examples(100))
settings.load_profile("weir")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave a share of every matrix, drawn by the seed of the run; all processes draw the same."""
    seed = getattr(config.option, "randomly_seed", 0)

    def drawn(item: pytest.Item) -> bool:
        return zlib.crc32(f"{seed} {item.nodeid}".encode()) < SHARE * 2**32

    left = [i for i in items if i.get_closest_marker("matrix") is None or drawn(i)]
    if len(left) < len(items):
        kept = set(left)
        config.hook.pytest_deselected(items=[i for i in items if i not in kept])
        items[:] = left
