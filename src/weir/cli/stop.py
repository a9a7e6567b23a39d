"""`weir stop`: a savepoint as the last act of a job."""

from __future__ import annotations

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.job_requests import final_savepoint, say_detached, say_savepoint
from weir.cli.lookup import Where, jobmanager_options
from weir.cli.options import (
    absolute,
    detached_option,
    format_option,
    job_argument,
    json_option,
)


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
    operation = final_savepoint(found, answer)
    if how["detached"]:
        say_detached(operation, as_json)
        return
    say_savepoint(operation, as_json, "taken, and the job is finished")
