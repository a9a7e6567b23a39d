"""`weir stop` and `weir cancel`: the two ways to end a job from outside."""

from __future__ import annotations

import json

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.lookup import JobInfo, Where, complete_job, jobmanager_options
from weir.cli.options import (
    absolute,
    detached_option,
    format_option,
    job_argument,
    json_option,
)
from weir.cli.snapshots import say_detached, say_savepoint
from weir.cli.waiting import Operation, request_id, wait_for_end
from weir.errors import JobExecutionError, UsageError

_DEFAULT_DIRECTORY = ""


@click.command(context_settings=HELP_OPTIONS)
@job_argument
@click.option(
    "-p",
    "-savepointPath",
    "--savepointPath",
    "directory",
    metavar="DIRECTORY",
    help="Where the savepoint goes, instead of the configured directory.",
)
@click.option(
    "-d",
    "-drain",
    "--drain",
    is_flag=True,
    help="Let time go to its end first: all timers fire. Not for jobs that go on later.",
)
@format_option
@detached_option
@json_option
@jobmanager_options
def stop(job: str, directory: str | None, where: Where, as_json: bool, **how: str) -> None:
    """Take a savepoint of JOB and finish the job with it.

    If the savepoint fails, the job goes on.
    """
    found = where.find(job)
    body = {
        "targetDirectory": absolute(directory),
        "drain": how["drain"],
        "formatType": how["form"].upper(),
    }
    answer = found.client.post(
        f"/jobs/{found.job_id}/stop", {k: v for k, v in body.items() if v is not None}
    )
    operation = _final_savepoint(found, answer)
    if how["detached"]:
        say_detached(operation, as_json)
        return
    say_savepoint(operation, as_json, "taken, and the job is finished")


@click.command(context_settings=HELP_OPTIONS)
@click.argument("job", required=False, shell_complete=complete_job)
@click.option(
    "-s",
    "-withSavepoint",
    "--withSavepoint",
    "directory",
    is_flag=False,
    flag_value=_DEFAULT_DIRECTORY,
    metavar="[DIRECTORY]",
    help="Take a savepoint first; if that fails, the job goes on.",
)
@format_option
@json_option
@jobmanager_options
def cancel(job: str | None, directory: str | None, form: str, as_json: bool, where: Where) -> None:
    """Cancel JOB; with -s after a savepoint.

    Output that no checkpoint covers is not committed. To end a job with everything committed, use
    'weir stop'.
    """
    if job is None and directory:
        # `cancel -s JOB`: an option with an optional value takes the only word there is.
        job, directory = directory, _DEFAULT_DIRECTORY
    if job is None:
        msg = "which job? Write 'weir cancel [-s [DIRECTORY]] JOB'; 'weir list' shows the jobs"
        raise UsageError(msg)
    found = where.find(job)
    if directory is not None:
        _cancel_with_savepoint(found, absolute(directory or None), form, as_json)
        return
    found.client.patch(f"/jobs/{found.job_id}?mode=cancel")
    status = wait_for_end(found)
    if status == "FAILED":
        msg = f"job {found.job_id} failed before it could be canceled: look into its log"
        raise JobExecutionError(msg)
    if as_json:
        click.echo(json.dumps({"job_id": found.job_id, "status": status}))
    else:
        click.echo(f"Job {found.job_id} has ended: {status}.")


def _cancel_with_savepoint(job: JobInfo, directory: str | None, form: str, as_json: bool) -> None:
    body = {"target-directory": directory, "cancel-job": True, "formatType": form.upper()}
    answer = job.client.post(
        f"/jobs/{job.job_id}/savepoints", {k: v for k, v in body.items() if v is not None}
    )
    say_savepoint(_final_savepoint(job, answer), as_json, "taken, and the job is canceled")


def _final_savepoint(job: JobInfo, answer: object) -> Operation:
    path = f"/jobs/{job.job_id}/savepoints/{request_id(job, answer)}"
    return Operation(job, path, f"The savepoint of job {job.job_id}", ends_job=True)
