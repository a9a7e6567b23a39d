"""What every test needs: Spark workers on this interpreter, no deadlines on busy machines.

With `-n 2` all tests that start Spark run in one process, one after the other, and the other files
in the other process: two Sparks at once would only be in each other's way.
"""

import os
import sys

import pytest
from hypothesis import settings

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

settings.register_profile("weir", deadline=None)
settings.load_profile("weir")

SPARK = ("spark", "demo", "docs/test_programs.py", "cli/test_examples.py")


def room(nodeid: str) -> str:
    """Return what must run in one process: all of Spark, or a file."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    return "spark" if path.startswith(SPARK) else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Rooms(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return room(nodeid)

    return Rooms(config, log)
