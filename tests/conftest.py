"""What every test needs: workers on this interpreter, interrupts, no deadlines."""

import os
import signal
import sys

from hypothesis import settings

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# Some shells start what runs in the background with interrupts ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("weir", deadline=None)
settings.load_profile("weir")
