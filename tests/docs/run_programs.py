"""Runs programs one after the other in one process and one Spark session; what they print is kept.

Started by `test_programs.py`: the first argument is a JSON file of `{name: source}`, the second is
where `{name: output}` goes. Starting Spark once is what keeps the documentation quick to test.
"""

import contextlib
import io
import json
import sys
import traceback
from pathlib import Path


def run(source: str, name: str) -> str:
    """Run a program as the main module; return what it printed, and its traceback if it failed."""
    out = io.StringIO()
    # Classes of the main module are shipped to slots by value, as in a user's own script.
    namespace = {"__name__": "__main__"}
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(source, name, "exec"), namespace)
        except Exception:
            out.write(traceback.format_exc())
    return out.getvalue()


if __name__ == "__main__":
    programs = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    outputs = {name: run(source, name) for name, source in programs.items()}
    Path(sys.argv[2]).write_text(json.dumps(outputs), "utf-8")
