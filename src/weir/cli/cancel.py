"""`weir cancel`: the end of a job at once, or after a savepoint."""

from __future__ import annotations

import json

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.job_requests import final_savepoint, say_savepoint
from weir.cli.lookup import JobInfo, Where, complete_job, jobmanager_options
from weir.cli.options import absolute, format_option, json_option
from weir.cli.waiting import wait_for_end
from weir.errors import JobExecutionError, UsageError

_DEFAULT_DIRECTORY = ""


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
    say_savepoint(final_savepoint(job, answer), as_json, "taken, and the job is canceled")
