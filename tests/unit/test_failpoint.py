"""Failpoints kill once, at the asked-for time, and only where asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def reach(times, entry):
    code = f"from weir.failpoint import reach\nfor _ in range({times}): reach('a.b')\nreach('c')"
    environment = {**os.environ, "WEIR_FAILPOINTS": entry}
    return subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode


def test_a_failpoint_kills_at_its_count_and_only_once(tmp_path):
    marker = tmp_path / "marker"
    assert reach(2, f"a.b={marker}@3") == 0
    assert not marker.exists()
    assert reach(3, f"a.b={marker}@3") == -signal.SIGKILL
    assert marker.exists()
    assert reach(3, f"a.b={marker}@3") == 0


def test_other_names_do_nothing(tmp_path):
    assert reach(1, f"other={tmp_path / 'x'}") == 0
    assert reach(1, "") == 0
