"""`weir checkpoint`: a checkpoint of a running job, now."""

from __future__ import annotations

import json

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.job_requests import say_detached
from weir.cli.lookup import JobInfo, Where, jobmanager_options
from weir.cli.options import detached_option, job_argument, json_option
from weir.cli.waiting import Operation, request_id
from weir.errors import WeirError


@click.command(context_settings=HELP_OPTIONS)
@job_argument
@click.option("-full", "--full", is_flag=True, help="Write all state, also unchanged state.")
@detached_option
@json_option
@jobmanager_options
def checkpoint(job: str, full: bool, detached: bool, as_json: bool, where: Where) -> None:
    """Take a checkpoint of JOB now."""
    found = where.find(job)
    path = f"/jobs/{found.job_id}/checkpoints"
    answer = found.client.post(path, {"checkpointType": "FULL" if full else "CONFIGURED"})
    what = f"The checkpoint of job {found.job_id}"
    operation = Operation(found, f"{path}/{request_id(found, answer)}", what)
    if detached:
        say_detached(operation, as_json)
        return
    number = int(operation.wait()["checkpointId"])
    location = _location(found, number)
    if as_json:
        told = {"job_id": found.job_id, "checkpoint_id": number, "path": location}
        click.echo(json.dumps(told))
    else:
        where_it_is = f" Path: {location}" if location else ""
        click.echo(f"Checkpoint {number} of job {found.job_id} is complete.{where_it_is}")


def _location(job: JobInfo, number: int) -> str | None:
    """Return where a checkpoint is; None when it was replaced meanwhile."""
    try:
        details = job.client.get(f"/jobs/{job.job_id}/checkpoints/details/{number}")
    except WeirError:
        return None
    path = details.get("external_path")
    return None if path is None else str(path)
