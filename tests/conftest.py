"""What every test needs: workers on this interpreter, interrupts, no deadlines."""

import gc
import os
import signal
import sys
import threading
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests import brokers
from tests.examples import MATRIX_SHARE, PART, PARTS, SHARE, SLOW_SHARE, STRIDES, examples
from tests.jvm_archive import QUICK_SPARK
from tests.left_behind import LeftBehind

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
# JVMs of tests live for seconds: to optimise their code takes longer than it saves, and nobody
# looks at their pages.
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(["-Dspark.ui.enabled=false", *QUICK_SPARK]))
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", " ".join(QUICK_SPARK))

# Some shells start what runs in the background with interrupts ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("weir", deadline=None, max_examples=examples(100))
settings.load_profile("weir")

# Marks of tests that take long. Their files go first, so that short ones fill up the end.
LONG = ("cluster", "campaign", "spark", "kafka", "postgres", "mariadb", "hdfs")


def pytest_configure(config: pytest.Config) -> None:
    """Let no test leave a process behind."""
    config.pluginmanager.register(LeftBehind())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector off what is collected: all of it stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        # A test makes much that goes with it: to look for cycles seldom is a tenth of the time.
        gc.set_threshold(50_000, 20, 50)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave a share of what is long, drawn by the seed of the run; all processes draw the same.

    What runs with whole frames and with strides then runs with one of the two.
    """
    seed = getattr(config.option, "randomly_seed", 0)

    def draw(text: str) -> float:
        return zlib.crc32(f"{seed} {text}".encode()) / 2**32

    def drawn(item: pytest.Item) -> bool:
        if zlib.crc32(item.nodeid.encode()) % PARTS != PART - 1:
            return False
        if item.get_closest_marker("matrix") is not None:
            return draw(item.nodeid) < MATRIX_SHARE
        if item.get_closest_marker("slow") is not None and draw(item.nodeid) >= SLOW_SHARE:
            return False
        way = getattr(item, "callspec", None) and item.callspec.params.get("strides")
        if SHARE == 1 or way not in STRIDES:
            return True
        return way == STRIDES[draw(item.nodeid.replace(way, "", 1)) < 0.5]

    left = [i for i in items if drawn(i)]
    if len(left) < len(items):
        kept = set(left)
        config.hook.pytest_deselected(items=[i for i in items if i not in kept])
        items[:] = left
    if hasattr(config, "workerinput"):
        _long_files_first(items)


def _long_files_first(items: list[pytest.Item]) -> None:
    ranks: dict[Path, int] = {}
    for item in items:
        rank = next((i for i, m in enumerate(LONG) if item.get_closest_marker(m)), len(LONG))
        ranks[item.path] = min(rank, ranks.get(item.path, rank))
    items.sort(key=lambda item: ranks[item.path])


@pytest.fixture(autouse=True)
def event_loops_end_with_their_test() -> Iterator[None]:
    """Fail the test that leaves the event loop of an async operator behind, not a later one."""
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [name for name in left if name.startswith("weir-async")] == []


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
