"""`weir page`: the page of a job, or of all jobs of this user on this host."""

from __future__ import annotations

import contextlib
import sys
import webbrowser
from urllib.parse import quote

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.lookup import Where, complete_job


@click.command(context_settings=HELP_OPTIONS)
@click.argument("job", required=False, shell_complete=complete_job)
@click.option("--no-open", is_flag=True, help="Only print the link, and open no browser.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port of the host's page; 0 for any."
)
def page(job: str | None, no_open: bool, port: int) -> None:
    """Open the page of JOB, or that of all jobs of this user on this host.

    The link holds the token of the job: whoever has it can steer the job. A page of the host is
    served until Ctrl-C, and also shows jobs that have ended or died.
    """
    if job is not None:
        found = Where().find(job)
        token = f"?token={quote(found.token)}" if found.token else ""
        _show(f"{found.url}/#/jobs/{found.job_id}{token}", no_open=no_open)
        return
    # Brings the server and all storages along, which no other command needs.
    from weir.cli.host_page import serve_host

    def tell(link: str) -> None:
        _show(link, no_open=no_open)
        click.echo("The page is served until Ctrl-C.", err=True)

    serve_host(port, tell)


def _show(link: str, *, no_open: bool) -> None:
    click.echo(link)
    if no_open or not sys.stdout.isatty():
        return
    with contextlib.suppress(webbrowser.Error):
        webbrowser.open(link)
