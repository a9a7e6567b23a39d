"""What Java and PySpark's workers say that nobody can do anything about is left out."""

from __future__ import annotations

import sys

from weir.spark.internals import print_but_hang_ups, quiet_lines

HANG_UP = """\
PySpark daemon failed to flush the output to the worker process:
Traceback (most recent call last):
  File "daemon.py", line 1, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""


def test_only_the_warning_about_incubator_modules_is_left_out():
    lines = [
        b"WARNING: Using incubator modules: jdk.incubator.vector\n",
        b"WARNING: something else\n",
        b"Exception in thread main\n",
    ]
    assert list(quiet_lines(lines)) == lines[1:]


def test_workers_do_not_print_that_nobody_listens_any_more(capsys):
    print_but_hang_ups(HANG_UP, file=sys.stderr)
    print_but_hang_ups("ValueError: BrokenPipeError is only mentioned", file=sys.stderr)
    print_but_hang_ups("a", "b", sep="-")
    out, err = capsys.readouterr()
    assert err == "ValueError: BrokenPipeError is only mentioned\n"
    assert out == "a-b\n"
