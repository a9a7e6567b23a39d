"""`weir rescale`: another parallelism for a running job."""

from __future__ import annotations

import json

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.lookup import Where, jobmanager_options
from weir.cli.options import job_argument, json_option
from weir.cli.waiting import Operation, request_id


@click.command(context_settings=HELP_OPTIONS)
@job_argument
@click.argument("parallelism", type=click.IntRange(min=1))
@json_option
@jobmanager_options
def rescale(job: str, parallelism: int, as_json: bool, where: Where) -> None:
    """Let JOB go on with another PARALLELISM.

    The job takes a checkpoint, replaces its slots, and goes on from it, as one step. If that fails,
    it goes on as it was, and the command says why.
    """
    found = where.find(job)
    path = f"/jobs/{found.job_id}/rescaling"
    answer = found.client.patch(f"{path}?parallelism={parallelism}")
    what = f"The rescaling of job {found.job_id} to {parallelism}"
    operation = Operation(found, f"{path}/{request_id(found, answer)}", what)
    operation.wait()
    if as_json:
        click.echo(json.dumps({"job_id": found.job_id, "parallelism": parallelism}))
    else:
        click.echo(f"Job {found.job_id} goes on with parallelism {parallelism}.")
