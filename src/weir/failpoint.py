"""Named places in the protocol where a test can make a process die.

`WEIR_FAILPOINTS` holds entries `name=marker[@n][+ms]`, separated by `;`: the process that reaches
`name` for the n-th time (1 if not given), while the file `marker` does not exist, creates the file
and kills itself with SIGKILL, at once or after some milliseconds. The marker makes it happen once,
whatever is restarted. Without the variable a failpoint costs one dictionary look-up.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from dataclasses import dataclass

VARIABLE = "WEIR_FAILPOINTS"
_ENTRY = re.compile(r"(?P<name>[\w.]+)=(?P<marker>[^@+;]+)(@(?P<count>\d+))?(\+(?P<delay>\d+))?\Z")


class ProcessDeath(BaseException):
    """The process dies here, in a test that has several of them in one: nobody handles it."""


@dataclass
class _Point:
    marker: str
    remaining: int
    delay_ms: int


def _parse(text: str) -> dict[str, _Point]:
    points = {}
    for entry in filter(None, text.split(";")):
        match = _ENTRY.match(entry)
        if match is not None:
            count = int(match["count"] or 1)
            points[match["name"]] = _Point(match["marker"], count, int(match["delay"] or 0))
    return points


_points = _parse(os.environ.get(VARIABLE, ""))


def reach(name: str) -> None:
    """Die here if a test asked for it."""
    point = _points.get(name)
    if point is None:
        return
    point.remaining -= 1
    if point.remaining > 0:
        return
    try:
        os.close(os.open(point.marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return
    if point.delay_ms:
        threading.Timer(point.delay_ms / 1000, _die).start()
    else:
        _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
