"""What every test needs: workers on this interpreter, interrupts, no deadlines."""

import os
import signal
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests import brokers
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


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Kafka broker that the whole test run shares."""
    with brokers.shared("kafka", shared_folder(tmp_path_factory)) as address:
        yield address


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address and database of a PostgreSQL that the whole test run shares."""
    with brokers.shared("postgres", shared_folder(tmp_path_factory)) as address:
        yield address


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all processes of a test run have in common."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
