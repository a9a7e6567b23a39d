"""What Java and PySpark's workers say that nobody can do anything about is left out."""

from __future__ import annotations

import sys

import pytest

from weir.spark.internals import print_but_hang_ups, print_exc_but_hang_ups, quiet_lines

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


DAEMON = b'  File "/x/pyspark.zip/pyspark/daemon.py", line 95, in worker\n'
OTHER = b'  File "/x/program.py", line 9, in f\n'
TRACE, PIPE = b"Traceback (most recent call last):\n", b"BrokenPipeError: [Errno 32] Broken pipe\n"


@pytest.mark.parametrize(
    ("trace", "is_told"),
    [
        ([TRACE, DAEMON, DAEMON, PIPE], False),
        ([TRACE, DAEMON, b"    outfile.flush()\n", b"ConnectionResetError\n"], False),
        ([TRACE, DAEMON, OTHER, PIPE], True),
        ([TRACE, DAEMON, b"ValueError: x\n"], True),
        ([PIPE], True),
        ([TRACE, DAEMON], True),
    ],
)
def test_a_daemon_says_nothing_of_a_jvm_that_has_hung_up(trace, is_told):
    around = [b"before\n", *trace]
    assert list(quiet_lines(around)) == (around if is_told else around[:1])
    around.append(b"after\n")
    assert list(quiet_lines(around)) == (around if is_told else [around[0], around[-1]])


_PLANS = (
    b'  File "/x/pyspark.zip/pyspark/sql/streaming/python_streaming_source_runner.py", line 2\n'
)
_READ = b'  File "/x/pyspark.zip/pyspark/serializers.py", line 604, in read_int\n'
_SENT = b'  File "/lib/python3.11/socket.py", line 724, in write\n'
_ALSO = b"During handling of the above exception, another exception occurred:\n"


def test_who_plans_splits_says_nothing_of_a_query_that_has_stopped():
    runs = b'  File "<frozen runpy>", line 198, in _run_module_as_main\n'
    asked, said = [TRACE, _PLANS, _READ, b"EOFError\n"], [TRACE, runs, _PLANS, _SENT, PIPE]
    chain = [*asked, b"\n", _ALSO, b"\n", *said, b"\n", _ALSO, b"\n", *said]
    assert list(quiet_lines([b"before\n", *chain, b"after\n"])) == [b"before\n", b"after\n"]
    assert list(quiet_lines([*said[:-1], TRACE, DAEMON, PIPE])) == []
    own = [TRACE, _PLANS, OTHER, b"EOFError\n", b"\n", _ALSO, b"\n"]
    assert list(quiet_lines([*own, *said])) == own
    other = [TRACE, _PLANS, b"ValueError: x\n"]
    assert list(quiet_lines([*asked, b"\n", _ALSO, b"\n", *other])) == other


def test_workers_do_not_print_that_nobody_listens_any_more(capsys):
    print_but_hang_ups(HANG_UP, file=sys.stderr)
    print_but_hang_ups("ValueError: BrokenPipeError is only mentioned", file=sys.stderr)
    print_but_hang_ups("a", "b", sep="-")
    out, err = capsys.readouterr()
    assert err == "ValueError: BrokenPipeError is only mentioned\n"
    assert out == "a-b\n"


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (BrokenPipeError(32, "Broken pipe"), []),
        (ConnectionResetError(), []),
        (ValueError("x"), ["ValueError: x"]),
    ],
)
def test_traces_of_workers_are_printed_unless_the_jvm_has_hung_up(capsys, error, last) -> None:
    try:
        raise error
    except BaseException:
        print_exc_but_hang_ups()
    assert capsys.readouterr().err.splitlines()[-1:] == last
