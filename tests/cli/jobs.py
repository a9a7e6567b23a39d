"""What the tests of commands share: jobs that a test steers, and commands against them."""

from __future__ import annotations

import contextlib
import threading

from click.testing import CliRunner

from weir.cli.main import cli
from weir.testing.manual_job import serve


def invoke(*arguments):
    return CliRunner().invoke(cli, list(arguments), prog_name="weir")


@contextlib.contextmanager
def served(run_dir, *jobs):
    """Serve several jobs, each by a JobManager of its own."""
    with contextlib.ExitStack() as stack:
        for job in jobs:
            stack.enter_context(serve(job, run_dir))
        yield jobs


def answer_later(job, name, result=None, error=None):
    """Complete a job's next operation of a name as soon as it was asked for."""

    def work():
        while not any(call.name == name for call in job.calls):
            moment.wait(0.01)
        future = job.last.future
        moment.wait(0.15)
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    moment = threading.Event()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
