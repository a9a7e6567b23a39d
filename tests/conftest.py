"""What every test needs: Spark workers on this interpreter, no deadlines on busy machines.

With `-n 2` all tests that start Spark run in one process, one after the other, and the other files
in the other process: two Sparks at once would only be in each other's way.
"""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

settings.register_profile("weir", deadline=None)
settings.load_profile("weir")

HERE = Path(__file__).parent
SPARK = ("spark", "demo", "docs/test_programs.py", "cli/test_examples.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        path = item.path.relative_to(HERE).as_posix()
        group = "spark" if path.startswith(SPARK) else path
        item.add_marker(pytest.mark.xdist_group(group))
