"""`weir savepoint`: a self-contained picture of a job that goes on; deletes them, too."""

from __future__ import annotations

import json

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.job_requests import say_detached, say_savepoint
from weir.cli.lookup import JobInfo, Where, complete_job, jobmanager_options
from weir.cli.notice import notice
from weir.cli.options import absolute, detached_option, format_option, json_option
from weir.cli.waiting import Operation, request_id
from weir.errors import UsageError


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


def _dispose(path: str, where: Where, as_json: bool) -> None:
    if where.url is not None:
        manager = JobInfo("", "", "", 0, url=where.url, token=where.token, tls=where.tls)
        answer = manager.client.post("/savepoint-disposal", {"savepoint-path": absolute(path)})
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
