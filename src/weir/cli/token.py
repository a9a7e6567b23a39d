"""`weir token`: what other clients have to show to the JobManager of a job."""

from __future__ import annotations

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.lookup import Where
from weir.cli.options import job_argument
from weir.errors import UsageError


@click.command(context_settings=HELP_OPTIONS)
@job_argument
@click.option("--state", "of_state", is_flag=True, help="The token that is good for queries alone.")
def token(job: str, of_state: bool) -> None:
    """Print the bearer token that REST wants for JOB on this host.

    Whoever has it can steer the jobs of that process. Commands of weir find it by themselves.
    With --state it is the one for queries of state, which is good for nothing else.
    """
    found = Where().find(job)
    if of_state:
        if not found.query_token:
            msg = f"state of job {found.job_id} cannot be queried: set queryable-state.enable: true"
            raise UsageError(msg)
        click.echo(found.query_token)
        return
    if not found.token:
        msg = f"REST of job {found.job_id} wants no token: weir.rest.token is 'none'"
        raise UsageError(msg)
    click.echo(found.token)
