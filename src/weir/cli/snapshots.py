"""`weir savepoint` and `weir checkpoint`: pictures of a job that goes on."""

from __future__ import annotations

import json

import click

from weir.cli.client import RestClient
from weir.cli.errors import HELP_OPTIONS
from weir.cli.lookup import JobInfo, Where, complete_job, jobmanager_options
from weir.cli.notice import notice
from weir.cli.options import (
    absolute,
    detached_option,
    format_option,
    job_argument,
    json_option,
)
from weir.cli.waiting import Operation, request_id
from weir.errors import UsageError, WeirError

_RESUME = "weir run -s {path} JOB.py"


@click.command(context_settings=HELP_OPTIONS)
@click.argument("job", required=False, shell_complete=complete_job)
@click.argument("target_directory", required=False)
@click.option("-d", "-dispose", "--dispose", metavar="PATH", help="Delete the savepoint PATH.")
@format_option
@detached_option
@json_option
@jobmanager_options
def savepoint(
    job: str | None,
    target_directory: str | None,
    dispose: str | None,
    where: Where,
    as_json: bool,
    **how: str,
) -> None:
    """Take a savepoint of JOB below TARGET_DIRECTORY, or delete one with -d.

    Without TARGET_DIRECTORY it goes where execution.checkpointing.savepoint-dir says. JOB is an id,
    the beginning of one, or a name.
    """
    if dispose is not None:
        if job is not None:
            msg = f"savepoint -d {dispose!r} deletes a savepoint, it takes no job: found {job!r}"
            raise UsageError(msg)
        _dispose(dispose, where, as_json)
        return
    if job is None:
        msg = "of which job? Write 'weir savepoint JOB [DIRECTORY]'; 'weir list' shows the jobs"
        raise UsageError(msg)
    found = where.find(job)
    directory = absolute(target_directory)
    body = {"target-directory": directory, "cancel-job": False, "formatType": how["form"].upper()}
    path = f"/jobs/{found.job_id}/savepoints"
    answer = found.client.post(path, {k: v for k, v in body.items() if v is not None})
    what = f"The savepoint of job {found.job_id}"
    operation = Operation(found, f"{path}/{request_id(found, answer)}", what)
    if how["detached"]:
        say_detached(operation, as_json)
        return
    say_savepoint(operation, as_json, "taken")


def say_detached(operation: Operation, as_json: bool) -> None:
    """Tell under which id the result of an operation can be asked for."""
    number = operation.path.rpartition("/")[2]
    if as_json:
        found = {"job_id": operation.job.job_id, "request_id": number, "url": operation.url}
        click.echo(json.dumps(found))
    else:
        click.echo(f"{operation.what} was requested, request-id {number}. Result: {operation.url}")


def say_savepoint(operation: Operation, as_json: bool, done: str) -> str:
    """Wait for a savepoint, tell where it is, and return that."""
    location = str(operation.wait()["location"])
    if as_json:
        click.echo(json.dumps({"job_id": operation.job.job_id, "savepoint": location}))
    else:
        click.echo(f"{operation.what} was {done}. Path: {location}")
        click.echo(f"Resume from it with: {_RESUME.format(path=location)}", err=True)
    return location


def _dispose(path: str, where: Where, as_json: bool) -> None:
    if where.url is not None:
        client = RestClient(where.url, where.token)
        manager = JobInfo("", "", "", 0, where.url, where.token)
        answer = client.post("/savepoint-disposal", {"savepoint-path": absolute(path)})
        number = request_id(manager, answer)
        Operation(manager, f"/savepoint-disposal/{number}", f"The disposal of {path!r}").wait()
    else:
        from weir.config import ambient
        from weir.jobmanager.disposal import dispose_savepoint
        from weir.jobmanager.settings import JobSettings

        with notice(f"Deleting savepoint {path!r}"):
            dispose_savepoint(path, JobSettings.of(ambient.layers()).storage)
    if as_json:
        click.echo(json.dumps({"disposed": path}))
    else:
        click.echo(f"Savepoint {path!r} was deleted.")


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
