"""What every test needs: Spark workers on this interpreter, no deadlines on busy machines."""

import os
import sys

from hypothesis import settings

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

settings.register_profile("weir", deadline=None)
settings.load_profile("weir")
