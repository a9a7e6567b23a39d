"""`weir list`: the jobs of this host, or of one JobManager."""

from __future__ import annotations

import json
import os
from datetime import datetime

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.lookup import JobInfo, Where, jobmanager_options
from weir.cli.options import json_option

_SCHEDULED = ("CREATED", "INITIALIZING")


@click.command("list", context_settings=HELP_OPTIONS)
@click.option("-r", "-running", "--running", is_flag=True, help="Only jobs that run or restart.")
@click.option(
    "-s", "-scheduled", "--scheduled", is_flag=True, help="Only jobs that have not started yet."
)
@click.option("-a", "-all", "--all", "everything", is_flag=True, help="Also jobs that have ended.")
@json_option
@jobmanager_options
def list_jobs(
    running: bool, scheduled: bool, everything: bool, as_json: bool, where: Where
) -> None:
    """List jobs, newest first: those that run or are about to, unless told otherwise."""
    wanted = {"running": running, "scheduled": scheduled, "ended": everything}
    if everything or not any(wanted.values()):
        wanted.update(running=True, scheduled=True)
    jobs = [job for job in where.jobs() if wanted[_group(job)]]
    if as_json:
        click.echo(json.dumps([_as_dict(job) for job in jobs], indent=2))
        return
    for group, title in (
        ("running", "Running and restarting jobs"),
        ("scheduled", "Jobs that have not started yet"),
        ("ended", "Jobs that have ended"),
    ):
        if wanted[group]:
            _say(title, [job for job in jobs if _group(job) == group])


def _group(job: JobInfo) -> str:
    if job.ended:
        return "ended"
    return "scheduled" if job.status in _SCHEDULED else "running"


def _say(title: str, jobs: list[JobInfo]) -> None:
    if not jobs:
        click.echo(f"{title}: none")
        return
    click.echo(f"{title}:")
    for job in jobs:
        program = f"  {os.path.basename(job.program)}" if job.program else ""
        click.echo(f"  {_moment(job.start_ms)}  {job.job_id}  {job.name} ({job.status}){program}")
        if job.savepoint:
            click.echo(f"      savepoint: {job.savepoint}")


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).isoformat(" ", "seconds")


def _as_dict(job: JobInfo) -> dict[str, object]:
    return {
        "job_id": job.job_id,
        "name": job.name,
        "status": job.status,
        "start_ms": job.start_ms,
        "end_ms": job.end_ms,
        "url": job.url,
        "pid": job.pid,
        "savepoint": job.savepoint,
        "program": job.program,
    }
