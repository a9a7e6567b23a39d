"""`weir token`: what other clients have to show to the JobManager of a job."""

from __future__ import annotations

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.lookup import Where
from weir.cli.options import job_argument
from weir.errors import UsageError


@click.command(context_settings=HELP_OPTIONS)
@job_argument
def token(job: str) -> None:
    """Print the bearer token that REST wants for JOB on this host.

    Whoever has it can steer the jobs of that process. Commands of weir find it by themselves.
    """
    found = Where().find(job)
    if not found.token:
        msg = f"REST of job {found.job_id} wants no token: weir.rest.token is 'none'"
        raise UsageError(msg)
    click.echo(found.token)
