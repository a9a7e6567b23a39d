"""The benchmark of the page asks for what the page asks for, as often as it does."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.page import POLLS

import weir.rest

STATIC = Path(weir.rest.__file__).with_name("static")
CALL = re.compile(r"usePoll\((?:data \? )?[`\"]([^`\"]+)[`\"](?: : null)?, (\d+)\)")


def test_the_benchmark_asks_as_the_view_of_a_job_does() -> None:
    asked = set()
    for name in ("app.js", "job.js", "sizes.js"):
        for path, every in CALL.findall((STATIC / name).read_text()):
            plain = path.replace("?round=${round}", "")
            plain = plain.replace("${job.jid}", "{job}").replace("${id}", "{job}")
            asked.add((plain, int(every) / 1000))
    assert asked == set(POLLS)
