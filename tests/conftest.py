"""What every test needs: workers on this interpreter, interrupts, no deadlines."""

import os
import signal
import sys
import zlib

import pytest
from hypothesis import settings
from tests.examples import SHARE, STRIDES, examples

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# Some shells start what runs in the background with interrupts ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("weir", deadline=None, max_examples=examples(100))
settings.load_profile("weir")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave a share of every matrix, drawn by the seed of the run; all processes draw the same.

    What runs with whole frames and with strides then runs with one of the two.
    """
    seed = getattr(config.option, "randomly_seed", 0)

    def draw(text: str) -> float:
        return zlib.crc32(f"{seed} {text}".encode()) / 2**32

    def drawn(item: pytest.Item) -> bool:
        if item.get_closest_marker("matrix") is not None:
            return draw(item.nodeid) < SHARE
        way = getattr(item, "callspec", None) and item.callspec.params.get("strides")
        if SHARE == 1 or way not in STRIDES:
            return True
        return way == STRIDES[draw(item.nodeid.replace(way, "", 1)) < 0.5]

    left = [i for i in items if drawn(i)]
    if len(left) < len(items):
        kept = set(left)
        config.hook.pytest_deselected(items=[i for i in items if i not in kept])
        items[:] = left
